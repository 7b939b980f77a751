//! The interfaces to locks: Kumiki's commands, or lightweight transactions of Cassandra.
//!
//! | | take | give back |
//! |---|---|---|
//! | RESP | `LOCK.ACQUIRE name owner PX 30000` | `LOCK.RELEASE name owner` |
//! | CQL | `INSERT INTO bench.locks (name, owner) VALUES (?, ?) IF NOT EXISTS USING TTL 30` | `DELETE FROM bench.locks WHERE name = ? IF owner = ?` |
//!
//! Requests of CQL are prepared. Both kinds use a bare connection, one request at a time.

use crate::error::RunError;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use ::resp::command::write_command;
use ::resp::reply::{ReplyParser, Value};
use cql::{Bound, Consistency, ResultBody, ValueList, Version};

use cassandra::{self, CqlConnection, PreparedStatement};

/// How long an answer may take.
const PATIENCE: Duration = Duration::from_secs(60);
/// An acknowledged lock must be known to a quorum.
const CONSISTENCY: Consistency = Consistency::Quorum;

/// The outcome of taking a lock.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum LockAnswer {
    /// The client holds it. Cassandra has no tokens.
    Granted { token: Option<u64> },
    /// Another owner holds it.
    Refused { holder: Vec<u8> },
}

/// Takes locks and gives them back.
pub(super) trait LockClient {
    fn acquire(&mut self, name: &[u8], owner: &[u8]) -> Result<LockAnswer, RunError>;

    /// Returns `true` if the owner had the lock.
    fn release(&mut self, name: &[u8], owner: &[u8]) -> Result<bool, RunError>;
}

/// By Kumiki's commands.
pub(super) struct RespLocks {
    stream: TcpStream,
    output: Vec<u8>,
    input: Vec<u8>,
}

impl RespLocks {
    pub(super) fn connect(address: SocketAddr) -> Result<RespLocks, RunError> {
        let open = || {
            let stream = TcpStream::connect(address)?;
            stream.set_nodelay(true)?;
            stream.set_read_timeout(Some(PATIENCE))?;
            Ok(stream)
        };
        let stream = open().map_err(|error: std::io::Error| format!("{address}: {error}"))?;
        Ok(RespLocks {
            stream,
            output: Vec::new(),
            input: Vec::new(),
        })
    }

    fn call(&mut self, arguments: &[&[u8]]) -> Result<Value, RunError> {
        self.output.clear();
        write_command(&mut self.output, arguments);
        let sent = self.stream.write_all(&self.output);
        sent.map_err(RunError::of)?;
        let mut parser = ReplyParser::new();
        self.input.clear();
        let mut room = [0; 512];
        loop {
            let count = self.stream.read(&mut room);
            match count.map_err(RunError::of)? {
                0 => {
                    return Err(RunError::Failed(
                        "the proxy has closed the connection".to_owned(),
                    ));
                }
                count => self.input.extend_from_slice(&room[..count]),
            }
            let end = parser.parse(&self.input);
            if let Some(end) = end.map_err(RunError::of)? {
                let value = Value::decode(&self.input[..end]);
                return value.map_err(RunError::of);
            }
        }
    }
}

impl LockClient for RespLocks {
    fn acquire(&mut self, name: &[u8], owner: &[u8]) -> Result<LockAnswer, RunError> {
        match self.call(&[b"LOCK.ACQUIRE", name, owner, b"PX", b"30000"])? {
            Value::Array(parts) => grant(&parts)
                .ok_or_else(|| RunError::Failed(format!("a strange answer: {parts:?}"))),
            other => Err(strange(&other)),
        }
    }

    fn release(&mut self, name: &[u8], owner: &[u8]) -> Result<bool, RunError> {
        match self.call(&[b"LOCK.RELEASE", name, owner])? {
            Value::Int(1) => Ok(true),
            Value::Int(0) => Ok(false),
            other => Err(strange(&other)),
        }
    }
}

/// Parses the answer to `LOCK.ACQUIRE`.
fn grant(parts: &[Value]) -> Option<LockAnswer> {
    match parts {
        [Value::Int(1), Value::Int(token), Value::Int(_)] => Some(LockAnswer::Granted {
            token: Some(u64::try_from(*token).ok()?),
        }),
        [Value::Int(0), Value::Bulk(holder), Value::Int(_)] => Some(LockAnswer::Refused {
            holder: holder.clone(),
        }),
        _ => None,
    }
}

fn strange(value: &Value) -> RunError {
    match value {
        Value::Error(text) => RunError::of(String::from_utf8_lossy(text)),
        other => RunError::Failed(format!("a strange answer: {other:?}")),
    }
}

/// By lightweight transactions.
pub(super) struct LightweightTransactions {
    link: CqlConnection,
    take: PreparedStatement,
    give: PreparedStatement,
}

/// The table of locks, and the keyspace that it is in.
pub(super) const TABLE: &str = "bench.locks";

