//! Operations on vectors. They know no programs: each gets vectors and returns one.
//!
//! | module | concept |
//! |---|---|
//! | `value_interval` | between what values lie, and how wide they are computed |
//! | `arithmetic` | `+ - * / %` and the sign |
//! | `compare` | `= <> < <=` and lists |
//! | `logic` | AND, OR, NOT and tests for null |
//! | `branches` | the values of a CASE, put together |
//! | `cast` | the same value as one of another type |
//! | `like` | patterns |
//! | `text` | parts of texts, and years of dates |

pub(crate) mod arithmetic;
pub(crate) mod branches;
pub(crate) mod cast;
pub(crate) mod compare;
pub(crate) mod like;
pub(crate) mod logic;
pub(crate) mod text;
pub(crate) mod value_interval;
