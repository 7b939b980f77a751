//! A connection to a node that speaks RESP: replies come in the order of requests.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use resp::ReplyParser;
use resp::command::write_command;

use crate::runtime::out_batch::OutBatch;
use crate::runtime::query::{BackendAnswer, BackendQuery, ClientId, ConnectionKey};
use crate::runtime::wire::{Wire, WireError};
use reactor::tls::ClientTls;

/// The settings of connections to nodes.
#[derive(Clone, Default)]
pub(crate) struct Options {
    /// The user as which the proxy authenticates, if the nodes have users.
    pub(crate) user: Option<String>,
    /// The password that the nodes require.
    pub(crate) password: Option<String>,
    /// The TLS settings, if connections are encrypted.
    pub(crate) tls: Option<Arc<ClientTls>>,
}

/// The meaning of the number of a connection key.
///
/// | bits | meaning |
/// |---|---|
/// | 0 | replies are of RESP3 |
/// | 1…8 | the index among the connections that clients share |
/// | 9 | it is one client's own |
/// | 10…25, 26…57 | that client: its thread, its number |
/// | 58…63 | the database that it selects |
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct RedisConnectionProperties {
    pub(crate) resp3: bool,
    pub(crate) index: u8,
    pub(crate) own: Option<(u16, u32)>,
    /// Less than [`RedisConnectionProperties::DATABASES`].
    pub(crate) database: u8,
}

impl RedisConnectionProperties {
    /// The number of databases that connection keys can name.
    pub(crate) const DATABASES: u8 = 64;

    /// Returns the properties of a connection key of this client alone, for a database.
    pub(crate) fn of_client(resp3: bool, id: ClientId, database: u8) -> RedisConnectionProperties {
        RedisConnectionProperties {
            resp3,
            index: 0,
            own: Some((id.thread, id.number)),
            database,
        }
    }

    pub(crate) fn connection_key(self) -> ConnectionKey {
        let own = self.own.map_or(0, |(thread, number)| {
            1 << 9 | u64::from(thread) << 10 | u64::from(number) << 26
        });
        let database = u64::from(self.database) << 58;
        ConnectionKey(u64::from(self.resp3) | u64::from(self.index) << 1 | own | database)
    }

    pub(crate) fn of(connection_key: ConnectionKey) -> RedisConnectionProperties {
        let bits = connection_key.0;
        RedisConnectionProperties {
            resp3: bits & 1 == 1,
            index: (bits >> 1) as u8,
            own: (bits >> 9 & 1 == 1).then_some(((bits >> 10) as u16, (bits >> 26) as u32)),
            database: (bits >> 58) as u8,
        }
    }
}

/// Returns the first request on a connection, which makes the proxy known; empty: none is needed.
pub(crate) fn greeting(options: &Options, resp3: bool) -> Vec<&[u8]> {
    let mut request: Vec<&[u8]> = Vec::new();
    if resp3 {
        request.extend([&b"HELLO"[..], b"3"]);
    }
    if let Some(password) = &options.password {
        let user = options.user.as_deref();
        request.push(b"AUTH");
        match user {
            None if !resp3 => {}
            user => request.push(user.unwrap_or("default").as_bytes()),
        }
        request.push(password.as_bytes());
    }
    request
}

/// A request that is under way.
struct InflightQuery {
    /// The query; `None`: a request of the proxy's own.
    query: Option<BackendQuery>,
    /// How many replies are still to come.
    missing: u32,
    earlier_error: Option<Bytes>,
    /// The time at which it was put, since the proxy's start.
    put: Duration,
}

/// See the module documentation.
pub(crate) struct RespWire {
    flights: VecDeque<InflightQuery>,
    parser: ReplyParser,
    /// How many replies to the greeting are still to come. Until then it is not known that the node
    /// accepts the proxy.
    greeting: u32,
}

impl Wire for RespWire {
    type Options = Options;

