//! A storage node and its readers, over every way on which messages travel on one machine: see
//! `suite`. What strangers and clumsy readers do to a node: see `strangers`.

mod strangers;
mod suite;
mod support;

/// Makes a test of each case, for each way.
macro_rules! conform {
    ($($case:ident)*) => {
        mod over_tcp {
            $(#[test]
            fn $case() {
                crate::suite::$case(fabric::tcp::Transport::Tcp);
            })*
        }
        mod over_shm {
            $(#[test]
            fn $case() {
                crate::suite::$case(fabric::tcp::Transport::Shm);
            })*
        }
    };
}

conform! {
    pages_come_as_they_are
    pages_of_all_sizes_come_on_one_session
    what_is_not_there_is_told
    many_readers_have_their_own
    who_keeps_pages_hinders_nobody
    a_node_that_stops_is_noticed
    tasks_send_what_they_have_as_it_is_wanted
    a_task_that_is_cancelled_ends
    a_task_without_an_end_says_why
    a_node_that_stops_ends_its_tasks
}
