//! Tests of operators: results against a reference, codec, limits, placements.

mod cancellation;
mod codec;
mod limits;
mod placements;
mod random;
mod reference;
mod storage_node;
mod tables;
mod texts;
