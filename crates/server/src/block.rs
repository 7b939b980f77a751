//! `MULTI` blocks: queued commands that execute as one transaction, and `WATCH`, its
//! precondition. How they execute is in [`crate::execution`].
//!
//! Invariant: `EXEC` and `DISCARD` end the watches, whatever comes of them.

use base::{Abort, Op, Reply};
use resp::{Args, Span};

use crate::command::{Command, Flags, Ops};
use crate::connection::Connection;
use crate::execution::Execution;
use crate::executor::Executor;
use crate::limits::Limits;
use crate::refusal;
use crate::task::Work;

/// Commands queued for `EXEC`.
#[derive(Default)]
pub(crate) struct Block {
    pub(crate) commands: Vec<Call>,
    bytes: usize,
    /// A command was refused, so that the block cannot execute.
    pub(crate) broken: bool,
    /// The last command went beyond the limits.
    pub(crate) broken_by_size: bool,
}

/// A command with its arguments, kept until it executes.
pub(crate) struct Call {
    pub(crate) command: &'static Command,
    bytes: Box<[u8]>,
    spans: Box<[Span]>,
}

impl Block {
    pub(crate) fn len(&self) -> usize {
        self.commands.len()
    }

    /// Queues a command, whose bytes are copied.
    pub(crate) fn queue(&mut self, command: &'static Command, args: Args<'_>, limits: &Limits) {
        let size = args.total_bytes() + args.len() * size_of::<Span>() + size_of::<Call>();
        if self.bytes + size > limits.block_bytes || self.commands.len() >= limits.block_commands {
            self.broken = true;
            self.broken_by_size = true;
            return;
        }
        self.bytes += size;
        self.commands.push(Call::new(command, args));
    }

    fn needs_memory(&self) -> bool {
        self.commands
            .iter()
            .any(|call| call.command.flags.has(Flags::NEEDS_MEMORY))
    }
}

impl Call {
    /// Copies the arguments.
    pub(crate) fn new(command: &'static Command, args: Args<'_>) -> Call {
        let mut bytes = Vec::with_capacity(args.total_bytes());
        let mut spans = Vec::with_capacity(args.len());
        for arg in args.iter() {
            spans.push(Span::new(bytes.len(), arg.len()));
            bytes.extend_from_slice(arg);
        }
        Call {
            command,
            bytes: bytes.into(),
            spans: spans.into(),
        }
    }

    pub(crate) fn args(&self) -> Args<'_> {
        Args::new(&self.bytes, &self.spans)
    }
}

impl Executor {
    /// `WATCH`: remembers the keys' versions.
    pub(crate) fn watch(
        &mut self,
        connection: &mut Connection,
        command: &'static Command,
        args: Args<'_>,
    ) {
        if connection.block.is_some() {
            return connection
                .writer()
                .error("ERR WATCH inside MULTI is not allowed");
        }
        let ops = watch_ops(args);
        if self.cluster.is_some() && self.leads_elsewhere(connection, command, args, &ops) {
            return;
        }
        let outcome = self.worker.execute(&ops, None, |replies, _| {
            connection.note_watches(args, replies);
        });
        match outcome {
            Ok(_) => {}
            Err(Abort::Held { by }) => {
                self.park(connection, Work::Call(Call::new(command, args)), by);
            }
            Err(Abort::Elsewhere { leader }) => {
                let work = Work::Call(Call::new(command, args));
                self.redirect(connection, &ops, leader, work);
            }
            Err(abort) => refusal::abort(&abort, &mut connection.writer()),
        }
    }

    /// `EXEC`: executes the block.
    pub(crate) fn exec(&mut self, connection: &mut Connection) {
        let Some(block) = connection.block.take() else {
            return connection.writer().error("ERR EXEC without MULTI");
        };
        connection.note_block();
        let watches = std::mem::take(&mut connection.watches);
        let mut writer = connection.writer();
        if block.broken {
            let text = "EXECABORT Transaction discarded because of previous errors.";
            return writer.error(text);
        }
        if block.needs_memory() && self.is_full(block.bytes) {
            let reason = refusal::OUT_OF_MEMORY;
            return writer.error(&format!(
                "EXECABORT Transaction discarded because of: {reason}"
            ));
        }
        let cursors = &self.context.shared.cursors;
        let execution = Box::new(Execution::new(block.commands, watches, cursors));
        self.execute_block(connection, execution);
    }
}

/// The operations of `WATCH`.
pub(crate) fn watch_ops(args: Args<'_>) -> Ops<'_> {
    args.from(1).iter().map(|key| Op::Watch { key }).collect()
}

impl Connection {
    /// Answers `WATCH`. A key that is watched already keeps the version that was seen first.
    pub(crate) fn note_watches(&mut self, args: Args<'_>, replies: &[Reply<'_>]) {
        for (key, reply) in args.from(1).iter().zip(replies) {
            let new = !self.watches.iter().any(|(watched, _)| watched == key);
            if let (true, Reply::Version(version)) = (new, reply) {
                self.watches.push((key.to_vec(), *version));
            }
        }
        // Nothing that was observed is shown, so there is nothing to wait for.
        self.writer().ok();
    }
}
