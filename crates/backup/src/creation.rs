//! Making backups of running nodes.
//!
//! 1. Each node pins the files that are there now: its newest checkpoint and its logs.
//! 2. A full backup copies the checkpoints. An incremental one has them already.
//! 3. The moment: all nodes hold their durable epoch. When all do, each hold is ended. If one did not last until then,
//!    this is repeated.
//! 4. Each node lists its logs, and they are copied as far as they are durable: at least up to its epoch. Those parts
//!    that the chain has already are left out.
//! 5. The manifest is written. From here on the backup counts.
//! 6. The pins are narrowed to the logs' last segments, for the next backup of this run, or ended.
//!
//! Between the last hold's begin and the first one's end no node lets anything out that is not in the backup; before
//! that, nothing that is not in it was let out either. So the nodes' states at their epochs are those that a crash of
//! all nodes at that moment would have left.
//!
//! Objects that are there already are not written again, so that a backup that was interrupted goes on where it was.

mod source_node;

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use base::utc::UtcTime;
use store::{CheckpointFiles, DataFile, DataFiles, HeldMoment};

use source_node::SourceNode;

use crate::error::RepositoryError;
use crate::manifest::{BackupManifest, FilePiece, NodeBackup};
use crate::repository::{BackupChain, Repository};
use crate::source::{NodeDescription, NodeSource};

/// For how long files stay pinned if the pins are not renewed.
const PINNED: Duration = Duration::from_secs(600);
/// Holds that do not last are repeated so often.
const TRIES: usize = 20;
/// Bytes that are read from a node at once.
const READ: u64 = 1 << 20;

/// Options of backups.
#[derive(Clone, Debug)]
pub struct CreationOptions {
    /// `true`: a full backup begins a new chain.
    pub full: bool,
    /// The most bytes of a piece.
    pub piece: u64,
    /// The longest time for which nodes hold their replies.
    pub hold: Duration,
    /// The time after which the pins of all nodes are renewed, while a node is copied.
    pub renewal: Duration,
    /// The release that makes the backup.
    pub release: String,
}

impl Default for CreationOptions {
    fn default() -> CreationOptions {
        CreationOptions {
            full: false,
            piece: 16 << 20,
            hold: Duration::from_millis(500),
            renewal: PINNED / 4,
            release: String::new(),
        }
    }
}

/// Sees the progress of a backup.
pub trait CreationObserver {
    /// `done` of `of` bytes are copied from a node.
    fn copied(&mut self, node: u16, done: u64, of: u64);

    /// Something that its user should know has happened.
    fn note(&mut self, text: &str);

    /// Returns `true` if the backup is to stop.
    fn is_stopped(&self) -> bool;

    /// `bytes` were read; waits if that was more than is allowed in this time.
    fn pace(&mut self, bytes: u64);
}

/// The reason why no backup was made.
#[derive(Debug, thiserror::Error)]
pub enum CreationError {
    /// The repository cannot be read or written.
    #[error(transparent)]
    Repository(#[from] RepositoryError),
    /// A node cannot be reached, or refuses; the text names it.
    #[error("{0}")]
    Node(String),
    /// No moment was found at which all nodes hold.
    #[error(
        "the nodes did not hold their replies at the same time, in {TRIES} tries: the network or a node is too slow; \
         try again, or allow more time by --hold"
    )]
    NoMoment,
    /// There is no room.
    #[error(
        "the backup takes {needed} bytes, and {place} has room for {free}; nothing was written for it yet"
    )]
    NoRoom {
        /// The bytes that are missing in the repository.
        needed: u64,
        /// The bytes for which there is room.
        free: u64,
        /// The repository.
        place: String,
    },
    /// It was stopped.
    #[error("stopped; what is complete is kept, and the same command goes on from there")]
    Stopped,
}

/// Backups of some nodes, one behind the other.
pub struct Creation<'a> {
    repository: &'a Repository,
    nodes: Vec<SourceNode<'a>>,
    options: CreationOptions,
    /// The name of the pins.
    pin: String,
    /// When they were renewed last.
    renewed: Instant,
    chain: String,
    /// The number of the next backup of the chain.
    number: u64,
    /// The objects of the chain.
    objects: BTreeSet<String>,
}

