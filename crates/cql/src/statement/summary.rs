//! A summary of a statement: its kind, its tables, whether it is conditional.
//!
//! Names are found at their places in the grammar: `SELECT … FROM t`, `INSERT INTO t`, `UPDATE t`,
//! `DELETE … FROM t`, `TRUNCATE [TABLE] t`, `USE k`, and in each statement of a `BEGIN … BATCH …
//! APPLY BATCH`. `FROM` and `IF` are reserved: as words without quotes they are never names.

use super::lexer::LexerToken;
use super::name::{Name, TableName};
use super::parser::Parser;
use super::syntax_error::SyntaxError;

/// The kind of a statement.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[allow(missing_docs)] // The names are those of CQL.
pub enum StatementKind {
    Select,
    Insert,
    Update,
    Delete,
    Batch,
    Use,
    Truncate,
    /// Any other statement: schema, users, permissions.
    Other,
}

/// A summary of a statement.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Summary<'a> {
    /// Its kind.
    pub kind: StatementKind,
    /// The tables that it reads or writes; several in a batch, empty if there are none.
    pub tables: Vec<TableName<'a>>,
    /// The keyspace of a `USE`.
    pub keyspace: Option<Name<'a>>,
    /// `true` if it writes under a condition (`IF`): a lightweight transaction.
    pub conditional: bool,
}

impl<'a> Summary<'a> {
    /// Summarizes a statement by its words.
    ///
    /// # Errors
    /// A necessary word is missing, or a string or comment has no end. A node will refuse such a
    /// statement, too.
    pub fn of(text: &'a str) -> Result<Summary<'a>, SyntaxError> {
        let mut parser = Parser::new(text)?;
        let mut summary = Summary {
            kind: kind(parser.peek()),
            tables: Vec::new(),
            keyspace: None,
            conditional: false,
        };
        match summary.kind {
            StatementKind::Use => {
                parser.take()?;
                summary.keyspace = Some(parser.name()?);
                while parser.accept_symbol(';')? {}
                parser.end()?;
            }
            StatementKind::Truncate => {
                parser.take()?;
                if !parser.accept("TABLE")? {
                    parser.accept("COLUMNFAMILY")?;
                }
                summary.tables.push(parser.table()?);
            }
            StatementKind::Batch => summary.batch(&mut parser)?,
            StatementKind::Other => {}
            _ => summary.statement(&mut parser)?,
        }
        Ok(summary)
    }

    /// Parses one statement, up to its end.
    fn statement(&mut self, parser: &mut Parser<'a>) -> Result<(), SyntaxError> {
        let kind = kind(parser.peek());
        parser.take()?;
        match kind {
            StatementKind::Insert => parser.expect("INTO")?,
            StatementKind::Update => {}
            _ => skip_to_from(parser)?,
        }
        self.tables.push(parser.table()?);
        while let Some(token) = parser.peek() {
            if token.is_symbol(';') {
                break;
            }
            // A batch may have no semicolons. These words are reserved.
            if token.is_word("APPLY") || kind != StatementKind::Select && starts_another(token) {
                break;
            }
            self.conditional |= kind != StatementKind::Select && token.is_word("IF");
            parser.take()?;
        }
        Ok(())
    }

    fn batch(&mut self, parser: &mut Parser<'a>) -> Result<(), SyntaxError> {
        while let Some(token) = parser.peek() {
            if starts_another(token) {
                self.statement(parser)?;
            } else if token.is_word("APPLY") {
                return Ok(());
            } else {
                parser.take()?;
            }
        }
        Err(parser.error("APPLY BATCH"))
    }
}

fn skip_to_from(parser: &mut Parser<'_>) -> Result<(), SyntaxError> {
    while !parser.accept("FROM")? {
        if parser.take()?.is_none() {
            return Err(parser.error("FROM"));
        }
    }
    Ok(())
}

fn kind(first: Option<&LexerToken<'_>>) -> StatementKind {
    const KINDS: [(&str, StatementKind); 7] = [
        ("SELECT", StatementKind::Select),
        ("INSERT", StatementKind::Insert),
        ("UPDATE", StatementKind::Update),
        ("DELETE", StatementKind::Delete),
        ("BEGIN", StatementKind::Batch),
        ("USE", StatementKind::Use),
        ("TRUNCATE", StatementKind::Truncate),
    ];
    let is_first = |word: &str| first.is_some_and(|token| token.is_word(word));
    let found = KINDS.iter().find(|(word, _)| is_first(word));
    found.map_or(StatementKind::Other, |(_, kind)| *kind)
}

/// Returns `true` if it is a reserved word with which a statement of a batch begins.
fn starts_another(token: &LexerToken<'_>) -> bool {
    ["INSERT", "UPDATE", "DELETE"]
        .iter()
        .any(|word| token.is_word(word))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(text: &str) -> Summary<'_> {
        Summary::of(text).unwrap_or_else(|error| panic!("{text}: {error}"))
    }

