//! Parses the output of `strace -f -yy -o FILE`.
//!
//! A call that nothing interrupted takes one line, `PID name(args) = ret`. Other calls take two:
//! one ends in `<unfinished ...>`, the other begins with `<... name resumed>`. Lines are in the
//! order of events, so the first line of a call is its beginning and the last its end.

use std::collections::HashMap;

/// One system call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Call {
    /// Its name.
    pub name: String,
    /// Its arguments as strace prints them.
    pub args: String,
    /// Its result.
    pub result: i64,
    /// The line at which it began.
    pub begin: usize,
    /// The line at which it had returned.
    pub end: usize,
}

impl Call {
    /// Returns the path, or the connection, behind the call's first argument: for `5</tmp/log>`,
    /// `/tmp/log`.
    #[must_use]
    pub fn target(&self) -> Option<&str> {
        let number = self.args.find(|c: char| !c.is_ascii_digit())?;
        let rest = self.args[number..].strip_prefix('<')?;
        // An address such as <TCP:[127.0.0.1:1->127.0.0.1:2]> has a `>` inside its brackets.
        let end = if rest.starts_with("TCP") {
            rest.find("]>")? + 1
        } else {
            rest.find('>')?
        };
        Some(&rest[..end])
    }

    /// Returns `true` if it succeeded.
    #[must_use]
    pub fn succeeded(&self) -> bool {
        self.result >= 0
    }
}

/// Parses a whole trace. Lines of other kinds (signals, exits) are ignored, and so are calls that
/// never returned.
#[must_use]
pub fn parse(text: &str) -> Vec<Call> {
    let mut open: HashMap<&str, (usize, &str)> = HashMap::new();
    let mut calls = Vec::new();
    for (number, line) in text.lines().enumerate() {
        let Some((pid, event)) = line.trim_start().split_once(char::is_whitespace) else {
            continue;
        };
        let event = event.trim_start();
        if let Some(start) = event.strip_suffix("<unfinished ...>") {
            open.insert(pid, (number, start));
        } else if let Some(resumed) = event.strip_prefix("<... ") {
            let rest = resumed.split_once(" resumed>").map(|(_, rest)| rest);
            if let (Some((begin, start)), Some(rest)) = (open.remove(pid), rest) {
                calls.extend(call(&format!("{start}{rest}"), begin, number));
            }
        } else {
            calls.extend(call(event, number, number));
        }
    }
    calls.sort_by_key(|call| call.begin);
    calls
}

fn call(text: &str, begin: usize, end: usize) -> Option<Call> {
    let (name, rest) = text.split_once('(')?;
    if !name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_') {
        return None;
    }
    // The last one: strings among the arguments may contain the same characters.
    let (args, result) = rest.rsplit_once(" = ")?;
    let args = args.trim_end().strip_suffix(')')?;
    let result = result.split([' ', '<']).next()?.parse().ok()?;
    Some(Call {
        name: name.to_owned(),
        args: args.to_owned(),
        result,
        begin,
        end,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whole_and_interrupted_calls() {
        let trace = concat!(
            "10  write(5</d/log>, \"a(b) = 3\", 8) = 8\n",
            "11  fdatasync(5</d/log> <unfinished ...>\n",
            "10  sendto(7<TCP:[127.0.0.1:1->127.0.0.1:2]>, \"+OK\\r\\n\", 5, 0, NULL, 0) = 5\n",
            "12  --- SIGCHLD {si_signo=SIGCHLD} ---\n",
            "11  <... fdatasync resumed>)            = 0\n",
            "10  read(7<TCP:[127.0.0.1:1->127.0.0.1:2]>, 0x7f, 100) = -1 EAGAIN (Resource)\n",
            "10  openat(AT_FDCWD</d>, \"/d/x\", O_RDONLY) = 9</d/x>\n",
            "12  +++ exited with 0 +++\n",
        );
        let calls = parse(trace);
        let names: Vec<_> = calls
            .iter()
            .map(|c| (c.name.as_str(), c.begin, c.end))
            .collect();
        assert_eq!(
            names,
            [
                ("write", 0, 0),
                ("fdatasync", 1, 4),
                ("sendto", 2, 2),
                ("read", 5, 5),
                ("openat", 6, 6)
            ]
        );
        assert_eq!(calls[0].target(), Some("/d/log"));
        assert_eq!(calls[1].target(), Some("/d/log"));
        assert_eq!(calls[2].target(), Some("TCP:[127.0.0.1:1->127.0.0.1:2]"));
        assert_eq!(
            (calls[0].result, calls[3].result, calls[4].result),
            (8, -1, 9)
        );
        assert!(!calls[3].succeeded());
    }
}
