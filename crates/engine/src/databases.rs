//! The generations of databases, as the threads of an engine share them.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use hashbrown::HashMap;

use crate::database_table::{DatabaseTable, VisibleGenerations};
use crate::engine::{Engine, generation_after};
use crate::record::{RecordRef, VersionRef};
use crate::restore_error::RestoreError;
use crate::system_record;
use crate::thread_context::ThreadContext;
use crate::transaction_error::TransactionError;
use crate::worker_slot::KeyCount;

impl Engine {
    /// Returns the version of the record of the databases, if it was written. The thread is in an epoch.
    pub(crate) fn database_table(&self) -> Option<VersionRef> {
        let record = self.database_record()?;
        Some(RecordRef::version(record.word().load()))
    }

    /// Returns the record of the databases, if there is one.
    pub(crate) fn database_record(&self) -> Option<RecordRef> {
        let key = &system_record::DATABASES[..];
        self.index.get(self.index.hash(key), key)
    }

    /// Notes the version of the record of the databases, once that is current or about to be.
    pub(crate) fn note_databases(&self, table: VersionRef) {
        let table = (!table.is_absent()).then(|| DatabaseTable::of(table));
        self.set_databases(table);
    }

    fn set_databases(&self, table: Option<DatabaseTable>) {
        let has_swapped = table.as_ref().is_some_and(DatabaseTable::has_swapped);
        self.has_swapped.store(has_swapped, Ordering::Relaxed);
        *self.databases_now.write() = table.map(Arc::new);
    }

    /// Returns `true` if two databases are exchanged: then the namespace of a key's database must be looked
    /// up.
    #[inline]
    pub(crate) fn has_swapped(&self) -> bool {
        // A transaction that reads this too early or too late has read the generation record before, and
        // conflicts.
        self.has_swapped.load(Ordering::Relaxed)
    }

    /// Notes the generations after the engine's contents have been replaced. Nothing that was flushed
    /// before `oldest` is in memory.
    pub(crate) fn note_generations(&self, generations: VisibleGenerations, oldest: u16) {
        self.generation_now
            .store(u64::from(generations.own), Ordering::Release);
        self.set_databases(generations.table());
        self.oldest_generation
            .store(u64::from(oldest), Ordering::Release);
    }

    /// Returns the database of a namespace, for threads that run no transaction.
    pub(crate) fn database_of(&self, namespace: u16) -> u16 {
        let table = self.databases_now.read();
        table
            .as_ref()
            .map_or(namespace, |table| table.database_of(namespace))
    }

    /// Returns the newest generation of all namespaces, for threads that run no transaction.
    pub(crate) fn newest_generation(&self) -> u16 {
        let table = self.databases_now.read();
        table
            .as_ref()
            .map_or(self.current_generation(), |table| table.newest())
    }

    /// Returns the generation of a namespace, for threads that run no transaction.
    pub(crate) fn current_generation_of(&self, namespace: u16) -> u16 {
        let table = self.databases_now.read();
        match &*table {
            Some(table) if namespace != 0 => table.generation_of(namespace),
            _ => self.current_generation(),
        }
    }

    /// Returns the generations that are visible now, in an epoch: a flush may be noticed a moment late.
    pub(crate) fn visible_generations(&self) -> VisibleGenerations {
        VisibleGenerations::new(self.current_generation(), self.database_table())
    }

    /// Checks the record of the databases that was restored.
    pub(crate) fn check_databases(&self) -> Result<(), RestoreError> {
        let version = self.database_table().filter(|version| !version.is_absent());
        let decoded = version.map(|version| DatabaseTable::decode(version.value()));
        let checked = decoded.transpose().map(drop);
        checked.map_err(|error| RestoreError::SystemRecord {
            key: system_record::DATABASES.to_vec(),
            reason: error.0,
        })
    }

    /// Returns the number of the next generation of a namespace.
    ///
    /// # Errors
    /// As [`Engine::next_generation`].
    pub(crate) fn draw_generation(
        &self,
        own: u16,
        table: &DatabaseTable,
    ) -> Result<u16, TransactionError> {
        let mut next = self.next_generation(table.newest())?;
        while next == own || table.uses(next) {
            next = self.next_generation(next)?;
        }
        Ok(next)
    }
}

/// Counts the keys that were restored, of each generation of each namespace, if they are visible.
pub(crate) fn count_restored(
    thread: &ThreadContext,
    generations: VisibleGenerations,
    keys: &HashMap<(u16, u16), KeyCount>,
) {
    for (&(namespace, generation), count) in keys {
        if generation == generations.of_namespace(namespace) {
            thread
                .counters()
                .count_keys_of(namespace, generation, *count);
        }
    }
}

/// Returns the generation up to which nothing that was flushed can be in memory when the newest one was
/// restored: one flush is possible before the janitor has swept.
pub(crate) fn farthest_from(newest: u16) -> u16 {
    generation_after(generation_after(newest))
}
