//! One connection: its socket, its handshake, what is to be sent on it, and the beginning of what
//! has not wholly arrived.
//!
//! An idle connection holds no buffers. What arrives is read into the inbox, where whole messages
//! stay; only the beginning of an unfinished one is kept here. A long message is gathered in
//! memory of its own, which grows as its bytes come.

use std::io::{self, ErrorKind, Read, Write};
use std::net::SocketAddr;
use std::time::Duration;

use mio::net::TcpStream;

use crate::frame::{LENGTH, message_head, message_len};
use crate::handshake::Handshake;
use crate::inbox::Inbox;
use crate::messages::{Link, SendError};
use crate::room::Room;

/// Bytes read at a time.
const READ: usize = 64 << 10;
/// An unfinished message that is longer than this is gathered in memory of its own.
const LONG: usize = 16 << 10;
/// Bytes of a long message that are read, and of anything that are written, before others have
/// their turn.
const TURN: usize = 1 << 20;
/// Buffers that are greater than this are given back when they are empty.
const KEPT: usize = 64 << 10;

/// See the module's description.
#[derive(Debug)]
pub(super) struct Connection {
    pub(super) link: Link,
    pub(super) stream: TcpStream,
    pub(super) address: SocketAddr,
    pub(super) phase: Phase,
    /// Whether the user knows the link, and is owed its `Down`.
    pub(super) announced: bool,
    /// Whether it counts among those from outside that have not proved who they are.
    pub(super) stranger: bool,
    /// When its phase must have ended.
    pub(super) deadline: Option<Duration>,
    /// Messages that wait until the link is up.
    early: Vec<u8>,
    input: Input,
    output: Vec<u8>,
    /// How much of the output is sent.
    sent: usize,
    room: Room,
    /// The user has closed it; it ends when it is up and what waits is sent.
    pub(super) closing: bool,
    /// Writing has failed, for this reason.
    failed: Option<String>,
    /// The system takes no more output for now.
    pub(super) full: bool,
    /// An event has told that nothing more will come, behind what is still to be read.
    pub(super) end_seen: bool,
    /// In the list of connections that may have something to read.
    pub(super) in_ready: bool,
    /// In the list of connections that have something to write.
    pub(super) in_dirty: bool,
}

/// Where a connection stands.
#[derive(Debug)]
pub(super) enum Phase {
    /// The system is connecting it.
    Connecting(Box<Handshake>),
    /// It is connected; peers prove who they are.
    Greeting(Box<Handshake>),
    /// Messages pass.
    Up,
    /// It will be closed when its output is sent and the peer has seen the end. Why, if the user is
    /// still to be told.
    Ending(Option<String>),
}

/// What has arrived and is not whole.
#[derive(Debug)]
enum Input {
    /// The beginning of a frame; empty, mostly.
    Begun(Vec<u8>),
    /// The beginning of a message of this length.
    Long(Vec<u8>, usize),
}

/// What reading came to.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Progress {
    /// There may be more.
    More,
    /// There is nothing for now.
    Dry,
    /// Nothing more will come; why.
    End(String),
}

impl Connection {
    pub(super) fn new(
        link: Link,
        stream: TcpStream,
        address: SocketAddr,
        phase: Phase,
        queue: usize,
    ) -> Connection {
        let initiated = matches!(phase, Phase::Connecting(_));
        Connection {
            link,
            stream,
            address,
            phase,
            announced: initiated,
            stranger: !initiated,
            deadline: None,
            early: Vec::new(),
            input: Input::Begun(Vec::new()),
            output: Vec::new(),
            sent: 0,
            room: Room::new(queue),
            closing: false,
            failed: None,
            full: false,
            end_seen: false,
            in_ready: false,
            in_dirty: false,
        }
    }

    /// Bytes that wait to be sent.
    #[inline]
    pub(super) fn waiting(&self) -> usize {
        self.output.len() - self.sent + self.early.len()
    }

