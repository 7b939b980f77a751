//! The input of a connection: read, parsed in batches, executed.
//!
//! Invariants:
//! 1. The parser's state belongs to the command at the start of the remaining input.
//! 2. Commands are executed in order, and none is executed once the connection has to wait (for a
//!    long command, or for its client to take replies) or to close. Those that were parsed by
//!    then are parsed again later; an inline request, whose bytes parsing changes, is therefore
//!    parsed only when it is executed at once.

use std::io::ErrorKind;

use base::database::qualified;
use reactor::Network;
use resp::{Args, ProtocolError, Span};

use crate::command::CommandDefinition;
use crate::command_table::CommandTable;
use crate::connection::Connection;
use crate::execution::Executor;
use crate::limits::{BATCH, LARGE_READ, READ_BUFFER, TURN_REPLIES};
use crate::pending_command::PendingCommand;

/// Commands that were parsed together.
#[derive(Default)]
pub(crate) struct CommandBatch {
    entries: Vec<ParsedCommand>,
    spans: Vec<Span>,
}

struct ParsedCommand {
    /// `None`: unknown.
    command: Option<&'static CommandDefinition>,
    /// Where its arguments are among the batch's spans.
    first: usize,
    count: usize,
    /// Where it ends in the input.
    end: usize,
}

/// Why a batch ended.
enum BatchEnd {
    /// It is full, or the next request is one that must stand alone.
    Whole,
    /// The input has no further whole command.
    Exhausted,
    Failed(ProtocolError),
}

impl CommandBatch {
    /// Parses commands of `input` from `start` on.
    fn parse(
        &mut self,
        connection: &mut Connection,
        table: &CommandTable,
        input: &mut [u8],
        start: usize,
        limits: &resp::Limits,
    ) -> BatchEnd {
        self.entries.clear();
        self.spans.clear();
        let most = if connection.session.authenticated {
            BATCH
        } else {
            1
        };
        let limits = resp::Limits {
            unauthenticated: !connection.session.authenticated,
            ..*limits
        };
        let mut at = start;
        while self.entries.len() < most {
            let inline = input.get(at).is_some_and(|&byte| byte != b'*');
            if inline && !self.entries.is_empty() {
                return BatchEnd::Whole;
            }
            match connection.parser.parse(&mut input[at..], &limits) {
                Ok(Some(end)) => {
                    let spans = connection.parser.spans();
                    let first = self.spans.len();
                    self.spans.extend(spans.iter().map(|span| span.shifted(at)));
                    at += end;
                    let name = self.spans.get(first).map(|span| &input[span.range()]);
                    let command = name.and_then(|name| table.find(name));
                    self.entries.push(ParsedCommand {
                        command,
                        first,
                        count: self.spans.len() - first,
                        end: at,
                    });
                    if inline {
                        return BatchEnd::Whole;
                    }
                }
                Ok(None) => return BatchEnd::Exhausted,
                Err(error) => return BatchEnd::Failed(error),
            }
        }
        BatchEnd::Whole
    }

    /// Makes the store prefetch the first key of each command, in a database.
    fn prefetch(&self, executor: &mut Executor, database: u16, input: &[u8]) {
        if self.entries.len() < 2 {
            return;
        }
        let mut keys: [&[u8]; BATCH] = [&[]; BATCH];
        let mut count = 0;
        for entry in &self.entries {
            let Some(command) = entry.command else {
                continue;
            };
            if let Some(first) = command.keys.first_key()
                && first < entry.count
            {
                keys[count] = &input[self.spans[entry.first + first].range()];
                count += 1;
            }
        }
        if database == 0 {
            return executor.worker.prefetch(&keys[..count]);
        }
        let stored = keys[..count].iter().map(|key| qualified(database, key));
        let stored: Vec<Vec<u8>> = stored.collect();
        let stored: Vec<&[u8]> = stored.iter().map(Vec::as_slice).collect();
        executor.worker.prefetch(&stored);
    }

