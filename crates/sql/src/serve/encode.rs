//! Values as PostgreSQL's clients want them.
//!
//! | type | text | binary |
//! |---|---|---|
//! | `bool` | `t`, `f` | a byte |
//! | integers, floats | digits; `NaN`, `Infinity` | big endian |
//! | `numeric` | digits with a point | digits to base 10,000, see [`numeric`] |
//! | `date` | `1996-01-02` | days since 2000-01-01, 4 bytes |
//! | timestamps | `1996-01-02 03:04:05.6`, with `+00` for those of a zone | microseconds since 2000-01-01, 8 bytes |
//! | `bytea` | `\x` and hexadecimal digits | as it is |
//! | `text` | as it is | as it is |
//! | arrays | `{1,NULL,"a b"}` | see [`array`] |

use std::sync::Arc;

use bytes::{BufMut, BytesMut};
use datafusion::arrow::array::{Array, ArrayRef, AsArray, RecordBatch};
use datafusion::arrow::compute::cast;
use datafusion::arrow::datatypes::{
    DataType, Date32Type, Decimal128Type, Float32Type, Float64Type, Int16Type, Int32Type,
    Int64Type, TimeUnit, TimestampMicrosecondType,
};
use datafusion::arrow::error::ArrowError;
use datafusion::arrow::util::display::{ArrayFormatter, FormatOptions};
use pgwire::api::Type;
use pgwire::api::results::{FieldFormat, FieldInfo};
use pgwire::messages::data::DataRow;

use crate::serve::{array, numeric, types};

/// Days, and microseconds, from 1970-01-01 to 2000-01-01.
const DAYS_TO_2000: i32 = 10_957;
const MICROS_TO_2000: i64 = DAYS_TO_2000 as i64 * 86_400_000_000;

/// Returns a batch's rows.
pub(crate) fn rows(batch: &RecordBatch, fields: &[FieldInfo]) -> Result<Vec<DataRow>, ArrowError> {
    let columns = batch.columns().iter().zip(fields);
    let columns = columns.map(|(array, field)| Column::new(array, field));
    let columns = columns.collect::<Result<Vec<_>, _>>()?;
    let mut rows = Vec::with_capacity(batch.num_rows());
    for row in 0..batch.num_rows() {
        let mut bytes = BytesMut::with_capacity(16 * columns.len());
        for column in &columns {
            column.write(row, &mut bytes)?;
        }
        let fields = i16::try_from(columns.len());
        let fields =
            fields.map_err(|_| ArrowError::InvalidArgumentError("too many columns".into()))?;
        rows.push(DataRow::new(bytes, fields));
    }
    Ok(rows)
}

/// A column, in a type that has one way to be written.
pub(super) struct Column {
    pub(super) array: ArrayRef,
    pub(super) kind: Type,
    pub(super) format: FieldFormat,
    /// The elements of a column of arrays.
    pub(super) elements: Option<Box<Column>>,
}

impl Column {
    fn new(array: &ArrayRef, field: &FieldInfo) -> Result<Column, ArrowError> {
        Column::of(array, field.datatype(), field.format())
    }

    fn of(array: &ArrayRef, kind: &Type, format: FieldFormat) -> Result<Column, ArrowError> {
        let kind = kind.clone();
        if types::element_type(array.data_type()).is_some() {
            return Column::of_arrays(array, kind, format);
        }
        let to = match kind {
            Type::INT2 => DataType::Int16,
            Type::INT4 => DataType::Int32,
            Type::INT8 => DataType::Int64,
            Type::NUMERIC => match array.data_type() {
                DataType::UInt64 => DataType::Decimal128(20, 0),
                DataType::Decimal32(p, s) | DataType::Decimal64(p, s) => {
                    DataType::Decimal128(*p, *s)
                }
                other => other.clone(),
            },
            Type::TIMESTAMP => DataType::Timestamp(TimeUnit::Microsecond, None),
            Type::TIMESTAMPTZ => DataType::Timestamp(TimeUnit::Microsecond, Some("UTC".into())),
            Type::TEXT => text_type(array.data_type()),
            Type::BYTEA => DataType::Binary,
            _ => array.data_type().clone(),
        };
        Ok(Column {
            array: if to == *array.data_type() {
                ArrayRef::clone(array)
            } else {
                cast(array, &to)?
            },
            kind,
            format,
            elements: None,
        })
    }

