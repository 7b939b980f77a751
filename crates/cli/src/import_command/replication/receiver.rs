//! Receives a copy and the stream behind it from the source, on a thread of its own.
//!
//! | the source sends | it is |
//! |---|---|
//! | line feeds | signs of life, while it prepares the copy |
//! | `+FULLRESYNC id offset` | the answer to `PSYNC`: a copy follows, and behind it the stream from this offset on |
//! | `+CONTINUE [id]` | the answer to `PSYNC`: the stream follows from the offset that was asked for |
//! | `$length`, or `$EOF:` and 40 bytes | the beginning of the copy, and its length, or the bytes that end it |
//!
//! The thread writes the copy and the stream to a [`Spool`], and tells the source once a second how far the stream is
//! applied.

use std::io::{self, ErrorKind, Read, Write};
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};
use reactor::tls::BlockingStream;
use resp::command::write_command;

use super::spool::Spool;
use crate::node_connection::Credentials;

/// The time between two reports to the source.
const REPORT: Duration = Duration::from_secs(1);
/// The longest wait for bytes before it is looked whether to report or to stop.
const WAIT: Duration = Duration::from_millis(100);
/// The time that connecting may take.
const CONNECTING: Duration = Duration::from_secs(5);
/// The time for which the source may send nothing, not even signs of life.
const SILENCE: Duration = Duration::from_secs(60);
/// The number of bytes that are read at a time.
const READ: usize = 256 << 10;
/// The length of the bytes that end a copy without a length.
const END_MARK: usize = 40;
/// The longest line.
const LONGEST_LINE: usize = 64 << 10;

/// The source, as connections reach it.
pub(super) struct SourceAddress {
    pub(super) address: SocketAddr,
    pub(super) credentials: Credentials,
}

/// Why a connection has ended.
#[derive(Clone, Debug)]
pub(super) enum LostSource {
    /// Another connection may go on.
    Cut(String),
    /// Nothing but a change at the source helps.
    Refused(String),
}

/// What the source sends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum SourceBeginning {
    /// A copy, and behind it the stream from the byte behind this offset on.
    Copy { id: String, offset: u64 },
    /// The stream from where it was asked for. The id may be another one.
    Stream { id: Option<String> },
}

/// Receives over one connection. The connection ends when this is dropped.
pub(super) struct StreamReceiver {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

struct Shared {
    state: Mutex<State>,
    changed: Condvar,
    /// The offset of the last byte of the stream that is applied.
    applied: AtomicU64,
    report_wanted: AtomicBool,
    stop: AtomicBool,
}

struct State {
    spool: Spool,
    beginning: Option<SourceBeginning>,
    /// The position in the spool at which the copy ends, once it is there.
    copy_end: Option<u64>,
    lost: Option<LostSource>,
}

impl StreamReceiver {
    /// Begins to receive: the stream from the byte behind `from` on, or a copy.
    ///
    /// # Errors
    /// The text says why the spool cannot be created.
    pub(super) fn start(
        source: &Arc<SourceAddress>,
        from: Option<(String, u64)>,
        spool_directory: &Path,
    ) -> Result<StreamReceiver, String> {
        let spool = Spool::create(spool_directory).map_err(|error| {
            format!(
                "cannot write to {}: {error}; name another directory with --spool",
                spool_directory.display()
            )
        })?;
        let shared = Arc::new(Shared {
            state: Mutex::new(State {
                spool,
                beginning: None,
                copy_end: None,
                lost: None,
            }),
            changed: Condvar::new(),
            applied: AtomicU64::new(from.as_ref().map_or(0, |(_, offset)| *offset)),
            report_wanted: AtomicBool::new(false),
            stop: AtomicBool::new(false),
        });
        let (source, of_thread) = (Arc::clone(source), Arc::clone(&shared));
        let receive = move || {
            let Err(lost) = receive(&source, from, &of_thread);
            of_thread.state.lock().lost = Some(lost);
            of_thread.changed.notify_all();
        };
        Ok(StreamReceiver {
            shared,
            thread: Some(std::thread::spawn(receive)),
        })
    }

