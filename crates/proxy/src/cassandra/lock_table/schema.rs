//! The tables of locks as the nodes know them: their columns, in the order of `SELECT *`.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use cql::request::{Prepare, Request};
use cql::response::{ColumnSpec, Columns};
use cql::{CqlValue, DataType, Response, ResultBody};

use super::super::control_connection::{ControlConnection, TableInfo};
use super::super::node_connection::quoted;
use crate::config::CqlTable;
use crate::error::ProxyError;

/// Types whose values are equal if and only if their bytes are.
const TYPES: [DataType; 14] = [
    DataType::Ascii,
    DataType::Bigint,
    DataType::Blob,
    DataType::Boolean,
    DataType::Date,
    DataType::Inet,
    DataType::Int,
    DataType::Smallint,
    DataType::Text,
    DataType::Time,
    DataType::Timestamp,
    DataType::Timeuuid,
    DataType::Tinyint,
    DataType::Uuid,
];

/// A table that the proxy answers itself, with the nodes' schema.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct KnownTable {
    pub(crate) name: CqlTable,
    /// The schema, or the fault of the table in words for a client.
    pub(crate) schema: Result<Arc<Schema>, ProxyError>,
}

/// The columns of a table of locks.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Schema {
    /// The table's id; a table that had the name before has another one.
    pub(crate) id: [u8; 16],
    pub(crate) name: CqlTable,
    /// The columns in the order of `SELECT *`.
    pub(crate) columns: Columns,
    /// Places of the key's columns: first those of the partition key, then the clustering columns.
    pub(crate) key: Vec<usize>,
    /// How many of them belong to the partition key.
    pub(crate) partition: usize,
    /// The default lease, in seconds; 0: none.
    pub(crate) default_ttl: i32,
}

impl Schema {
    /// Returns the column of this name.
    pub(crate) fn column(&self, name: &str) -> Option<(usize, &ColumnSpec)> {
        let at = self.columns.position(name)?;
        Some((at, &self.columns.0[at]))
    }

    /// Returns `true` if the column belongs to the key.
    pub(crate) fn is_key(&self, place: usize) -> bool {
        self.key.contains(&place)
    }
}

/// The use of a table that the proxy answers itself.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum TableUse {
    Locks,
    ReadAtomic,
}

impl fmt::Display for TableUse {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            TableUse::Locks => "a table of locks",
            TableUse::ReadAtomic => "a read-atomic table",
        })
    }
}

/// Asks a node for the schemas of tables.
///
/// # Errors
/// Returns an error if the node does not answer.
pub(crate) fn ask(
    asked: &mut ControlConnection,
    tables: &[CqlTable],
    table_use: TableUse,
) -> Result<Vec<KnownTable>, ProxyError> {
    let mut all = Vec::new();
    for name in tables {
        let schema = one(asked, name, table_use)?.map(Arc::new);
        if let Err(what) = &schema {
            tracing::debug!("{name} is not {table_use}: {what}");
        }
        let name = name.clone();
        all.push(KnownTable { name, schema });
    }
    Ok(all)
}

fn one(
    asked: &mut ControlConnection,
    name: &CqlTable,
    table_use: TableUse,
) -> Result<Result<Schema, ProxyError>, ProxyError> {
    let text = |text: &str| text.replace('\'', "''");
    let of_it = format!(
        "WHERE keyspace_name = '{}' AND table_name = '{}'",
        text(&name.keyspace),
        text(&name.table)
    );
    let tables = format!("SELECT id, default_time_to_live FROM system_schema.tables {of_it}");
    let tables = asked.query(&tables)?;
    let kinds = format!("SELECT column_name, kind, position FROM system_schema.columns {of_it}");
    let kinds = asked.query(&kinds)?;
    if tables.rows.is_empty() {
        return Ok(Err(missing(name, table_use)));
    }
    let (keyspace, table) = (quoted(&name.keyspace), quoted(&name.table));
    let select = format!("SELECT * FROM {keyspace}.{table}");
    let prepare = Prepare {
        text: &select,
        keyspace: None,
    };
    let columns = asked.ask(Request::Prepare(prepare), |response| match response {
        Response::Result(ResultBody::Prepared(prepared)) => Ok(prepared.result.columns),
        // The table has been dropped meanwhile.
        _ => Ok(None),
    })?;
    let Some(columns) = columns else {
        return Ok(Err(missing(name, table_use)));
    };
    Ok(of_answers(name, table_use, &tables, &kinds, columns))
}