    /// Takes a message to be sent.
    #[inline]
    pub(super) fn take(
        &mut self,
        message: &[u8],
        pool: &mut Vec<Vec<u8>>,
    ) -> Result<(), SendError> {
        let waiting = self.waiting();
        let to = match self.phase {
            _ if self.closing || self.failed.is_some() => return Err(SendError::Down),
            Phase::Up => &mut self.output,
            Phase::Connecting(_) | Phase::Greeting(_) => &mut self.early,
            Phase::Ending(_) => return Err(SendError::Down),
        };
        self.room.admit(waiting, LENGTH + message.len())?;
        if to.capacity() == 0 {
            *to = pool.pop().unwrap_or_default();
        }
        to.extend_from_slice(&message_head(message.len()));
        to.extend_from_slice(message);
        Ok(())
    }

    /// Frames of the handshake are appended here.
    pub(super) fn output(&mut self) -> &mut Vec<u8> {
        &mut self.output
    }

    /// The peer has proved who it is: what waited for that may be sent.
    pub(super) fn up(&mut self) {
        self.phase = Phase::Up;
        self.deadline = None;
        let early = std::mem::take(&mut self.early);
        self.output.extend(early);
    }

    /// Writing has failed. What has arrived before can still be read.
    pub(super) fn fail(&mut self, error: &io::Error) {
        self.failed = Some(format!("the connection broke: {error}"));
        self.output = Vec::new();
        self.sent = 0;
    }

    /// Why writing has failed, if it has.
    pub(super) fn failed(&self) -> Option<String> {
        self.failed.clone()
    }

    /// Keeps what has arrived and is not used.
    pub(super) fn keep(&mut self, mut begun: Vec<u8>, used: usize) {
        begun.drain(..used);
        self.input = Input::Begun(begun);
    }

    /// Whether the user is to be told that the link takes messages again.
    pub(super) fn drained(&mut self) -> bool {
        let waiting = self.waiting();
        matches!(self.phase, Phase::Up) && self.room.drained(waiting)
    }