    /// Returns what the source sends; `None`: it has not said so within a moment.
    ///
    /// # Errors
    /// The connection has ended.
    pub(super) fn beginning(&self) -> Result<Option<SourceBeginning>, LostSource> {
        let mut state = self.shared.state.lock();
        if state.beginning.is_none() && state.lost.is_none() {
            self.shared.changed.wait_for(&mut state, WAIT);
        }
        match (&state.beginning, &state.lost) {
            (Some(beginning), _) => Ok(Some(beginning.clone())),
            (None, Some(lost)) => Err(lost.clone()),
            (None, None) => Ok(None),
        }
    }

    /// Returns a reader of the copy, which waits for bytes that have not come.
    pub(super) fn copy(&self) -> CopyReader<'_> {
        CopyReader(self)
    }

    /// Reads bytes of the stream. Waits up to `wait` for some, and returns their number.
    ///
    /// # Errors
    /// All bytes are read, and the connection has ended.
    pub(super) fn read(&self, into: &mut [u8], wait: Duration) -> Result<usize, LostSource> {
        let mut state = self.shared.state.lock();
        let is_idle = |state: &State| state.spool.read_bytes() == state.spool.written();
        if is_idle(&state) && state.lost.is_none() && !wait.is_zero() {
            self.shared.changed.wait_for(&mut state, wait);
        }
        if is_idle(&state) {
            return state.lost.clone().map_or(Ok(0), Err);
        }
        let count = state.spool.read(into, u64::MAX);
        count.map_err(|error| LostSource::Refused(spool_error(&error)))
    }

    /// Notes that the stream is applied up to this offset.
    pub(super) fn note_applied(&self, offset: u64) {
        self.shared.applied.store(offset, Ordering::Relaxed);
    }

    /// Has the thread report to the source at once.
    pub(super) fn report(&self) {
        self.shared.report_wanted.store(true, Ordering::Relaxed);
    }
}

impl Drop for StreamReceiver {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            // One that has panicked has said so.
            let _ = thread.join();
        }
    }
}

/// Reads a copy.
pub(super) struct CopyReader<'a>(&'a StreamReceiver);

impl Read for CopyReader<'_> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let shared = &self.0.shared;
        let mut state = shared.state.lock();
        loop {
            let end = state.copy_end.unwrap_or(state.spool.written());
            let count = state.spool.read(into, end)?;
            if count > 0 || state.copy_end.is_some() {
                return Ok(count);
            }
            match &state.lost {
                None => shared.changed.wait(&mut state),
                Some(LostSource::Cut(text) | LostSource::Refused(text)) => {
                    return Err(io::Error::other(text.clone()));
                }
            }
        }
    }
}

fn spool_error(error: &io::Error) -> String {
    format!("the file of what was received: {error}; name a directory with more room by --spool")
}

/// A connection, with bytes that were read beyond what was asked for.
struct Connection<'a> {
    stream: BlockingStream,
    buffer: Vec<u8>,
    shared: &'a Shared,
}

