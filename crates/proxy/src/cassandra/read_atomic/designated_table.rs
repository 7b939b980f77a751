//! The designated tables as the nodes know them, and what they must have.

use std::sync::Arc;

use cql::DataType;

use super::super::control_connection::ControlConnection;
use super::super::lock_table::schema::{self, KnownTable, Schema, TableUse};
use super::{RECORD_TABLE, TAG_COLUMN};
use crate::config::CqlTable;
use crate::error::ProxyError;

/// Asks a node for the schemas of designated tables.
///
/// # Errors
/// Returns an error if the node does not answer.
pub(crate) fn ask(
    asked: &mut ControlConnection,
    tables: &[CqlTable],
) -> Result<Vec<KnownTable>, ProxyError> {
    let mut known = schema::ask(asked, tables, TableUse::ReadAtomic)?;
    for table in &mut known {
        if let Ok(found) = &table.schema {
            let has_records = has_records(asked, &table.name.keyspace)?;
            let fault = check(found, has_records).err();
            if let Some(fault) = fault {
                tracing::debug!("{} is not read atomic: {fault}", table.name);
                table.schema = Err(fault);
            }
        }
    }
    Ok(known)
}

/// Returns the schema of a designated table.
///
/// # Errors
/// Returns the fault of the table.
pub(crate) fn find<'a>(
    known: &'a [KnownTable],
    keyspace: &str,
    table: &str,
) -> Result<&'a Arc<Schema>, ProxyError> {
    let found = known
        .iter()
        .find(|it| it.name.keyspace == keyspace && it.name.table == table);
    match found {
        Some(known) => known.schema.as_ref().map_err(ProxyError::clone),
        None => Err(ProxyError::invalid_setting(format!(
            "{keyspace}.{table} is not named by --read-atomic"
        ))),
    }
}

/// Returns `true` if a keyspace has a table of records of transactions.
fn has_records(asked: &mut ControlConnection, keyspace: &str) -> Result<bool, ProxyError> {
    let text = format!(
        "SELECT column_name, type FROM system_schema.columns WHERE keyspace_name = '{}' AND \
         table_name = '{RECORD_TABLE}'",
        keyspace.replace('\'', "''"),
    );
    let columns = asked.query(&text)?;
    let has = |name: &str, data_type: &str| {
        columns.rows.iter().any(|row| {
            columns.text(row, "column_name") == Some(name)
                && columns.text(row, "type") == Some(data_type)
        })
    };
    let numbers = ["owner", "bucket", "id"];
    Ok(numbers.iter().all(|name| has(name, "bigint")) && has("writes", "blob"))
}

/// Checks what a designated table must have besides a schema that the proxy understands.
fn check(schema: &Schema, has_records: bool) -> Result<(), ProxyError> {
    let name = &schema.name;
    let tag = schema.column(TAG_COLUMN);
    if !tag.is_some_and(|(at, column)| column.data_type == DataType::Blob && !schema.is_key(at)) {
        return Err(ProxyError::invalid_request(format!(
            "{name} has no column {TAG_COLUMN} of type blob, which a read-atomic table needs: ALTER \
             TABLE {name} ADD {TAG_COLUMN} blob"
        )));
    }
    if schema.default_ttl != 0 {
        return Err(ProxyError::invalid_request(format!(
            "{name} has a default_time_to_live, and rows of a read-atomic table do not expire by \
             themselves: ALTER TABLE {name} WITH default_time_to_live = 0"
        )));
    }
    if !has_records {
        let records = format!("{}.{RECORD_TABLE}", name.keyspace);
        return Err(ProxyError::invalid_request(format!(
            "the keyspace of {name} has no table of records: CREATE TABLE {records} (owner bigint, \
             bucket bigint, id bigint, writes blob, PRIMARY KEY ((owner, bucket), id)) WITH \
             gc_grace_seconds = 3600"
        )));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::super::super::lock_table::schema::tests::schema_of;
    use super::*;

    #[test]
    fn tables_that_are_not_read_atomic_say_what_to_do() {
        let of = |tag: Option<DataType>, default_ttl, has_records| {
            let key = ("k", DataType::Text, "partition_key", 0);
            let tag = tag.map(|data_type| (TAG_COLUMN, data_type, "regular", -1));
            let columns: Vec<_> = [Some(key), tag].into_iter().flatten().collect();
            let mut schema = schema_of("app.t", &columns);
            schema.default_ttl = default_ttl;
            check(&schema, has_records).map_err(|error| error.to_string())
        };
        assert_eq!(of(Some(DataType::Blob), 0, true), Ok(()));
        for (found, words) in [
            (of(None, 0, true), "ALTER TABLE app.t ADD kumiki_txn blob"),
            (of(Some(DataType::Text), 0, true), "of type blob"),
            (
                of(Some(DataType::Blob), 7, true),
                "default_time_to_live = 0",
            ),
            (
                of(Some(DataType::Blob), 0, false),
                "CREATE TABLE app.kumiki_transactions (owner bigint",
            ),
        ] {
            let error = found.expect_err(words);
            assert!(error.contains(words), "{error}");
        }
    }
}
