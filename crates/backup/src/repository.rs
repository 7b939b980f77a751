//! A repository: the backups of one node or cluster in an object store.
//!
//! | object | what |
//! |---|---|
//! | `kumiki-backups` | the description: what data the backups are of, and the key's fingerprint if they are encrypted; never encrypted itself |
//! | `<chain>/backup-<number>` | the [manifest](crate::manifest) of a backup |
//! | `<chain>/node<n>/…` | pieces of a node's files |
//!
//! A chain is a full backup and the incremental ones behind it. Its name is the time at which it was begun. A chain can
//! be removed as a whole. Objects to which no manifest refers are what interrupted backups have left; a chain
//! without a manifest is a full backup that was not finished.
//!
//! The description is JSON: `format` (1), `fingerprint` (of the key, or null), and `nodes`, each with `node`,
//! `partition` and `data`.
//!
//! Invariant: an object is durable before a manifest refers to it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use serde_json::{Value, json};

use crate::encryption_key::EncryptionKey;
use crate::error::RepositoryError;
use crate::manifest::{self, BackupManifest, BadBackupManifest, FilePiece};
use crate::object_format::{self, BadObject};
use crate::object_store::ObjectStore;
use crate::source::NodeDescription;

/// The name of the description.
const DESCRIPTION: &str = "kumiki-backups";
const VERSION: u64 = 1;

/// A repository.
pub struct Repository {
    store: Arc<dyn ObjectStore>,
    key: Option<EncryptionKey>,
}

/// A chain of backups.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BackupChain {
    /// Its name.
    pub name: String,
    /// Its backups, in order.
    pub backups: Vec<BackupManifest>,
}

/// The files of a node, and their pieces in order, each with the backup that has it.
pub(crate) type FilesOfNode<'a> = BTreeMap<&'a str, Vec<(&'a BackupManifest, &'a FilePiece)>>;

/// The description of a repository.
#[derive(Debug, PartialEq, Eq)]
struct RepositoryDescription {
    fingerprint: Option<String>,
    /// For each node: its partition and the id of its data.
    nodes: BTreeMap<u16, (u16, String)>,
}

impl Repository {
    /// Returns the repository in `store`, for reading. Its objects are encrypted if there is a key.
    ///
    /// # Errors
    /// Returns an error if there are no backups, or the key is not theirs.
    pub fn open(
        store: Arc<dyn ObjectStore>,
        key: Option<EncryptionKey>,
    ) -> Result<Repository, RepositoryError> {
        let repository = Repository { store, key };
        match repository.description()? {
            Some(description) => repository.check_key(&description)?,
            None => return Err(RepositoryError::Empty(repository.place())),
        }
        Ok(repository)
    }

    /// Returns the repository in `store` for backups of these nodes. Creates it if there is none.
    ///
    /// # Errors
    /// Returns an error if there are other files, or backups of other data, or the key is not theirs.
    pub fn open_or_create(
        store: Arc<dyn ObjectStore>,
        key: Option<EncryptionKey>,
        nodes: &[NodeDescription],
    ) -> Result<Repository, RepositoryError> {
        let repository = Repository { store, key };
        if repository.description()?.is_none() {
            if !repository.store.list("")?.is_empty() {
                return Err(RepositoryError::Foreign(repository.place()));
            }
            let described = RepositoryDescription {
                fingerprint: repository.key.as_ref().map(EncryptionKey::fingerprint),
                nodes: nodes.iter().map(data_of).collect(),
            };
            let (content, salt) = (described.encode(), random_salt());
            let bytes = object_format::encode(DESCRIPTION, &content, None, salt);
            repository.store.put_new(DESCRIPTION, &bytes)?;
        }
        let description = repository.description()?;
        let description = description.ok_or_else(|| RepositoryError::Empty(repository.place()))?;
        repository.check_key(&description)?;
        let given: BTreeMap<_, _> = nodes.iter().map(data_of).collect();
        if let Some(why) = difference(&description.nodes, &given) {
            let place = repository.place();
            return Err(RepositoryError::OtherData { place, why });
        }
        Ok(repository)
    }

    /// Returns its place as people find it.
    #[must_use]
    pub fn place(&self) -> String {
        let place = self.store.place("");
        place.trim_end_matches('/').to_owned()
    }

    /// Returns the bytes for which there is room, if that is known.
    #[must_use]
    pub fn free_bytes(&self) -> Option<u64> {
        self.store.free_bytes()
    }

