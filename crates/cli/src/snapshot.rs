//! A server's snapshot, received entry by entry (`KUMIKI.SNAPSHOT`).

use std::net::SocketAddr;
use std::time::Duration;

use clap::Args;
use resp::Value;

use crate::node_connection::{CredentialOptions, Credentials, NodeConnection};
use crate::table_location::resolve_as;

/// How long the server may take for one reply. A value of a reply may be long, and its log slow.
const PATIENCE: Duration = Duration::from_secs(60);
/// Pieces that are requested before the first of them has come.
const AHEAD: usize = 3;

const NEXT: &[&[u8]] = &[b"KUMIKI.SNAPSHOT", b"NEXT"];

/// Options of commands that export what a server has.
#[derive(Args, Debug)]
pub(crate) struct ExportedServer {
    /// The server: where its clients connect.
    #[arg(long, value_name = "HOST:PORT", default_value = "127.0.0.1:6380")]
    from: String,
    #[command(flatten)]
    credentials: CredentialOptions,
    /// Take the keys of a replica that does not lead, which may be a little old, and spare the leader.
    #[arg(long)]
    pub(crate) stale: bool,
}

impl ExportedServer {
    /// Connects to the server, at the first of its addresses that accepts.
    ///
    /// # Errors
    /// Returns an error if the credentials cannot be read, or none of the addresses accepts.
    pub(crate) fn connect(&self) -> Result<(SocketAddr, NodeConnection, Credentials), String> {
        let credentials = self.credentials.open()?;
        let addresses = resolve_as("--from", "127.0.0.1:6380", &self.from)?;
        let (address, connection) = NodeConnection::connect_first(&addresses, &credentials)?;
        Ok((address, connection, credentials))
    }
}

/// The keys that a snapshot has.
pub(crate) struct SnapshotKeys<'a> {
    pub(crate) database: u16,
    /// The pattern that they match.
    pub(crate) pattern: Option<&'a str>,
    /// `true` if they may be those of a replica that does not lead.
    pub(crate) stale: bool,
}

/// A server's snapshot. It ends with the connection.
pub(crate) struct DatabaseSnapshot {
    connection: NodeConnection,
    /// The view has everything up to this epoch.
    pub(crate) epoch: i64,
    /// Its time, milliseconds since the Unix epoch.
    pub(crate) time_ms: i64,
    /// The partition that it is of, and the number of partitions.
    pub(crate) partition: i64,
    pub(crate) partitions: i64,
    keys: Option<u64>,
    /// Pieces that were requested and have not come.
    under_way: usize,
    at_end: bool,
}

/// A key in a snapshot.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Entry {
    pub(crate) key: Vec<u8>,
    pub(crate) kind: Vec<u8>,
    /// A string, or the payload of another value; `None`: it has none.
    pub(crate) value: Option<Vec<u8>>,
    /// Milliseconds since the Unix epoch.
    pub(crate) expires_ms: Option<i64>,
    pub(crate) version: i64,
}

impl DatabaseSnapshot {
    /// Begins a snapshot.
    pub(crate) fn begin(
        mut connection: NodeConnection,
        selection: &SnapshotKeys<'_>,
    ) -> Result<DatabaseSnapshot, String> {
        if selection.database != 0 {
            let database = selection.database.to_string();
            let told = connection.ask(&["SELECT", &database], PATIENCE);
            told.map_err(|error| format!("--database {database}: {error}"))?;
        }
        if selection.stale {
            let told = connection.ask(&["READONLY"], PATIENCE);
            told.map_err(|error| format!("--stale is for replicas: {error}"))?;
        }
        let mut args: Vec<&[u8]> = vec![b"KUMIKI.SNAPSHOT", b"BEGIN"];
        let pattern = selection.pattern;
        if let Some(pattern) = pattern {
            args.extend([b"MATCH", pattern.as_bytes()]);
        }
        connection.send(&args)?;
        let about = connection.reply(PATIENCE).map_err(explained)?;
        let field = |name: &str| number_of(&about, name).ok_or_else(nonsense);
        // The number of keys that match is not known in advance.
        let keys = field("keys")?;
        let keys = u64::try_from(keys).ok().filter(|_| pattern.is_none());
        Ok(DatabaseSnapshot {
            epoch: field("epoch")?,
            time_ms: field("time_ms")?,
            partition: field("partition")?,
            partitions: field("partitions")?,
            keys,
            connection,
            under_way: 0,
            at_end: false,
        })
    }

    /// Returns the approximate number of entries, if it is known.
    pub(crate) fn expected(&self) -> Option<u64> {
        self.keys
    }

