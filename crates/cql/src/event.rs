//! Events: messages that a server sends without a request.
//!
//! | kind (`[string]`) | what follows |
//! |---|---|
//! | `TOPOLOGY_CHANGE` | `[string]` `NEW_NODE`, `REMOVED_NODE` or `MOVED_NODE`; `[inet]` |
//! | `STATUS_CHANGE` | `[string]` `UP` or `DOWN`; `[inet]` |
//! | `SCHEMA_CHANGE` | a change of the schema |
//!
//! A change of the schema is `[string]` `CREATED`, `UPDATED` or `DROPPED`, `[string]` target,
//! `[string]` keyspace, and then by target: nothing (`KEYSPACE`), `[string]` name (`TABLE`,
//! `TYPE`), or `[string]` name and `[string list]` types of arguments (`FUNCTION`, `AGGREGATE`).

use std::net::SocketAddr;

use crate::notation::{Malformed, NotationReader, put_socket_address, put_string, put_string_list};

/// The kinds of events that a client can register for.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum EventKind {
    /// Nodes that come and go for good.
    Topology,
    /// Nodes that are up or down.
    Status,
    /// Changes of the schema.
    Schema,
}

impl EventKind {
    /// All kinds.
    pub const ALL: [EventKind; 3] = [EventKind::Topology, EventKind::Status, EventKind::Schema];

    /// Returns the name on the wire.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            EventKind::Topology => "TOPOLOGY_CHANGE",
            EventKind::Status => "STATUS_CHANGE",
            EventKind::Schema => "SCHEMA_CHANGE",
        }
    }

    /// Reads a name.
    ///
    /// # Errors
    /// There is no such kind.
    pub fn read(reader: &mut NotationReader<'_>) -> Result<EventKind, Malformed> {
        let all = EventKind::ALL.map(|kind| (kind.name(), kind));
        read_name(reader, &all, "a kind of events that there is not")
    }
}

/// Reads one of several names.
fn read_name<T: Copy>(
    reader: &mut NotationReader<'_>,
    names: &[(&str, T)],
    what: &'static str,
) -> Result<T, Malformed> {
    let error = reader.malformed(what);
    let name = reader.string()?;
    let found = names.iter().find(|(known, _)| *known == name);
    found.map(|(_, value)| *value).ok_or(error)
}

/// A change of the set of nodes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TopologyChange {
    /// A node came.
    NewNode,
    /// A node went.
    RemovedNode,
    /// A node has other tokens (version 3).
    MovedNode,
}

const TOPOLOGY_CHANGES: [(&str, TopologyChange); 3] = [
    ("NEW_NODE", TopologyChange::NewNode),
    ("REMOVED_NODE", TopologyChange::RemovedNode),
    ("MOVED_NODE", TopologyChange::MovedNode),
];

/// A change of a node's reachability.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum StatusChange {
    /// It can be reached.
    Up,
    /// It cannot be reached.
    Down,
}

const STATUS_CHANGES: [(&str, StatusChange); 2] =
    [("UP", StatusChange::Up), ("DOWN", StatusChange::Down)];

/// The kind of a change of the schema.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[allow(missing_docs)] // The names are those of the protocol.
pub enum Change {
    Created,
    Updated,
    Dropped,
}

const CHANGES: [(&str, Change); 3] = [
    ("CREATED", Change::Created),
    ("UPDATED", Change::Updated),
    ("DROPPED", Change::Dropped),
];

