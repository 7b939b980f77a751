//! Types of columns as PostgreSQL's clients know them.
//!
//! | ours | PostgreSQL's |
//! |---|---|
//! | `Boolean` | `bool` |
//! | `Int8`, `Int16`, `UInt8` | `int2` |
//! | `Int32`, `UInt16` | `int4` |
//! | `Int64`, `UInt32` | `int8` |
//! | `UInt64`, decimals | `numeric` |
//! | `Float32`, `Float64` | `float4`, `float8` |
//! | `Date32` | `date` |
//! | `Timestamp` without and with a zone | `timestamp`, `timestamptz` |
//! | texts, null | `text` |
//! | `Binary` | `bytea` |
//! | lists, and lists of lists | the array of their elements' type |
//! | all others | `text`, as they are displayed |

use std::sync::Arc;

use datafusion::arrow::array::ListArray;
use datafusion::arrow::datatypes::{DataType, Field, Schema};
use datafusion::common::ScalarValue;
use pgwire::api::Type;
use pgwire::api::portal::Format;
use pgwire::api::results::{FieldFormat, FieldInfo};

use crate::statement::shown;

/// Returns PostgreSQL's type for a column.
pub(crate) fn of_column(data_type: &DataType) -> Type {
    match data_type {
        DataType::Boolean => Type::BOOL,
        DataType::Int8 | DataType::Int16 | DataType::UInt8 => Type::INT2,
        DataType::Int32 | DataType::UInt16 => Type::INT4,
        DataType::Int64 | DataType::UInt32 => Type::INT8,
        DataType::UInt64
        | DataType::Decimal32(..)
        | DataType::Decimal64(..)
        | DataType::Decimal128(..)
        | DataType::Decimal256(..) => Type::NUMERIC,
        DataType::Float32 => Type::FLOAT4,
        DataType::Float64 => Type::FLOAT8,
        DataType::Date32 => Type::DATE,
        DataType::Timestamp(_, None) => Type::TIMESTAMP,
        DataType::Timestamp(_, Some(_)) => Type::TIMESTAMPTZ,
        DataType::Binary | DataType::LargeBinary | DataType::BinaryView => Type::BYTEA,
        list => match element_type(list) {
            Some(element) => array_of(element),
            None => Type::TEXT,
        },
    }
}

/// Returns the type of a list's elements; `None` for types that are no lists.
pub(crate) fn element_type(data_type: &DataType) -> Option<&DataType> {
    match data_type {
        DataType::List(element)
        | DataType::LargeList(element)
        | DataType::ListView(element)
        | DataType::LargeListView(element)
        | DataType::FixedSizeList(element, _) => Some(element.data_type()),
        _ => None,
    }
}

/// PostgreSQL's types of arrays, and of their elements.
static ARRAYS: [(Type, Type); 14] = [
    (Type::TEXT_ARRAY, Type::TEXT),
    (Type::BOOL_ARRAY, Type::BOOL),
    (Type::INT2_ARRAY, Type::INT2),
    (Type::INT4_ARRAY, Type::INT4),
    (Type::INT8_ARRAY, Type::INT8),
    (Type::NUMERIC_ARRAY, Type::NUMERIC),
    (Type::FLOAT4_ARRAY, Type::FLOAT4),
    (Type::FLOAT8_ARRAY, Type::FLOAT8),
    (Type::DATE_ARRAY, Type::DATE),
    (Type::TIMESTAMP_ARRAY, Type::TIMESTAMP),
    (Type::TIMESTAMPTZ_ARRAY, Type::TIMESTAMPTZ),
    (Type::BYTEA_ARRAY, Type::BYTEA),
    (Type::VARCHAR_ARRAY, Type::VARCHAR),
    (Type::OID_ARRAY, Type::OID),
];

/// Returns PostgreSQL's type of arrays whose elements have a type. An array of arrays has the type of the
/// innermost elements' arrays, as in PostgreSQL, whose array types say nothing of dimensions.
pub(crate) fn array_of(element: &DataType) -> Type {
    let mut element = element;
    while let Some(inner) = element_type(element) {
        element = inner;
    }
    let element = of_column(element);
    let found = ARRAYS.iter().find(|(_, of)| *of == element);
    found.map_or(Type::TEXT_ARRAY, |(array, _)| array.clone())
}

/// Returns the type of an array's elements; `None` if it is no array.
pub(crate) fn element_of(data_type: &Type) -> Option<&'static Type> {
    let found = ARRAYS.iter().find(|(array, _)| array == data_type);
    found.map(|(_, element)| element)
}

