//! Numbers and sizes as texts.

pub mod number;
pub mod size;
