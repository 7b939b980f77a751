//! `system.local`, `system.peers` and `system.peers_v2`: drivers see the proxy as the one node, or all
//! proxies as the nodes.
//!
//! | column | value |
//! |---|---|
//! | addresses, ports of clients | the proxy's |
//! | `host_id` | computed from the proxy's address, so that it stays the same |
//! | `tokens` | the whole ring's; each of several proxies has a part |
//! | any other | the value of the node that was last asked |
//!
//! Only plain reads are answered (see [`cql::statement::select`]); any other text about these tables
//! goes to a node. All other tables of `system` and `system_schema` are left to the nodes. A plain read
//! with values that are not of their columns' types is refused here: the rows of a node would show
//! drivers another cluster than the proxy does.
//!
//! A column can be read once, under a name of at most [`LONGEST_NAME`] bytes: so no answer is much
//! longer than the tables that the proxy knows.

use std::borrow::Cow;
use std::net::SocketAddr;

use cql::response::{ColumnSpec, Columns, RowsBuilder};
use cql::statement::{Select, Selection, SystemTable, Term};
use cql::token::Token;
use cql::{Bound, BoundValues, CqlValue, DataType};

use super::control_connection::TableInfo;
use super::topology::CassandraTopology;

/// The longest name of a result's column, in bytes.
const LONGEST_NAME: usize = 256;

/// Why a read that the proxy answers itself is refused.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub(crate) enum Refused {
    /// A column's name is too long.
    #[error("a column of the result has a name of more than {LONGEST_NAME} bytes")]
    LongName,
    /// A column is read more than once.
    #[error("a column is selected more than once, which this table does not allow")]
    Twice,
    /// A value is missing, null, or not of its column's type.
    #[error("a bound value is missing, or is not of the type of its column")]
    CqlValue,
    /// The limit is no number of rows.
    #[error("LIMIT must be a number of rows")]
    Limit,
}

/// The proxies: this one, then the others.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Proxies<'a> {
    pub(crate) this: SocketAddr,
    pub(crate) others: &'a [SocketAddr],
}

/// Returns `true` if the proxy answers a text about a table itself. This function separates the proxy's
/// tables from the nodes' tables: every text comes here before it goes to a node, sent as a query or
/// prepared.
pub(crate) fn answers(text: &str, current: Option<&str>) -> bool {
    // Nearly all texts are about other tables, and need not be parsed.
    let is_about = |word: &str| {
        let (text, word) = (text.as_bytes(), word.as_bytes());
        text.windows(word.len())
            .any(|part| part.eq_ignore_ascii_case(word))
    };
    (is_about("local") || is_about("peers"))
        && Select::parse(text).is_ok_and(|select| table(&select, current).is_some())
}

fn table<'a>(select: &'a Select<'_>, current: Option<&str>) -> Option<SystemTable<'a>> {
    let table = select.table.system(current)?;
    (!matches!(table, SystemTable::Schema(_))).then_some(table)
}

/// Returns the rows that a text reads; `None` if the proxy does not answer it.
///
/// # Errors
/// Returns an error if the read is refused: it goes to no node.
pub(crate) fn answer(
    text: &str,
    current: Option<&str>,
    values: &BoundValues<'_>,
    known: &CassandraTopology,
    proxies: Proxies<'_>,
) -> Option<Result<RowsBuilder, Refused>> {
    let select = Select::parse(text).ok()?;
    let (columns, mut rows) = match table(&select, current)? {
        SystemTable::Local => (&known.local.columns, vec![local(known, proxies)?]),
        SystemTable::Peers => (&known.peers.columns, peers(known, &known.peers, proxies)),
        SystemTable::PeersV2 => {
            let table = known.peers_v2.as_ref()?;
            (&table.columns, peers(known, table, proxies))
        }
        SystemTable::Schema(_) => return None,
    };
    let mut wanted = Vec::new();
    for (name, term) in &select.restrictions {
        let at = columns.position(name)?;
        match value(term, &columns.0[at].data_type, values) {
            Some(value) => wanted.push((at, value)),
            None => return Some(Err(Refused::CqlValue)),
        }
    }
    let most = match &select.limit {
        None => usize::MAX,
        Some(term) => match value(term, &DataType::Int, values) {
            Some(CqlValue::Int(most)) if most >= 0 => most as usize,
            _ => return Some(Err(Refused::Limit)),
        },
    };
    rows.retain(|row| wanted.iter().all(|(at, value)| row[*at] == *value));
    select_from(&select.selection, columns, rows, most)
}

