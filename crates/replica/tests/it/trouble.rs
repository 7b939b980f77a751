//! What goes wrong around members: disks that are full, snapshots that cannot be made, commands
//! whose leader dies.

mod disk;
mod full;
mod group;
mod learner;
mod prepared;
mod snapshots;