    fn of_arrays(array: &ArrayRef, kind: Type, format: FieldFormat) -> Result<Column, ArrowError> {
        let field = match array.data_type() {
            DataType::List(field)
            | DataType::LargeList(field)
            | DataType::ListView(field)
            | DataType::LargeListView(field)
            | DataType::FixedSizeList(field, _) => Arc::clone(field),
            other => return Err(ArrowError::CastError(format!("{other} is no list"))),
        };
        let of_elements = types::of_column(field.data_type());
        let array = cast(array, &DataType::List(field))?;
        let elements = Column::of(array.as_list::<i32>().values(), &of_elements, format)?;
        Ok(Column {
            array,
            kind,
            format,
            elements: Some(Box::new(elements)),
        })
    }

    /// Returns `true` if a row is null.
    pub(super) fn is_null(&self, row: usize) -> bool {
        // An array of nothing but nulls has no mask that would say so.
        self.array.is_null(row) || *self.array.data_type() == DataType::Null
    }

    /// Writes a value with its length before it, or that it is null.
    pub(super) fn write(&self, row: usize, into: &mut BytesMut) -> Result<(), ArrowError> {
        if self.is_null(row) {
            into.put_i32(-1);
            return Ok(());
        }
        let at = into.len();
        into.put_i32(0);
        match self.format {
            FieldFormat::Text => self.text(row, into)?,
            FieldFormat::Binary => self.binary(row, into)?,
        }
        let length = i32::try_from(into.len() - at - 4);
        let length =
            length.map_err(|_| ArrowError::InvalidArgumentError("a value is too long".into()))?;
        into[at..at + 4].copy_from_slice(&length.to_be_bytes());
        Ok(())
    }

    pub(super) fn text(&self, row: usize, into: &mut BytesMut) -> Result<(), ArrowError> {
        let array = &self.array;
        match self.kind {
            _ if self.elements.is_some() => array::text(self, row, into)?,
            Type::BOOL => into.put_u8(if array.as_boolean().value(row) {
                b't'
            } else {
                b'f'
            }),
            Type::FLOAT4 => float(
                array.as_primitive::<Float32Type>().value(row).into(),
                into,
                true,
            ),
            Type::FLOAT8 => float(array.as_primitive::<Float64Type>().value(row), into, false),
            Type::BYTEA => {
                into.put_slice(b"\\x");
                for byte in array.as_binary::<i32>().value(row) {
                    into.put_slice(format!("{byte:02x}").as_bytes());
                }
            }
            Type::TEXT if *array.data_type() == DataType::Utf8 => {
                into.put_slice(array.as_string::<i32>().value(row).as_bytes());
            }
            _ => {
                let options = FormatOptions::default()
                    .with_timestamp_format(Some("%Y-%m-%d %H:%M:%S%.f"))
                    .with_timestamp_tz_format(Some("%Y-%m-%d %H:%M:%S%.f+00"));
                let formatter = ArrayFormatter::try_new(array, &options)?;
                into.put_slice(formatter.value(row).try_to_string()?.as_bytes());
            }
        }
        Ok(())
    }