fn select_from(
    selection: &Selection<'_>,
    columns: &Columns,
    rows: Vec<Vec<CqlValue>>,
    most: usize,
) -> Option<Result<RowsBuilder, Refused>> {
    let chosen: Vec<(usize, Option<&str>)> = match selection {
        Selection::All => (0..columns.0.len()).map(|at| (at, None)).collect(),
        Selection::Columns(names) => {
            let mut chosen = Vec::new();
            let mut seen = vec![false; columns.0.len()];
            for selected in names {
                let at = columns.position(&selected.name)?;
                if std::mem::replace(&mut seen[at], true) {
                    return Some(Err(Refused::Twice));
                }
                if selected.alias.len() > LONGEST_NAME {
                    return Some(Err(Refused::LongName));
                }
                chosen.push((at, Some(selected.alias.as_ref())));
            }
            chosen
        }
        Selection::Count(name) => {
            let first = columns.0.first()?;
            if name.len() > LONGEST_NAME {
                return Some(Err(Refused::LongName));
            }
            let count = ColumnSpec {
                name: name.to_string(),
                data_type: DataType::Bigint,
                ..first.clone()
            };
            let mut builder = RowsBuilder::new(Columns(vec![count]));
            builder.push(&[CqlValue::Bigint(rows.len() as i64)]);
            return Some(Ok(builder));
        }
    };
    let spec = |(at, alias): &(usize, Option<&str>)| {
        let column = &columns.0[*at];
        ColumnSpec {
            name: alias.map_or_else(|| column.name.clone(), str::to_owned),
            ..column.clone()
        }
    };
    let mut builder = RowsBuilder::new(Columns(chosen.iter().map(spec).collect()));
    for row in rows.into_iter().take(most) {
        let values: Vec<CqlValue> = chosen.iter().map(|(at, _)| row[*at].clone()).collect();
        builder.push(&values);
    }
    Some(Ok(builder))
}

/// Returns the value of a term in a column of this type.
fn value(term: &Term<'_>, data_type: &DataType, values: &BoundValues<'_>) -> Option<CqlValue> {
    match term {
        Term::Marker(marker) => match marker.value(values)? {
            Bound::Bytes(bytes) => CqlValue::decode(data_type, Some(bytes)).ok(),
            Bound::Null | Bound::Unset => None,
        },
        Term::Literal(literal) => literal.to_value(data_type),
    }
}

/// Returns the row of `system.local`.
fn local(known: &CassandraTopology, proxies: Proxies<'_>) -> Option<Vec<CqlValue>> {
    let row = known.local.rows.first()?;
    let columns = known.local.columns.0.iter();
    let one = Proxy::new(known, proxies, 0);
    let values = columns
        .zip(row)
        .map(|(column, value)| match one.value(&column.name) {
            Some(own) => own,
            None => value.clone(),
        });
    Some(values.collect())
}

/// Returns the rows of `system.peers` or `system.peers_v2`: the other proxies.
fn peers(known: &CassandraTopology, table: &TableInfo, proxies: Proxies<'_>) -> Vec<Vec<CqlValue>> {
    let (local, no_row) = (&known.local, Vec::new());
    let row = local.rows.first().unwrap_or(&no_row);
    let one = |at| {
        let proxy = Proxy::new(known, proxies, at);
        let value = |column: &ColumnSpec| match proxy.value(&column.name) {
            Some(value) => value,
            None => local
                .value(row, &column.name)
                .cloned()
                .unwrap_or(CqlValue::Null),
        };
        table.columns.0.iter().map(value).collect()
    };
    (1..=proxies.others.len()).map(one).collect()
}

/// A proxy, as it presents itself in the tables of nodes.
struct Proxy<'a> {
    address: SocketAddr,
    tokens: Vec<&'a String>,
}

