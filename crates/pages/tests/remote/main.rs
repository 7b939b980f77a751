//! A storage node and its readers, over every way on which messages travel on one machine: see
//! `suite`. What strangers and clumsy readers do to a node: see `strangers`.

mod far;
mod strangers;
mod suite;
mod support;

/// Makes a test of each case, for each way.
macro_rules! conform {
    ($($suite:ident::$case:ident)*) => {
        mod over_tcp {
            $(#[test]
            fn $case() {
                crate::$suite::$case(fabric::tcp::Transport::Tcp);
            })*
        }
        mod over_shm {
            $(#[test]
            fn $case() {
                crate::$suite::$case(fabric::tcp::Transport::Shm);
            })*
        }
    };
}

conform! {
    suite::pages_come_as_they_are
    suite::pages_of_all_sizes_come_on_one_session
    suite::what_is_not_there_is_told
    suite::many_readers_have_their_own
    suite::who_keeps_pages_hinders_nobody
    suite::a_node_that_stops_is_noticed
    suite::tasks_send_what_they_have_as_it_is_wanted
    suite::a_task_that_is_cancelled_ends
    suite::a_task_without_an_end_says_why
    suite::a_node_that_stops_ends_its_tasks
    far::a_table_s_pages_come_in_the_order_in_which_they_were_asked_for
    far::what_a_cache_has_is_not_read_again
    far::a_torn_page_is_not_believed
    far::a_node_that_dies_loses_its_pages
    far::a_version_that_is_gone_is_told
}
