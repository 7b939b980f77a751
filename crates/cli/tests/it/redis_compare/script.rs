//! Hand-picked calls, one to a line.
//!
//! | line | meaning |
//! |---|---|
//! | `# text` | a remark |
//! | `% flag value …` | an option of both servers; before the first case |
//! | `% durable` | the script is for servers that keep their data; before the first case |
//! | `% ephemeral` | the script is for servers that do not |
//! | `== name` | a case: both databases are emptied, connections are new |
//! | `SET key "a value"` | a command on connection 1 and its reply |
//! | `@2 GET key` | the same on connection 2 |
//! | `[near 5] TTL key` | its replies are compared by another rule than the usual one |
//! | `=> "+OK\r\n"` | after `[differs …]`: the subject's exact reply |
//! | `<< "PING\r\n" "…"` | bytes to send as they are; no reply is read |
//! | `>> 2` | reads two replies |
//! | `>> end` | reads replies until the server closes |
//! | `~ 120` | waits that many milliseconds |
//!
//! Words are separated by blanks. Within double quotes stand any characters and the escapes
//! `\"` `\\` `\r` `\n` `\t` `\xHH`. Elsewhere braces compute: `{now+5}` and `{nowms-5}` are the
//! time in seconds and milliseconds, the same for both servers; `{ab*3}` is `ababab`, and so is
//! `{"ab"*3}`, where escapes count.

use super::rules::Rule;

/// One case of a script.
pub(crate) struct Case {
    /// Its name.
    pub(crate) name: String,
    /// The steps of the case.
    pub(crate) steps: Vec<Step>,
}

/// One line of a case.
pub(crate) struct Step {
    /// The number of its line, from 1.
    pub(crate) line: usize,
    /// Which connection it uses.
    pub(crate) connection: usize,
    /// The action.
    pub(crate) action: Action,
    /// The subject's reply, when a difference says so.
    pub(crate) pinned: Option<Vec<u8>>,
}

/// See the module's table.
pub(crate) enum Action {
    Call { args: Vec<Vec<u8>>, rule: Rule },
    Send(Vec<u8>),
    Read { count: Option<usize>, rule: Rule },
    Wait { ms: u64 },
}

/// A script: options of the servers, and cases.
pub(crate) struct Script {
    /// Flags for both servers.
    pub(crate) options: Vec<String>,
    /// The servers that it is for: those that keep their data, or those that do not.
    pub(crate) durable: Option<bool>,
    /// The cases in their order.
    pub(crate) cases: Vec<Case>,
}

/// Parses a script; `now_ms` is the time that its braces mean.
///
/// # Errors
/// The number of the line and what is wrong with it.
pub(crate) fn parse(text: &str, now_ms: u64) -> Result<Script, String> {
    let mut script = Script {
        options: Vec::new(),
        durable: None,
        cases: Vec::new(),
    };
    for (index, line) in text.lines().enumerate() {
        let line = line.trim();
        parse_line(&mut script, index + 1, line, now_ms)
            .map_err(|what| format!("line {}: {what}: {line}", index + 1))?;
    }
    Ok(script)
}

fn parse_line(script: &mut Script, line: usize, text: &str, now_ms: u64) -> Result<(), String> {
    if text.is_empty() || text.starts_with('#') {
        return Ok(());
    }
    if text == "% durable" || text == "% ephemeral" {
        script.durable = Some(text == "% durable");
        return Ok(());
    }
    if let Some(flags) = text.strip_prefix("% ") {
        script
            .options
            .extend(flags.split_whitespace().map(str::to_owned));
        return Ok(());
    }
    if let Some(name) = text.strip_prefix("== ") {
        script.cases.push(Case {
            name: name.to_owned(),
            steps: Vec::new(),
        });
        return Ok(());
    }
    let steps = &mut script
        .cases
        .last_mut()
        .ok_or("a call before the first case")?
        .steps;
    if let Some(reply) = text.strip_prefix("=> ") {
        let step = steps.last_mut().ok_or("a reply before its call")?;
        step.pinned = Some(words(reply, now_ms)?.concat());
        return Ok(());
    }
    let (connection, rest) = match text.strip_prefix('@') {
        Some(rest) => {
            let (number, rest) = rest.split_once(' ').ok_or("no call")?;
            (number.parse().map_err(|_| "not a connection")?, rest)
        }
        None => (1, text),
    };
    let action = parse_action(rest, now_ms)?;
    steps.push(Step {
        line,
        connection,
        action,
        pinned: None,
    });
    Ok(())
}