impl Connection<'_> {
    fn send(&mut self, words: &[&str]) -> Result<(), LostSource> {
        let words: Vec<&[u8]> = words.iter().map(|word| word.as_bytes()).collect();
        let mut command = Vec::new();
        write_command(&mut command, &words);
        self.stream.write_all(&command).map_err(|error| cut(&error))
    }

    /// Reads more bytes. Returns their number, 0 if none came for a moment.
    fn fill(&mut self) -> Result<usize, LostSource> {
        if self.shared.stop.load(Ordering::Relaxed) {
            return Err(LostSource::Cut("stopped".to_owned()));
        }
        let at = self.buffer.len();
        self.buffer.resize(at + READ, 0);
        let read = self.stream.read(&mut self.buffer[at..]);
        self.buffer
            .truncate(at + read.as_ref().copied().unwrap_or(0));
        match read {
            Ok(0) => Err(LostSource::Cut(
                "the source has closed the connection".to_owned(),
            )),
            Ok(count) => Ok(count),
            Err(error) => match error.kind() {
                ErrorKind::WouldBlock | ErrorKind::TimedOut | ErrorKind::Interrupted => Ok(0),
                _ => Err(cut(&error)),
            },
        }
    }

    /// Returns the next line that is not empty.
    fn line(&mut self) -> Result<String, LostSource> {
        let mut heard = Instant::now();
        loop {
            let is_blank = |byte: &&u8| matches!(byte, b'\n' | b'\r');
            let blank = self.buffer.iter().take_while(is_blank).count();
            self.buffer.drain(..blank);
            if let Some(end) = self.buffer.iter().position(|byte| *byte == b'\n') {
                let line: Vec<u8> = self.buffer.drain(..=end).collect();
                return Ok(String::from_utf8_lossy(&line).trim_end().to_owned());
            }
            if self.buffer.len() > LONGEST_LINE {
                return Err(LostSource::Refused(
                    "it does not answer like a Redis".to_owned(),
                ));
            }
            match self.fill()? {
                0 if heard.elapsed() > SILENCE => {
                    let seconds = SILENCE.as_secs();
                    return Err(LostSource::Cut(format!(
                        "the source was silent for {seconds} s"
                    )));
                }
                0 => {}
                _ => heard = Instant::now(),
            }
        }
    }

    /// Sends a command and returns the line that answers it.
    fn ask(&mut self, words: &[&str]) -> Result<String, LostSource> {
        self.send(words)?;
        self.line()
    }

    /// Tells the source how far the stream is applied.
    fn report(&mut self) -> Result<(), LostSource> {
        let applied = self.shared.applied.load(Ordering::Relaxed).to_string();
        self.send(&["REPLCONF", "ACK", &applied])
    }

    /// Moves bytes of the buffer to the spool, all but the last `kept` ones.
    fn spool(&mut self, kept: usize) -> Result<(), LostSource> {
        let count = self.buffer.len().saturating_sub(kept);
        if count > 0 {
            let mut state = self.shared.state.lock();
            let written = state.spool.append(&self.buffer[..count]);
            written.map_err(|error| LostSource::Refused(spool_error(&error)))?;
            self.shared.changed.notify_all();
            drop(state);
            self.buffer.drain(..count);
        }
        Ok(())
    }
}

fn cut(error: &io::Error) -> LostSource {
    LostSource::Cut(format!("the connection to the source: {error}"))
}

/// Receives until the connection ends.
fn receive(
    source: &SourceAddress,
    from: Option<(String, u64)>,
    shared: &Shared,
) -> Result<std::convert::Infallible, LostSource> {
    let address = source.address;
    let stream = BlockingStream::connect(address, None, CONNECTING)
        .map_err(|error| LostSource::Cut(format!("{address} cannot be reached: {error}")))?;
    stream.set_timeout(WAIT).map_err(|error| cut(&error))?;
    let mut connection = Connection {
        stream,
        buffer: Vec::new(),
        shared,
    };
    let beginning = begin(&mut connection, &source.credentials, from)?;
    let has_copy = matches!(beginning, SourceBeginning::Copy { .. });
    if let SourceBeginning::Copy { offset, .. } = &beginning {
        shared.applied.store(*offset, Ordering::Relaxed);
    }
    shared.state.lock().beginning = Some(beginning);
    shared.changed.notify_all();
    if has_copy {
        receive_copy(&mut connection)?;
    }
    // This report also has the source send the stream.
    connection.report()?;
    let (mut reported, mut heard) = (Instant::now(), Instant::now());
    loop {
        connection.spool(0)?;
        let wanted = shared.report_wanted.swap(false, Ordering::Relaxed);
        if wanted || reported.elapsed() >= REPORT {
            connection.report()?;
            reported = Instant::now();
        }
        if connection.fill()? > 0 {
            heard = Instant::now();
        } else if heard.elapsed() > SILENCE {
            let seconds = SILENCE.as_secs();
            return Err(LostSource::Cut(format!(
                "the source was silent for {seconds} s"
            )));
        }
    }
}

