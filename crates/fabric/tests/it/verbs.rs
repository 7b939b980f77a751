//! Real verbs: the cases of every kind of memory, see `memory`; reads through a connection of their
//! own, see `visit`; windows, see `window`; messages, see `send_receive` and `ring`; and peers that die or
//! are stopped, see `death`.
//!
//! The tests need an RDMA device. `cargo xtask rdma` runs them in a machine that has one, where a
//! missing device is a failure; elsewhere they report that there is none, and pass.

mod death;
mod device;
mod memory;
mod net;
mod process;
mod ring;
mod send_receive;
mod visit;
mod window;

/// Makes a test of each case of the suite for one-sided access, except for one that does not hold
/// here: a device may read when a read is begun, not when it is finished. `memory` has the same
/// case in another order.
macro_rules! conform {
    ($($case:ident)*) => {
        mod over_verbs {
            $(#[test]
            fn $case() {
                let Some(domain) = crate::verbs::net::domain() else {
                    return;
                };
                crate::one_sided::suite::$case(&crate::verbs::net::Loopback(domain));
            })*
        }
    };
}

conform! {
    both_sides_see_what_the_other_has_written
    reads_are_appended_in_the_order_in_which_they_were_begun
    nothing_beyond_the_end_is_read_or_written
    what_was_not_granted_is_refused
    a_grant_travels_in_a_message
    words_are_whole_and_torn_rows_are_noticed
    many_regions_do_not_meet
}