impl<'a> Creation<'a> {
    /// Begins backups of nodes, which are described: pins their files, and finds the chain that is continued.
    ///
    /// # Errors
    /// Returns an error if the repository cannot be read, or a node cannot be reached.
    pub fn begin(
        repository: &'a Repository,
        sources: Vec<(&'a mut dyn NodeSource, NodeDescription)>,
        options: CreationOptions,
        observer: &mut dyn CreationObserver,
    ) -> Result<Creation<'a>, CreationError> {
        let nodes = sources.into_iter().map(|(source, description)| SourceNode {
            source,
            description,
            base: None,
            base_ms: 0,
            copied: BTreeMap::new(),
        });
        let now = milliseconds(SystemTime::now());
        let mut creation = Creation {
            repository,
            nodes: nodes.collect(),
            options,
            pin: format!("backup {now} {}", std::process::id()),
            renewed: Instant::now(),
            chain: String::new(),
            number: 0,
            objects: BTreeSet::new(),
        };
        creation.pin_files()?;
        let mut listed = Vec::new();
        for node in &mut creation.nodes {
            let files = node.source.files(&creation.pin);
            listed.push(files.map_err(CreationError::Node)?);
        }
        creation.choose_chain(&listed, now, observer)?;
        Ok(creation)
    }

    /// Continues the newest chain if it can be continued, else a full backup that was not finished; or begins a chain.
    fn choose_chain(
        &mut self,
        listed: &[DataFiles],
        now: u64,
        observer: &mut dyn CreationObserver,
    ) -> Result<(), CreationError> {
        let mut chains = self.repository.chains()?;
        let unfinished = chains.pop_if(|last| last.backups.is_empty());
        let newest = chains.last().and_then(|chain| time_of(&chain.name));
        let last = chains.into_iter().rfind(|chain| !chain.backups.is_empty());
        if let Some(last) = last.filter(|_| !self.options.full && unfinished.is_none()) {
            self.take_over(&last);
            let mut nodes = self.nodes.iter().zip(listed);
            match nodes.find_map(|(node, files)| node.break_in(files)) {
                None => {
                    self.objects = self.repository.objects(&self.chain)?;
                    return Ok(());
                }
                Some(why) => observer.note(&format!("{why}. This backup is a full one")),
            }
        }
        let name = match unfinished {
            Some(unfinished) => unfinished.name,
            // Later ones come behind earlier ones, also when the clock has gone back.
            None => chain_name(now.max(newest.map_or(0, |newest| newest + 1))),
        };
        self.objects = self.repository.objects(&name)?;
        if !self.objects.is_empty() {
            observer.note(&format!("going on with the unfinished full backup {name}"));
        }
        (self.chain, self.number) = (name, 0);
        for (node, files) in self.nodes.iter_mut().zip(listed) {
            node.copied.clear();
            // If part of a checkpoint is there, and the node still has that, it is the one.
            let number = node.description.node;
            let is_begun = |base: &&CheckpointFiles| {
                let prefix = format!("{}/node{number}/{}.", self.chain, base.files[0].name);
                let mut objects = self.objects.iter();
                objects.any(|name| name.starts_with(&prefix))
            };
            let checkpoints = &files.checkpoints;
            let begun = checkpoints.iter().find(is_begun);
            node.base = begun.or(checkpoints.first()).cloned();
            node.base_ms = node.base.as_ref().map_or(0, |base| base.stamp_ms);
        }
        Ok(())
    }

    /// Takes over what a chain has.
    fn take_over(&mut self, chain: &BackupChain) {
        self.chain.clone_from(&chain.name);
        self.number = chain.backups.len() as u64;
        let of_nodes = chain.backups.iter().flat_map(|backup| &backup.nodes);
        for backup in of_nodes {
            let number = backup.description.node;
            let nodes = self.nodes.iter_mut();
            for node in nodes.filter(|node| node.description.node == number) {
                node.note(&backup.pieces);
                node.base_ms = backup.base_ms;
            }
        }
    }

