//! Texts of CQL, as far as a proxy must understand them: by their words.
//!
//! | module | question |
//! |---|---|
//! | [`lexer`] | what are the words? |
//! | [`summary`] | which table is it about, and is it conditional? |
//! | [`idempotence`] | can it be executed twice? |
//! | [`select`] | is it a plain read of a table, such as drivers send to `system.local`? |
//! | [`lock`] | which step of the lock recipe is it? |
//! | [`row`] | which whole rows does it read or change? |
//!
//! The node interprets a statement: a text that is not understood here goes to a node unchanged,
//! unless it is about a table that the proxy keeps itself.

pub mod idempotence;
pub mod lexer;
pub mod lock;
mod name;
mod parser;
pub mod row;
pub mod select;
pub mod summary;
mod syntax_error;
pub mod term;

pub use idempotence::is_idempotent;
pub use lexer::{Lexer, LexerToken, TokenKind};
pub use lock::{Condition, LockStatement, LockVerb};
pub use name::{Name, TableName};
pub use row::{KeyTerms, RowChange, RowSelect, RowStatement, RowVerb};
pub use select::{Select, SelectedColumn, Selection, SystemTable};
pub use summary::{StatementKind, Summary};
pub use syntax_error::SyntaxError;
pub use term::{Literal, Marker, Term};
