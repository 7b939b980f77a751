//! A text cut into statements.
//!
//! A statement ends with a semicolon that is in no quotes and no comment. A line that begins with a
//! backslash, between statements, is a command of the shell.

/// A part of a script.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Part {
    /// A statement, without its semicolon.
    Statement(String),
    /// A command, from its backslash to the line's end.
    Command(String),
}

/// What a text has.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Script {
    /// Its parts.
    pub parts: Vec<Part>,
    /// What is behind the last semicolon, if that is more than blanks and comments.
    pub rest: Option<String>,
}

/// Cuts a text.
#[must_use]
pub fn cut(text: &str) -> Script {
    let mut parts = Vec::new();
    let mut rest = text;
    loop {
        let begun = skip_blank(rest);
        if begun.starts_with('\\') {
            let end = begun.find('\n').unwrap_or(begun.len());
            parts.push(Part::Command(begun[..end].trim_end().to_owned()));
            rest = &begun[end..];
            continue;
        }
        match end_of_statement(begun) {
            Some(end) => {
                let statement = begun[..end].trim();
                if !statement.is_empty() {
                    parts.push(Part::Statement(statement.to_owned()));
                }
                rest = &begun[end + 1..];
            }
            None => {
                let rest = (!begun.is_empty()).then(|| begun.trim_end().to_owned());
                return Script { parts, rest };
            }
        }
    }
}

/// What follows blanks and comments.
fn skip_blank(mut text: &str) -> &str {
    loop {
        text = text.trim_start();
        match comment(text) {
            Some(length) => text = &text[length..],
            None => return text,
        }
    }
}

/// How long the comment is with which a text begins.
fn comment(text: &str) -> Option<usize> {
    if text.starts_with("--") {
        return Some(text.find('\n').unwrap_or(text.len()));
    }
    if !text.starts_with("/*") {
        return None;
    }
    let mut depth = 0;
    let mut at = 0;
    while at < text.len() {
        if text[at..].starts_with("/*") {
            depth += 1;
            at += 2;
        } else if text[at..].starts_with("*/") {
            depth -= 1;
            at += 2;
            if depth == 0 {
                return Some(at);
            }
        } else {
            at += text[at..].chars().next().map_or(1, char::len_utf8);
        }
    }
    Some(text.len())
}

/// Where the semicolon is that ends a statement.
fn end_of_statement(text: &str) -> Option<usize> {
    let mut at = 0;
    while let Some(next) = text[at..].chars().next() {
        match next {
            ';' => return Some(at),
            '\'' | '"' => {
                // A doubled quote is an end and a beginning.
                let inside = &text[at + 1..];
                at += 2 + inside.find(next)?;
            }
            _ => match comment(&text[at..]) {
                Some(length) => at += length,
                None => at += next.len_utf8(),
            },
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parts(text: &str) -> Vec<String> {
        let parts = cut(text).parts.into_iter().map(|part| match part {
            Part::Statement(text) | Part::Command(text) => text,
        });
        parts.collect()
    }

    #[test]
    fn semicolons_end_statements() {
        assert_eq!(parts("select 1; select 2;\n"), ["select 1", "select 2"]);
        assert_eq!(cut("select 1; select 2").rest.unwrap(), "select 2");
        assert_eq!(parts(" ;; select 1 ;"), ["select 1"]);
    }

    #[test]
    fn those_in_quotes_and_comments_do_not() {
        assert_eq!(parts("select ';' ;"), ["select ';'"]);
        assert_eq!(parts("select 'it''s; ' ;"), ["select 'it''s; '"]);
        assert_eq!(parts("select \"a;b\";"), ["select \"a;b\""]);
        assert_eq!(parts("select 1 -- a; b\n, 2;"), ["select 1 -- a; b\n, 2"]);
        assert_eq!(
            parts("select /* ; /* ; */ ; */ 3;"),
            ["select /* ; /* ; */ ; */ 3"]
        );
    }

    #[test]
    fn what_is_not_finished_is_left() {
        assert_eq!(cut("select 'a;").rest.unwrap(), "select 'a;");
        assert_eq!(cut("select 1; -- said all\n").rest, None);
        assert_eq!(cut("/* no end").rest, None);
    }

    #[test]
    fn commands_are_lines() {
        let script = cut("\\d a\nselect 1;\n  \\timing\n");
        assert_eq!(
            script.parts,
            [
                Part::Command("\\d a".to_owned()),
                Part::Statement("select 1".to_owned()),
                Part::Command("\\timing".to_owned())
            ]
        );
    }

    #[test]
    fn no_text_makes_it_panic() {
        for text in ["'é", "é;é", "/*é", "--é", "\"", "\\", "/", "-", "*/;"] {
            let _ = cut(text);
        }
    }
}
