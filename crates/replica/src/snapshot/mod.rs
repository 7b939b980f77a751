//! Snapshots as files.
