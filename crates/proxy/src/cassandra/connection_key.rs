//! Connection keys: the properties by which connections to a node differ.
//!
//! The number of a connection key is never given to another one: threads find their connections by it,
//! and a connection of another user must not be among them.
//!
//! | bits of the number | connection key that clients share | connection key of one client that authenticates |
//! |---|---|---|
//! | 63 | 0 | 1 |
//! | 62 | 0 | version 5 |
//! | 0…62 | place in the table of connection keys | 0…31 the client's number, 32…47 its thread |

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use cql::Version;
use parking_lot::RwLock;

use super::credentials::Credential;
use crate::runtime::query::{ClientId, ConnectionKey};

const LOGIN: u64 = 1 << 63;
const LOGIN_V5: u64 = 1 << 62;

/// The index of the shared connection for clients with requests that a node could not read, or may not
/// be able to read. There are fewer connections of other clients than this number.
pub(crate) const QUARANTINE: u8 = u8::MAX;

/// The properties that clients must have in common to share a connection.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(crate) struct CassandraConnectionProperties {
    pub(crate) version: Version,
    /// The index among several connections with the same properties.
    pub(crate) index: u8,
    /// The keyspace of table names without a keyspace.
    pub(crate) keyspace: Option<Arc<str>>,
    /// The clients' credential, if nodes require authentication.
    pub(crate) credential: Option<Credential>,
}

/// The meaning of a connection key's number.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum KeyMeaning {
    Shared(CassandraConnectionProperties),
    /// One client authenticates on it.
    Login(Version),
}

/// The table of connection keys. Keyspaces and credentials are added when nodes have accepted them, so
/// that no client fills the table with values that do not exist. Credentials that no client has had for
/// [`MEMORY`] are removed.
#[derive(Debug, Default)]
pub(crate) struct ConnectionKeys(RwLock<KeyTable>);

/// How long connection keys of a credential stay when no client has it any more.
const MEMORY: Duration = Duration::from_secs(600);

#[derive(Debug, Default)]
struct KeyTable {
    names: HashMap<u64, CassandraConnectionProperties>,
    places: HashMap<CassandraConnectionProperties, u64>,
    next: u64,
    holders: HashMap<Credential, CredentialHolders>,
}

/// Clients that have a credential.
#[derive(Debug, Default)]
struct CredentialHolders {
    count: usize,
    /// The time at which the count was seen to be zero.
    none_since: Option<Instant>,
}

impl ConnectionKeys {
    /// Returns the connection key with these properties.
    pub(crate) fn connection_key(&self, name: &CassandraConnectionProperties) -> ConnectionKey {
        if let Some(&place) = self.0.read().places.get(name) {
            return ConnectionKey(place);
        }
        let mut book = self.0.write();
        let next = book.next;
        let place = *book.places.entry(name.clone()).or_insert(next);
        if place == next {
            book.next += 1;
            book.names.insert(place, name.clone());
        }
        ConnectionKey(place)
    }

    /// Counts one more client that has this credential.
    pub(crate) fn hold(&self, credential: &Credential) {
        let mut book = self.0.write();
        let holders = book.holders.entry(credential.clone()).or_default();
        holders.count += 1;
        holders.none_since = None;
    }

    /// Records that a client with this credential is gone.
    pub(crate) fn release(&self, credential: &Credential) {
        if let Some(holders) = self.0.write().holders.get_mut(credential) {
            holders.count = holders.count.saturating_sub(1);
        }
    }

    /// Removes credentials that no client has had for long. Called regularly.
    pub(crate) fn forget(&self, now: Instant) {
        let mut book = self.0.write();
        let KeyTable {
            names,
            places,
            holders,
            ..
        } = &mut *book;
        let before = holders.len();
        holders.retain(|_, holders| {
            holders.count > 0 || now < *holders.none_since.get_or_insert(now) + MEMORY
        });
        if holders.len() < before {
            let is_held = |name: &CassandraConnectionProperties| match &name.credential {
                Some(credential) => holders.contains_key(credential),
                None => true,
            };
            names.retain(|_, name| is_held(name));
            places.retain(|name, _| is_held(name));
        }
    }

    /// Returns the meaning of a connection key's number. A number that was removed means a connection
    /// that has not authenticated.
    pub(crate) fn meaning(&self, connection_key: ConnectionKey) -> KeyMeaning {
        if connection_key.0 & LOGIN == 0 {
            let book = self.0.read();
            return match book.names.get(&connection_key.0) {
                Some(name) => KeyMeaning::Shared(name.clone()),
                None => KeyMeaning::Login(Version::V4),
            };
        }
        KeyMeaning::Login(match connection_key.0 & LOGIN_V5 {
            0 => Version::V4,
            _ => Version::V5,
        })
    }
}

/// Returns the connection key of a client that authenticates.
pub(crate) fn login(version: Version, client: ClientId) -> ConnectionKey {
    let version = if version == Version::V5 { LOGIN_V5 } else { 0 };
    ConnectionKey(LOGIN | version | u64::from(client.thread) << 32 | u64::from(client.number))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connection_keys_have_meanings() {
        let connection_keys = ConnectionKeys::default();
        let mut name = CassandraConnectionProperties {
            version: Version::V5,
            index: 3,
            keyspace: None,
            credential: None,
        };
        let first = connection_keys.connection_key(&name);
        assert_eq!(
            connection_keys.meaning(first),
            KeyMeaning::Shared(name.clone())
        );
        name.keyspace = Some("app".into());
        let second = connection_keys.connection_key(&name);
        assert_ne!(first, second);
        assert_eq!(connection_keys.connection_key(&name), second);
        let client = ClientId {
            place: 1,
            thread: u16::MAX,
            number: u32::MAX,
        };
        for version in [Version::V4, Version::V5] {
            let connection_key = login(version, client);
            assert_eq!(
                connection_keys.meaning(connection_key),
                KeyMeaning::Login(version)
            );
        }
    }

    #[test]
    fn credentials_that_no_client_has_are_forgotten() {
        let (connection_keys, begun) = (ConnectionKeys::default(), Instant::now());
        let of = |credential: Option<&Credential>| {
            connection_keys.connection_key(&CassandraConnectionProperties {
                version: Version::V5,
                index: 0,
                keyspace: None,
                credential: credential.cloned(),
            })
        };
        let ann = Credential::of_password("ann", "secret");
        let bob = Credential::of_password("bob", "secret");
        connection_keys.hold(&ann);
        connection_keys.hold(&ann);
        connection_keys.hold(&bob);
        let (none, anns, bobs) = (of(None), of(Some(&ann)), of(Some(&bob)));
        connection_keys.release(&ann);
        connection_keys.forget(begun);
        connection_keys.forget(begun + 2 * MEMORY);
        assert_eq!(of(Some(&ann)), anns, "it is used");
        connection_keys.release(&ann);
        connection_keys.forget(begun + 3 * MEMORY);
        assert_eq!(of(Some(&ann)), anns, "it is remembered for a while");
        connection_keys.forget(begun + 4 * MEMORY);
        assert_eq!(
            connection_keys.meaning(anns),
            KeyMeaning::Login(Version::V4)
        );
        assert_eq!((of(None), of(Some(&bob))), (none, bobs));
        let again = of(Some(&ann));
        assert!(![none, anns, bobs].contains(&again), "a new number");
    }
}