    fn description(&self) -> Result<Option<RepositoryDescription>, RepositoryError> {
        let Some(bytes) = self.store.get(DESCRIPTION)? else {
            return Ok(None);
        };
        let content = object_format::decode(DESCRIPTION, bytes, None);
        let content = content.map_err(|bad| self.refused(DESCRIPTION, bad))?;
        let malformed = || {
            let what = "it is no description of backups".to_owned();
            self.refused(DESCRIPTION, BadObject::Damaged(0, what))
        };
        let value: Value = serde_json::from_slice(&content).map_err(|_| malformed())?;
        let version = value["format"].as_u64().ok_or_else(malformed)?;
        if version > VERSION {
            return Err(self.newer(DESCRIPTION, version, VERSION));
        }
        RepositoryDescription::decode(&value)
            .map(Some)
            .ok_or_else(malformed)
    }

    fn check_key(&self, description: &RepositoryDescription) -> Result<(), RepositoryError> {
        let place = self.place();
        match (&description.fingerprint, &self.key) {
            (None, None) => Ok(()),
            (Some(_), None) => Err(RepositoryError::Encrypted(place)),
            (None, Some(_)) => Err(RepositoryError::NotEncrypted(place)),
            (Some(expected), Some(key)) if *expected == key.fingerprint() => Ok(()),
            (Some(expected), Some(key)) => Err(RepositoryError::WrongKey {
                place,
                expected: expected.clone(),
                given: key.fingerprint(),
            }),
        }
    }

    fn newer(&self, name: &str, version: u64, supported: u64) -> RepositoryError {
        RepositoryError::Newer {
            place: self.store.place(name),
            version,
            supported,
        }
    }

    fn refused(&self, name: &str, bad: BadObject) -> RepositoryError {
        let place = self.store.place(name);
        match bad {
            BadObject::Damaged(offset, what) => RepositoryError::Damaged {
                place,
                offset,
                what,
            },
            BadObject::Newer(version) => {
                self.newer(name, version.into(), object_format::VERSION.into())
            }
            BadObject::OtherCipher => RepositoryError::Damaged {
                place,
                offset: 12,
                what: match self.key {
                    Some(_) => "it is not encrypted, and the backups are".to_owned(),
                    None => "it is encrypted, and the backups are not".to_owned(),
                },
            },
        }
    }

    /// Returns the content of an object that `needed_by` refers to.
    pub(crate) fn get(&self, name: &str, needed_by: &str) -> Result<Vec<u8>, RepositoryError> {
        let bytes = self.store.get(name)?;
        let bytes = bytes.ok_or_else(|| RepositoryError::Missing {
            place: self.store.place(name),
            needed_by: needed_by.to_owned(),
        })?;
        let content = object_format::decode(name, bytes, self.key.as_ref());
        content.map_err(|bad| self.refused(name, bad))
    }

    /// Returns the content of a piece of a node's file.
    pub(crate) fn get_piece(
        &self,
        backup: &BackupManifest,
        node: u16,
        piece: &FilePiece,
    ) -> Result<Vec<u8>, RepositoryError> {
        let name = piece.object(&backup.chain, node);
        let content = self.get(&name, &format!("backup {}", backup.name()))?;
        let expected = piece.to - piece.from;
        if content.len() as u64 != expected {
            let what = format!("it holds {} bytes instead of {expected}", content.len());
            return Err(self.refused(&name, BadObject::Damaged(0, what)));
        }
        Ok(content)
    }

