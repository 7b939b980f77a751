//! The arguments that no list of commands shows: passwords.

use resp::Args;

use crate::command::CommandDefinition;

/// The text that stands in the place of a secret argument.
pub(crate) const REDACTED: &[u8] = b"(redacted)";

/// The parameters of `CONFIG SET` whose values are secret.
const SECRET_PARAMETERS: [&[u8]; 1] = [b"requirepass"];

/// Returns the arguments of a command as lists of commands show them: a fixed text in the place of each
/// secret.
pub(crate) fn redacted<'a>(
    command: &CommandDefinition,
    args: Args<'a>,
) -> impl ExactSizeIterator<Item = &'a [u8]> {
    let secrets = secrets(command, args);
    args.iter().enumerate().map(
        move |(at, arg)| {
            if secrets.contains(&at) { REDACTED } else { arg }
        },
    )
}

/// Returns the places of a command's secret arguments.
fn secrets(command: &CommandDefinition, args: Args<'_>) -> Vec<usize> {
    match command.name {
        "auth" => (1..args.len()).collect(),
        "hello" => hello_logins(args).flat_map(|at| [at, at + 1]).collect(),
        "config|set" => {
            let is_secret = |at: &usize| {
                let name = args.at(*at);
                SECRET_PARAMETERS
                    .iter()
                    .any(|secret| name.eq_ignore_ascii_case(secret))
            };
            let names = (2..args.len()).step_by(2).filter(is_secret);
            names.map(|at| at + 1).collect()
        }
        _ => Vec::new(),
    }
}

/// Returns the places of the names in the arguments of `HELLO`. Each has its password behind it.
pub(crate) fn hello_logins(args: Args<'_>) -> impl Iterator<Item = usize> {
    let mut at = 2;
    std::iter::from_fn(move || {
        while let Some(option) = args.get(at) {
            if option.eq_ignore_ascii_case(b"auth") {
                at += 3;
                return Some(at - 2);
            }
            at += 1 + usize::from(option.eq_ignore_ascii_case(b"setname"));
        }
        None
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::command_call::CommandCall;
    use crate::commands::table;
    use resp::Span;

    fn shown(name: &str, line: &str) -> String {
        let mut spans = Vec::new();
        let mut at = 0;
        for word in line.split(' ') {
            spans.push(Span::new(at, word.len()));
            at += word.len() + 1;
        }
        let command = table().named(name.as_bytes()).unwrap();
        let call = CommandCall::new(command, Args::new(line.as_bytes(), &spans));
        let shown: Vec<&[u8]> = redacted(command, call.args()).collect();
        String::from_utf8(shown.join(&b' ')).unwrap()
    }

    #[test]
    fn passwords_are_not_shown() {
        for (name, line, expected) in [
            ("auth", "AUTH pw", "AUTH (redacted)"),
            ("auth", "AUTH me pw", "AUTH (redacted) (redacted)"),
            ("hello", "HELLO 3", "HELLO 3"),
            (
                "hello",
                "HELLO 3 SETNAME me Auth me pw",
                "HELLO 3 SETNAME me Auth (redacted) (redacted)",
            ),
            ("hello", "HELLO 3 AUTH pw", "HELLO 3 AUTH (redacted)"),
            (
                "hello",
                "HELLO 3 SETNAME auth AUTH me pw auth me2 pw2",
                "HELLO 3 SETNAME auth AUTH (redacted) (redacted) auth (redacted) (redacted)",
            ),
            (
                "config|set",
                "CONFIG SET maxmemory 0 REQUIREPASS pw timeout 1",
                "CONFIG SET maxmemory 0 REQUIREPASS (redacted) timeout 1",
            ),
            ("set", "SET requirepass pw", "SET requirepass pw"),
        ] {
            assert_eq!(shown(name, line), expected);
        }
    }
}