impl LightweightTransactions {
    /// Makes the table of locks, with a copy on each node.
    pub(super) fn create_table(nodes: &[SocketAddr]) -> Result<(), RunError> {
        let mut link = CqlConnection::connect(nodes[0], Version::V4).map_err(RunError::of)?;
        let copies = nodes.len();
        for text in [
            format!(
                "CREATE KEYSPACE bench WITH replication = \
                 {{'class': 'SimpleStrategy', 'replication_factor': {copies}}}"
            ),
            format!("CREATE TABLE {TABLE} (name text PRIMARY KEY, owner text)"),
        ] {
            link.query(&text, Consistency::One).map_err(RunError::of)?;
        }
        cassandra::agree(nodes).map_err(RunError::of)
    }

    pub(super) fn connect(address: SocketAddr) -> Result<LightweightTransactions, RunError> {
        let mut link = CqlConnection::connect(address, Version::V4).map_err(RunError::of)?;
        let take =
            format!("INSERT INTO {TABLE} (name, owner) VALUES (?, ?) IF NOT EXISTS USING TTL 30");
        let give = format!("DELETE FROM {TABLE} WHERE name = ? IF owner = ?");
        Ok(LightweightTransactions {
            take: link.prepare(&take).map_err(RunError::of)?,
            give: link.prepare(&give).map_err(RunError::of)?,
            link,
        })
    }
}

impl LockClient for LightweightTransactions {
    fn acquire(&mut self, name: &[u8], owner: &[u8]) -> Result<LockAnswer, RunError> {
        let values = pair(name, owner);
        let answer = self
            .link
            .execute(&self.take, &values, CONSISTENCY, applied)?;
        Ok(match answer {
            (true, _) => LockAnswer::Granted { token: None },
            (false, holder) => LockAnswer::Refused { holder },
        })
    }

    fn release(&mut self, name: &[u8], owner: &[u8]) -> Result<bool, RunError> {
        let values = pair(name, owner);
        let answer = self
            .link
            .execute(&self.give, &values, CONSISTENCY, applied)?;
        Ok(answer.0)
    }
}

fn pair(name: &[u8], owner: &[u8]) -> ValueList {
    let mut values = ValueList::new();
    values.push(Bound::Bytes(name));
    values.push(Bound::Bytes(owner));
    values
}

/// Parses the answer to a lightweight transaction. Returns `true` if it was applied, and otherwise
/// the current owner, or nothing if there is none.
fn applied(body: ResultBody<'_>) -> Result<(bool, Vec<u8>), RunError> {
    let ResultBody::Rows(rows) = body else {
        return Err(format!("a lightweight transaction was answered with {body:?}").into());
    };
    let columns = rows.metadata.columns.as_ref();
    let place = |name: &str| columns.and_then(|columns| columns.position(name));
    let row = rows.iter().next().unwrap_or_default();
    let value = |name: &str| place(name).and_then(|place| *row.get(place)?);
    match value("[applied]") {
        Some([applied]) => Ok((*applied == 1, value("owner").unwrap_or_default().to_vec())),
        other => Err(format!("[applied] is {other:?}").into()),
    }
}

#[cfg(test)]
mod tests {
    use cql::response::{Columns, RowsBuilder};
    use cql::{CqlValue as Cell, DataType};

    use super::*;

    #[test]
    fn answers_of_the_proxy_are_understood() {
        let bulk = |text: &str| Value::Bulk(text.as_bytes().to_vec());
        let held = [Value::Int(1), Value::Int(7), Value::Int(30)];
        assert_eq!(grant(&held), Some(LockAnswer::Granted { token: Some(7) }));
        let refused = [Value::Int(0), bulk("ann"), Value::Int(30)];
        let holder = b"ann".to_vec();
        assert_eq!(grant(&refused), Some(LockAnswer::Refused { holder }));
        for strange in [
            &held[..2],
            &[Value::Int(1), Value::Int(-7), Value::Int(30)],
            &[Value::Int(2), Value::Int(7), Value::Int(30)],
        ] {
            assert_eq!(grant(strange), None);
        }
    }

    #[test]
    fn answers_of_cassandra_are_understood() {
        let answer = |columns: &[(&str, DataType)], row: &[Cell]| {
            let columns = Columns::of_table("bench", "locks", columns);
            let mut builder = RowsBuilder::new(columns);
            builder.push(row);
            applied(ResultBody::Rows(builder.rows(false)))
        };
        let flag = ("[applied]", DataType::Boolean);
        let owner = ("owner", DataType::Text);
        let done = answer(std::slice::from_ref(&flag), &[Cell::Boolean(true)]);
        assert_eq!(done, Ok((true, Vec::new())));
        let row = [Cell::Boolean(false), Cell::Text("ann".into())];
        let refused = answer(&[flag, owner.clone()], &row);
        assert_eq!(refused, Ok((false, b"ann".to_vec())));
        assert!(answer(&[owner], &[Cell::Text("ann".into())]).is_err());
        assert!(applied(ResultBody::Void).is_err());
    }
}