    fn tables(text: &str) -> Vec<String> {
        of(text).tables.iter().map(TableName::to_string).collect()
    }

    #[test]
    fn the_table_is_where_the_grammar_has_it() {
        use StatementKind as K;
        for (text, kind, table) in [
            ("SELECT a, count(*) FROM ks.t WHERE k=1", K::Select, "ks.t"),
            ("select \"from\" from T", K::Select, "t"),
            ("INSERT INTO \"K\".\"T\" (a) VALUES (1)", K::Insert, "K.T"),
            (
                "/* hint */ UPDATE t SET a = 'IF' WHERE k = 1",
                K::Update,
                "t",
            ),
            ("DELETE a['x'] FROM t WHERE k = 1;", K::Delete, "t"),
            ("TRUNCATE t", K::Truncate, "t"),
            ("TRUNCATE TABLE ks.t", K::Truncate, "ks.t"),
        ] {
            let summary = of(text);
            assert_eq!(summary.kind, kind, "{text}");
            assert_eq!(tables(text), [table], "{text}");
            assert!(!summary.conditional, "{text}");
        }
    }

    #[test]
    fn a_condition_is_a_word_by_itself() {
        for text in [
            "INSERT INTO t (a) VALUES (1) IF NOT EXISTS",
            "update t set a = 1 where k = 1 if a = 2",
            "DELETE FROM t WHERE k = 1 IF EXISTS",
        ] {
            assert!(of(text).conditional, "{text}");
        }
        for text in [
            "INSERT INTO t (\"if\") VALUES ('if') -- IF",
            "CREATE TABLE IF NOT EXISTS t (k int PRIMARY KEY)",
        ] {
            assert!(!of(text).conditional, "{text}");
        }
        assert_eq!(of("DROP TABLE t").kind, StatementKind::Other);
        assert!(of("").tables.is_empty());
    }

    #[test]
    fn a_batch_has_the_tables_of_its_statements() {
        let text = "BEGIN UNLOGGED BATCH USING TIMESTAMP 5 INSERT INTO a (k) VALUES (1); \
                    UPDATE b SET v = 1 WHERE k = 1 DELETE FROM c WHERE k = 1 IF EXISTS; APPLY BATCH;";
        assert_eq!(tables(text), ["a", "b", "c"]);
        assert_eq!(of(text).kind, StatementKind::Batch);
        assert!(of(text).conditional);
        assert!(Summary::of("BEGIN BATCH INSERT INTO a (k) VALUES (1)").is_err());
    }

    #[test]
    fn use_names_a_keyspace() {
        assert_eq!(of("USE \"App\"").keyspace.as_deref(), Some("App"));
        assert_eq!(of("use App;").keyspace.as_deref(), Some("app"));
        assert_eq!(of("use App;; -- now").keyspace.as_deref(), Some("app"));
        for text in ["USE a b c", "USE a.b", "USE a; USE b", "USE"] {
            assert!(Summary::of(text).is_err(), "{text}");
        }
    }

    #[test]
    fn a_missing_word_is_named() {
        let error = Summary::of("SELECT a, b").unwrap_err();
        let text = "expected FROM before the end, behind character 11";
        assert_eq!(error.to_string(), text);
        let error = Summary::of("INSERT t").unwrap_err();
        assert_eq!(error.to_string(), "expected INTO at character 7, not t");
    }

    #[test]
    fn a_table_is_compared_with_its_keyspace() {
        let summary = of("SELECT * FROM locks");
        let table = &summary.tables[0];
        assert!(table.is("app", "locks", Some("app")));
        assert!(!table.is("app", "locks", Some("other")));
        assert!(!table.is("app", "locks", None));
        assert!(of("SELECT * FROM app.locks").tables[0].is("app", "locks", Some("other")));
    }
}
