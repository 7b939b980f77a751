//! The manifest of a backup: its moment, and the pieces of files that it adds to its chain.
//!
//! A manifest is JSON:
//!
//! | field | meaning |
//! |---|---|
//! | `format` | the version of this format: 1 |
//! | `number` | of the backup in its chain, from 0 on without gaps; 0 is the full one |
//! | `moment_ms` | its moment, milliseconds since the Unix epoch |
//! | `release` | the release that made it |
//! | `nodes` | an object for each node |
//!
//! | field of a node | meaning |
//! |---|---|
//! | `node`, `partition`, `slots`, `cluster`, `data`, `address` | see [`NodeDescription`] |
//! | `epoch` | the moment of this node: everything up to this epoch belongs to the backup, nothing later |
//! | `base_ms` | the time of the checkpoint with which the chain begins; 0: there is none |
//! | `pieces` | for each piece: the file's name, its identity, and the offsets of its first byte and behind its last one |
//!
//! The pieces of a file follow each other without gaps, over the manifests of a chain. The object of a piece has the
//! name `<chain>/node<n>/<file>.<identity>.<from>-<to>`.

use serde_json::{Map, Value, json};

use crate::source::NodeDescription;

/// The version of the format that this release writes, and the newest that it reads.
pub(crate) const VERSION: u64 = 1;

/// A backup.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BackupManifest {
    /// The chain to which it belongs.
    pub chain: String,
    /// Its number in the chain.
    pub number: u64,
    /// Its moment, milliseconds since the Unix epoch.
    pub moment_ms: u64,
    /// The release that made it.
    pub release: String,
    /// Its nodes, in the order of their numbers.
    pub nodes: Vec<NodeBackup>,
}

/// The part of a node.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NodeBackup {
    /// The node's data.
    pub description: NodeDescription,
    /// Everything up to this epoch belongs to the backup, nothing later.
    pub epoch: u64,
    /// The time of the chain's checkpoint; 0: there is none.
    pub base_ms: u64,
    /// The pieces that the backup adds.
    pub pieces: Vec<FilePiece>,
}

/// A piece of a file.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct FilePiece {
    /// The file's name in the data directory.
    pub file: String,
    /// The file's identity.
    pub identity: u64,
    /// The offset of its first byte.
    pub from: u64,
    /// The offset behind its last byte.
    pub to: u64,
}

/// The reason why a text is no manifest.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum BadBackupManifest {
    Malformed,
    Newer(u64),
}

impl FilePiece {
    /// Returns the name of its object.
    pub(crate) fn object(&self, chain: &str, node: u16) -> String {
        let FilePiece {
            file,
            identity,
            from,
            to,
        } = self;
        format!("{chain}/node{node}/{file}.{identity:016x}.{from}-{to}")
    }
}

impl BackupManifest {
    /// Returns the name by which people name the backup.
    #[must_use]
    pub fn name(&self) -> String {
        format!("{}.{}", self.chain, self.number)
    }

    /// Returns the name of its object.
    pub(crate) fn object(&self) -> String {
        object(&self.chain, self.number)
    }

    /// Returns the bytes of its pieces.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        let pieces = self.nodes.iter().flat_map(|node| &node.pieces);
        pieces.map(|piece| piece.to - piece.from).sum()
    }

    pub(crate) fn encode(&self) -> Vec<u8> {
        let nodes: Vec<Value> = self.nodes.iter().map(encode_node).collect();
        let manifest = json!({
            "format": VERSION,
            "number": self.number,
            "moment_ms": self.moment_ms,
            "release": self.release,
            "nodes": nodes,
        });
        manifest.to_string().into_bytes()
    }

    pub(crate) fn decode(chain: &str, bytes: &[u8]) -> Result<BackupManifest, BadBackupManifest> {
        let value: Value =
            serde_json::from_slice(bytes).map_err(|_| BadBackupManifest::Malformed)?;
        let version = value["format"]
            .as_u64()
            .ok_or(BadBackupManifest::Malformed)?;
        if version > VERSION {
            return Err(BadBackupManifest::Newer(version));
        }
        decode(chain, &value).ok_or(BadBackupManifest::Malformed)
    }
}

/// Returns the name of a manifest's object.
pub(crate) fn object(chain: &str, number: u64) -> String {
    format!("{chain}/{PREFIX}{number:06}")
}

/// The beginning of the names of manifests within their chain.
pub(crate) const PREFIX: &str = "backup-";

fn encode_node(node: &NodeBackup) -> Value {
    let NodeDescription {
        node: number,
        partition,
        slots,
        cluster,
        data,
        address,
    } = &node.description;
    let pieces = node.pieces.iter();
    let pieces = pieces.map(|piece| {
        let identity = format!("{:016x}", piece.identity);
        json!([piece.file, identity, piece.from, piece.to])
    });
    json!({
        "node": number,
        "partition": partition,
        "slots": slots,
        "cluster": cluster,
        "data": data,
        "address": address,
        "epoch": node.epoch,
        "base_ms": node.base_ms,
        "pieces": pieces.collect::<Vec<Value>>(),
    })
}

