//! Tests of the journal: durability, crashes, damaged files, checkpoints, copies for backups.

mod backups;
mod checkpoint_damage;
mod checkpoints;
mod crash;
mod devices;
mod format_doc;
mod pacing;
mod reader;
mod running;
mod support;