/// Returns the error about a table that does not exist.
fn missing(name: &CqlTable, table_use: TableUse) -> ProxyError {
    ProxyError::invalid_request(format!(
        "table {} does not exist: create {name}, as CQL does it, and it is {table_use}",
        name.table
    ))
}

/// Makes a schema of a node's answers.
pub(crate) fn of_answers(
    name: &CqlTable,
    table_use: TableUse,
    tables: &TableInfo,
    kinds: &TableInfo,
    columns: Columns,
) -> Result<Schema, ProxyError> {
    let wrong = || {
        ProxyError::malformed(format!(
            "the nodes tell nothing of {name} that is understood"
        ))
    };
    let row = tables.rows.first().ok_or_else(wrong)?;
    let Some(CqlValue::Uuid(id)) = tables.value(row, "id") else {
        return Err(wrong());
    };
    let default_ttl = match tables.value(row, "default_time_to_live") {
        Some(CqlValue::Int(seconds)) => *seconds,
        _ => 0,
    };
    let mut key = Vec::new();
    for row in &kinds.rows {
        let column = kinds.text(row, "column_name").ok_or_else(wrong)?;
        let kind = kinds.text(row, "kind").ok_or_else(wrong)?;
        let place = columns.position(column).ok_or_else(wrong)?;
        let position = match kinds.value(row, "position") {
            Some(CqlValue::Int(position)) => *position,
            _ => return Err(wrong()),
        };
        match kind {
            "partition_key" => key.push((0, position, place)),
            "clustering" => key.push((1, position, place)),
            "static" => {
                return Err(ProxyError::invalid_request(format!(
                    "{name} has the static column {column}: {table_use} has none"
                )));
            }
            _ => {}
        }
    }
    if let Some(column) = columns.0.iter().find(|it| !TYPES.contains(&it.data_type)) {
        return Err(ProxyError::invalid_request(format!(
            "column {} of {name} has a type that {table_use} does not have: use ascii, \
             bigint, blob, boolean, date, inet, int, smallint, text, time, timestamp, timeuuid, \
             tinyint or uuid",
            column.name
        )));
    }
    key.sort_unstable();
    let partition = key.iter().filter(|(of, ..)| *of == 0).count();
    if partition == 0 {
        return Err(wrong());
    }
    Ok(Schema {
        id: *id,
        name: name.clone(),
        columns,
        key: key.into_iter().map(|(.., place)| place).collect(),
        partition,
        default_ttl,
    })
}

impl FromStr for CqlTable {
    type Err = ProxyError;