    /// Makes the next backup.
    ///
    /// # Errors
    /// Returns an error if the repository or a node fails. The backup does not count then; the next one goes on from
    /// what is there.
    pub fn make(
        &mut self,
        observer: &mut dyn CreationObserver,
    ) -> Result<BackupManifest, CreationError> {
        let mut added: Vec<Vec<FilePiece>> = Vec::new();
        let is_full = self.number == 0;
        let bases = self.nodes.iter().map(|node| {
            let base = node.base.as_ref().filter(|_| is_full);
            base.map_or_else(Vec::new, |base| base.files.clone())
        });
        let bases: Vec<Vec<DataFile>> = bases.collect();
        self.check_room(&bases)?;
        for (index, files) in bases.iter().enumerate() {
            added.push(self.copy(index, files, observer)?);
        }
        let (moments, moment_ms) = self.draw_moment(observer)?;
        // For each node, the newest segment of each log.
        let mut newest: Vec<Vec<u32>> = Vec::new();
        for (index, of_node) in added.iter_mut().enumerate() {
            let node = &mut self.nodes[index];
            let files = node.source.files(&self.pin).map_err(CreationError::Node)?;
            let mut of_logs = Vec::new();
            let mut needed = Vec::new();
            for (log, segments) in files.logs.iter().enumerate() {
                let first = node.first_needed(&files, log);
                let of_log = segments.iter().filter(|segment| segment.number >= first);
                needed.extend(of_log.map(|segment| segment.file.clone()));
                of_logs.push(segments.last().map_or(first, |last| last.number));
            }
            of_node.extend(self.copy(index, &needed, observer)?);
            newest.push(of_logs);
        }
        let nodes = self.nodes.iter().zip(moments).zip(added);
        let nodes = nodes.map(|((node, moment), pieces)| NodeBackup {
            description: node.description.clone(),
            epoch: moment.epoch.0,
            base_ms: node.base_ms,
            pieces,
        });
        let manifest = BackupManifest {
            chain: self.chain.clone(),
            number: self.number,
            moment_ms,
            release: self.options.release.clone(),
            nodes: nodes.collect(),
        };
        self.repository.put_manifest(&manifest)?;
        self.number += 1;
        // Only what a manifest names is there for later backups.
        let nodes = self.nodes.iter_mut().zip(&manifest.nodes).zip(&newest);
        for ((node, part), segments) in nodes {
            node.note(&part.pieces);
            // A node that does not answer says so at the next backup.
            let _ = node.source.narrow(&self.pin, segments);
        }
        Ok(manifest)
    }

    /// Checks that there is room for the checkpoints, as far as they are not there.
    fn check_room(&self, bases: &[Vec<DataFile>]) -> Result<(), CreationError> {
        let Some(free) = self.repository.free_bytes() else {
            return Ok(());
        };
        let mut needed = 0;
        for (node, files) in self.nodes.iter().zip(bases) {
            for file in files {
                let pieces = pieces(file, 0, self.options.piece);
                let missing = pieces.filter(|piece| {
                    let name = piece.object(&self.chain, node.description.node);
                    !self.objects.contains(&name)
                });
                needed += missing.map(|piece| piece.to - piece.from).sum::<u64>();
            }
        }
        if needed > free {
            let place = self.repository.place();
            return Err(CreationError::NoRoom {
                needed,
                free,
                place,
            });
        }
        Ok(())
    }

    /// Pins the files of all nodes, or renews the pins.
    fn pin_files(&mut self) -> Result<(), CreationError> {
        for node in &mut self.nodes {
            let pinned = node.source.pin(&self.pin, PINNED);
            pinned.map_err(CreationError::Node)?;
        }
        self.renewed = Instant::now();
        Ok(())
    }

    /// Copies what the chain does not have of these files of a node. Returns the pieces that it adds.
    fn copy(
        &mut self,
        index: usize,
        files: &[DataFile],
        observer: &mut dyn CreationObserver,
    ) -> Result<Vec<FilePiece>, CreationError> {
        let node = &self.nodes[index];
        let number = node.description.node;
        let added: Vec<FilePiece> = files
            .iter()
            .flat_map(|file| pieces(file, node.end_of(file), self.options.piece))
            .collect();
        let total: u64 = added.iter().map(|piece| piece.to - piece.from).sum();
        let mut done = 0;
        for piece in &added {
            // The nodes that are not copied at the moment keep their files, too.
            if self.renewed.elapsed() >= self.options.renewal {
                self.pin_files()?;
            }
            let node = &mut self.nodes[index];
            let object = piece.object(&self.chain, number);
            let bytes = piece.to - piece.from;
            if !self.objects.contains(&object) {
                let mut content = Vec::with_capacity(bytes as usize);
                while (content.len() as u64) < bytes {
                    if observer.is_stopped() {
                        return Err(CreationError::Stopped);
                    }
                    let at = piece.from + content.len() as u64;
                    let count = (piece.to - at).min(READ) as usize;
                    let read = node.source.read(&self.pin, &piece.file, at, count);
                    let read = read.map_err(CreationError::Node)?;
                    if read.is_empty() || read.len() > count {
                        return Err(CreationError::Node(format!(
                            "node {number}: {} ends at byte {at}, before byte {}",
                            piece.file, piece.to
                        )));
                    }
                    observer.pace(read.len() as u64);
                    content.extend(read);
                }
                self.repository.put(&object, &content)?;
                self.objects.insert(object);
            }
            done += bytes;
            observer.copied(number, done, total);
        }
        Ok(added)
    }

