//! Decides if a statement can be executed again when it is unknown whether it was executed.

use super::lexer::{Lexer, LexerToken, TokenKind};
use super::summary::{StatementKind, Summary};

/// Returns `true` if executing the statement twice has the same effect as executing it once, as far
/// as its words show: it reads; or it writes without a condition, without functions, and without
/// adding to or taking from the current value. In doubt it returns `false`.
#[must_use]
pub fn is_idempotent(text: &str) -> bool {
    let Ok(summary) = Summary::of(text) else {
        return false;
    };
    match summary.kind {
        StatementKind::Select | StatementKind::Use => true,
        StatementKind::Insert => !summary.conditional && only_sets(text, 1),
        StatementKind::Update | StatementKind::Delete => !summary.conditional && only_sets(text, 0),
        _ => false,
    }
}

/// Returns `true` if no word adds, takes away or calls a function. The first `columns` parentheses
/// behind a name are no calls: an INSERT has its columns behind its table's name.
fn only_sets(text: &str, mut columns: usize) -> bool {
    let mut lexer = Lexer::new(text);
    let mut before: Option<LexerToken<'_>> = None;
    while let Ok(Some(token)) = lexer.next() {
        let after_name = before.as_ref().is_some_and(may_be_function);
        if token.is_symbol('(') && after_name {
            if columns == 0 {
                return false;
            }
            columns -= 1;
        }
        // An element of a list, which may be at another index the second time.
        let element = token.is_symbol('[') && after_name;
        let sum = token.is_symbol('+') || token.is_symbol('-');
        // `a = a -1` is a sum whose minus looks like the number's.
        let number = token.kind == TokenKind::Number && token.text.starts_with('-');
        if element || sum || number && after_name {
            return false;
        }
        before = Some(token);
    }
    true
}

/// Returns `true` if the word can be a name; the keywords that parentheses follow cannot.
fn may_be_function(token: &LexerToken<'_>) -> bool {
    match token.kind {
        TokenKind::Word => !["IN", "VALUES", "AND", "WHERE", "TTL", "TIMESTAMP"]
            .iter()
            .any(|keyword| token.is_word(keyword)),
        TokenKind::QuotedName => true,
        // `(a -1)` and `? -1` subtract, too.
        _ => token.is_symbol(')') || token.is_symbol('?'),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_only_sets_or_reads_is_idempotent() {
        for text in [
            "SELECT now() FROM t",
            "INSERT INTO ks.t (a, b) VALUES (-1, [1, 2]) USING TTL 5",
            "UPDATE t USING TIMESTAMP -5 SET a = ?, b = {'x': 1} WHERE k IN (1, 2)",
            "DELETE a FROM t WHERE k = -1",
        ] {
            assert!(is_idempotent(text), "{text}");
        }
    }

    #[test]
    fn what_may_differ_the_second_time_is_not() {
        for text in [
            "INSERT INTO t (a) VALUES (1) IF NOT EXISTS",
            "INSERT INTO t (a) VALUES (now())",
            "UPDATE t SET a = a + 1 WHERE k = 1",
            "UPDATE t SET a = a -1 WHERE k = 1",
            "UPDATE t SET a = a - ? WHERE k = 1",
            "UPDATE t SET a[0] = 1 WHERE k = 1",
            "UPDATE t SET a = uuid() WHERE k = 1",
            "DELETE a[0] FROM t WHERE k = 1",
            "BEGIN BATCH APPLY BATCH",
            "DROP TABLE t",
            "INSERT INTO t 'unended",
        ] {
            assert!(!is_idempotent(text), "{text}");
        }
    }
}