fn parse_action(text: &str, now_ms: u64) -> Result<Action, String> {
    if let Some(bytes) = text.strip_prefix("<< ") {
        return Ok(Action::Send(words(bytes, now_ms)?.concat()));
    }
    if let Some(ms) = text.strip_prefix("~ ") {
        return Ok(Action::Wait {
            ms: ms.parse().map_err(|_| "not a number")?,
        });
    }
    let (rule, rest) = match text
        .strip_prefix('[')
        .and_then(|rest| rest.split_once("] "))
    {
        Some((rule, rest)) => (Some(Rule::parse(rule).ok_or("not a rule")?), rest),
        None => (None, text),
    };
    if let Some(count) = rest.strip_prefix(">> ") {
        let count = match count {
            "end" => None,
            _ => Some(count.parse().map_err(|_| "neither a number nor 'end'")?),
        };
        return Ok(Action::Read {
            count,
            rule: rule.unwrap_or(Rule::Exact),
        });
    }
    let args = words(rest, now_ms)?;
    let rule = rule.unwrap_or_else(|| Rule::usual(&args));
    Ok(Action::Call { args, rule })
}

/// Splits a line into words.
fn words(text: &str, now_ms: u64) -> Result<Vec<Vec<u8>>, String> {
    let mut words = Vec::new();
    let mut word: Option<Vec<u8>> = None;
    let mut rest = text;
    while let Some(first) = rest.chars().next() {
        match first {
            ' ' => {
                words.extend(word.take());
                rest = &rest[1..];
            }
            '"' => rest = quoted(&rest[1..], word.get_or_insert_default())?,
            '{' => {
                let (inside, after) = rest[1..].split_once('}').ok_or("a brace is not closed")?;
                word.get_or_insert_default()
                    .extend(computed(inside, now_ms)?);
                rest = after;
            }
            _ => {
                let end = first.len_utf8();
                word.get_or_insert_default()
                    .extend_from_slice(&rest.as_bytes()[..end]);
                rest = &rest[end..];
            }
        }
    }
    words.extend(word);
    Ok(words)
}

/// Appends what stands before the closing quote to `word`; returns what stands behind it.
fn quoted<'a>(text: &'a str, word: &mut Vec<u8>) -> Result<&'a str, String> {
    let mut rest = text;
    loop {
        let next = rest.chars().next().ok_or("a quote is not closed")?;
        rest = &rest[next.len_utf8()..];
        match next {
            '"' => return Ok(rest),
            '\\' => {
                let escape = rest.chars().next().ok_or("an escape is not complete")?;
                rest = &rest[escape.len_utf8()..];
                match escape {
                    'r' => word.push(b'\r'),
                    'n' => word.push(b'\n'),
                    't' => word.push(b'\t'),
                    '"' | '\\' => word.push(escape as u8),
                    'x' => {
                        let digits = rest.get(..2).ok_or("two digits after \\x")?;
                        word.push(u8::from_str_radix(digits, 16).map_err(|e| e.to_string())?);
                        rest = &rest[2..];
                    }
                    _ => return Err(format!("escape \\{escape} is not known")),
                }
            }
            _ => word.extend_from_slice(next.to_string().as_bytes()),
        }
    }
}

fn computed(text: &str, now_ms: u64) -> Result<Vec<u8>, String> {
    if let Some((part, count)) = text.rsplit_once('*') {
        let count = count.parse().map_err(|_| "not a count")?;
        let mut once = Vec::new();
        match part.strip_prefix('"') {
            Some(text) if quoted(text, &mut once)?.is_empty() => {}
            Some(_) => return Err("text behind a quote".into()),
            None => once.extend_from_slice(part.as_bytes()),
        }
        return Ok(once.repeat(count));
    }
    let (name, delta) = text.split_at(text.find(['+', '-']).unwrap_or(text.len()));
    let delta: i64 = if delta.is_empty() {
        0
    } else {
        delta.parse().map_err(|_| "not a delta")?
    };
    let now = match name {
        "now" => now_ms / 1000,
        "nowms" => now_ms,
        _ => return Err("braces hold a time or a repetition".into()),
    };
    Ok(now.saturating_add_signed(delta).to_string().into_bytes())
}
