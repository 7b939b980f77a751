//! A text cut into statements.
//!
//! A statement ends with a semicolon that is not within quotes or a comment. A line that begins with a
//! backslash, between statements, is a command of the shell.

use datafusion::sql::sqlparser::dialect::{Dialect, GenericDialect, PostgreSqlDialect};
use datafusion::sql::sqlparser::keywords::Keyword;
use datafusion::sql::sqlparser::tokenizer::{Token, Tokenizer};

/// A part of a script.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum ScriptPart {
    /// A statement, without its semicolon.
    Statement(String),
    /// A command, from its backslash to the line's end.
    Command(String),
}

/// The contents of a text.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Script {
    /// Its parts.
    pub parts: Vec<ScriptPart>,
    /// The text after the last semicolon, if it is more than blanks and comments.
    pub rest: Option<String>,
}

/// Cuts a text into parts.
#[must_use]
pub fn cut(text: &str) -> Script {
    let mut parts = Vec::new();
    let mut rest = text;
    loop {
        let begun = skip_blank(rest);
        if begun.starts_with('\\') {
            let end = begun.find('\n').unwrap_or(begun.len());
            parts.push(ScriptPart::Command(begun[..end].trim_end().to_owned()));
            rest = &begun[end..];
            continue;
        }
        match end_of_statement(begun) {
            Some(end) => {
                let statement = begun[..end].trim();
                if !statement.is_empty() {
                    parts.push(ScriptPart::Statement(statement.to_owned()));
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

/// Returns the text after blanks and comments.
fn skip_blank(mut text: &str) -> &str {
    loop {
        text = text.trim_start();
        match comment(text) {
            Some(length) => text = &text[length..],
            None => return text,
        }
    }
}

/// Returns the length of the comment with which a text begins.
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

/// Returns the place of the semicolon that ends a statement.
fn end_of_statement(text: &str) -> Option<usize> {
    let mut at = 0;
    // `true` if a word ends here.
    let mut word = false;
    while let Some(next) = text[at..].chars().next() {
        let rest = &text[at..];
        let length = match next {
            ';' => return Some(at),
            '\'' if is_escaped(&text[..at]) => escaped(rest)?,
            // A doubled quote is an end and a beginning.
            '\'' | '"' => 2 + rest[1..].find(next)?,
            '$' if !word && tag(rest).is_some() => {
                let tag = tag(rest)?;
                2 * tag.len() + rest[tag.len()..].find(tag)?
            }
            _ => comment(rest).unwrap_or(next.len_utf8()),
        };
        word = length == next.len_utf8() && is_word(next);
        at += length;
    }
    None
}

fn is_word(c: char) -> bool {
    c.is_alphanumeric() || matches!(c, '_' | '$')
}

/// Returns `true` if a quote after this text begins a string with escapes: `E'…'`.
fn is_escaped(before: &str) -> bool {
    let mut before = before.chars().rev();
    matches!(before.next(), Some('e' | 'E')) && !before.next().is_some_and(is_word)
}

/// Returns the length of the string with escapes with which a text begins.
fn escaped(text: &str) -> Option<usize> {
    let mut characters = text.char_indices().skip(1);
    while let Some((at, next)) = characters.next() {
        match next {
            '\\' => drop(characters.next()?),
            '\'' => return Some(at + 1),
            _ => {}
        }
    }
    None
}

/// Returns the quote of the string with which a text begins, if it is quoted by dollars: `$$…$$`,
/// `$name$…$name$`.
fn tag(text: &str) -> Option<&str> {
    let name = &text[1..];
    let end = name.find(|c: char| !c.is_alphanumeric() && c != '_')?;
    let named = !name.starts_with(|c: char| c.is_ascii_digit());
    (named && name[end..].starts_with('$')).then(|| &text[..end + 2])
}

/// Returns the number of operators of a statement: all tokens that may become a level of its tree, and so of
/// the recursion over it. These are operators on values, those between queries and tables, and brackets.
#[must_use]
pub fn operators(sql: &str) -> usize {
    let of = |dialect: &dyn Dialect| {
        // A text that cannot be cut into tokens is not parsed, and has no tree.
        let tokens = Tokenizer::new(dialect, sql).tokenize();
        tokens.map_or(0, |tokens| levels(&tokens))
    };
    // Most statements are parsed in the first dialect, and some that are PostgreSQL's own in the second.
    of(&GenericDialect {}).max(of(&PostgreSqlDialect {}))
}

fn levels(tokens: &[Token]) -> usize {
    let mut count = 0;
    // For each open bracket, `true` if it contains a list of tables, which commas join.
    let mut tables = vec![false];
    for token in tokens {
        let listed = tables.last_mut().expect("the outermost is never closed");
        let is_level = match token {
            Token::Comma => *listed,
            Token::LParen => {
                tables.push(false);
                true
            }
            Token::RParen => {
                if tables.len() > 1 {
                    tables.pop();
                }
                false
            }
            Token::Word(word) => {
                match word.keyword {
                    Keyword::FROM => *listed = true,
                    Keyword::SELECT
                    | Keyword::WHERE
                    | Keyword::GROUP
                    | Keyword::HAVING
                    | Keyword::ORDER
                    | Keyword::LIMIT => *listed = false,
                    _ => {}
                }
                is_operator(word.keyword)
            }
            Token::EOF
            | Token::Number(..)
            | Token::SingleQuotedString(_)
            | Token::NationalStringLiteral(_)
            | Token::EscapedStringLiteral(_)
            | Token::DollarQuotedString(_)
            | Token::HexStringLiteral(_)
            | Token::Whitespace(_)
            | Token::Period
            | Token::RBracket
            | Token::RBrace
            | Token::SemiColon
            | Token::Placeholder(_) => false,
            _ => true,
        };
        count += usize::from(is_level);
    }
    count
}

fn is_operator(word: Keyword) -> bool {
    matches!(
        word,
        Keyword::AND
            | Keyword::OR
            | Keyword::XOR
            | Keyword::NOT
            | Keyword::IS
            | Keyword::NOTNULL
            | Keyword::IN
            | Keyword::BETWEEN
            | Keyword::LIKE
            | Keyword::ILIKE
            | Keyword::RLIKE
            | Keyword::REGEXP
            | Keyword::SIMILAR
            | Keyword::MATCH
            | Keyword::MEMBER
            | Keyword::DIV
            | Keyword::OVERLAPS
            | Keyword::OPERATOR
            | Keyword::COLLATE
            | Keyword::AT
            | Keyword::CASE
            | Keyword::UNION
            | Keyword::EXCEPT
            | Keyword::INTERSECT
            | Keyword::MINUS
            | Keyword::JOIN
            | Keyword::APPLY
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parts(text: &str) -> Vec<String> {
        let parts = cut(text).parts.into_iter().map(|part| match part {
            ScriptPart::Statement(text) | ScriptPart::Command(text) => text,
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
        assert_eq!(parts("select e'\\';';"), ["select e'\\';'"]);
        assert_eq!(parts("select one'\\'; 2;"), ["select one'\\'", "2"]);
        assert_eq!(parts("select $$;'$$;"), ["select $$;'$$"]);
        assert_eq!(parts("select $a$;$$;$a$;"), ["select $a$;$$;$a$"]);
        assert_eq!(parts("select $1; $2;"), ["select $1", "$2"]);
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
                ScriptPart::Command("\\d a".to_owned()),
                ScriptPart::Statement("select 1".to_owned()),
                ScriptPart::Command("\\timing".to_owned())
            ]
        );
    }

    #[test]
    fn operators_are_counted_outside_of_quotes() {
        assert_eq!(operators("select 1 + 2 * 3"), 2);
        assert_eq!(operators("a = 'x = y' and b or not c -- = = ="), 4);
        assert_eq!(operators("f(a, b, c) in (1, 2, 3)"), 3);
        assert_eq!(operators("select 'ü + "), 0);
        assert_eq!(operators("select e'\\'', 1 + 1 + 1"), 2);
        assert_eq!(operators("select $$'$$, $1 + 1"), 1);
        assert_eq!(operators("select 1 except select 2 intersect select 3"), 2);
        assert_eq!(
            operators("select a, b from s, t join u using (c) where a in (1, 2)"),
            5
        );
        assert_eq!(operators("select x at time zone 'a' like 'b' xor c"), 3);
    }

    #[test]
    fn no_text_makes_it_panic() {
        for text in [
            "'é", "é;é", "/*é", "--é", "\"", "\\", "/", "-", "*/;", "e'é\\", "$é", "$é$", ")",
        ] {
            let _ = cut(text);
            let _ = operators(text);
        }
    }
}