    /// Parses `keyspace.table`, as in CQL: in lower case, unless it is in quotes.
    fn from_str(text: &str) -> Result<CqlTable, ProxyError> {
        let error = || ProxyError::invalid_setting(format!("{text} is no table such as app.locks"));
        let select = format!("SELECT * FROM {text}");
        let select = cql::statement::Select::parse(&select).map_err(|_| error())?;
        let plain = select.restrictions.is_empty() && select.limit.is_none();
        match (select.table.keyspace, plain) {
            (Some(keyspace), true) => Ok(CqlTable {
                keyspace: keyspace.into_owned(),
                table: select.table.table.into_owned(),
            }),
            _ => Err(error()),
        }
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    pub(crate) fn name() -> CqlTable {
        "app.locks".parse().expect("a name")
    }

    fn table(columns: &[(&str, DataType)], rows: Vec<Vec<CqlValue>>) -> TableInfo {
        TableInfo {
            columns: Columns::of_table("system_schema", "t", columns),
            rows,
        }
    }

    /// Returns a read-atomic table of columns, each with its kind and place.
    pub(crate) fn schema_of(name: &str, columns: &[(&str, DataType, &str, i32)]) -> Schema {
        let name = name.parse().expect("a name");
        of_columns(&name, TableUse::ReadAtomic, columns).expect("a table")
    }

    /// Returns a table of locks of columns, each with its kind and place.
    pub(crate) fn schema(columns: &[(&str, DataType, &str, i32)]) -> Result<Schema, ProxyError> {
        of_columns(&name(), TableUse::Locks, columns)
    }

    fn of_columns(
        name: &CqlTable,
        table_use: TableUse,
        columns: &[(&str, DataType, &str, i32)],
    ) -> Result<Schema, ProxyError> {
        let tables = table(
            &[
                ("id", DataType::Uuid),
                ("default_time_to_live", DataType::Int),
            ],
            vec![vec![CqlValue::Uuid([7; 16]), CqlValue::Int(0)]],
        );
        let kinds = columns.iter().map(|(column, _, kind, position)| {
            vec![
                CqlValue::text(*column),
                CqlValue::text(*kind),
                CqlValue::Int(*position),
            ]
        });
        let kinds = table(
            &[
                ("column_name", DataType::Text),
                ("kind", DataType::Text),
                ("position", DataType::Int),
            ],
            kinds.collect(),
        );
        let specs: Vec<_> = columns.iter().map(|it| (it.0, it.1.clone())).collect();
        of_answers(
            name,
            table_use,
            &tables,
            &kinds,
            Columns::of_table(&name.keyspace, &name.table, &specs),
        )
    }

    /// Returns the schema of a table with a name and an owner.
    pub(crate) fn simple() -> Schema {
        schema(&[
            ("name", DataType::Text, "partition_key", 0),
            ("note", DataType::Text, "regular", -1),
            ("owner", DataType::Text, "regular", -1),
        ])
        .expect("a table of locks")
    }

    #[test]
    fn the_key_has_the_order_of_the_table() {
        let schema = schema(&[
            ("a", DataType::Int, "clustering", 1),
            ("b", DataType::Int, "partition_key", 1),
            ("c", DataType::Int, "partition_key", 0),
            ("d", DataType::Int, "clustering", 0),
            ("e", DataType::Int, "regular", -1),
        ]);
        let schema = schema.expect("a table of locks");
        assert_eq!(
            (schema.key.as_slice(), schema.partition),
            (&[2, 1, 3, 0][..], 2)
        );
        assert!(schema.is_key(0) && !schema.is_key(4));
    }

    #[test]
    fn tables_that_keep_no_locks_say_why() {
        let key = ("k", DataType::Int, "partition_key", 0);
        for (column, word) in [
            (("s", DataType::Int, "static", -1), "static column s"),
            (("n", DataType::Counter, "regular", -1), "column n"),
            (
                ("m", DataType::set(DataType::Int), "regular", -1),
                "column m",
            ),
            (("d", DataType::Decimal, "regular", -1), "column d"),
        ] {
            let error = schema(&[key.clone(), column]).expect_err(word);
            assert!(
                error.to_string().contains(word) && error.to_string().contains("app.locks"),
                "{error}"
            );
        }
    }

    #[test]
    fn names_are_those_of_cql() {
        assert_eq!(name().to_string(), "app.locks");
        let quoted: CqlTable = "App.\"My.Locks\"".parse().expect("a name");
        assert_eq!((&*quoted.keyspace, &*quoted.table), ("app", "My.Locks"));
        for text in [
            "locks",
            "",
            "a.b.c",
            "a.b WHERE k = 1",
            "a.b; DROP",
            "a. b LIMIT 1",
        ] {
            assert!(text.parse::<CqlTable>().is_err(), "{text}");
        }
    }
}
