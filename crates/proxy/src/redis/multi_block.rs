//! Blocks: `MULTI … EXEC`, with watched keys.
//!
//! A block is gathered here and sent in one piece, so that blocks of many clients can share a
//! connection: no other command comes between its commands.
//!
//! How keys are watched depends on the nodes. Kumiki returns a key's version (`WATCH.VERSION`), and
//! takes it as a precondition of the block (`WATCH.AT`): the connection has no state. Redis keeps
//! watched keys as state of the connection, so a client that watches has a connection of its own
//! meanwhile; if that connection is lost, the watched keys may have changed, and the block is not
//! executed.
//!
//! Guards (`LOCK.GUARD`) come first, and go with the block to a node whose partitions compare tokens.
//! Nodes that do not compare tokens get no guards.

use std::collections::HashSet;

use bytes::{Bytes, BytesMut};
use cluster::slot;
use resp::command::write_command;
use resp::{Args, Span};

use crate::runtime::query::{ConnectionKey, NodeIndex};

/// The command with which a block begins, encoded.
pub(crate) const MULTI: &[u8] = b"*1\r\n$5\r\nMULTI\r\n";

/// The cost of a watched key besides its own bytes: its version, and the lengths of both.
const VERSION_BYTES: usize = 48;

/// The commands of a block.
#[derive(Debug, Default)]
pub(crate) struct Block {
    commands: Vec<Bytes>,
    bytes: usize,
    /// The slots of the keys, each once, in the order of their first use.
    pub(crate) slots: Vec<u16>,
    /// How many of the commands are guards; they come first.
    pub(crate) guards: usize,
    /// A command could not be queued: the block cannot be executed.
    pub(crate) failed: bool,
    /// At least one command changes something.
    pub(crate) changes: bool,
}

impl Block {
    pub(crate) fn push(&mut self, command: Bytes, slots: impl Iterator<Item = u16>, changes: bool) {
        self.bytes += command.len();
        self.commands.push(command);
        self.changes |= changes;
        for slot in slots {
            if !self.slots.contains(&slot) {
                self.slots.push(slot);
            }
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.commands.is_empty()
    }

    /// Returns how many bytes are held.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Returns how many commands are held.
    pub(crate) fn len(&self) -> usize {
        self.commands.len()
    }

    /// Returns the whole block in the node's encoding, after the versions of the watched keys, and the
    /// number of replies that the node gives.
    pub(crate) fn encode(&self, versions: &[(Bytes, Bytes)]) -> (Bytes, u32) {
        let mut out = Vec::with_capacity(self.bytes + 64);
        if !versions.is_empty() {
            let mut request: Vec<&[u8]> = vec![b"WATCH.AT"];
            request.extend(
                versions
                    .iter()
                    .flat_map(|(key, version)| [&key[..], version]),
            );
            write_command(&mut out, &request);
        }
        out.extend_from_slice(MULTI);
        for command in &self.commands {
            out.extend_from_slice(command);
        }
        write_command(&mut out, &[b"EXEC"]);
        let replies = self.commands.len() + 2 + usize::from(!versions.is_empty());
        (out.into(), replies as u32)
    }
}

/// The watched keys of a client.
#[derive(Debug, Default)]
pub(crate) struct Watches {
    /// Kumiki: keys and their versions.
    pub(crate) versions: Vec<(Bytes, Bytes)>,
    /// Redis: the node and key of the connection that watches, and its number among those of the
    /// connection key.
    pub(crate) own: Option<(NodeIndex, ConnectionKey, u64)>,
    /// The state of the watched keys is lost: the next block is not executed.
    pub(crate) lost: bool,
    /// The slots of the keys, each once.
    pub(crate) slots: Vec<u16>,
    /// The keys.
    keys: HashSet<Bytes, foldhash::fast::RandomState>,
    bytes: usize,
}

impl Watches {
    /// Returns the keys that are not watched yet, each once.
    pub(crate) fn new_ones<'a>(&self, keys: impl Iterator<Item = &'a [u8]>) -> Vec<Bytes> {
        let mut seen: HashSet<&[u8], foldhash::fast::RandomState> = HashSet::default();
        keys.filter(|key| !self.keys.contains(*key) && seen.insert(key))
            .map(Bytes::copy_from_slice)
            .collect()
    }

    /// Adds keys that are watched from now on.
    pub(crate) fn note(&mut self, keys: &[Bytes]) {
        self.bytes += bytes_of(keys);
        self.keys.extend(keys.iter().cloned());
        self.slots.extend(keys.iter().map(|key| slot::of(key)));
        self.slots.sort_unstable();
        self.slots.dedup();
    }

    /// Returns how many keys are watched.
    pub(crate) fn len(&self) -> usize {
        self.keys.len()
    }

    /// Returns an upper bound of the bytes that a node gets about the watched keys.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.versions.is_empty() && self.own.is_none() && !self.lost
    }

    /// Forgets all watched keys; the nodes are not notified.
    pub(crate) fn clear(&mut self) {
        *self = Watches::default();
    }
}

/// Returns how many bytes a node gets about these keys if they are watched, with their versions.
pub(crate) fn bytes_of(keys: &[Bytes]) -> usize {
    keys.iter().map(|key| key.len() + VERSION_BYTES).sum()
}

/// Returns a command in the node's encoding, and the positions of its arguments there.
pub(crate) fn list_of(args: Args<'_>) -> (BytesMut, Vec<Span>) {
    let mut out = BytesMut::with_capacity(args.total_bytes() + 32 * (args.len() + 1));
    let mut spans = Vec::with_capacity(args.len());
    out.extend_from_slice(format!("*{}\r\n", args.len()).as_bytes());
    for word in args.iter() {
        out.extend_from_slice(format!("${}\r\n", word.len()).as_bytes());
        spans.push(Span::new(out.len(), word.len()));
        out.extend_from_slice(word);
        out.extend_from_slice(b"\r\n");
    }
    (out, spans)
}

/// Returns a command in the node's encoding.
pub(crate) fn encode(args: Args<'_>) -> Bytes {
    let words: Vec<&[u8]> = args.iter().collect();
    let mut out = Vec::with_capacity(args.total_bytes() + 16 * words.len());
    write_command(&mut out, &words);
    out.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_block_is_one_piece() {
        let mut block = Block::default();
        block.push(
            Bytes::from_static(b"*1\r\n$4\r\nPING\r\n"),
            [].into_iter(),
            false,
        );
        assert!(!block.changes);
        block.push(
            Bytes::from_static(b"*2\r\n$4\r\nINCR\r\n$1\r\na\r\n"),
            [7, 7].into_iter(),
            true,
        );
        assert_eq!(
            (block.len(), &block.slots[..], block.changes),
            (2, &[7][..], true)
        );
        let (bytes, replies) = block.encode(&[]);
        assert_eq!(replies, 4);
        assert_eq!(
            bytes,
            "*1\r\n$5\r\nMULTI\r\n*1\r\n$4\r\nPING\r\n*2\r\n$4\r\nINCR\r\n$1\r\na\r\n\
             *1\r\n$4\r\nEXEC\r\n"
        );
        let (bytes, replies) = block.encode(&[("k".into(), "7".into())]);
        assert_eq!(replies, 5);
        assert!(bytes.starts_with(b"*3\r\n$8\r\nWATCH.AT\r\n$1\r\nk\r\n$1\r\n7\r\n*1\r\n"));
    }
}