    fn binary(&self, row: usize, into: &mut BytesMut) -> Result<(), ArrowError> {
        let array = &self.array;
        match self.kind {
            _ if self.elements.is_some() => array::binary(self, row, into)?,
            Type::BOOL => into.put_u8(array.as_boolean().value(row).into()),
            Type::INT2 => into.put_i16(array.as_primitive::<Int16Type>().value(row)),
            Type::INT4 => into.put_i32(array.as_primitive::<Int32Type>().value(row)),
            Type::INT8 => into.put_i64(array.as_primitive::<Int64Type>().value(row)),
            Type::FLOAT4 => into.put_f32(array.as_primitive::<Float32Type>().value(row)),
            Type::FLOAT8 => into.put_f64(array.as_primitive::<Float64Type>().value(row)),
            Type::DATE => {
                let days = array.as_primitive::<Date32Type>().value(row);
                into.put_i32(days.wrapping_sub(DAYS_TO_2000));
            }
            Type::TIMESTAMP | Type::TIMESTAMPTZ => {
                let micros = array.as_primitive::<TimestampMicrosecondType>().value(row);
                into.put_i64(micros.wrapping_sub(MICROS_TO_2000));
            }
            Type::NUMERIC => match array.data_type() {
                DataType::Decimal128(_, scale) => {
                    let unscaled = array.as_primitive::<Decimal128Type>().value(row);
                    numeric::write(unscaled, *scale, into);
                }
                other => {
                    return Err(ArrowError::NotYetImplemented(format!(
                        "{other} has no binary form here; ask for text"
                    )));
                }
            },
            Type::BYTEA => into.put_slice(array.as_binary::<i32>().value(row)),
            _ => self.text(row, into)?,
        }
        Ok(())
    }
}

/// Views and long texts become plain ones; what is no text is displayed.
fn text_type(data_type: &DataType) -> DataType {
    match data_type {
        DataType::LargeUtf8 | DataType::Utf8View => DataType::Utf8,
        DataType::Dictionary(_, values) if values.is_string() => DataType::Utf8,
        other => other.clone(),
    }
}

fn float(value: f64, into: &mut BytesMut, single: bool) {
    let text = match value {
        value if value.is_nan() => "NaN".to_owned(),
        f64::INFINITY => "Infinity".to_owned(),
        f64::NEG_INFINITY => "-Infinity".to_owned(),
        // The digits that are needed to tell it from other ones of its width, and no more.
        #[allow(clippy::cast_possible_truncation)]
        value if single => (value as f32).to_string(),
        value => value.to_string(),
    };
    into.put_slice(text.as_bytes());
}

#[cfg(test)]
mod tests {
    use datafusion::arrow::array as a;

    use super::*;

    fn written(array: ArrayRef, format: FieldFormat) -> Vec<u8> {
        let kind = crate::serve::types::of_column(array.data_type());
        let field = FieldInfo::new("c".into(), None, None, kind, format);
        let batch = RecordBatch::try_from_iter_with_nullable([("c", array, true)]).unwrap();
        let row = rows(&batch, &[field]).unwrap().remove(0);
        row.data.to_vec()
    }

    #[track_caller]
    fn check(array: impl Array + 'static, text: &str, binary: &[u8]) {
        let array: ArrayRef = Arc::new(array);
        let with_length = |value: &[u8]| {
            let length = u32::try_from(value.len()).unwrap().to_be_bytes();
            [&length[..], value].concat()
        };
        let as_text = written(Arc::clone(&array), FieldFormat::Text);
        assert_eq!(as_text, with_length(text.as_bytes()), "{text}");
        let as_binary = written(array, FieldFormat::Binary);
        assert_eq!(as_binary, with_length(binary), "{text}");
    }