    /// Takes the places of the arguments of the command that ends here.
    fn take_spans(&mut self, end: usize) -> Vec<Span> {
        let entry = self.entries.iter().find(|entry| entry.end == end);
        let (first, count) = entry.map_or((0, 0), |entry| (entry.first, entry.count));
        let mut spans = std::mem::take(&mut self.spans);
        self.entries.clear();
        spans.truncate(first + count);
        spans.drain(..first);
        spans
    }

    /// Returns the arguments of a command, by its number.
    fn args<'a>(&'a self, number: usize, input: &'a [u8]) -> Args<'a> {
        let entry = &self.entries[number];
        Args::new(input, &self.spans[entry.first..entry.first + entry.count])
    }

    /// Executes the commands; `done` is moved to the end of each. Returns the number of the command with the
    /// most bytes of request and reply, and `true` if the connection must wait before the next one.
    #[inline]
    fn execute(
        &self,
        executor: &mut Executor,
        connection: &mut Connection,
        input: &[u8],
        done: &mut usize,
        most: usize,
    ) -> (usize, bool) {
        let (mut heaviest, mut most_bytes) = (0, 0);
        let mut before = connection.session.output.position();
        for (number, entry) in self.entries.iter().enumerate() {
            if entry.count > 0 {
                executor.execute(connection, entry.command, self.args(number, input));
            }
            let after = connection.session.output.position();
            let bytes = (entry.end - *done) + after.saturating_sub(before);
            if bytes > most_bytes {
                (heaviest, most_bytes) = (number, bytes);
            }
            (before, *done) = (after, entry.end);
            if must_wait(connection, most) {
                return (heaviest, true);
            }
        }
        (heaviest, false)
    }
}

/// Executes the commands in `input`. Returns the number of bytes that were executed. The rest
/// waits if `stalled` is set; otherwise it is the beginning of a command.
pub(crate) fn execute(
    executor: &mut Executor,
    connection: &mut Connection,
    input: &mut [u8],
    batch: &mut CommandBatch,
) -> usize {
    let limits = executor.context.shared.config.limits;
    connection.state.stalled = false;
    // A client that takes no replies gets one in a turn: they cost memory that is not used yet.
    let more = if connection.state.full {
        0
    } else {
        TURN_REPLIES
    };
    let most = connection.session.output.pending() + more;
    executor.worker.serve(connection.session.client.id);
    let mut done = 0;
    loop {
        let parsed = batch.parse(connection, executor.table, input, done, &limits.request);
        batch.prefetch(executor, connection.session.database, input);
        let (heaviest, waits) = batch.execute(executor, connection, input, &mut done, most);
        executor.end_run(connection, || {
            let command = batch.entries.get(heaviest)?.command?;
            Some((command, batch.args(heaviest, input)))
        });
        if waits {
            if done < input.len() {
                connection.parser.reset();
                connection.state.stalled = true;
            }
            return done;
        }
        match parsed {
            BatchEnd::Whole => {}
            BatchEnd::Exhausted => return done,
            BatchEnd::Failed(error) => {
                let mut text = b"ERR ".to_vec();
                error.write_text(&mut text);
                connection.writer().error_bytes(&text);
                executor.context.note_error(b"-ERR");
                connection.session.closing = true;
                tracing::debug!(client = %connection.session.client.address, ?error, "not RESP");
                return done;
            }
        }
    }
}

/// Returns `true` if no further command may be executed in this turn, in which replies may grow to
/// `most` bytes.
#[inline]
fn must_wait(connection: &Connection, most: usize) -> bool {
    let session = &connection.session;
    session.closing || connection.pending.is_some() || session.output.pending() > most
}

/// The source of a connection's input.
pub(crate) struct Source<'a, N: Network> {
    pub(crate) network: &'a mut N,
    pub(crate) stream: &'a mut N::Stream,
}