    fn open(
        options: &Options,
        connection_key: ConnectionKey,
        pack: &mut OutBatch,
        now: Duration,
    ) -> RespWire {
        let name = RedisConnectionProperties::of(connection_key);
        let mut wire = RespWire {
            flights: VecDeque::new(),
            parser: ReplyParser::new(),
            greeting: 0,
        };
        let request = greeting(options, name.resp3);
        if !request.is_empty() {
            wire.greeting += 1;
            wire.put_own(&request, pack, now);
        }
        if name.database != 0 {
            wire.greeting += 1;
            let database = name.database.to_string();
            wire.put_own(&[b"SELECT", database.as_bytes()], pack, now);
        }
        wire
    }

    fn has_room(&self) -> bool {
        self.greeting == 0
    }

    fn put(&mut self, query: BackendQuery, pack: &mut OutBatch, now: Duration) {
        pack.put(&query.bytes);
        self.flights.push_back(InflightQuery {
            missing: query.replies,
            query: Some(query),
            earlier_error: None,
            put: now,
        });
    }

    fn seal(&mut self, _: &mut OutBatch) {}

    fn probe(&mut self, pack: &mut OutBatch, now: Duration) {
        self.put_own(&[b"PING"], pack, now);
    }

    fn receive(
        &mut self,
        input: &mut BytesMut,
        told: &mut dyn FnMut(BackendQuery, BackendAnswer),
    ) -> Result<(), WireError> {
        loop {
            let end = match self.parser.parse(input) {
                Ok(None) => return Ok(()),
                Ok(Some(end)) => end,
                Err(error) => return Err(WireError::Nonsense(error.to_string())),
            };
            let bytes = input.split_to(end).freeze();
            if bytes[0] == b'>' {
                // No request asked for it: it is a push.
                continue;
            }
            let Some(flight) = self.flights.front_mut() else {
                let what = "a reply without a request";
                return Err(WireError::Nonsense(what.to_owned()));
            };
            flight.missing -= 1;
            if flight.missing > 0 {
                if bytes[0] == b'-' && flight.earlier_error.is_none() {
                    flight.earlier_error = Some(bytes);
                }
                continue;
            }
            let flight = self.flights.pop_front().expect("just seen");
            match flight.query {
                Some(query) => {
                    let earlier_error = flight.earlier_error;
                    told(
                        query,
                        BackendAnswer {
                            bytes,
                            earlier_error,
                        },
                    );
                }
                None => self.greeted(&bytes)?,
            }
        }
    }

    fn under_way(&self) -> usize {
        self.flights.len()
    }

    fn oldest(&self) -> Option<Duration> {
        let waits = |query: &BackendQuery| query.waits;
        let first = self.flights.front()?;
        (!first.query.as_ref().is_some_and(waits)).then_some(first.put)
    }

    fn abandon(&mut self, given_up: &mut dyn FnMut(BackendQuery)) {
        for query in self.flights.drain(..).filter_map(|flight| flight.query) {
            given_up(query);
        }
    }
}

impl RespWire {
    fn put_own(&mut self, request: &[&[u8]], pack: &mut OutBatch, now: Duration) {
        pack.put_with(|out| write_command(out, request));
        self.flights.push_back(InflightQuery {
            query: None,
            missing: 1,
            earlier_error: None,
            put: now,
        });
    }