impl<'a> Proxy<'a> {
    /// Makes the proxy at this place: zero is this one. Each takes its part of the tokens by the order
    /// of addresses, which is the same for all proxies.
    fn new(known: &'a CassandraTopology, proxies: Proxies<'_>, at: usize) -> Proxy<'a> {
        let mut all: Vec<SocketAddr> = proxies.others.to_vec();
        all.insert(0, proxies.this);
        let address = all[at];
        all.sort_unstable();
        let rank = all.iter().position(|one| *one == address).unwrap_or(0);
        let tokens = known.tokens.iter().enumerate();
        let mine = tokens.filter(|(place, _)| place % all.len() == rank);
        Proxy {
            address,
            tokens: mine.map(|(_, token)| token).collect(),
        }
    }

    /// Returns the value of a column that each proxy has of its own.
    fn value(&self, column: &str) -> Option<CqlValue> {
        Some(match column {
            "broadcast_address" | "listen_address" | "rpc_address" | "peer" | "native_address" => {
                CqlValue::Inet(self.address.ip())
            }
            "rpc_port" | "native_port" => CqlValue::Int(self.address.port().into()),
            // This is the nodes' port for each other, and a proxy has none. Drivers distinguish nodes
            // by it.
            "peer_port" => CqlValue::Int(self.address.port().into()),
            "preferred_ip" | "preferred_port" => CqlValue::Null,
            "host_id" => CqlValue::Uuid(host_id(self.address)),
            "tokens" => CqlValue::text_set(self.tokens.iter().map(|token| token.as_str())),
            _ => return None,
        })
    }
}

/// Returns an id that stays the same, and that differs from that of a proxy at another address.
fn host_id(address: SocketAddr) -> [u8; 16] {
    let half = |name: &str| {
        let name: Cow<'_, str> = format!("{name} of the proxy at {address}").into();
        Token::of_key(name.as_bytes()).0.to_be_bytes()
    };
    let (first, second) = (half("first half"), half("second half"));
    let mut id = [0; 16];
    id[..8].copy_from_slice(&first);
    id[8..].copy_from_slice(&second);
    // The version and variant of UUIDs that are made by other means.
    id[6] = id[6] & 0x0f | 0x80;
    id[8] = id[8] & 0x3f | 0x80;
    id
}

#[cfg(test)]
mod tests {
    use super::*;
    use cql::Version;
    use std::net::IpAddr;

    const TEXT_SET: fn() -> DataType = || DataType::Set(Box::new(DataType::Text));

    fn known() -> CassandraTopology {
        let local = Columns::of_table(
            "system",
            "local",
            &[
                ("key", DataType::Text),
                ("cluster_name", DataType::Text),
                ("host_id", DataType::Uuid),
                ("rpc_address", DataType::Inet),
                ("tokens", TEXT_SET()),
            ],
        );
        let peers = Columns::of_table(
            "system",
            "peers",
            &[
                ("peer", DataType::Inet),
                ("cluster_name", DataType::Text),
                ("tokens", TEXT_SET()),
            ],
        );
        let node: IpAddr = [127, 0, 0, 9].into();
        CassandraTopology {
            local: TableInfo {
                columns: local,
                rows: vec![vec![
                    CqlValue::text("local"),
                    CqlValue::text("the cluster"),
                    CqlValue::Uuid([1; 16]),
                    CqlValue::Inet(node),
                    CqlValue::text_set(["5"]),
                ]],
            },
            peers: TableInfo {
                columns: peers,
                rows: Vec::new(),
            },
            tokens: vec!["1".to_owned(), "2".to_owned(), "3".to_owned()],
            ..CassandraTopology::default()
        }
    }

    fn ask(text: &str, others: &[SocketAddr]) -> Option<(Vec<String>, Vec<Vec<CqlValue>>)> {
        let this = SocketAddr::from(([127, 0, 0, 1], 9043));
        let proxies = Proxies { this, others };
        let values = BoundValues::none(Version::V4);
        let builder = answer(text, None, &values, &known(), proxies)?.expect("rows");
        let rows = builder.rows(false);
        let columns = rows.metadata.columns.clone().expect("they are told").0;
        let decoded = rows.iter().map(|row| {
            let values = columns.iter().zip(row);
            let values = values.map(|(column, value)| CqlValue::decode(&column.data_type, value));
            values.map(|value| value.expect("of its type")).collect()
        });
        let decoded = decoded.collect();
        Some((
            columns.iter().map(|column| column.name.clone()).collect(),
            decoded,
        ))
    }