    /// Finds a moment at which all nodes hold. Returns what each of them said, and the time.
    fn draw_moment(
        &mut self,
        observer: &dyn CreationObserver,
    ) -> Result<(Vec<HeldMoment>, u64), CreationError> {
        for _ in 0..TRIES {
            if observer.is_stopped() {
                return Err(CreationError::Stopped);
            }
            if let Some(moments) = self.try_moment()? {
                let now = match &*moments {
                    // Its own times are those of its log.
                    [alone] => alone.time_ms,
                    _ => milliseconds(SystemTime::now()),
                };
                return Ok((moments, now));
            }
        }
        Err(CreationError::NoMoment)
    }

    fn try_moment(&mut self) -> Result<Option<Vec<HeldMoment>>, CreationError> {
        for node in &mut self.nodes {
            let asked = node.source.ask_hold(self.options.hold);
            asked.map_err(CreationError::Node)?;
        }
        let held = self.nodes.iter_mut().map(|node| node.source.held());
        let held: Vec<Result<HeldMoment, String>> = held.collect();
        // Those that hold are released, also when others have failed.
        let mut have_lasted = true;
        for (node, held) in self.nodes.iter_mut().zip(&held) {
            if let Ok(moment) = held {
                let asked = node.source.ask_release(moment.number);
                asked.map_err(CreationError::Node)?;
            }
        }
        for (node, held) in self.nodes.iter_mut().zip(&held) {
            if held.is_ok() {
                have_lasted &= node.source.released().map_err(CreationError::Node)?;
            }
        }
        let moments: Result<Vec<HeldMoment>, String> = held.into_iter().collect();
        let moments = moments.map_err(CreationError::Node)?;
        Ok(have_lasted.then_some(moments))
    }

    /// Ends the pins. Nodes that cannot be reached end them by themselves.
    pub fn end(mut self) {
        for node in &mut self.nodes {
            let _ = node.source.unpin(&self.pin);
        }
    }
}

/// Divides a file into pieces, from an offset on.
fn pieces(file: &DataFile, from: u64, most: u64) -> impl Iterator<Item = FilePiece> {
    let count = file.bytes.saturating_sub(from).div_ceil(most);
    let end = file.bytes;
    (0..count).map(move |number| FilePiece {
        file: file.name.clone(),
        identity: file.identity,
        from: from + number * most,
        to: end.min(from + (number + 1) * most),
    })
}

/// Returns the name of a chain that is begun now: names are in the order of time.
fn chain_name(now: u64) -> String {
    let time = UtcTime(now).to_string();
    time.replace(['-', ':', '.'], "")
}

/// Returns the time of which a name is.
fn time_of(name: &str) -> Option<u64> {
    let (date, time) = name.strip_suffix('Z')?.split_once('T')?;
    let parts = [
        (date, 0..4),
        (date, 4..6),
        (date, 6..8),
        (time, 0..2),
        (time, 2..4),
        (time, 4..6),
        (time, 6..9),
    ];
    let mut parts = parts.into_iter().map(|(text, range)| text.get(range));
    let [year, month, day, hour, minute, second, ms] =
        std::array::from_fn(|_| parts.next().flatten());
    let text = format!(
        "{}-{}-{}T{}:{}:{}.{}Z",
        year?, month?, day?, hour?, minute?, second?, ms?
    );
    text.parse().ok().map(|UtcTime(time)| time)
}

fn milliseconds(time: SystemTime) -> u64 {
    let since = time.duration_since(UNIX_EPOCH).unwrap_or_default();
    since.as_millis() as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_chains_are_in_the_order_of_time() {
        let name = chain_name(1_700_000_000_123);
        assert_eq!(name, "20231114T221320123Z");
        assert_eq!(time_of(&name), Some(1_700_000_000_123));
        assert!(chain_name(1_700_000_000_124) > name);
        for other in ["", "Z", "20231114T2213Z", "photos", "20231314T221320123Z"] {
            assert_eq!(time_of(other), None, "{other}");
        }
    }

    #[test]
    fn pieces_cover_a_file_from_an_offset_on() {
        let file = DataFile {
            name: "log0/00000001.log".to_owned(),
            bytes: 25,
            identity: 7,
        };
        let of = |from, most| -> Vec<(u64, u64)> {
            let pieces = pieces(&file, from, most);
            pieces.map(|piece| (piece.from, piece.to)).collect()
        };
        assert_eq!(of(0, 10), [(0, 10), (10, 20), (20, 25)]);
        assert_eq!(of(5, 10), [(5, 15), (15, 25)]);
        assert_eq!(of(24, 10), [(24, 25)]);
        assert_eq!(of(25, 10), []);
        assert_eq!(of(30, 10), []);
    }
}
