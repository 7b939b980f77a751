//! Gives keys of the target their own deadlines.
//!
//! All keys are walked once. A key whose own deadline lies behind a time gets it at once; the others are remembered, and
//! get theirs when the import is completed. The walk goes page by page, so that commands of the stream can be applied
//! between two pages.

use std::collections::{BTreeSet, HashMap};
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use resp::Value;
use resp::command::write_command;

use super::super::deadlines::{original, shifted};
use super::super::target::{NodeDatabase, Target};
use crate::node_connection::NodeConnection;
use crate::signals::StopRequest;

/// The keys of a page.
const PAGE: &[u8] = b"1000";
/// The keys that get their deadlines in one step.
const STEP: usize = 1000;
/// The pause before a step is tried again.
const PAUSE: Duration = Duration::from_millis(50);

/// See the module's description.
pub(super) struct Settling {
    target: Target,
    patience: Duration,
    stop: StopRequest,
    /// Own deadlines behind this time, in milliseconds since the Unix epoch, are set by the walk.
    until_ms: u64,
    /// The databases that are walked next, the last one first; `None`: the walk has not begun.
    places: Option<Vec<NodeDatabase>>,
    cursor: Vec<u8>,
    /// Keys with earlier deadlines, by their database.
    near: BTreeSet<(u64, Vec<u8>)>,
    connections: HashMap<SocketAddr, NodeConnection>,
}

/// A key and its deadline.
type KeyDeadline = (Vec<u8>, u64);

impl Settling {
    pub(super) fn new(
        target: &Target,
        until_ms: u64,
        patience: Duration,
        stop: &StopRequest,
    ) -> Settling {
        Settling {
            target: target.clone(),
            patience,
            stop: stop.clone(),
            until_ms,
            places: None,
            cursor: b"0".to_vec(),
            near: BTreeSet::new(),
            connections: HashMap::new(),
        }
    }

    pub(super) fn until_ms(&self) -> u64 {
        self.until_ms
    }

    /// Has the walk begin anew.
    pub(super) fn walk_again(&mut self) {
        self.places = None;
        self.cursor = b"0".to_vec();
    }

    /// Notes that a key may have an early deadline, which is shifted.
    pub(super) fn note(&mut self, database: u64, key: &[u8]) {
        self.near.insert((database, key.to_vec()));
    }

    /// Walks one page. Returns `true` when all are walked.
    ///
    /// # Errors
    /// The text says why the target refuses, or has not answered for so long.
    pub(super) fn step(&mut self) -> Result<bool, String> {
        let Some((place, deadlines)) = self.page()? else {
            return Ok(true);
        };
        let mut far = Vec::new();
        for (key, deadline) in deadlines {
            match original(deadline) {
                Some(own) if own > self.until_ms => far.push((key, own)),
                Some(_) => drop(self.near.insert((place.number, key))),
                None => {}
            }
        }
        self.set(place.node, place.number, &far)?;
        Ok(false)
    }

    /// Shifts the deadlines of all keys again: what [`Settling::step`] has done is undone.
    ///
    /// # Errors
    /// See [`Settling::step`].
    pub(super) fn revert(mut self) -> Result<(), String> {
        while let Some((place, deadlines)) = self.page()? {
            let own = deadlines.into_iter();
            let own = own.filter(|(_, deadline)| original(*deadline).is_none());
            let shifted: Vec<KeyDeadline> = own.map(|(key, own)| (key, shifted(own))).collect();
            self.set(place.node, place.number, &shifted)?;
        }
        Ok(())
    }

    /// Returns the next page of keys with deadlines, and where they are; `None`: all pages were returned.
    fn page(&mut self) -> Result<Option<(NodeDatabase, Vec<KeyDeadline>)>, String> {
        let places = match self.places.take() {
            Some(places) => places,
            None => self.target.databases_with_keys(self.patience)?,
        };
        let place = places.last().copied();
        self.places = Some(places);
        let Some(place) = place else {
            return Ok(None);
        };
        let cursor = self.cursor.clone();
        let scan: Vec<&[u8]> = vec![b"SCAN", &cursor, b"COUNT", PAGE];
        let page = self.insist(place.node, place.number, &[scan])?;
        let (next, keys) = page_of(page).ok_or("the target's answer to SCAN is malformed")?;
        if next == b"0"
            && let Some(places) = &mut self.places
        {
            places.pop();
        }
        self.cursor = next;
        let deadlines = self.deadlines(place.node, place.number, keys)?;
        Ok(Some((place, deadlines)))
    }

