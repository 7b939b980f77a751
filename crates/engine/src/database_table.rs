//! The databases other than number 0: the system record that says which generation each of them has, and
//! which databases were exchanged.
//!
//! A qualified key (`base::database`) has the number of a *namespace* in its record, and that of a database
//! in operations. The two are the same until two databases are exchanged (`SWAPDB`). A version is visible if
//! its generation is that of the key's namespace; that of namespace 0 is in the generation record.
//!
//! The record exists from the first write to another database than 0 on. Its value:
//!
//! | bytes | field |
//! |---|---|
//! | 2 | the newest generation of all namespaces, 0 included |
//! | 2 | the generation of namespaces that have no entry; not of 0 |
//! | 6 each | an entry, in the order of its number *n*: *n* 2, the generation of namespace *n* 2 (of 0 without meaning), the namespace of database *n* 2 |
//!
//! Numbers are little-endian. While there is no record, all namespaces have the generation of namespace 0.
//! A database without an entry has the namespace of its number.
//!
//! Invariants:
//! 1. A transaction that uses a qualified key has read the record: a flush of any database but 0
//!    conflicts with it. An exchange also writes the generation record, and so conflicts with every
//!    transaction.
//! 2. No two namespaces draw the same number for a generation, and none draws a number of which flushed
//!    versions may still be in memory, or that another namespace has.

use base::database;

use crate::record::VersionRef;
use crate::system_record::{self, MalformedSystemRecord};

const HEADER: usize = 4;
const ENTRY: usize = 6;

/// The contents of the record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct DatabaseTable {
    newest: u16,
    default: u16,
    /// In the order of their numbers.
    entries: Vec<DatabaseEntry>,
}

/// An entry of the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct DatabaseEntry {
    number: u16,
    /// The generation of the namespace with this number.
    generation: u16,
    /// The namespace of the database with this number.
    namespace: u16,
}

impl DatabaseTable {
    /// Returns the table while all namespaces have the generation of namespace 0.
    pub(crate) fn new(generation: u16) -> DatabaseTable {
        DatabaseTable {
            newest: generation,
            default: generation,
            entries: Vec::new(),
        }
    }

    /// Returns the newest generation.
    pub(crate) fn newest(&self) -> u16 {
        self.newest
    }

    fn entry(&self, number: u16) -> Result<usize, usize> {
        self.entries
            .binary_search_by_key(&number, |entry| entry.number)
    }

    /// Returns the entry of a number, which is added if there is none.
    fn entry_mut(&mut self, number: u16) -> &mut DatabaseEntry {
        let at = self.entry(number).unwrap_or_else(|at| {
            let entry = DatabaseEntry {
                number,
                generation: self.default,
                namespace: number,
            };
            self.entries.insert(at, entry);
            at
        });
        &mut self.entries[at]
    }

    /// Returns the generation of a namespace other than 0.
    pub(crate) fn generation_of(&self, namespace: u16) -> u16 {
        let found = self.entry(namespace);
        found.map_or(self.default, |at| self.entries[at].generation)
    }

    /// Returns the namespace of a database.
    pub(crate) fn namespace_of(&self, database: u16) -> u16 {
        let found = self.entry(database);
        found.map_or(database, |at| self.entries[at].namespace)
    }

    /// Returns the database of a namespace.
    pub(crate) fn database_of(&self, namespace: u16) -> u16 {
        let mut entries = self.entries.iter();
        let found = entries.find(|entry| entry.namespace == namespace);
        found.map_or(namespace, |entry| entry.number)
    }

    /// Returns `true` if a database has another namespace than that of its number.
    pub(crate) fn has_swapped(&self) -> bool {
        let mut entries = self.entries.iter();
        entries.any(|entry| entry.namespace != entry.number)
    }

    /// Begins a generation of all namespaces.
    pub(crate) fn flush_all(&mut self, generation: u16) {
        self.newest = generation;
        self.default = generation;
        self.entries.retain_mut(|entry| {
            entry.generation = generation;
            entry.namespace != entry.number
        });
    }

    /// Begins a generation of one namespace.
    pub(crate) fn flush(&mut self, namespace: u16, generation: u16) {
        self.newest = generation;
        if namespace != 0 {
            self.entry_mut(namespace).generation = generation;
        }
    }

    /// Exchanges the namespaces of two databases.
    pub(crate) fn swap(&mut self, first: u16, second: u16) {
        let namespaces = [first, second].map(|database| self.namespace_of(database));
        self.entry_mut(first).namespace = namespaces[1];
        self.entry_mut(second).namespace = namespaces[0];
    }

    /// Returns `true` if a namespace other than 0 has this generation.
    pub(crate) fn uses(&self, generation: u16) -> bool {
        let mut entries = self.entries.iter().filter(|entry| entry.number != 0);
        self.default == generation || entries.any(|entry| entry.generation == generation)
    }

    /// Returns the bytes of the table.
    pub(crate) fn encode(&self) -> Vec<u8> {
        let head = [self.newest, self.default];
        let entries = self.entries.iter();
        let entries = entries.flat_map(|entry| [entry.number, entry.generation, entry.namespace]);
        let numbers = head.into_iter().chain(entries);
        numbers.flat_map(u16::to_le_bytes).collect()
    }

