//! Words in order: shared by the parsers of statements.

use super::lexer::{Lexer, LexerToken};
use super::name::{Name, TableName, name};
use super::syntax_error::{SHOWN, SyntaxError};
use super::term::{Marker, Term};

/// Reads words that must be there.
#[derive(Debug)]
pub(crate) struct Parser<'a> {
    lexer: Lexer<'a>,
    next: Option<LexerToken<'a>>,
    end: usize,
    markers: u16,
}

impl<'a> Parser<'a> {
    pub(crate) fn new(text: &'a str) -> Result<Parser<'a>, SyntaxError> {
        let mut lexer = Lexer::new(text);
        let next = lexer.next()?;
        let end = text.len();
        Ok(Parser {
            lexer,
            next,
            end,
            markers: 0,
        })
    }

    /// Returns the next word.
    pub(crate) fn peek(&self) -> Option<&LexerToken<'a>> {
        self.next.as_ref()
    }

    /// Takes the next word.
    pub(crate) fn take(&mut self) -> Result<Option<LexerToken<'a>>, SyntaxError> {
        let next = match self.next {
            Some(_) => self.lexer.next()?,
            None => None,
        };
        Ok(std::mem::replace(&mut self.next, next))
    }

    pub(crate) fn error(&self, expected: &'static str) -> SyntaxError {
        let text = self.next.map_or("", |token| token.text);
        let mut found: String = text.chars().take(SHOWN).collect();
        if found.len() < text.len() {
            found.push('…');
        }
        SyntaxError {
            at: self.next.map_or(self.end, |token| token.at),
            found,
            expected,
        }
    }

    /// Takes the next word if it is this one. Returns `true` if it was.
    pub(crate) fn accept(&mut self, word: &str) -> Result<bool, SyntaxError> {
        let is_it = self.next.is_some_and(|token| token.is_word(word));
        if is_it {
            self.take()?;
        }
        Ok(is_it)
    }

    /// Takes the next character if it is this one. Returns `true` if it was.
    pub(crate) fn accept_symbol(&mut self, symbol: char) -> Result<bool, SyntaxError> {
        let is_it = self.next.is_some_and(|token| token.is_symbol(symbol));
        if is_it {
            self.take()?;
        }
        Ok(is_it)
    }

    pub(crate) fn expect(&mut self, word: &'static str) -> Result<(), SyntaxError> {
        let error = self.error(word);
        self.accept(word)?.then_some(()).ok_or(error)
    }

    pub(crate) fn expect_symbol(
        &mut self,
        symbol: char,
        expected: &'static str,
    ) -> Result<(), SyntaxError> {
        let error = self.error(expected);
        self.accept_symbol(symbol)?.then_some(()).ok_or(error)
    }

    pub(crate) fn name(&mut self) -> Result<Name<'a>, SyntaxError> {
        let error = self.error("a name");
        let name = self.next.as_ref().and_then(name).ok_or(error)?;
        self.take()?;
        Ok(name)
    }

    pub(crate) fn table(&mut self) -> Result<TableName<'a>, SyntaxError> {
        let first = self.name()?;
        if self.accept_symbol('.')? {
            Ok(TableName {
                keyspace: Some(first),
                table: self.name()?,
            })
        } else {
            Ok(TableName {
                keyspace: None,
                table: first,
            })
        }
    }

    /// Parses a list with commas, of at least one element.
    pub(crate) fn list<T>(
        &mut self,
        element: impl Fn(&mut Parser<'a>) -> Result<T, SyntaxError>,
    ) -> Result<Vec<T>, SyntaxError> {
        let mut elements = vec![element(self)?];
        while self.accept_symbol(',')? {
            elements.push(element(self)?);
        }
        Ok(elements)
    }

    /// Parses `name = term`, with `AND` between several.
    pub(crate) fn equalities(&mut self) -> Result<Vec<(Name<'a>, Term<'a>)>, SyntaxError> {
        let mut equalities = vec![self.equality()?];
        while self.accept("AND")? {
            equalities.push(self.equality()?);
        }
        Ok(equalities)
    }

    /// Parses what follows `INSERT`: `INTO table (columns) VALUES (terms)`. Returns the table and the value of
    /// each column.
    pub(crate) fn inserted(
        &mut self,
    ) -> Result<(TableName<'a>, Vec<(Name<'a>, Term<'a>)>), SyntaxError> {
        self.expect("INTO")?;
        let table = self.table()?;
        self.expect_symbol('(', "(")?;
        let columns = self.list(Parser::name)?;
        self.expect_symbol(')', ")")?;
        self.expect("VALUES")?;
        self.expect_symbol('(', "(")?;
        let terms = self.list(Parser::term)?;
        let wrong = self.error("as many values as columns, and each column once");
        let once = |(at, name): (usize, &Name<'_>)| !columns[..at].contains(name);
        if columns.len() != terms.len() || !columns.iter().enumerate().all(once) {
            return Err(wrong);
        }
        self.expect_symbol(')', ")")?;
        Ok((table, columns.into_iter().zip(terms).collect()))
    }

    /// Parses `WHERE name = term AND …`.
    pub(crate) fn key(&mut self) -> Result<Vec<(Name<'a>, Term<'a>)>, SyntaxError> {
        self.expect("WHERE")?;
        self.equalities()
    }

    pub(crate) fn equality(&mut self) -> Result<(Name<'a>, Term<'a>), SyntaxError> {
        let name = self.name()?;
        self.expect_symbol('=', "=")?;
        Ok((name, self.term()?))
    }

    /// Parses a marker or a literal.
    pub(crate) fn term(&mut self) -> Result<Term<'a>, SyntaxError> {
        let error = self.error("a value or a marker");
        let token = self.take()?.ok_or(error.clone())?;
        if token.is_symbol('?') {
            return Ok(Term::Marker(self.marker(None, error)?));
        }
        if token.is_symbol(':') {
            let name = self.name()?;
            return Ok(Term::Marker(self.marker(Some(name), error)?));
        }
        Term::literal(&token).ok_or(error)
    }

    fn marker(
        &mut self,
        name: Option<Name<'a>>,
        error: SyntaxError,
    ) -> Result<Marker<'a>, SyntaxError> {
        let index = self.markers;
        // A request has at most so many values.
        self.markers = index.checked_add(1).ok_or(error)?;
        Ok(Marker { index, name })
    }

    /// Parses the end, perhaps after a semicolon.
    pub(crate) fn end(&mut self) -> Result<(), SyntaxError> {
        self.accept_symbol(';')?;
        match self.next {
            None => Ok(()),
            Some(_) => Err(self.error("the end")),
        }
    }
}
