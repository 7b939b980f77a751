//! Tests of tables in pages: writing, reading, crashes, storage nodes.

mod crash;
mod format_doc;
mod manifest;
mod remote;
mod round_trip;
mod sources;
mod support;