    /// Gives all keys their own deadlines that have not got them: when the walk is over, and the stream is applied to its
    /// end.
    ///
    /// # Errors
    /// See [`Settling::step`].
    pub(super) fn finish(mut self) -> Result<(), String> {
        while !self.step()? {}
        let near: Vec<(u64, Vec<u8>)> = std::mem::take(&mut self.near).into_iter().collect();
        for part in near.chunk_by(|(one, _), (other, _)| one == other) {
            let database = part[0].0;
            for keys in part.chunks(STEP) {
                let mut by_node: HashMap<SocketAddr, Vec<Vec<u8>>> = HashMap::new();
                for (_, key) in keys {
                    let node = self.target.node_of(key);
                    by_node.entry(node).or_default().push(key.clone());
                }
                for (node, keys) in by_node {
                    let deadlines = self.deadlines(node, database, keys)?.into_iter();
                    let own = |(key, deadline)| Some((key, original(deadline)?));
                    let own: Vec<KeyDeadline> = deadlines.filter_map(own).collect();
                    self.set(node, database, &own)?;
                }
            }
        }
        Ok(())
    }

    /// Returns those of the keys that have a deadline, with it.
    fn deadlines(
        &mut self,
        node: SocketAddr,
        database: u64,
        keys: Vec<Vec<u8>>,
    ) -> Result<Vec<KeyDeadline>, String> {
        let command = |key| vec![&b"PEXPIRETIME"[..], key];
        let commands: Vec<Vec<&[u8]>> = keys.iter().map(|key| command(key.as_slice())).collect();
        let replies = self.insist(node, database, &commands)?;
        let deadline = |reply: &Value| match reply {
            Value::Int(deadline) => u64::try_from(*deadline).ok(),
            _ => None,
        };
        let pairs = keys.into_iter().zip(&replies);
        Ok(pairs
            .filter_map(|(key, reply)| Some((key, deadline(reply)?)))
            .collect())
    }

    fn set(
        &mut self,
        node: SocketAddr,
        database: u64,
        keys: &[(Vec<u8>, u64)],
    ) -> Result<(), String> {
        let times: Vec<String> = keys
            .iter()
            .map(|(_, deadline)| deadline.to_string())
            .collect();
        let pairs = keys.iter().zip(&times);
        let commands: Vec<Vec<&[u8]>> = pairs
            .map(|((key, _), time)| vec![&b"PEXPIREAT"[..], key, time.as_bytes()])
            .collect();
        self.insist(node, database, &commands).map(drop)
    }

    /// Executes commands until the node has answered all of them without an error.
    fn insist(
        &mut self,
        node: SocketAddr,
        database: u64,
        commands: &[Vec<&[u8]>],
    ) -> Result<Vec<Value>, String> {
        if commands.is_empty() {
            return Ok(Vec::new());
        }
        let mut bytes = Vec::new();
        write_command(&mut bytes, &[b"SELECT", database.to_string().as_bytes()]);
        for command in commands {
            write_command(&mut bytes, command);
        }
        let begun = Instant::now();
        loop {
            let why = match self.exchange(node, &bytes, commands.len() + 1) {
                Ok(replies) => return Ok(replies),
                Err(why) => why,
            };
            if begun.elapsed() > self.patience {
                return Err(format!("{node}: {why}"));
            }
            if self.stop.is_wanted() {
                return Err("stopped".to_owned());
            }
            std::thread::sleep(PAUSE);
        }
    }

    fn exchange(
        &mut self,
        node: SocketAddr,
        bytes: &[u8],
        count: usize,
    ) -> Result<Vec<Value>, String> {
        let mut connection = match self.connections.remove(&node) {
            Some(connection) => connection,
            None => self.target.open(node)?,
        };
        let mut replies = connection.pipeline(bytes, count, self.patience)?;
        self.connections.insert(node, connection);
        let error = replies.iter().find_map(|reply| match reply {
            Value::Error(error) => Some(String::from_utf8_lossy(error).into_owned()),
            _ => None,
        });
        replies.remove(0);
        error.map_or(Ok(replies), Err)
    }
}

/// Returns the cursor and the keys of the reply to `SCAN`.
fn page_of(mut replies: Vec<Value>) -> Option<(Vec<u8>, Vec<Vec<u8>>)> {
    let Value::Array(page) = replies.pop()? else {
        return None;
    };
    let mut page = page.into_iter();
    let (Value::Bulk(cursor), Value::Array(keys)) = (page.next()?, page.next()?) else {
        return None;
    };
    let keys = keys.into_iter().map(|key| match key {
        Value::Bulk(key) => Some(key),
        _ => None,
    });
    Some((cursor, keys.collect::<Option<_>>()?))
}
