//! The table that finds commands by name.

use crate::command::CommandDefinition;

/// See the module's description.
pub(crate) struct CommandTable {
    commands: &'static [CommandDefinition],
    slots: Vec<Option<&'static CommandDefinition>>,
}

/// Slots of the table: a power of two, several times the number of commands.
const SLOTS: usize = 1024;

impl CommandTable {
    /// Creates the table of these rows, which are all but those of second words.
    pub(crate) fn new(rows: impl IntoIterator<Item = &'static CommandDefinition>) -> CommandTable {
        let mut count = 0;
        let commands = numbered(rows, &mut count);
        let mut slots = vec![None; SLOTS];
        for command in commands {
            let mut slot = hash(command.name.as_bytes());
            while slots[slot].is_some() {
                slot = (slot + 1) % SLOTS;
            }
            slots[slot] = Some(command);
        }
        CommandTable { commands, slots }
    }

    /// Returns all commands.
    pub(crate) fn all(&self) -> &'static [CommandDefinition] {
        self.commands
    }

    /// Returns all commands and their second words, by number.
    pub(crate) fn every(&self) -> impl Iterator<Item = &'static CommandDefinition> {
        self.commands
            .iter()
            .flat_map(|command| std::iter::once(command).chain(command.subcommands))
    }

    /// Returns the command with this name, in any case.
    #[inline]
    pub(crate) fn find(&self, name: &[u8]) -> Option<&'static CommandDefinition> {
        let mut slot = hash(name);
        while let Some(command) = self.slots[slot] {
            if command.name.as_bytes().eq_ignore_ascii_case(name) {
                return Some(command);
            }
            slot = (slot + 1) % SLOTS;
        }
        None
    }

    /// Returns the command with this name, which may have two words joined by `|`.
    pub(crate) fn named(&self, name: &[u8]) -> Option<&'static CommandDefinition> {
        match name.iter().position(|&byte| byte == b'|') {
            Some(at) => self.find(&name[..at])?.subcommand(&name[at + 1..]),
            None => self.find(name),
        }
    }
}

/// Returns the rows with their numbers, from `next` on. They live as long as the process.
fn numbered<'r>(
    rows: impl IntoIterator<Item = &'r CommandDefinition>,
    next: &mut usize,
) -> &'static [CommandDefinition] {
    let number = |row: &CommandDefinition| {
        let number = *next;
        *next += 1;
        CommandDefinition {
            number,
            subcommands: numbered(row.subcommands, next),
            ..*row
        }
    };
    let commands: Vec<CommandDefinition> = rows.into_iter().map(number).collect();
    commands.leak()
}

/// Spreads names by their first eight letters and their length.
#[inline]
fn hash(name: &[u8]) -> usize {
    let mut word = [0; 8];
    let len = name.len().min(8);
    word[..len].copy_from_slice(&name[..len]);
    let folded = u64::from_le_bytes(word) | 0x2020_2020_2020_2020;
    let mixed = (folded ^ name.len() as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (mixed >> (64 - SLOTS.trailing_zeros())) as usize
}
