//! Plain reads of one table: `SELECT * | columns FROM t [WHERE a = … AND …] [LIMIT …]
//! [ALLOW FILTERING]`.
//!
//! Drivers ask `system.local`, `system.peers` and `system_schema` in this form.

use super::name::{Name, TableName};
use super::parser::Parser;
use super::syntax_error::SyntaxError;
use super::term::Term;

/// A plain read.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Select<'a> {
    /// The table.
    pub table: TableName<'a>,
    /// The values that are read from each row.
    pub selection: Selection<'a>,
    /// The columns that must have these values.
    pub restrictions: Vec<(Name<'a>, Term<'a>)>,
    /// The most rows.
    pub limit: Option<Term<'a>>,
}

/// The values that are read from each row.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Selection<'a> {
    /// `*`.
    All,
    /// These columns, in this order.
    Columns(Vec<SelectedColumn<'a>>),
    /// `count(*)`, with the name of its column.
    Count(Name<'a>),
}

/// A column that is read.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SelectedColumn<'a> {
    /// Its name in the table.
    pub name: Name<'a>,
    /// Its name in the result: that of `AS`, or the same.
    pub alias: Name<'a>,
}

impl<'a> Select<'a> {
    /// Parses a statement.
    ///
    /// # Errors
    /// It is not of this form. It may be CQL nevertheless.
    pub fn parse(text: &'a str) -> Result<Select<'a>, SyntaxError> {
        let mut parser = Parser::new(text)?;
        let select = Select::read(&mut parser)?;
        parser.end()?;
        Ok(select)
    }

    pub(crate) fn read(parser: &mut Parser<'a>) -> Result<Select<'a>, SyntaxError> {
        parser.expect("SELECT")?;
        let selection = selection(parser)?;
        parser.expect("FROM")?;
        let table = parser.table()?;
        let restrictions = if parser.accept("WHERE")? {
            parser.equalities()?
        } else {
            Vec::new()
        };
        let limit = if parser.accept("LIMIT")? {
            Some(parser.term()?)
        } else {
            None
        };
        if parser.accept("ALLOW")? {
            parser.expect("FILTERING")?;
        }
        Ok(Select {
            table,
            selection,
            restrictions,
            limit,
        })
    }
}

pub(crate) fn selection<'a>(parser: &mut Parser<'a>) -> Result<Selection<'a>, SyntaxError> {
    if parser.accept_symbol('*')? {
        return Ok(Selection::All);
    }
    let first = parser.name()?;
    if first == "count" && parser.accept_symbol('(')? {
        parser.expect_symbol('*', "*")?;
        parser.expect_symbol(')', ")")?;
        return Ok(Selection::Count(alias(parser, first)?));
    }
    let mut columns = vec![column(parser, first)?];
    while parser.accept_symbol(',')? {
        let name = parser.name()?;
        columns.push(column(parser, name)?);
    }
    Ok(Selection::Columns(columns))
}

fn column<'a>(parser: &mut Parser<'a>, name: Name<'a>) -> Result<SelectedColumn<'a>, SyntaxError> {
    let alias = alias(parser, name.clone())?;
    Ok(SelectedColumn { name, alias })
}

fn alias<'a>(parser: &mut Parser<'a>, name: Name<'a>) -> Result<Name<'a>, SyntaxError> {
    if parser.accept("AS")? {
        parser.name()
    } else {
        Ok(name)
    }
}

/// A table in which a node describes itself and its cluster.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum SystemTable<'a> {
    /// `system.local`: the node itself.
    Local,
    /// `system.peers`: the other nodes.
    Peers,
    /// `system.peers_v2`: the other nodes, with ports.
    PeersV2,
    /// A table of `system_schema`.
    Schema(&'a str),
}

impl TableName<'_> {
    /// Returns the system table that it reads, when names without a keyspace are of `current`;
    /// `None`: another table.
    #[must_use]
    pub fn system(&self, current: Option<&str>) -> Option<SystemTable<'_>> {
        match (self.keyspace.as_deref().or(current)?, self.table.as_ref()) {
            ("system", "local") => Some(SystemTable::Local),
            ("system", "peers") => Some(SystemTable::Peers),
            ("system", "peers_v2") => Some(SystemTable::PeersV2),
            ("system_schema", table) => Some(SystemTable::Schema(table)),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::statement::term::{Literal, Marker};

    fn parse(text: &str) -> Select<'_> {
        Select::parse(text).unwrap_or_else(|error| panic!("{text}: {error}"))
    }

    #[test]
    fn what_drivers_ask_is_understood() {
        let local = parse("SELECT * FROM system.local WHERE key='local'");
        assert_eq!(local.table.system(None), Some(SystemTable::Local));
        assert_eq!(local.selection, Selection::All);
        let key = Term::Literal(Literal::Text("local".into()));
        assert_eq!(local.restrictions, [("key".into(), key)]);

        let peer = parse("select peer, Host_Id as h from system.peers_v2 where peer = :address;");
        assert_eq!(peer.table.system(None), Some(SystemTable::PeersV2));
        let column = |name: &'static str, alias: &'static str| SelectedColumn {
            name: name.into(),
            alias: alias.into(),
        };
        let columns = vec![column("peer", "peer"), column("host_id", "h")];
        assert_eq!(peer.selection, Selection::Columns(columns));
        let marker = Marker {
            index: 0,
            name: Some("address".into()),
        };
        assert_eq!(peer.restrictions, [("peer".into(), Term::Marker(marker))]);
        let peers = parse("SELECT count(*) FROM peers LIMIT 10 ALLOW FILTERING");
        assert_eq!(peers.table.system(Some("system")), Some(SystemTable::Peers));
        assert_eq!(peers.table.system(None), None);
        assert_eq!(peers.selection, Selection::Count("count".into()));
        let schema = parse("SELECT * FROM system_schema.tables");
        assert_eq!(
            schema.table.system(None),
            Some(SystemTable::Schema("tables"))
        );
    }

    #[test]
    fn other_reads_are_not_plain() {
        for text in [
            "SELECT from FROM system.peers_v2",
            "SELECT * FROM where",
            "SELECT DISTINCT k FROM t",
            "SELECT ttl(a) FROM t",
            "SELECT a FROM t WHERE k > 1",
            "SELECT a FROM t WHERE k IN (1)",
            "SELECT a FROM t ORDER BY a",
            "SELECT a FROM t; SELECT",
            "SELECT FROM t",
            "INSERT",
            "",
        ] {
            assert!(Select::parse(text).is_err(), "{text}");
        }
    }
}