/// Reads once and executes the input. The buffer is the runtime's.
pub(crate) fn read<N: Network>(
    executor: &mut Executor,
    connection: &mut Connection,
    source: &mut Source<'_, N>,
    buffer: &mut [u8],
    batch: &mut CommandBatch,
) -> usize {
    if !connection.input.is_empty() {
        return read_more(executor, connection, source, batch);
    }
    let read = source.network.read(source.stream, buffer);
    let Some(count) = received(connection, read, READ_BUFFER) else {
        return 0;
    };
    let input = &mut buffer[..count];
    let done = execute(executor, connection, input, batch);
    if done < count && !connection.session.closing {
        connection.input.extend_from_slice(&input[done..]);
    }
    count
}

/// Reads behind the beginning of a command.
fn read_more<N: Network>(
    executor: &mut Executor,
    connection: &mut Connection,
    source: &mut Source<'_, N>,
    batch: &mut CommandBatch,
) -> usize {
    let mut input = std::mem::take(&mut connection.input);
    let missing = connection.parser.wanted().saturating_sub(input.len());
    let room = missing.clamp(READ_BUFFER, LARGE_READ);
    if input.capacity() - input.len() < room {
        // Grow by doubling, but not beyond what the client announced.
        let growth = missing.max(READ_BUFFER).min(input.len().max(room));
        input.reserve_exact(growth);
    }
    let before = input.len();
    let spare = input.capacity() - before;
    let read = source.network.read_behind(source.stream, &mut input);
    let count = received(connection, read, spare).unwrap_or(0);
    if count > 0 {
        execute_own(executor, connection, &mut input, batch);
    }
    if input.len() > executor.context.shared.config.limits.query_buffer {
        let text = "closed: its input exceeds the limit";
        let client = connection.session.client.address;
        executor.context.warn(client, text, text);
        connection.state.dead = true;
    }
    connection.input = input;
    count
}

/// Executes commands that had to wait.
pub(crate) fn resume(
    executor: &mut Executor,
    connection: &mut Connection,
    batch: &mut CommandBatch,
) {
    let mut input = std::mem::take(&mut connection.input);
    execute_own(executor, connection, &mut input, batch);
    connection.input = input;
}

/// Executes the commands in a connection's own input, and removes them. A write of very many keys gets the input
/// itself: a copy would make other connections wait.
fn execute_own(
    executor: &mut Executor,
    connection: &mut Connection,
    input: &mut Vec<u8>,
    batch: &mut CommandBatch,
) {
    executor.gives_input = true;
    let done = execute(executor, connection, input, batch);
    executor.gives_input = false;
    if let Some(PendingCommand::Write(write)) = &mut connection.pending
        && write.awaits_request()
    {
        let rest = input.split_off(done);
        let request = std::mem::replace(input, rest);
        write.take_request(request, batch.take_spans(done));
        connection.parser.reset();
    } else if done == input.len() {
        *input = Vec::new();
    } else {
        input.drain(..done);
    }
}

/// Updates the connection's state by the result of a read into `room` bytes. Returns the number of bytes that
/// came; `None`: none.
fn received(
    connection: &mut Connection,
    read: std::io::Result<usize>,
    room: usize,
) -> Option<usize> {
    match read {
        Ok(0) => {
            connection.state.readable = false;
            connection.state.ended = true;
            None
        }
        Ok(count) => {
            // A read that does not fill its buffer has emptied the socket. The end, too, is an
            // event of its own, unless it has been seen already.
            connection.state.readable = count == room || connection.state.end_seen;
            Some(count)
        }
        Err(error) if error.kind() == ErrorKind::WouldBlock => {
            connection.state.readable = false;
            None
        }
        Err(error) if error.kind() == ErrorKind::Interrupted => None,
        Err(_) => {
            // The client is gone; there is no client to answer.
            connection.state.readable = false;
            connection.state.dead = true;
            None
        }
    }
}
