//! The databases of a transaction: their namespaces, the generations that it sees, and those that its
//! flushes begin.

use std::borrow::Cow;

use base::{Abort, Tid, Version, database};

use crate::database_table::{DatabaseTable, VisibleGenerations};
use crate::engine::Engine;
use crate::record::VersionRef;
use crate::system_record;
use crate::thread_context::ThreadContext;
use crate::transaction::TransactionState;
use crate::transaction_error::TransactionError;

impl TransactionState {
    /// Returns the generation to which the visible versions of a stored key belong.
    #[inline]
    pub(crate) fn generation_of(&mut self, engine: &Engine, key: &[u8]) -> u16 {
        match database::split(key) {
            None => self.generation,
            Some((namespace, _)) => self.generation_of_namespace(engine, namespace),
        }
    }

    /// Returns `true` if the transaction sees this version of a stored key at all.
    #[inline]
    pub(crate) fn sees(&mut self, engine: &Engine, key: &[u8], version: VersionRef) -> bool {
        let generation = self.generation_of(engine, key);
        self.sees_of(generation, version)
    }

    /// Returns the generation of a namespace.
    pub(crate) fn generation_of_namespace(&mut self, engine: &Engine, namespace: u16) -> u16 {
        if namespace == 0 {
            return self.generation;
        }
        let table = self.read_databases(engine);
        VisibleGenerations::new(self.generation, table).of_namespace(namespace)
    }

    /// Returns the generation for a new version of a stored key.
    #[inline]
    pub(crate) fn generation_to_write(&mut self, thread: &mut ThreadContext, key: &[u8]) -> u16 {
        match database::split(key) {
            None => self.generation,
            Some((namespace, _)) => self.use_namespace(thread, namespace),
        }
    }

    /// Returns the generation of a namespace to which the transaction writes. The first write to another
    /// one than 0 makes the record of the databases.
    #[cold]
    fn use_namespace(&mut self, thread: &ThreadContext, namespace: u16) -> u16 {
        self.make_databases(thread);
        self.generation_of_namespace(&thread.engine, namespace)
    }

    /// Makes the record of the databases if there is none.
    pub(crate) fn make_databases(&mut self, thread: &ThreadContext) {
        if self.read_databases(&thread.engine).is_none() {
            self.write_databases(thread, &DatabaseTable::new(self.generation));
        }
    }

    /// Returns `true` if databases are exchanged, so that the namespace of a key must be looked up.
    #[inline]
    pub(crate) fn is_swapped(&self, engine: &Engine) -> bool {
        engine.has_swapped() || self.has_swapped
    }

    /// Returns the version of a key that is present, by its stored key and its TID.
    #[inline]
    pub(crate) fn version_of(&mut self, engine: &Engine, key: &[u8], tid: Tid) -> Version {
        let version = Version::present(tid);
        match self.is_swapped(engine) {
            false => version,
            true => self.exchanged_version(engine, database::number(key), version),
        }
    }

    #[cold]
    fn exchanged_version(&mut self, engine: &Engine, namespace: u16, version: Version) -> Version {
        let table = self.read_databases(engine).map(DatabaseTable::of);
        match table.is_some_and(|table| table.database_of(namespace) != namespace) {
            true => version.exchanged(namespace),
            false => version,
        }
    }

    /// Returns the namespace of a database.
    pub(crate) fn namespace_of(&mut self, engine: &Engine, database: u16) -> u16 {
        if !self.is_swapped(engine) {
            return database;
        }
        let table = self.read_databases(engine);
        table.map_or(database, |table| {
            DatabaseTable::of(table).namespace_of(database)
        })
    }

    /// Returns the key under which a key of an operation is stored.
    #[inline]
    pub(crate) fn stored_key<'k>(&mut self, engine: &Engine, key: &'k [u8]) -> Cow<'k, [u8]> {
        match self.is_swapped(engine) {
            false => Cow::Borrowed(key),
            true => Cow::Owned(self.swapped_key(engine, key)),
        }
    }

    #[cold]
    fn swapped_key(&mut self, engine: &Engine, key: &[u8]) -> Vec<u8> {
        let (database, own) = match database::split(key) {
            // A key that does not exist.
            Some((0, _)) => return key.to_vec(),
            Some(split) => split,
            None => (0, key),
        };
        database::qualified(self.namespace_of(engine, database), own)
    }

    /// Returns the version of the record of the databases, if there is one.
    fn read_databases(&mut self, engine: &Engine) -> Option<VersionRef> {
        if self.databases.is_none() {
            let key = &system_record::DATABASES[..];
            let version = self.read_version(engine, engine.index.hash(key), key);
            self.databases = Some(version.filter(|version| !version.is_absent()));
        }
        self.databases.flatten()
    }

    fn write_databases(&mut self, thread: &ThreadContext, table: &DatabaseTable) {
        let version = table.version();
        self.note_write(thread.record_of(&system_record::DATABASES), version);
        self.databases = Some(Some(version));
    }

    /// Makes every key of every database absent: from here on this transaction, and once it has
    /// committed every other one, sees other generations.
    pub(crate) fn flush(&mut self, thread: &ThreadContext) -> Result<(), TransactionError> {
        let engine = &thread.engine;
        let Some(table) = self.read_databases(engine) else {
            let next = engine.next_generation(self.generation)?;
            self.begin_generation(engine, next);
            return Ok(());
        };
        let mut table = DatabaseTable::of(table);
        let next = engine.draw_generation(self.generation, &table)?;
        table.flush_all(next);
        self.begin_generation(engine, next);
        self.write_databases(thread, &table);
        Ok(())
    }

    /// Makes every key of a database absent, as [`TransactionState::flush`].
    pub(crate) fn flush_database(
        &mut self,
        thread: &ThreadContext,
        database: u16,
    ) -> Result<(), TransactionError> {
        let engine = &thread.engine;
        let Some(table) = self.read_databases(engine) else {
            // All keys are of database 0.
            return match database {
                0 => self.flush(thread),
                _ => Ok(()),
            };
        };
        let mut table = DatabaseTable::of(table);
        let next = engine.draw_generation(self.generation, &table)?;
        let namespace = table.namespace_of(database);
        table.flush(namespace, next);
        if namespace == 0 {
            self.begin_generation(engine, next);
        }
        self.write_databases(thread, &table);
        Ok(())
    }

    /// Exchanges the keys of two databases.
    pub(crate) fn swap_databases(
        &mut self,
        thread: &ThreadContext,
        (first, second): (u16, u16),
    ) -> Result<(), TransactionError> {
        let engine = &thread.engine;
        if engine.read_atomic.any() {
            return Err(TransactionError::Abort(Abort::Unsupported {
                what: "keys are declared read atomic, which are keys of database 0 alone, so that databases cannot be \
                       exchanged (SWAPDB): start without read-atomic keys, or write to another database"
                    .to_owned(),
            }));
        }
        let table = self.read_databases(engine).map(DatabaseTable::of);
        let mut table = table.unwrap_or_else(|| DatabaseTable::new(self.generation));
        table.swap(first, second);
        self.has_swapped = true;
        self.write_databases(thread, &table);
        // The same generation, so that all transactions conflict.
        self.begin_generation(engine, self.generation);
        Ok(())
    }

    fn begin_generation(&mut self, engine: &Engine, generation: u16) {
        self.note_write(engine.generation, Engine::generation_version(generation));
        self.generation = generation;
    }
}
