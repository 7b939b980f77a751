//! A server beside Redis: the same bytes to both, their replies held against each other.
//!
//! | module | role |
//! |---|---|
//! | [`script`] | reads the hand-picked calls of `*.txt` |
//! | [`rules`] | which two replies count as equal |
//! | [`session`] | connections to both servers, and what they answered |
//! | [`generate`] | random calls from a seed |
//! | [`shrink`] | the shortest calls that still differ |
//! | [`differences`] | the differences that are documented |

pub(crate) mod differences;
pub(crate) mod generate;
pub(crate) mod rules;
pub(crate) mod script;
pub(crate) mod session;
pub(crate) mod shrink;