    #[test]
    fn values_have_postgresqls_forms() {
        check(a::BooleanArray::from(vec![true]), "t", &[1]);
        check(a::Int8Array::from(vec![-2]), "-2", &[0xff, 0xfe]);
        check(a::UInt32Array::from(vec![7]), "7", &7i64.to_be_bytes());
        check(
            a::Float32Array::from(vec![0.1]),
            "0.1",
            &0.1f32.to_be_bytes(),
        );
        check(
            a::Float64Array::from(vec![f64::NEG_INFINITY]),
            "-Infinity",
            &f64::NEG_INFINITY.to_be_bytes(),
        );
        check(a::StringArray::from(vec!["ä"]), "ä", "ä".as_bytes());
        check(
            a::BinaryArray::from(vec![&[0u8, 255][..]]),
            "\\x00ff",
            &[0, 255],
        );
        check(
            a::Date32Array::from(vec![10_958]),
            "2000-01-02",
            &1i32.to_be_bytes(),
        );
        let micros = MICROS_TO_2000 + 3_600_000_000 + 500_000;
        check(
            a::TimestampMicrosecondArray::from(vec![micros]),
            "2000-01-01 01:00:00.500",
            &3_600_500_000i64.to_be_bytes(),
        );
        check(
            a::TimestampSecondArray::from(vec![micros / 1_000_000]).with_timezone("UTC"),
            "2000-01-01 01:00:00+00",
            &3_600_000_000i64.to_be_bytes(),
        );
        let amount = a::Decimal128Array::from(vec![-1_205]);
        let amount = amount.with_precision_and_scale(15, 2).unwrap();
        check(
            amount,
            "-12.05",
            &[0, 2, 0, 0, 0x40, 0, 0, 2, 0, 12, 0x01, 0xf4],
        );
    }

    #[test]
    fn arrays_have_postgresqls_forms() {
        let words = |words: &[i32]| {
            let bytes = words.iter().flat_map(|word| word.to_be_bytes());
            bytes.collect::<Vec<u8>>()
        };
        let of = |rows| a::ListArray::from_iter_primitive::<Int32Type, _, _>(rows);
        let numbers = of(vec![Some(vec![Some(7), None])]);
        check(
            numbers.clone(),
            "{7,NULL}",
            &words(&[1, 1, 23, 2, 1, 4, 7, -1]),
        );
        check(of(vec![Some(vec![])]), "{}", &words(&[0, 0, 23]));
        let mut texts = a::ListBuilder::new(a::StringBuilder::new());
        for text in ["a", "", "null", "b c", "d,e", "\"f\\", "{g}"] {
            texts.values().append_value(text);
        }
        texts.append(true);
        let texts: ArrayRef = Arc::new(texts.finish());
        let expected = r#"{a,"","null","b c","d,e","\"f\\","{g}"}"#;
        let written_text = written(texts, FieldFormat::Text);
        assert_eq!(String::from_utf8_lossy(&written_text[4..]), expected);
        // A row of the middle, and a list of lists.
        let rows = of(vec![
            Some(vec![Some(1), Some(2)]),
            Some(vec![Some(3), Some(4)]),
        ]);
        check(
            rows.slice(1, 1),
            "{3,4}",
            &words(&[1, 0, 23, 2, 1, 4, 3, 4, 4]),
        );
        let nested = |rows: a::ListArray| {
            let field =
                datafusion::arrow::datatypes::Field::new_list_field(rows.data_type().clone(), true);
            let length = rows.len();
            let offsets = datafusion::arrow::buffer::OffsetBuffer::from_lengths([length]);
            a::ListArray::new(Arc::new(field), offsets, Arc::new(rows), None)
        };
        check(
            nested(rows),
            "{{1,2},{3,4}}",
            &words(&[2, 0, 23, 2, 1, 2, 1, 4, 1, 4, 2, 4, 3, 4, 4]),
        );
        let ragged = nested(of(vec![Some(vec![Some(1)]), Some(vec![])]));
        let field = FieldInfo::new("c".into(), None, None, Type::INT4_ARRAY, FieldFormat::Text);
        let ragged: ArrayRef = Arc::new(ragged);
        let batch = RecordBatch::try_from_iter([("c", ragged)]).unwrap();
        let refused = rows_of(&batch, &field).unwrap_err().to_string();
        assert!(refused.contains("matching dimensions"), "{refused}");
    }

    fn rows_of(batch: &RecordBatch, field: &FieldInfo) -> Result<Vec<DataRow>, ArrowError> {
        rows(batch, std::slice::from_ref(field))
    }

    #[test]
    fn null_has_no_value() {
        let array: ArrayRef = Arc::new(a::Int32Array::from(vec![None]));
        for format in [FieldFormat::Text, FieldFormat::Binary] {
            assert_eq!(written(Arc::clone(&array), format), (-1i32).to_be_bytes());
        }
    }
}
