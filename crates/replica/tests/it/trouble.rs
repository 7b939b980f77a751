//! What goes wrong around members: disks that are full, snapshots that cannot be made, commands
//! whose leader dies, peers that are wrong.

mod comparison;
mod disk;
mod full;
mod group;
mod learner;
mod peers;
mod prepared;
mod snapshots;
