//! A short notation for histories, one transaction per line:
//!
//! `id start-end outcome? : op, op, …`
//!
//! | part | meaning |
//! |---|---|
//! | outcome | nothing: committed; `aborted`; `unknown` |
//! | `r x 1`, `r x -` | a read of 1, of nothing; a third word is the version |
//! | `w x 1` | a write; a third word is the version |
//! | `d x` | a delete; a second word is the version |
//! | `s a c x=1 y=2` | a scan from a to c (`-`: the end) |

use std::fmt::Write;

use kumiki_history::{History, json};

/// Returns the history that the notation describes.
pub(crate) fn history(text: &str) -> History {
    let mut lines = String::new();
    for line in text.lines().map(str::trim).filter(|line| !line.is_empty()) {
        let (head, ops) = line.split_once(':').expect("a colon");
        let mut words = head.split_whitespace();
        let id = words.next().expect("an id");
        let (start, end) = words
            .next()
            .and_then(|word| word.split_once('-'))
            .expect("a time");
        let outcome = words.next().unwrap_or("committed");
        let ops: Vec<String> = ops.split(',').map(operation).collect();
        writeln!(
            lines,
            r#"{{"process":{id},"id":{id},"start":{start},"end":{end},"outcome":"{outcome}","ops":[{}]}}"#,
            ops.join(",")
        )
        .expect("a string grows");
    }
    json::read(lines.as_bytes()).expect("the notation is translated right")
}

fn operation(text: &str) -> String {
    let words: Vec<&str> = text.split_whitespace().collect();
    let value = |word: &str| {
        if word == "-" {
            "null".to_owned()
        } else {
            word.to_owned()
        }
    };
    let version = |at: usize| {
        words
            .get(at)
            .map_or(String::new(), |v| format!(r#","version":{v}"#))
    };
    match words[..] {
        ["r", key, seen, ..] => {
            format!(
                r#"{{"read":"{key}","value":{}{}}}"#,
                value(seen),
                version(3)
            )
        }
        ["w", key, written, ..] => {
            format!(r#"{{"write":"{key}","value":{written}{}}}"#, version(3))
        }
        ["d", key, ..] => format!(r#"{{"delete":"{key}"{}}}"#, version(2)),
        ["s", from, to, ref found @ ..] => {
            let to = if to == "-" {
                String::new()
            } else {
                format!(r#","to":"{to}""#)
            };
            let pair = |pair: &&str| {
                let (key, value) = pair.split_once('=').expect("key=value");
                format!(r#"["{key}",{value}]"#)
            };
            let found: Vec<String> = found.iter().map(pair).collect();
            format!(r#"{{"scan":"{from}"{to},"found":[{}]}}"#, found.join(","))
        }
        _ => panic!("no operation: {text}"),
    }
}
