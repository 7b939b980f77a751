//! The collections that both servers hold.

use std::fmt;

use anyhow::{Result, ensure};
use testkit::{Client, Reply};

use crate::server::ServerUnderTest;

/// Clients.
pub(super) const CLIENTS: u32 = 50;
/// Elements of the large collection of each type.
pub(super) const LARGE: u64 = 1_000_000;
/// Small hashes, sets and sorted sets, and the elements of each.
pub(super) const SMALL: u64 = 100;
/// Small lists, which grow and shrink during the runs, and small streams.
pub(super) const SMALL_LISTS: u64 = 10_000;
/// Elements of a small list at first, and of a small stream.
pub(super) const SMALL_LIST: u64 = 50;
pub(super) const SMALL_STREAM: u64 = 20;

/// Elements that a command adds, and entries that one delivers.
const AT_ONCE: u64 = 200;

/// The size of the collections of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Size {
    /// Many with at most 128 elements each.
    Small,
    /// One of a million.
    Large,
}

impl fmt::Display for Size {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Size::Small => "small",
            Size::Large => "1 M",
        })
    }
}

/// A type of collection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Content {
    Hashes,
    Lists,
    Sets,
    SortedSets,
    Streams,
}

impl Content {
    pub(super) const ALL: [Content; 5] = [
        Content::Hashes,
        Content::Lists,
        Content::Sets,
        Content::SortedSets,
        Content::Streams,
    ];

    /// Returns the name of the large collection, with which those of the small ones begin.
    pub(super) fn key(self) -> &'static str {
        match self {
            Content::Hashes => "hash",
            Content::Lists => "list",
            Content::Sets => "set",
            Content::SortedSets => "zset",
            Content::Streams => "stream",
        }
    }

    /// Returns the commands that add the elements `from..to` to `key`, by many at once.
    pub(super) fn additions(
        self,
        key: &str,
        from: u64,
        to: u64,
    ) -> impl Iterator<Item = Vec<String>> + use<> {
        let key = key.to_owned();
        let at_once = match self {
            Content::Streams => 1,
            _ => AT_ONCE,
        };
        (from..to).step_by(at_once as usize).map(move |first| {
            let command = match self {
                Content::Hashes => "HSET",
                Content::Lists => "RPUSH",
                Content::Sets => "SADD",
                Content::SortedSets => "ZADD",
                Content::Streams => "XADD",
            };
            let mut words = vec![command.to_owned(), key.clone()];
            for number in first..(first + at_once).min(to) {
                let element = format!("element:{number:012}");
                match self {
                    Content::Hashes => words.extend([element, "value".to_owned()]),
                    Content::Lists => words.push(format!("{number:010}")),
                    Content::Sets => words.push(element),
                    Content::SortedSets => words.extend([number.to_string(), element]),
                    Content::Streams => {
                        let id = format!("{}-0", number + 1);
                        words.extend([&id, "field", "value"].map(str::to_owned));
                    }
                }
            }
            words
        })
    }

    /// Returns the commands that make two consumer groups of a stream of so many entries: `group`, to which none is
    /// delivered, and `pending`, to which all are. There are none for other types.
    pub(super) fn groups(
        self,
        key: &str,
        entries: u64,
    ) -> impl Iterator<Item = Vec<String>> + use<> {
        let of = |words: &str| -> Vec<String> {
            let words = words.split(' ');
            words
                .map(|word| if word == "K" { key } else { word }.to_owned())
                .collect()
        };
        let groups = ["group", "pending"].map(|group| of(&format!("XGROUP CREATE K {group} 0")));
        let deliver = "XREADGROUP GROUP pending consumer COUNT 200 STREAMS K >";
        let deliveries = vec![of(deliver); entries.div_ceil(AT_ONCE) as usize];
        let is_stream = self == Content::Streams;
        let all = groups.into_iter().chain(deliveries);
        all.take(if is_stream { usize::MAX } else { 0 })
    }

    /// Returns the number of collections, and that of the elements of each.
    fn shape(self, size: Size) -> (u64, u64) {
        match (size, self) {
            (Size::Large, _) => (1, LARGE),
            (Size::Small, Content::Lists) => (SMALL_LISTS, SMALL_LIST),
            (Size::Small, Content::Streams) => (SMALL_LISTS, SMALL_STREAM),
            (Size::Small, _) => (SMALL, SMALL),
        }
    }

    /// Returns the names of the collections.
    fn keys(self, size: Size) -> impl Iterator<Item = String> {
        (0..self.shape(size).0).map(move |number| match size {
            Size::Small => format!("{}:{number:012}", self.key()),
            Size::Large => self.key().to_owned(),
        })
    }

    /// Makes the collections anew.
    pub(super) fn fill(self, server: &ServerUnderTest, size: Size) -> Result<()> {
        let deletions = self.keys(size).map(|key| vec!["DEL".to_owned(), key]);
        send(server, deletions)?;
        let each = self.shape(size).1;
        let keys = self.keys(size);
        let commands = keys.flat_map(|key| {
            let additions = self.additions(&key, 0, each);
            additions.chain(self.groups(&key, each))
        });
        send(server, commands)
    }

    /// Checks that the collections have as many elements as at first: otherwise the figures compare different
    /// work.
    pub(super) fn check(self, server: &ServerUnderTest, size: Size) -> Result<()> {
        let mut client = server.connect()?;
        let count = match self {
            Content::Hashes => "HLEN",
            Content::Lists => "LLEN",
            Content::Sets => "SCARD",
            Content::SortedSets => "ZCARD",
            Content::Streams => "XLEN",
        };
        let (keys, each) = self.shape(size);
        let mut sum = 0;
        for key in self.keys(size) {
            let Reply::Int(count) = client.expect(&[count, &key])? else {
                anyhow::bail!("{count} is answered with something else than a number");
            };
            sum += count as u64;
        }
        let wanted = keys * each;
        ensure!(
            sum == wanted,
            "the {} at {} have {sum} elements instead of {wanted}",
            self.key(),
            server.addr()
        );
        Ok(())
    }
}

/// Sends commands, a few at a time ahead of their replies.
///
/// # Errors
/// Returns an error if the server cannot be reached, or answers with an error.
pub(super) fn send(
    server: &ServerUnderTest,
    commands: impl Iterator<Item = Vec<String>>,
) -> Result<()> {
    let mut client = server.connect()?;
    let mut open = 0;
    let take = |client: &mut Client, open: usize| -> Result<()> {
        for _ in 0..open {
            let reply = client.try_reply()?;
            ensure!(!matches!(reply, Reply::Error(_)), "the reply is {reply:?}");
        }
        Ok(())
    };
    for words in commands {
        client.push(&words);
        open += 1;
        if open == 16 {
            client.flush()?;
            take(&mut client, open)?;
            open = 0;
        }
    }
    client.flush()?;
    take(&mut client, open)
}
