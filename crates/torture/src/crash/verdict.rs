//! The findings of a round.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Instant;

use anyhow::{Context, Result, bail};

use testkit::workload::collections;
use testkit::{Client, Reply};

/// A judgement over one or more rounds.
#[derive(Clone, Debug, Default)]
pub struct CrashVerdict {
    /// Writes whose success the server had reported.
    pub acknowledged: u64,
    /// Transactions on collections that took effect.
    pub collections: u64,
    /// Acknowledged writes, or values that were shown, of which nothing is left.
    pub lost: Vec<String>,
    /// Transactions of which only a part is there.
    pub partial: Vec<String>,
    /// Any other impossibility: values that no client sent, replies that no correct server gives.
    pub wrong: Vec<String>,
}

impl CrashVerdict {
    /// Returns `true` if there is no complaint.
    #[must_use]
    pub fn is_clean(&self) -> bool {
        self.lost.is_empty() && self.partial.is_empty() && self.wrong.is_empty()
    }

    /// Adds another round's judgement.
    pub fn add(&mut self, other: CrashVerdict) {
        self.acknowledged += other.acknowledged;
        self.collections += other.collections;
        self.lost.extend(other.lost);
        self.partial.extend(other.partial);
        self.wrong.extend(other.wrong);
    }

    /// Returns every complaint, one in a line.
    #[must_use]
    pub fn complaints(&self) -> String {
        let kinds = [
            ("lost", &self.lost),
            ("partial", &self.partial),
            ("wrong", &self.wrong),
        ];
        let lines = kinds
            .iter()
            .flat_map(|(kind, all)| all.iter().map(move |c| format!("  {kind}: {c}\n")));
        lines.collect()
    }
}

impl fmt::Display for CrashVerdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let lost = self.lost.len() as u64;
        let recovered = self.acknowledged.saturating_sub(lost);
        write!(
            f,
            "acknowledged = {}, recovered = {recovered}, lost = {lost}",
            self.acknowledged
        )?;
        write!(
            f,
            ", partial = {}, wrong = {}, transactions on collections = {}",
            self.partial.len(),
            self.wrong.len(),
            self.collections
        )
    }
}

/// A key as it was found after a restart.
#[derive(Clone, Debug)]
pub struct FoundCell {
    /// The value.
    pub bytes: Vec<u8>,
    /// The answer of PTTL: milliseconds, or −1 for never.
    pub ttl_ms: i64,
    /// When PTTL was asked.
    pub read_at: Instant,
}

/// All keys as they were found after a restart.
#[derive(Clone, Debug, Default)]
pub struct FoundKeys {
    /// Every key that the server listed.
    pub cells: BTreeMap<String, FoundCell>,
    /// The number of keys of collections, which it also listed.
    pub collections: usize,
}

impl FoundKeys {
    /// Reads the whole store through KEYS, GET and PTTL.
    ///
    /// # Errors
    /// Returns an error if the server goes away, answers with an error, or lists a key that GET
    /// does not find.
    pub fn read(client: &mut Client) -> Result<FoundKeys> {
        let Reply::Array(keys) = client.expect(&["KEYS", "*"])? else {
            bail!("KEYS was not answered with an array");
        };
        let mut names = Vec::with_capacity(keys.len());
        for key in keys {
            let Reply::Bulk(key) = key else {
                bail!("KEYS listed {key:?}")
            };
            names.push(String::from_utf8(key).context("KEYS listed a key that no client sent")?);
        }
        let all = names.len();
        names.retain(|name| !name.starts_with(collections::PREFIX));
        let collections = all - names.len();
        for name in &names {
            client.push(&["GET", name]);
            client.push(&["PTTL", name]);
        }
        client.flush()?;
        let read_at = Instant::now();
        let mut cells = BTreeMap::new();
        for name in names {
            match (client.try_reply()?, client.try_reply()?) {
                (Reply::Bulk(bytes), Reply::Int(ttl_ms)) => {
                    let cell = FoundCell {
                        bytes,
                        ttl_ms,
                        read_at,
                    };
                    cells.insert(name, cell);
                }
                (value, ttl) => {
                    bail!("KEYS listed {name}, but GET and PTTL say {value:?}, {ttl:?}")
                }
            }
        }
        Ok(FoundKeys { cells, collections })
    }

    /// Returns the bytes of a key.
    #[must_use]
    pub fn bytes(&self, key: &str) -> Option<&[u8]> {
        self.cells.get(key).map(|cell| cell.bytes.as_slice())
    }

    /// Returns the number in a key; an absent key is zero.
    ///
    /// # Errors
    /// Returns an error if the value is no number.
    pub fn number(&self, key: &str) -> Result<i64> {
        let Some(bytes) = self.bytes(key) else {
            return Ok(0);
        };
        let text = std::str::from_utf8(bytes).with_context(|| format!("{key} holds no number"))?;
        text.parse()
            .with_context(|| format!("{key} holds no number: {text}"))
    }
}