/// Returns the number of a type by its name in PostgreSQL; `None` if columns never have it.
pub(crate) fn number_of(name: &str) -> Option<i32> {
    let name = name.trim().to_ascii_lowercase();
    let name = name.strip_prefix("pg_catalog.").unwrap_or(&name);
    let (name, is_array) = match name.strip_suffix("[]") {
        Some(element) => (element, true),
        None => (name, false),
    };
    let name = match name {
        "smallint" => "int2",
        "int" | "integer" => "int4",
        "bigint" => "int8",
        "boolean" => "bool",
        "decimal" => "numeric",
        "real" => "float4",
        "double precision" => "float8",
        "character varying" => "varchar",
        "timestamp without time zone" => "timestamp",
        "timestamp with time zone" => "timestamptz",
        other => other,
    };
    let found = ARRAYS.iter().find_map(|(array, element)| match name {
        name if name == element.name() && is_array => Some(array),
        name if name == element.name() => Some(element),
        name if name == array.name() && !is_array => Some(array),
        _ => None,
    });
    i32::try_from(found?.oid()).ok()
}

/// Returns the description of a result's columns, in the formats that the client wants; text if it wants none.
pub(crate) fn fields(schema: &Schema, formats: Option<&Format>) -> Arc<Vec<FieldInfo>> {
    let fields = schema.fields().iter().enumerate();
    let fields = fields.map(|(place, field)| {
        let format = formats.map_or(FieldFormat::Text, |formats| format(formats, place));
        FieldInfo::new(
            shown(field.name()).to_owned(),
            None,
            None,
            of_column(field.data_type()),
            format,
        )
    });
    Arc::new(fields.collect())
}

/// Returns a column's format. A client that names fewer formats than there are columns gets text for the others.
fn format(formats: &Format, place: usize) -> FieldFormat {
    match formats {
        Format::Individual(codes) => {
            let code = codes.get(place).copied().unwrap_or(0);
            FieldFormat::from(code)
        }
        unified => unified.format_for(place),
    }
}

/// Returns `true` if clients see the same types.
pub(crate) fn same(one: &Schema, other: &Schema) -> bool {
    let types = |schema: &Schema| {
        let fields = schema.fields().iter();
        fields
            .map(|field| of_column(field.data_type()))
            .collect::<Vec<_>>()
    };
    types(one) == types(other)
}

/// Returns a null of a parameter's type.
pub(crate) fn null(data_type: &Type) -> ScalarValue {
    match *data_type {
        Type::BOOL => ScalarValue::Boolean(None),
        Type::INT2 => ScalarValue::Int16(None),
        Type::INT4 | Type::OID => ScalarValue::Int32(None),
        Type::INT8 => ScalarValue::Int64(None),
        Type::FLOAT4 => ScalarValue::Float32(None),
        Type::FLOAT8 => ScalarValue::Float64(None),
        Type::NUMERIC => ScalarValue::Decimal128(None, 38, 10),
        Type::DATE => ScalarValue::Date32(None),
        Type::TIMESTAMP => ScalarValue::TimestampMicrosecond(None, None),
        Type::TIMESTAMPTZ => ScalarValue::TimestampMicrosecond(None, Some("UTC".into())),
        Type::BYTEA => ScalarValue::Binary(None),
        _ => match element_of(data_type) {
            Some(element) => {
                let field = Field::new_list_field(null(element).data_type(), true);
                ScalarValue::List(Arc::new(ListArray::new_null(Arc::new(field), 1)))
            }
            None => ScalarValue::Utf8(None),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn types_have_numbers() {
        for (name, number) in [
            ("int4", Some(23)),
            ("Integer", Some(23)),
            ("pg_catalog.int8", Some(20)),
            ("bigint[]", Some(1016)),
            ("_text", Some(1009)),
            ("timestamp with time zone", Some(1184)),
            ("hstore", None),
            ("_int8[]", None),
        ] {
            assert_eq!(number_of(name), number, "{name}");
        }
    }

    #[test]
    fn lists_are_arrays_of_their_elements() {
        let list = |of: DataType| DataType::List(Arc::new(Field::new_list_field(of, true)));
        assert_eq!(of_column(&list(DataType::Int64)), Type::INT8_ARRAY);
        assert_eq!(of_column(&list(list(DataType::Utf8))), Type::TEXT_ARRAY);
        let decimals = DataType::FixedSizeList(
            Arc::new(Field::new_list_field(DataType::Decimal128(15, 2), true)),
            2,
        );
        assert_eq!(of_column(&decimals), Type::NUMERIC_ARRAY);
    }
}