    /// Returns the next entries, which may be none; `None` behind the last ones.
    pub(crate) fn next(&mut self) -> Result<Option<Vec<Entry>>, String> {
        if self.at_end {
            return Ok(None);
        }
        while self.under_way < AHEAD {
            self.connection.send(NEXT)?;
            self.under_way += 1;
        }
        let piece = self.connection.reply(PATIENCE)?;
        self.under_way -= 1;
        let (more, entries) = piece_of(piece).ok_or_else(nonsense)?;
        self.at_end = !more;
        Ok(Some(entries))
    }
}

fn nonsense() -> String {
    "its answer is malformed: it may be of another release".to_owned()
}

/// Explains the error of a server that does not give its snapshot.
fn explained(error: String) -> String {
    let mut words = error.split(' ');
    match (words.next(), words.nth(1)) {
        (Some("MOVED"), Some(leader)) => {
            format!(
                "it does not lead its partition: export --from {leader}, which does, or --stale"
            )
        }
        (Some("unknown"), _) => {
            format!("it is no Kumiki server of a release that has snapshots: {error}")
        }
        _ => error,
    }
}

/// Returns the value of a field of a map, which RESP2 has as a list.
fn number_of(about: &Value, name: &str) -> Option<i64> {
    let Value::Array(list) = about else {
        return None;
    };
    let mut pairs = list.chunks_exact(2);
    let found = pairs.find(|pair| pair[0] == Value::Bulk(name.as_bytes().to_vec()))?;
    match found[1] {
        Value::Int(number) => Some(number),
        _ => None,
    }
}

/// Returns `true` if there may be more, and the entries.
fn piece_of(piece: Value) -> Option<(bool, Vec<Entry>)> {
    let Value::Array(piece) = piece else {
        return None;
    };
    let [Value::Int(more), Value::Array(entries)] = <[Value; 2]>::try_from(piece).ok()? else {
        return None;
    };
    let entries: Option<Vec<Entry>> = entries.into_iter().map(entry_of).collect();
    Some((more != 0, entries?))
}

fn entry_of(entry: Value) -> Option<Entry> {
    let Value::Array(fields) = entry else {
        return None;
    };
    match <[Value; 5]>::try_from(fields).ok()? {
        [
            Value::Bulk(key),
            Value::Bulk(kind),
            value @ (Value::Bulk(_) | Value::Null),
            Value::Int(expires_ms),
            Value::Int(version),
        ] => Some(Entry {
            key,
            kind,
            value: match value {
                Value::Bulk(value) => Some(value),
                _ => None,
            },
            expires_ms: (expires_ms >= 0).then_some(expires_ms),
            version,
        }),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bulk(text: &str) -> Value {
        Value::Bulk(text.into())
    }

    fn entry(expires: i64) -> Value {
        let texts = [bulk("k"), bulk("string"), bulk("v")];
        let numbers = [Value::Int(expires), Value::Int(7)];
        Value::Array(texts.into_iter().chain(numbers).collect())
    }

    #[test]
    fn pieces_are_read_and_nothing_else_is() {
        let expected = Entry {
            key: b"k".to_vec(),
            kind: b"string".to_vec(),
            value: Some(b"v".to_vec()),
            expires_ms: None,
            version: 7,
        };
        let later = Entry {
            expires_ms: Some(5),
            ..expected.clone()
        };
        let piece = |more, entries| Value::Array(vec![Value::Int(more), Value::Array(entries)]);
        let read = piece_of(piece(1, vec![entry(-1), entry(5)]));
        assert_eq!(read, Some((true, vec![expected, later])));
        assert_eq!(piece_of(piece(0, vec![])), Some((false, vec![])));
        for wrong in [
            Value::Null,
            Value::Array(vec![]),
            Value::Array(vec![Value::Int(1)]),
            piece(1, vec![Value::Null]),
            piece(1, vec![Value::Array(vec![bulk("k"); 5])]),
            Value::Array(vec![bulk("1"), Value::Array(vec![])]),
        ] {
            assert_eq!(piece_of(wrong.clone()), None, "{wrong:?}");
        }
    }

    #[test]
    fn fields_are_found_by_name() {
        let about = Value::Array(vec![bulk("epoch"), Value::Int(3), bulk("keys"), bulk("x")]);
        assert_eq!(number_of(&about, "epoch"), Some(3));
        assert_eq!(number_of(&about, "keys"), None);
        assert_eq!(number_of(&about, "time_ms"), None);
        assert_eq!(number_of(&Value::Int(1), "epoch"), None);
    }

    #[test]
    fn errors_say_what_to_do() {
        let said = explained("MOVED 12 127.0.0.1:7001".to_owned());
        assert!(said.contains("--from 127.0.0.1:7001"), "{said}");
        let said = explained("unknown command 'KUMIKI.SNAPSHOT'".to_owned());
        assert!(said.contains("no Kumiki server"), "{said}");
        assert_eq!(explained("8 are open".to_owned()), "8 are open");
    }
}
