//! Databases as nodes, and observers.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use base::clock::ManualClock;
use kumiki_backup::{
    BackupManifest, Creation, CreationError, CreationObserver, CreationOptions, DirectoryStore,
    EncryptionKey, NodeDescription, NodeSource, Repository, RepositoryError, RestorationError,
    RestoreObserver, RestorePoint, Restored, restore,
};
use store::{BackupSource, CheckpointOptions, DataFiles, Db, HeldMoment, Options};
use tempfile::TempDir;

pub(crate) const NOW_MS: u64 = 1_700_000_000_000;

/// A database as a node.
pub(crate) struct LocalNode {
    pub(crate) db: Db,
    pub(crate) clock: Arc<ManualClock>,
    source: BackupSource,
    number: u16,
    hold: Duration,
    released: u64,
    /// Times at which its files were pinned.
    pub(crate) pins: usize,
    /// Is called before the durable epoch is held.
    pub(crate) before_hold: Box<dyn FnMut()>,
    /// Reads of files so far.
    pub(crate) reads: u64,
    /// Reads fail from this one on.
    pub(crate) fails_at: u64,
}

pub(crate) fn options(dir: &Path, clock: &Arc<ManualClock>) -> Options {
    Options {
        clock: Arc::clone(clock) as Arc<dyn base::clock::Clock>,
        segment_size: 16 << 10,
        loggers: 2,
        checkpoint: CheckpointOptions {
            log_size: 0,
            ..CheckpointOptions::default()
        },
        ..Options::in_dir(dir)
    }
}

impl LocalNode {
    pub(crate) fn open(dir: &Path, number: u16) -> LocalNode {
        let clock = Arc::new(ManualClock::new(NOW_MS));
        let db = Db::open(options(dir, &clock)).unwrap();
        LocalNode {
            source: db.backup_source(),
            db,
            clock,
            number,
            hold: Duration::ZERO,
            released: 0,
            pins: 0,
            before_hold: Box::new(|| ()),
            reads: 0,
            fails_at: u64::MAX,
        }
    }

    /// Writes a key, durably.
    pub(crate) fn put(&self, key: &str, value: &str) {
        let commit = self
            .db
            .transact(|txn| txn.put(key.as_bytes(), value.as_bytes()));
        commit.unwrap().wait_durable().unwrap();
    }

    /// Writes keys, so that logs continue in further segments.
    pub(crate) fn fill(&self, prefix: &str, count: usize) {
        for number in 0..count {
            let value = format!("{prefix}{number}").repeat(100);
            self.put(&format!("{prefix}{number:04}"), &value);
        }
    }

    pub(crate) fn contents(&self) -> BTreeMap<String, String> {
        contents(&self.db)
    }
}

/// Returns all keys of a database.
pub(crate) fn contents(db: &Db) -> BTreeMap<String, String> {
    let commit = db.transact(|txn| {
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let pairs = txn.scan(b"", None, usize::MAX)?;
        let pairs = pairs.into_iter();
        Ok(pairs.map(|(key, value)| (text(key), text(value))).collect())
    });
    commit.unwrap().value
}

/// Returns the keys of the database in a directory.
pub(crate) fn restored_contents(dir: &Path) -> BTreeMap<String, String> {
    let clock = Arc::new(ManualClock::new(NOW_MS));
    let db = Db::open(options(dir, &clock)).unwrap();
    let found = contents(&db);
    db.close().unwrap();
    found
}

impl NodeSource for LocalNode {
    fn describe(&mut self) -> Result<NodeDescription, String> {
        static IDS: AtomicU64 = AtomicU64::new(1);
        let random = || IDS.fetch_add(1, Ordering::SeqCst);
        let data = self
            .source
            .data_id(random)
            .map_err(|error| error.to_string())?;
        Ok(NodeDescription {
            node: self.number,
            partition: self.number,
            slots: "0-16383".to_owned(),
            data,
            ..NodeDescription::default()
        })
    }

    fn pin(&mut self, name: &str, time: Duration) -> Result<(), String> {
        self.pins += 1;
        self.source
            .pin(name, time)
            .map_err(|error| error.to_string())
    }

    fn files(&mut self, _: &str) -> Result<DataFiles, String> {
        self.source.files().map_err(|error| error.to_string())
    }