    /// Writes what waits. Returns whether there is more that the system would take.
    pub(super) fn write(&mut self, pool: &mut Vec<Vec<u8>>) -> io::Result<bool> {
        let mut budget = TURN;
        while self.sent < self.output.len() && !self.full {
            if budget == 0 {
                return Ok(true);
            }
            let to = self.output.len().min(self.sent + budget);
            match self.stream.write(&self.output[self.sent..to]) {
                Ok(0) => return Err(ErrorKind::WriteZero.into()),
                Ok(n) => {
                    self.sent += n;
                    budget -= n;
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => self.full = true,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        self.trim(pool);
        Ok(false)
    }

    /// Gives memory back, or moves what is not sent to the front, where it is at most half.
    fn trim(&mut self, pool: &mut Vec<Vec<u8>>) {
        if self.sent == self.output.len() {
            let mut output = std::mem::take(&mut self.output);
            self.sent = 0;
            if (1..=KEPT).contains(&output.capacity()) {
                output.clear();
                pool.push(output);
            }
        } else if self.sent >= KEPT && self.sent >= self.output.len() / 2 {
            self.output.drain(..self.sent);
            self.sent = 0;
        }
    }

    /// Reads once, and appends the messages that are whole.
    pub(super) fn read(&mut self, inbox: &mut Inbox, limit: usize) -> Progress {
        match &mut self.input {
            Input::Begun(begun) => {
                let from = inbox.filled();
                let kept = begun.len();
                let room = inbox.room(kept + READ);
                room[..kept].copy_from_slice(begun);
                let read = self.stream.read(&mut room[kept..kept + READ]);
                let Some(n) = settle(&read) else {
                    return verdict(read, kept > 0);
                };
                *begun = Vec::new();
                inbox.fill(from + kept + n);
                if let Err(end) = self.split(inbox, from, limit) {
                    return Progress::End(end);
                }
                if n < READ && !self.end_seen {
                    Progress::Dry
                } else {
                    Progress::More
                }
            }
            Input::Long(message, len) => {
                let missing = *len - message.len();
                let step = missing.min(TURN);
                // As much again as there is, so that a length that is only claimed costs little.
                message.reserve_exact(missing.min(message.len().max(READ)));
                let before = message.len();
                let read = (&mut self.stream)
                    .take(step as u64)
                    .read_to_end(message)
                    .and_then(|n| {
                        // It stops before the step only at the end.
                        if n < step { Ok(0) } else { Ok(n) }
                    });
                if message.len() == *len {
                    let whole = std::mem::take(message);
                    self.input = Input::Begun(Vec::new());
                    inbox.push_long(self.link, whole);
                    return Progress::More;
                }
                match settle(&read) {
                    Some(_) => Progress::More,
                    None if message.len() > before && self.end_seen => Progress::More,
                    None => verdict(read, true),
                }
            }
        }
    }

    /// Finds the messages in what the inbox has been filled with since `from`, and keeps the rest.
    fn split(&mut self, inbox: &mut Inbox, from: usize, limit: usize) -> Result<(), String> {
        let mut at = from;
        while let Some(len) = message_len(inbox.since(at)) {
            if len > limit {
                inbox.fill(at);
                return Err(format!(
                    "the peer began a message of {len} bytes, more than the {limit} that are \
                     allowed here; raise the limit, or send less at a time"
                ));
            }
            let end = at + LENGTH + len;
            if end > inbox.filled() {
                if len > LONG {
                    let begun = inbox.since(at)[LENGTH..].to_vec();
                    inbox.fill(at);
                    self.input = Input::Long(begun, len);
                    return Ok(());
                }
                break;
            }
            inbox.push_filled(self.link, at + LENGTH..end);
            at = end;
        }
        let rest = inbox.since(at);
        if !rest.is_empty() {
            self.input = Input::Begun(rest.to_vec());
            inbox.fill(at);
        }
        Ok(())
    }

    /// Reads frames of the handshake. Returns what has arrived of them so far.
    pub(super) fn read_greeting(&mut self) -> (Progress, &mut Vec<u8>) {
        let Input::Begun(begun) = &mut self.input else {
            unreachable!("long messages come after the handshake");
        };
        let mut buffer = [0; 512];
        let read = self.stream.read(&mut buffer);
        let progress = match settle(&read) {
            Some(n) => {
                begun.extend(&buffer[..n]);
                Progress::More
            }
            None => verdict(read, !begun.is_empty()),
        };
        (progress, begun)
    }

    /// The messages that have come together with the end of the handshake.
    pub(super) fn read_rest(&mut self, inbox: &mut Inbox, limit: usize) -> Result<(), String> {
        let Input::Begun(begun) = &mut self.input else {
            unreachable!("long messages come after the handshake");
        };
        let rest = std::mem::take(begun);
        let from = inbox.filled();
        inbox.room(rest.len())[..rest.len()].copy_from_slice(&rest);
        inbox.fill(from + rest.len());
        self.split(inbox, from, limit)
    }

    /// Reads what nobody wants any more.
    pub(super) fn discard(&mut self, inbox: &mut Inbox) -> Progress {
        let read = self.stream.read(&mut inbox.room(READ)[..READ]);
        match settle(&read) {
            Some(_) => Progress::More,
            None => verdict(read, false),
        }
    }
}

/// How many bytes were read, if any were.
fn settle(read: &io::Result<usize>) -> Option<usize> {
    read.as_ref().ok().copied().filter(|&n| n > 0)
}

/// What it means that no bytes were read.
fn verdict(read: io::Result<usize>, within: bool) -> Progress {
    match read {
        Ok(_) if within => Progress::End("the peer closed it in the middle of a message".into()),
        Ok(_) => Progress::End("the peer closed it".into()),
        Err(error) => match error.kind() {
            ErrorKind::WouldBlock => Progress::Dry,
            ErrorKind::Interrupted => Progress::More,
            _ => Progress::End(format!("the connection broke: {error}")),
        },
    }
}
