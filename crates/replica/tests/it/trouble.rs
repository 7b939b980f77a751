//! Faults around members: full disks, snapshots that cannot be made, commands whose leader dies,
//! faulty peers.

mod comparison;
mod disk;
mod full;
mod group;
mod learner;
mod peers;
mod prepared;
mod snapshots;
