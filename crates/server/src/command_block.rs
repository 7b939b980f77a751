//! The commands that a client has queued between `MULTI` and `EXEC`.
//!
//! Invariant: guards (`LOCK.GUARD`) are the first commands of a block, and have a name and a token: a
//! block never executes without a guard that it was given.

use resp::Args;

use crate::command::{CommandDefinition, CommandFlags, CommandKind, Ops};
use crate::command_call::CommandCall;
use crate::limits::Limits;
use crate::refusal::Refusal;

/// See the module's description.
#[derive(Default)]
pub(crate) struct CommandBlock {
    pub(crate) commands: Vec<CommandCall>,
    bytes: usize,
    /// A command was refused, so that the block cannot execute.
    pub(crate) broken: bool,
    /// A command went beyond the limits.
    too_large: bool,
}

/// The block exceeds its limits, and cannot execute.
pub(crate) struct BlockTooLarge;

impl CommandBlock {
    pub(crate) fn len(&self) -> usize {
        self.commands.len()
    }

    /// Queues a command, whose bytes are copied.
    ///
    /// # Errors
    /// This command, or an earlier one, goes beyond the limits.
    pub(crate) fn queue(
        &mut self,
        command: &'static CommandDefinition,
        args: Args<'_>,
        limits: &Limits,
    ) -> Result<(), BlockTooLarge> {
        let size = CommandCall::size_of(args);
        self.too_large |=
            self.bytes + size > limits.block_bytes || self.commands.len() >= limits.block_commands;
        if self.too_large {
            self.broken = true;
            return Err(BlockTooLarge);
        }
        self.bytes += size;
        self.commands.push(CommandCall::new(command, args));
        Ok(())
    }

    /// Checks that a guard is well-formed and at the beginning of the block.
    ///
    /// # Errors
    /// Returns the reason why it is refused.
    pub(crate) fn check_guard(
        &self,
        command: &CommandDefinition,
        args: Args<'_>,
    ) -> Result<(), Refusal> {
        let CommandKind::Guard(plan) = command.kind else {
            return Ok(());
        };
        let is_guard = |call: &CommandCall| matches!(call.command.kind, CommandKind::Guard(_));
        if !self.commands.iter().all(is_guard) {
            return Err(Refusal::Text(
                "ERR LOCK.GUARD must come first in a block, before what it guards",
            ));
        }
        plan(args, &mut Ops::new()).map(drop)
    }

    /// Returns the memory that its commands take, in bytes.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Returns `true` if one of its commands writes.
    pub(crate) fn writes(&self) -> bool {
        let mut calls = self.commands.iter();
        calls.any(|call| call.command.flags.may_write())
    }

    /// Returns `true` if one of its commands needs memory.
    pub(crate) fn needs_memory(&self) -> bool {
        self.has(CommandFlags::NEEDS_MEMORY)
    }

    fn has(&self, flag: CommandFlags) -> bool {
        let mut calls = self.commands.iter();
        calls.any(|call| call.command.flags.has(flag))
    }
}