    /// Decodes a table.
    pub(crate) fn decode(bytes: &[u8]) -> Result<DatabaseTable, MalformedSystemRecord> {
        let malformed = MalformedSystemRecord("the table of databases is malformed");
        let (head, entries) = bytes.split_first_chunk::<HEADER>().ok_or(malformed)?;
        let (entries, []) = entries.as_chunks::<ENTRY>() else {
            return Err(malformed);
        };
        let number = |bytes: &[u8], at: usize| u16::from_le_bytes([bytes[at], bytes[at + 1]]);
        let entries: Vec<DatabaseEntry> = entries
            .iter()
            .map(|bytes| DatabaseEntry {
                number: number(bytes, 0),
                generation: number(bytes, 2),
                namespace: number(bytes, 4),
            })
            .collect();
        let mut namespaces: Vec<u16> = entries.iter().map(|entry| entry.namespace).collect();
        namespaces.sort_unstable();
        // Each of these databases has one of these namespaces.
        if !entries.is_sorted_by(|one, next| one.number < next.number)
            || !entries.iter().map(|entry| entry.number).eq(namespaces)
        {
            return Err(malformed);
        }
        Ok(DatabaseTable {
            newest: number(head, 0),
            default: number(head, 2),
            entries,
        })
    }

    /// Decodes the value of a version of the record.
    pub(crate) fn of(version: VersionRef) -> DatabaseTable {
        DatabaseTable::decode(version.value()).expect(system_record::WELL_FORMED)
    }

    /// Returns a version of the record.
    pub(crate) fn version(&self) -> VersionRef {
        system_record::new_version(&self.encode(), None)
    }
}

/// Returns the generation of a namespace other than 0, by the value of a version of the record.
fn generation_in(value: &[u8], namespace: u16) -> u16 {
    let number = |at: usize| u16::from_le_bytes([value[at], value[at + 1]]);
    let entries = (HEADER..value.len()).step_by(ENTRY);
    let found = entries.map(|at| (number(at), number(at + 2)));
    let mut found = found.filter(|entry| entry.0 == namespace);
    found.next().map_or_else(|| number(2), |entry| entry.1)
}

/// The generations that are visible at a moment. The thread is in an epoch.
#[derive(Clone, Copy)]
pub(crate) struct VisibleGenerations {
    /// That of namespace 0.
    pub(crate) own: u16,
    /// The version of the record, if there is one.
    table: Option<VersionRef>,
}

impl VisibleGenerations {
    /// Returns the generations that `own` and a version of the record give.
    pub(crate) fn new(own: u16, table: Option<VersionRef>) -> VisibleGenerations {
        let table = table.filter(|version| !version.is_absent());
        VisibleGenerations { own, table }
    }

    /// Returns the generation whose versions of a stored key are visible.
    #[inline]
    pub(crate) fn of(self, key: &[u8]) -> u16 {
        match database::split(key) {
            None => self.own,
            Some((namespace, _)) => self.of_namespace(namespace),
        }
    }

    /// Returns the generation of a namespace.
    pub(crate) fn of_namespace(self, namespace: u16) -> u16 {
        match self.table {
            Some(table) if namespace != 0 => generation_in(table.value(), namespace),
            _ => self.own,
        }
    }

    /// Returns the newest generation of all.
    pub(crate) fn newest(self) -> u16 {
        self.table
            .map_or(self.own, |version| DatabaseTable::of(version).newest)
    }

    /// Returns the contents of the record, if there is one.
    pub(crate) fn table(self) -> Option<DatabaseTable> {
        self.table.map(DatabaseTable::of)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_says_the_generation_of_each_database() {
        let mut table = DatabaseTable::new(7);
        table.flush(3, 8);
        table.flush(1, 9);
        table.flush(0, 10);
        table.flush(3, 11);
        let expected = [(1, 9), (2, 7), (3, 11), (4, 7)];
        let version = table.version();
        let seen = VisibleGenerations::new(10, Some(version));
        for (database, generation) in expected {
            assert_eq!(table.generation_of(database), generation);
            let key = database::qualified(database, b"key");
            assert_eq!(seen.of(&key), generation);
        }
        assert_eq!((seen.of(b"key"), seen.newest()), (10, 11));
        assert_eq!(DatabaseTable::decode(&table.encode()), Ok(table.clone()));
        assert!(table.uses(7) && table.uses(11) && !table.uses(8) && !table.uses(10));
        table.flush_all(12);
        assert_eq!((table.generation_of(3), table.newest()), (12, 12));
        version.free_unpublished();
    }

    #[test]
    fn databases_are_exchanged() {
        let mut table = DatabaseTable::new(7);
        table.flush(1, 8);
        table.swap(0, 1);
        table.swap(1, 2);
        let namespaces = [0, 1, 2, 3].map(|database| table.namespace_of(database));
        assert_eq!((namespaces, table.has_swapped()), ([1, 2, 0, 3], true));
        assert!((0..4).all(|of| table.database_of(table.namespace_of(of)) == of));
        assert_eq!(DatabaseTable::decode(&table.encode()), Ok(table.clone()));
        table.flush_all(9);
        assert_eq!(table.namespace_of(1), 2);
        assert_eq!(
            [1, 2].map(|namespace| table.generation_of(namespace)),
            [9, 9]
        );
        table.swap(1, 2);
        table.swap(1, 0);
        assert!(!table.has_swapped());
    }

    #[test]
    fn without_a_record_all_databases_have_one_generation() {
        let seen = VisibleGenerations::new(5, None);
        let key = database::qualified(9, b"key");
        assert_eq!((seen.of(&key), seen.of(b"key"), seen.newest()), (5, 5, 5));
    }

    #[test]
    fn malformed_tables_are_refused() {
        let bytes = |numbers: &[u16]| -> Vec<u8> {
            numbers
                .iter()
                .flat_map(|number| number.to_le_bytes())
                .collect()
        };
        for malformed in [
            &[][..],
            &[1],
            &[1, 2, 3],
            &[1, 2, 4, 5, 3, 5],
            &[1, 2, 4, 5, 4, 6],
        ] {
            assert!(DatabaseTable::decode(&bytes(malformed)).is_err());
        }
        assert!(DatabaseTable::decode(&[0; 5]).is_err());
    }
}