fn decode(chain: &str, value: &Value) -> Option<BackupManifest> {
    let nodes = value["nodes"].as_array()?.iter().map(decode_node);
    Some(BackupManifest {
        chain: chain.to_owned(),
        number: value["number"].as_u64()?,
        moment_ms: value["moment_ms"].as_u64()?,
        release: text(value.as_object()?, "release")?,
        nodes: nodes.collect::<Option<_>>()?,
    })
}

fn decode_node(value: &Value) -> Option<NodeBackup> {
    let fields = value.as_object()?;
    let small = |name: &str| u16::try_from(value[name].as_u64()?).ok();
    let pieces = value["pieces"].as_array()?.iter().map(decode_piece);
    Some(NodeBackup {
        description: NodeDescription {
            node: small("node")?,
            partition: small("partition")?,
            slots: text(fields, "slots")?,
            cluster: match &value["cluster"] {
                Value::Null => None,
                name => Some(name.as_str()?.to_owned()),
            },
            data: text(fields, "data")?,
            address: text(fields, "address")?,
        },
        epoch: value["epoch"].as_u64()?,
        base_ms: value["base_ms"].as_u64()?,
        pieces: pieces.collect::<Option<_>>()?,
    })
}

fn decode_piece(value: &Value) -> Option<FilePiece> {
    let [file, identity, from, to] = value.as_array()?.as_slice() else {
        return None;
    };
    let piece = FilePiece {
        file: file.as_str()?.to_owned(),
        identity: u64::from_str_radix(identity.as_str()?, 16).ok()?,
        from: from.as_u64()?,
        to: to.as_u64()?,
    };
    (piece.from <= piece.to && is_data_file(&piece.file)).then_some(piece)
}

/// Returns `true` if this is the name of a file in a log or a checkpoint: it may be joined to a directory.
fn is_data_file(name: &str) -> bool {
    let is_plain = |part: &str| {
        let mut bytes = part.bytes();
        bytes.all(|byte| byte.is_ascii_alphanumeric() || byte == b'.' || byte == b'-')
    };
    name.split_once('/').is_some_and(|(dir, file)| {
        let is_dir = dir == "checkpoint" || dir.starts_with("log");
        is_dir && is_plain(dir) && is_plain(file) && !file.starts_with('.')
    })
}

fn text(fields: &Map<String, Value>, name: &str) -> Option<String> {
    Some(fields.get(name)?.as_str()?.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn manifests_come_back_and_newer_ones_are_named() {
        let piece = |from| FilePiece {
            file: "log0/00000001.log".to_owned(),
            identity: u64::MAX,
            from,
            to: u64::MAX,
        };
        let node = |node, cluster: Option<&str>| NodeBackup {
            description: NodeDescription {
                node,
                partition: node,
                slots: "0-16383".to_owned(),
                cluster: cluster.map(str::to_owned),
                data: "00ff".to_owned(),
                address: "127.0.0.1:6380".to_owned(),
            },
            epoch: u64::MAX,
            base_ms: 7,
            pieces: vec![piece(0), piece(9)],
        };
        let manifest = BackupManifest {
            chain: "20261130T171537Z".to_owned(),
            number: 3,
            moment_ms: 1_234_567_890_123,
            release: "0.1.0".to_owned(),
            nodes: vec![node(1, Some("\"shop\"")), node(2, None)],
        };
        let bytes = manifest.encode();
        let read = |bytes: &[u8]| BackupManifest::decode("20261130T171537Z", bytes);
        assert_eq!(read(&bytes), Ok(manifest.clone()));
        assert_eq!(manifest.name(), "20261130T171537Z.3");
        assert_eq!(manifest.object(), "20261130T171537Z/backup-000003");
        assert_eq!(
            piece(9).object("c", 2),
            format!("c/node2/log0/00000001.log.ffffffffffffffff.9-{}", u64::MAX)
        );
        let text = String::from_utf8(bytes).unwrap();
        let newer = text.replace("\"format\":1", "\"format\":2");
        assert_eq!(read(newer.as_bytes()), Err(BadBackupManifest::Newer(2)));
        let outside = text.replace("log0/", "log0/../../");
        let hidden = text.replace("log0/", ".ssh/");
        let without = text.replace("\"epoch\"", "\"e\"");
        for bad in ["", "{}", "[1]", &without, &outside, &hidden] {
            assert_eq!(
                read(bad.as_bytes()),
                Err(BadBackupManifest::Malformed),
                "{bad}"
            );
        }
    }
}
