//! Numbers, sizes and times as texts.

pub mod double;
pub mod number;
pub mod size;
pub mod utc;
