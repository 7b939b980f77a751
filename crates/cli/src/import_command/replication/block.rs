//! Commands that the target executes as one transaction, with the position behind them.

use std::borrow::Cow;
use std::ops::Range;

use resp::command::write_command;

use super::super::position::{ImportPosition, KEY};

/// See the module's description.
#[derive(Default)]
pub(super) struct TargetBlock {
    bytes: Vec<u8>,
    /// The place of each command in the bytes.
    commands: Vec<Range<usize>>,
    /// The database that is selected behind the commands.
    database: Option<u64>,
}

impl TargetBlock {
    /// Returns the length of its commands in bytes.
    pub(super) fn len(&self) -> usize {
        self.bytes.len()
    }

    /// Returns the number of its commands.
    pub(super) fn commands(&self) -> usize {
        self.commands.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.commands.is_empty()
    }

    pub(super) fn clear(&mut self) {
        self.bytes.clear();
        self.commands.clear();
        self.database = None;
    }

    /// Adds a command on a database.
    pub(super) fn push(&mut self, database: u64, args: &[Cow<'_, [u8]>]) {
        let args: Vec<&[u8]> = args.iter().map(AsRef::as_ref).collect();
        self.select(database);
        self.add(&args);
    }

    /// Adds an exchange of databases, of which the position stays in its own one.
    pub(super) fn push_exchange(&mut self, first: &[u8], second: &[u8]) {
        self.select(0);
        self.add(&[b"DEL", KEY]);
        self.add(&[b"SWAPDB", first, second]);
    }

    /// Adds the commands of another block.
    pub(super) fn append(&mut self, other: &mut TargetBlock) {
        let at = self.bytes.len();
        self.bytes.extend_from_slice(&other.bytes);
        let moved = other
            .commands
            .iter()
            .map(|place| place.start + at..place.end + at);
        self.commands.extend(moved);
        self.database = other.database.or(self.database);
        other.clear();
    }

    fn select(&mut self, database: u64) {
        if self.database != Some(database) {
            self.add(&[b"SELECT", database.to_string().as_bytes()]);
            self.database = Some(database);
        }
    }

    fn add(&mut self, args: &[&[u8]]) {
        let begin = self.bytes.len();
        write_command(&mut self.bytes, args);
        self.commands.push(begin..self.bytes.len());
    }

    /// Returns the transaction, and the number of its commands.
    pub(super) fn transaction(&self, next: Option<&ImportPosition>) -> (Vec<u8>, usize) {
        let mut out = Vec::with_capacity(self.bytes.len() + 256);
        write_command(&mut out, &[b"MULTI"]);
        out.extend_from_slice(&self.bytes);
        write_command(&mut out, &[b"SELECT", b"0"]);
        match next {
            Some(next) => write_command(&mut out, &[b"SET", KEY, next.to_string().as_bytes()]),
            None => write_command(&mut out, &[b"DEL", KEY]),
        }
        write_command(&mut out, &[b"EXEC"]);
        (out, self.commands.len() + 2)
    }

    /// Returns the name of a command and its first argument, as texts.
    pub(super) fn described(&self, command: usize) -> String {
        let Some(place) = self.commands.get(command) else {
            return "the position of the import".to_owned();
        };
        let text = String::from_utf8_lossy(&self.bytes[place.clone()]);
        // Behind the number of arguments come their lengths and their bytes in turn.
        let lines: Vec<&str> = text.split("\r\n").collect();
        let name = lines.get(2).copied().unwrap_or_default();
        match lines.get(4) {
            Some(first) if !first.is_empty() => format!("{name} '{first}'"),
            _ => name.to_owned(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn owned<'a>(words: &[&'a str]) -> Vec<Cow<'a, [u8]>> {
        words
            .iter()
            .map(|word| Cow::Borrowed(word.as_bytes()))
            .collect()
    }

    #[test]
    fn databases_are_selected_where_they_change() {
        let (mut block, mut group) = (TargetBlock::default(), TargetBlock::default());
        block.push(0, &owned(&["SET", "a", "1"]));
        block.push(0, &owned(&["DEL", "b"]));
        group.push(3, &owned(&["DEL", "c"]));
        block.append(&mut group);
        block.push(3, &owned(&["PING"]));
        assert!(group.is_empty());
        assert_eq!(block.commands(), 6);
        let described: Vec<String> = (0..7).map(|at| block.described(at)).collect();
        let expected = [
            "SELECT '0'",
            "SET 'a'",
            "DEL 'b'",
            "SELECT '3'",
            "DEL 'c'",
            "PING",
            "the position of the import",
        ];
        assert_eq!(described, expected);
        let (bytes, count) = block.transaction(None);
        assert_eq!(count, 8);
        assert!(bytes.starts_with(b"*1\r\n$5\r\nMULTI\r\n*2\r\n$6\r\nSELECT\r\n$1\r\n0\r\n"));
        assert!(bytes.ends_with(b"DEL\r\n$13\r\nkumiki:import\r\n*1\r\n$4\r\nEXEC\r\n"));
    }
}