    fn read(
        &mut self,
        name: &str,
        file: &str,
        offset: u64,
        count: usize,
    ) -> Result<Vec<u8>, String> {
        self.reads += 1;
        if self.reads > self.fails_at {
            return Err("the node is gone".to_owned());
        }
        let renewed = self.source.renew(name, Duration::from_secs(60));
        let read = renewed.and_then(|()| self.source.read(file, offset, count));
        read.map_err(|error| error.to_string())
    }

    fn narrow(&mut self, name: &str, segments: &[u32]) -> Result<(), String> {
        let narrowed = self.source.narrow(name, segments);
        narrowed.map_err(|error| error.to_string())
    }

    fn unpin(&mut self, name: &str) -> Result<(), String> {
        self.source.unpin(name);
        Ok(())
    }

    fn ask_hold(&mut self, time: Duration) -> Result<(), String> {
        self.hold = time;
        Ok(())
    }

    fn held(&mut self) -> Result<HeldMoment, String> {
        (self.before_hold)();
        self.source
            .hold(self.hold)
            .map_err(|error| error.to_string())
    }

    fn ask_release(&mut self, hold: u64) -> Result<(), String> {
        self.released = hold;
        Ok(())
    }

    fn released(&mut self) -> Result<bool, String> {
        Ok(self.source.release(self.released))
    }
}

/// Remembers what it was told.
#[derive(Default)]
pub(crate) struct Notes(pub(crate) Vec<String>);

impl CreationObserver for Notes {
    fn copied(&mut self, _: u16, done: u64, of: u64) {
        assert!(done <= of);
    }

    fn note(&mut self, text: &str) {
        self.0.push(text.to_owned());
    }

    fn is_stopped(&self) -> bool {
        false
    }

    fn pace(&mut self, _: u64) {}
}

impl RestoreObserver for Notes {
    fn written(&self, done: u64, of: u64) {
        assert!(done <= of);
    }

    fn is_stopped(&self) -> bool {
        false
    }
}

/// A directory for nodes and backups.
pub(crate) struct Place {
    pub(crate) dir: TempDir,
    pub(crate) key: Option<&'static str>,
    /// What the last backup had to say.
    pub(crate) notes: Vec<String>,
}

pub(crate) const KEY: &str = "00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff";

impl Place {
    pub(crate) fn new() -> Place {
        Place {
            dir: tempfile::tempdir().unwrap(),
            key: None,
            notes: Vec::new(),
        }
    }

    pub(crate) fn path(&self, name: &str) -> std::path::PathBuf {
        self.dir.path().join(name)
    }

    pub(crate) fn node(&self, number: u16) -> LocalNode {
        LocalNode::open(&self.path(&format!("data{number}")), number)
    }

    fn key(&self) -> Option<EncryptionKey> {
        self.key.map(|key| EncryptionKey::parse(key).unwrap())
    }

    pub(crate) fn store(&self) -> Arc<DirectoryStore> {
        Arc::new(DirectoryStore::new(&self.path("backups")))
    }

    pub(crate) fn open(&self) -> Result<Repository, RepositoryError> {
        Repository::open(self.store(), self.key())
    }

    /// Makes backups of nodes, `between` each of them and the next.
    pub(crate) fn back_up_with(
        &mut self,
        nodes: &mut [&mut LocalNode],
        options: CreationOptions,
        count: usize,
        mut between: impl FnMut(usize),
    ) -> Result<Vec<BackupManifest>, CreationError> {
        let described = nodes.iter_mut().map(|node| node.describe());
        let described: Vec<NodeDescription> = described.collect::<Result<_, _>>().unwrap();
        let repository = Repository::open_or_create(self.store(), self.key(), &described)?;
        let sources = nodes
            .iter_mut()
            .map(|node| &mut **node as &mut dyn NodeSource);
        let mut notes = Notes::default();
        let sources = sources.zip(described).collect();
        let mut creation = Creation::begin(&repository, sources, options, &mut notes)?;
        let made = (0..count).map(|number| {
            if number > 0 {
                between(number);
            }
            creation.make(&mut notes)
        });
        let made = made.collect();
        creation.end();
        self.notes = notes.0;
        made
    }

    pub(crate) fn back_up(&mut self, node: &mut LocalNode) -> BackupManifest {
        let made = self.back_up_with(&mut [node], CreationOptions::default(), 1, |_| ());
        made.unwrap().remove(0)
    }

    pub(crate) fn restore(
        &self,
        point: &RestorePoint,
        to: &str,
    ) -> Result<Restored, RestorationError> {
        let repository = self.open()?;
        restore(&repository, point, &self.path(to), None, &Notes::default())
    }
}