/// Returns the name on the wire of a value in `names`.
fn name_of<T: PartialEq>(names: &[(&'static str, T)], value: &T) -> &'static str {
    let found = names.iter().find(|(_, known)| known == value);
    found.expect("a name for each value").0
}

/// A change of the schema.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SchemaChange<'a> {
    /// The kind of the change.
    pub change: Change,
    /// The keyspace in which it lies, or that it is.
    pub keyspace: &'a str,
    /// The part that changed.
    pub target: SchemaTarget<'a>,
}

/// A part of a schema.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum SchemaTarget<'a> {
    /// The keyspace itself.
    Keyspace,
    /// A table, also when an index of it changed.
    Table(&'a str),
    /// A user's type.
    Type(&'a str),
    /// A user's function.
    Function {
        /// Its name.
        name: &'a str,
        /// The types of its arguments.
        arguments: Vec<&'a str>,
    },
    /// A user's aggregate.
    Aggregate {
        /// Its name.
        name: &'a str,
        /// The types of its arguments.
        arguments: Vec<&'a str>,
    },
}

impl<'a> SchemaChange<'a> {
    /// Reads a change.
    ///
    /// # Errors
    /// It is malformed.
    pub fn read(reader: &mut NotationReader<'a>) -> Result<SchemaChange<'a>, Malformed> {
        let change = read_name(reader, &CHANGES, "a change that there is not")?;
        let no_target = reader.malformed("a part of a schema that there is not");
        let target = reader.string()?;
        let keyspace = reader.string()?;
        let target = match target {
            "KEYSPACE" => SchemaTarget::Keyspace,
            "TABLE" => SchemaTarget::Table(reader.string()?),
            "TYPE" => SchemaTarget::Type(reader.string()?),
            "FUNCTION" => SchemaTarget::Function {
                name: reader.string()?,
                arguments: reader.string_list()?,
            },
            "AGGREGATE" => SchemaTarget::Aggregate {
                name: reader.string()?,
                arguments: reader.string_list()?,
            },
            _ => return Err(no_target),
        };
        Ok(SchemaChange {
            change,
            keyspace,
            target,
        })
    }

    /// Writes the change.
    ///
    /// # Panics
    /// Panics if a name is longer than 65,535 bytes.
    pub fn write(&self, out: &mut Vec<u8>) {
        put_string(out, name_of(&CHANGES, &self.change));
        let (target, name, arguments) = match &self.target {
            SchemaTarget::Keyspace => ("KEYSPACE", None, None),
            SchemaTarget::Table(name) => ("TABLE", Some(name), None),
            SchemaTarget::Type(name) => ("TYPE", Some(name), None),
            SchemaTarget::Function { name, arguments } => ("FUNCTION", Some(name), Some(arguments)),
            SchemaTarget::Aggregate { name, arguments } => {
                ("AGGREGATE", Some(name), Some(arguments))
            }
        };
        put_string(out, target);
        put_string(out, self.keyspace);
        if let Some(name) = name {
            put_string(out, name);
        }
        if let Some(arguments) = arguments {
            put_string_list(out, arguments);
        }
    }
}

/// A message that a server sends without a request.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Event<'a> {
    /// The set of nodes changed.
    Topology(TopologyChange, SocketAddr),
    /// A node went up or down.
    Status(StatusChange, SocketAddr),
    /// The schema changed.
    Schema(SchemaChange<'a>),
}

impl<'a> Event<'a> {
    /// Returns the kind for which a client must have registered to get it.
    #[must_use]
    pub fn kind(&self) -> EventKind {
        match self {
            Event::Topology(..) => EventKind::Topology,
            Event::Status(..) => EventKind::Status,
            Event::Schema(_) => EventKind::Schema,
        }
    }

    /// Reads the body of an EVENT.
    ///
    /// # Errors
    /// It is malformed.
    pub fn read(reader: &mut NotationReader<'a>) -> Result<Event<'a>, Malformed> {
        let what = "a change that there is not";
        Ok(match EventKind::read(reader)? {
            EventKind::Topology => Event::Topology(
                read_name(reader, &TOPOLOGY_CHANGES, what)?,
                reader.socket_address()?,
            ),
            EventKind::Status => Event::Status(
                read_name(reader, &STATUS_CHANGES, what)?,
                reader.socket_address()?,
            ),
            EventKind::Schema => Event::Schema(SchemaChange::read(reader)?),
        })
    }

    /// Writes the body of an EVENT.
    ///
    /// # Panics
    /// Panics if a name is longer than 65,535 bytes.
    pub fn write(&self, out: &mut Vec<u8>) {
        put_string(out, self.kind().name());
        match self {
            Event::Topology(change, address) => {
                put_string(out, name_of(&TOPOLOGY_CHANGES, change));
                put_socket_address(out, *address);
            }
            Event::Status(change, address) => {
                put_string(out, name_of(&STATUS_CHANGES, change));
                put_socket_address(out, *address);
            }
            Event::Schema(change) => change.write(out),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(bytes: &[u8], event: &Event<'_>) {
        assert_eq!(
            Event::read(&mut NotationReader::new(bytes)).as_ref(),
            Ok(event)
        );
        let mut out = Vec::new();
        event.write(&mut out);
        assert_eq!(out, bytes);
    }

    #[test]
    fn events_are_read_as_they_are_written() {
        let address: SocketAddr = "127.0.0.2:9042".parse().unwrap();
        check(
            b"\0\x0dSTATUS_CHANGE\0\x04DOWN\x04\x7f\0\0\x02\0\0\x23\x52",
            &Event::Status(StatusChange::Down, address),
        );
        check(
            b"\0\x0fTOPOLOGY_CHANGE\0\x08NEW_NODE\x04\x7f\0\0\x02\0\0\x23\x52",
            &Event::Topology(TopologyChange::NewNode, address),
        );
        let schema = |target| {
            Event::Schema(SchemaChange {
                change: Change::Updated,
                keyspace: "app",
                target,
            })
        };
        check(
            b"\0\x0dSCHEMA_CHANGE\0\x07UPDATED\0\x08KEYSPACE\0\x03app",
            &schema(SchemaTarget::Keyspace),
        );
        check(
            b"\0\x0dSCHEMA_CHANGE\0\x07UPDATED\0\x05TABLE\0\x03app\0\x05locks",
            &schema(SchemaTarget::Table("locks")),
        );
        check(
            b"\0\x0dSCHEMA_CHANGE\0\x07UPDATED\0\x08FUNCTION\0\x03app\0\x01f\0\x02\0\x03int\0\x04text",
            &schema(SchemaTarget::Function {
                name: "f",
                arguments: vec!["int", "text"],
            }),
        );
    }

    #[test]
    fn unknown_changes_are_refused() {
        let what = |bytes: &[u8]| {
            Event::read(&mut NotationReader::new(bytes))
                .unwrap_err()
                .what
        };
        assert_eq!(what(b"\0\x01x"), "a kind of events that there is not");
        assert_eq!(
            what(b"\0\x0dSTATUS_CHANGE\0\x04SIDE"),
            "a change that there is not"
        );
        assert_eq!(
            what(b"\0\x0dSCHEMA_CHANGE\0\x07DROPPED\0\x04VIEW\0\x01k"),
            "a part of a schema that there is not"
        );
    }
}
