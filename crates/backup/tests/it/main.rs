//! Tests of backups: databases in this process are the nodes.

mod chains;
mod damage;
mod interruptions;
mod moments;
mod repositories;
mod support;