    /// Returns the files that a node has in a chain up to its backup `last`.
    ///
    /// # Errors
    /// Returns an error if the pieces of a file do not follow each other.
    pub(crate) fn files_of<'a>(
        &self,
        chain: &'a BackupChain,
        last: usize,
        node: u16,
    ) -> Result<FilesOfNode<'a>, RepositoryError> {
        let mut files = FilesOfNode::new();
        for backup in &chain.backups[..=last] {
            let parts = backup.nodes.iter();
            let parts = parts.filter(|part| part.description.node == node);
            for piece in parts.flat_map(|part| &part.pieces) {
                let pieces = files.entry(&piece.file).or_default();
                let end = pieces.last().map(|(_, last)| (last.identity, last.to));
                if end.unwrap_or((piece.identity, 0)) != (piece.identity, piece.from) {
                    let what = format!(
                        "its piece of {} from byte {} on does not follow the one before it",
                        piece.file, piece.from
                    );
                    return Err(self.refused(&backup.object(), BadObject::Damaged(0, what)));
                }
                pieces.push((backup, piece));
            }
        }
        Ok(files)
    }

    /// Writes an object.
    pub(crate) fn put(&self, name: &str, content: &[u8]) -> Result<(), RepositoryError> {
        let bytes = object_format::encode(name, content, self.key.as_ref(), random_salt());
        Ok(self.store.put(name, &bytes)?)
    }

    /// Writes the manifest of a backup whose objects are all there.
    pub(crate) fn put_manifest(&self, manifest: &BackupManifest) -> Result<(), RepositoryError> {
        let name = manifest.object();
        let content = manifest.encode();
        let bytes = object_format::encode(&name, &content, self.key.as_ref(), random_salt());
        if self.store.put_new(&name, &bytes)? {
            return Ok(());
        }
        Err(RepositoryError::OtherData {
            place: self.place(),
            why: format!("another backup {} was made meanwhile", manifest.name()),
        })
    }

    /// Returns the names of the objects of a chain.
    pub(crate) fn objects(&self, chain: &str) -> Result<BTreeSet<String>, RepositoryError> {
        let objects = self.store.list(&format!("{chain}/"))?;
        Ok(objects.into_iter().map(|object| object.name).collect())
    }

    /// Returns the chains, the oldest first, those without a backup among them.
    ///
    /// # Errors
    /// Returns an error if a manifest is damaged, or one is missing in a chain.
    pub fn chains(&self) -> Result<Vec<BackupChain>, RepositoryError> {
        let mut numbers: BTreeMap<String, BTreeSet<u64>> = BTreeMap::new();
        for object in self.store.list("")? {
            let Some((chain, name)) = object.name.split_once('/') else {
                continue;
            };
            let of_chain = numbers.entry(chain.to_owned()).or_default();
            let number = name.strip_prefix(manifest::PREFIX);
            of_chain.extend(number.and_then(|number| number.parse::<u64>().ok()));
        }
        let chains = numbers.into_iter().map(|(name, numbers)| {
            let last = numbers.last().copied();
            let numbers = last.map_or(0..0, |last| 0..last + 1);
            let last = last.map(|last| format!("backup {name}.{last}"));
            let backups = numbers
                .map(|number| self.manifest(&name, number, last.as_deref().unwrap_or_default()));
            let backups = backups.collect::<Result<Vec<BackupManifest>, RepositoryError>>()?;
            Ok::<BackupChain, RepositoryError>(BackupChain { name, backups })
        });
        chains.collect()
    }

    fn manifest(
        &self,
        chain: &str,
        number: u64,
        needed_by: &str,
    ) -> Result<BackupManifest, RepositoryError> {
        let name = manifest::object(chain, number);
        let content = self.get(&name, needed_by)?;
        let malformed = |what: &str| self.refused(&name, BadObject::Damaged(0, what.to_owned()));
        match BackupManifest::decode(chain, &content) {
            Ok(manifest) if manifest.number == number => Ok(manifest),
            Ok(_) => Err(malformed("it is the manifest of another backup")),
            Err(BadBackupManifest::Malformed) => Err(malformed("it is no manifest of a backup")),
            Err(BadBackupManifest::Newer(version)) => {
                Err(self.newer(&name, version, manifest::VERSION))
            }
        }
    }
}

fn data_of(node: &NodeDescription) -> (u16, (u16, String)) {
    (node.node, (node.partition, node.data.clone()))
}

/// Describes the first difference between the data of a repository and that of nodes.
fn difference(
    known: &BTreeMap<u16, (u16, String)>,
    given: &BTreeMap<u16, (u16, String)>,
) -> Option<String> {
    let numbers: BTreeSet<u16> = known.keys().chain(given.keys()).copied().collect();
    numbers.into_iter().find_map(|node| {
        match (known.get(&node), given.get(&node)) {
            (Some(known), Some(given)) if known == given => None,
            (Some((partition, known)), Some((other, given))) => Some(format!(
                "node {node} had partition {partition} and the data with the id {known}, and has partition \
                 {other} and the data with the id {given}"
            )),
            (Some(_), None) => Some(format!("they have a node {node}")),
            (None, _) => Some(format!("they have no node {node}")),
        }
    })
}

fn random_salt() -> [u8; 32] {
    let mut salt = [0; 32];
    getrandom::fill(&mut salt).expect("the operating system has random numbers");
    salt
}

impl RepositoryDescription {
    fn encode(&self) -> Vec<u8> {
        let nodes = self.nodes.iter();
        let nodes = nodes.map(|(node, (partition, data))| {
            json!({ "node": node, "partition": partition, "data": data })
        });
        let value = json!({
            "format": VERSION,
            "fingerprint": self.fingerprint,
            "nodes": nodes.collect::<Vec<Value>>(),
        });
        value.to_string().into_bytes()
    }

    fn decode(value: &Value) -> Option<RepositoryDescription> {
        let nodes = value["nodes"].as_array()?.iter().map(|node| {
            let small = |name: &str| u16::try_from(node[name].as_u64()?).ok();
            let data = node["data"].as_str()?.to_owned();
            Some((small("node")?, (small("partition")?, data)))
        });
        Some(RepositoryDescription {
            fingerprint: match &value["fingerprint"] {
                Value::Null => None,
                text => Some(text.as_str()?.to_owned()),
            },
            nodes: nodes.collect::<Option<_>>()?,
        })
    }
}