    /// Handles a reply to a request of the proxy's own.
    fn greeted(&mut self, reply: &[u8]) -> Result<(), WireError> {
        if self.greeting == 0 {
            // Any reply shows that the node lives.
            return Ok(());
        }
        self.greeting -= 1;
        match reply {
            [b'-', text @ ..] => Err(WireError::Refused(
                String::from_utf8_lossy(text).trim_end().to_owned(),
            )),
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::runtime::query::NodeIndex;

    fn query(sequence: u64, replies: u32) -> BackendQuery {
        BackendQuery {
            client: ClientId {
                place: 0,
                thread: 0,
                number: 1,
            },
            sequence,
            part: 0,
            node: NodeIndex(0),
            connection_key: ConnectionKey(0),
            bytes: Bytes::from_static(b"*1\r\n$4\r\nPING\r\n"),
            connection: None,
            replies,
            waits: false,
            safe: true,
            route: 0,
            since: Duration::ZERO,
            retries: 0,
        }
    }

    fn received(wire: &mut RespWire, bytes: &[u8]) -> Result<Vec<(u64, Vec<u8>, bool)>, WireError> {
        let mut all = Vec::new();
        let mut input = BytesMut::new();
        for byte in bytes {
            input.extend_from_slice(&[*byte]);
            wire.receive(&mut input, &mut |query, answer| {
                let earlier = answer.earlier_error.is_some();
                all.push((query.sequence, answer.bytes.to_vec(), earlier));
            })?;
        }
        assert!(input.is_empty());
        Ok(all)
    }

    #[test]
    fn replies_find_their_queries_in_any_pieces() {
        let mut pack = OutBatch::default();
        let mut wire = RespWire::open(
            &Options::default(),
            ConnectionKey(0),
            &mut pack,
            Duration::ZERO,
        );
        for (sequence, replies) in [(1, 1), (2, 3), (3, 2), (4, 1)] {
            wire.put(query(sequence, replies), &mut pack, Duration::ZERO);
        }
        let input = b"+a\r\n+OK\r\n-MOVED 1 x:1\r\n-EXECABORT\r\n+OK\r\n*1\r\n$1\r\nx\r\n>1\r\n+p\r\n:7\r\n";
        assert_eq!(
            received(&mut wire, input),
            Ok(vec![
                (1, b"+a\r\n".to_vec(), false),
                (2, b"-EXECABORT\r\n".to_vec(), true),
                (3, b"*1\r\n$1\r\nx\r\n".to_vec(), false),
                (4, b":7\r\n".to_vec(), false),
            ])
        );
        assert_eq!(wire.under_way(), 0);
        assert!(received(&mut wire, b"+more\r\n").is_err());
    }

    #[test]
    fn queries_wait_until_the_node_has_accepted_the_proxy() {
        let options = Options {
            user: None,
            password: Some("secret".to_owned()),
            tls: None,
        };
        let mut pack = OutBatch::default();
        let mut wire = RespWire::open(&options, ConnectionKey(0), &mut pack, Duration::ZERO);
        assert!(!wire.has_room() && !pack.is_empty());
        assert_eq!(received(&mut wire, b"+OK\r\n"), Ok(vec![]));
        assert!(wire.has_room());
        let mut wire = RespWire::open(&options, ConnectionKey(1), &mut pack, Duration::ZERO);
        let refused = received(&mut wire, b"-WRONGPASS no\r\n");
        assert_eq!(refused, Err(WireError::Refused("WRONGPASS no".to_owned())));
    }

    #[test]
    fn a_connection_selects_its_database_before_it_has_room() {
        let options = Options {
            user: None,
            password: Some("secret".to_owned()),
            tls: None,
        };
        let name = RedisConnectionProperties {
            resp3: false,
            index: 3,
            own: None,
            database: 12,
        };
        let mut pack = OutBatch::default();
        let mut wire = RespWire::open(&options, name.connection_key(), &mut pack, Duration::ZERO);
        assert_eq!(received(&mut wire, b"+OK\r\n"), Ok(vec![]));
        assert!(!wire.has_room());
        assert_eq!(received(&mut wire, b"+OK\r\n"), Ok(vec![]));
        assert!(wire.has_room());
    }

    #[test]
    fn connection_keys_have_names() {
        let id = ClientId {
            place: 5,
            thread: 7,
            number: u32::MAX,
        };
        let shared = RedisConnectionProperties {
            resp3: true,
            index: 200,
            own: None,
            database: 63,
        };
        for name in [
            shared,
            RedisConnectionProperties::of_client(false, id, 0),
            RedisConnectionProperties::of_client(false, id, 5),
        ] {
            assert_eq!(RedisConnectionProperties::of(name.connection_key()), name);
        }
    }
}