/// Asks for the stream, or for a copy.
fn begin(
    connection: &mut Connection<'_>,
    credentials: &Credentials,
    from: Option<(String, u64)>,
) -> Result<SourceBeginning, LostSource> {
    if let Some(words) = credentials.authentication() {
        let answer = connection.ask(&words)?;
        if answer.starts_with('-') {
            return Err(refusal(&answer));
        }
    }
    let answer = connection.ask(&["REPLCONF", "capa", "eof", "capa", "psync2"])?;
    if answer.starts_with('-') {
        return Err(refusal(&answer));
    }
    let (id, offset) = match from {
        Some((id, offset)) => (id, (offset + 1).to_string()),
        None => ("?".to_owned(), "-1".to_owned()),
    };
    let answer = connection.ask(&["PSYNC", &id, &offset])?;
    let words: Vec<&str> = answer.split(' ').collect();
    match words[..] {
        ["+FULLRESYNC", id, offset] => {
            let offset = offset.parse();
            let offset =
                offset.map_err(|_| LostSource::Refused(format!("its answer: {answer}")))?;
            let id = id.to_owned();
            Ok(SourceBeginning::Copy { id, offset })
        }
        ["+CONTINUE", id] => Ok(SourceBeginning::Stream {
            id: Some(id.to_owned()),
        }),
        ["+CONTINUE"] => Ok(SourceBeginning::Stream { id: None }),
        _ => Err(refusal(&answer)),
    }
}

/// Returns what an error of the source means.
fn refusal(answer: &str) -> LostSource {
    let text = answer.trim_start_matches('-');
    let word = text.split(' ').next().unwrap_or_default();
    let advice = match word {
        // The source loads its data, or has lost its own master.
        "LOADING" | "NOMASTERLINK" | "MASTERDOWN" | "BUSY" | "TRYAGAIN" => {
            return LostSource::Cut(format!("the source answers: {text}"));
        }
        "NOAUTH" | "WRONGPASS" => {
            "give its password in the URL, redis://user:password@host:port, or by --source-password-file"
        }
        "NOPERM" => {
            "its user needs the right to replicate: ACL SETUSER … +psync +replconf +info +client; or import by --by-scan"
        }
        "ERR" if text.contains("unknown command") => {
            "it does not let clients replicate: import by --by-scan"
        }
        _ => return LostSource::Refused(format!("the source answers: {text}")),
    };
    LostSource::Refused(format!("the source answers: {text}; {advice}"))
}

/// Receives a copy to its end.
fn receive_copy(connection: &mut Connection<'_>) -> Result<(), LostSource> {
    let line = connection.line()?;
    if line.starts_with('-') {
        return Err(refusal(&line));
    }
    let malformed = || LostSource::Refused(format!("the copy of the source begins with: {line}"));
    let announced = line.strip_prefix('$').ok_or_else(malformed)?;
    let mut heard = Instant::now();
    let mut received = |connection: &mut Connection<'_>| match connection.fill()? {
        0 if heard.elapsed() > SILENCE => Err(LostSource::Cut("the source was silent".to_owned())),
        count => {
            if count > 0 {
                heard = Instant::now();
            }
            Ok(())
        }
    };
    match announced.strip_prefix("EOF:") {
        Some(mark) if mark.len() == END_MARK => {
            // The source sends nothing behind the mark before it has heard that the copy is there.
            while !connection.buffer.ends_with(mark.as_bytes()) {
                connection.spool(END_MARK)?;
                received(connection)?;
            }
            connection.spool(END_MARK)?;
            connection.buffer.clear();
        }
        Some(_) => return Err(malformed()),
        None => {
            let mut left: u64 = announced.parse().map_err(|_| malformed())?;
            loop {
                let count = connection.buffer.len();
                let taken = count.min(usize::try_from(left).unwrap_or(count));
                connection.spool(count - taken)?;
                left -= taken as u64;
                if left == 0 {
                    break;
                }
                received(connection)?;
            }
        }
    }
    let mut state = connection.shared.state.lock();
    state.copy_end = Some(state.spool.written());
    connection.shared.changed.notify_all();
    Ok(())
}
