//! The answers to `HELP` of commands with second words.

use crate::command::CommandDefinition;
use crate::session::ClientSession;

/// Writes the lines of a `HELP`.
pub(super) fn help(container: &str, commands: &[CommandDefinition], session: &mut ClientSession) {
    let mut writer = session.writer();
    writer.array(1 + 2 * commands.len());
    writer.status(&format!(
        "{container} <subcommand> [<arg> ...]. Subcommands are:"
    ));
    for command in commands {
        let word = &command.name[container.len() + 1..];
        writer.status(&word.to_ascii_uppercase());
        writer.status(&format!("    {}", command.summary));
    }
}