    #[test]
    fn the_proxy_is_the_one_node() {
        let text =
            "SELECT cluster_name, rpc_address AS a, tokens FROM system.local WHERE key='local'";
        let (columns, rows) = ask(text, &[]).expect("an answer");
        assert_eq!(columns, ["cluster_name", "a", "tokens"]);
        let this = CqlValue::Inet([127, 0, 0, 1].into());
        let tokens = CqlValue::text_set(["1", "2", "3"]);
        assert_eq!(rows, [[CqlValue::text("the cluster"), this, tokens]]);
        assert_eq!(
            ask("SELECT * FROM system.peers", &[]).expect("rows").1,
            [[]; 0]
        );
        let other = "SELECT key FROM system.local WHERE key = 'other'";
        assert!(ask(other, &[]).expect("an answer").1.is_empty());
    }

    #[test]
    fn several_proxies_share_the_tokens() {
        let other = SocketAddr::from(([127, 0, 0, 2], 9043));
        let (_, rows) = ask("SELECT peer, tokens FROM system.peers", &[other]).expect("rows");
        let peer = CqlValue::Inet(other.ip());
        assert_eq!(rows, [[peer, CqlValue::text_set(["2"])]]);
        let (_, rows) = ask("SELECT tokens FROM system.local", &[other]).expect("rows");
        assert_eq!(rows, [[CqlValue::text_set(["1", "3"])]]);
        let (_, rows) = ask("SELECT count(*) FROM system.peers", &[other]).expect("rows");
        assert_eq!(rows, [[CqlValue::Bigint(1)]]);
        let (_, rows) = ask("SELECT peer FROM system.peers LIMIT 0", &[other]).expect("rows");
        assert!(rows.is_empty());
    }

    #[test]
    fn what_is_not_plain_goes_to_a_node() {
        for text in [
            "SELECT * FROM system.size_estimates",
            "SELECT * FROM local",
            "SELECT nothing FROM system.local",
            "SELECT * FROM system.peers_v2",
            "INSERT INTO system.local (key) VALUES ('local')",
        ] {
            assert_eq!(ask(text, &[]), None, "{text}");
        }
        assert!(answers("select * from System.Local", None));
        assert!(answers("SELECT * FROM peers", Some("system")));
        assert!(!answers("SELECT * FROM peers", Some("app")));
    }

    fn refused(text: &str, values: &BoundValues<'_>) -> Option<Refused> {
        let this = SocketAddr::from(([127, 0, 0, 1], 9043));
        let others = &[];
        let proxies = Proxies { this, others };
        answer(text, None, values, &known(), proxies)?.err()
    }

    #[test]
    fn what_would_make_an_endless_answer_is_refused() {
        let none = BoundValues::none(Version::V4);
        let long = "x".repeat(70_000);
        for text in [
            format!("SELECT key AS \"{long}\" FROM system.local"),
            format!("SELECT count(*) AS {long} FROM system.peers"),
        ] {
            assert_eq!(refused(&text, &none), Some(Refused::LongName));
        }
        let long = "x".repeat(LONGEST_NAME);
        let text = format!("SELECT key AS {long} FROM system.local");
        assert_eq!(ask(&text, &[]).expect("rows").0, [long]);
        for text in [
            "SELECT tokens, key, tokens FROM system.local",
            "SELECT key, key AS again FROM system.local",
        ] {
            assert_eq!(refused(text, &none), Some(Refused::Twice), "{text}");
        }
    }

    #[test]
    fn values_that_are_none_are_refused_and_go_to_no_node() {
        let mut list = cql::ValueList::new();
        list.push(Bound::Bytes(b"not an address"));
        let wrong = list.values(Version::V4);
        let mut list = cql::ValueList::new();
        list.push(Bound::Null);
        let null = list.values(Version::V4);
        let none = BoundValues::none(Version::V4);
        let text = "SELECT * FROM system.peers WHERE peer = ?";
        for values in [&wrong, &null, &none] {
            assert_eq!(refused(text, values), Some(Refused::CqlValue));
            let text = "SELECT * FROM system.local LIMIT ?";
            assert_eq!(refused(text, values), Some(Refused::Limit));
        }
        let text = "SELECT * FROM system.local WHERE host_id = 5";
        assert_eq!(refused(text, &none), Some(Refused::CqlValue));
        let text = "SELECT * FROM system.local LIMIT -1";
        assert_ne!(refused(text, &none), None);
    }

    #[test]
    fn ids_stay_and_differ() {
        let id = |port| host_id(SocketAddr::from(([127, 0, 0, 1], port)));
        assert_eq!(id(1), id(1));
        assert_ne!(id(1), id(2));
    }
}
