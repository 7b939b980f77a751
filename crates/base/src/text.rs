//! Numbers and sizes as texts.

pub mod double;
pub mod number;
pub mod size;
