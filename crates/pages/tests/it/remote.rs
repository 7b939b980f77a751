//! A storage node and its readers, over every transport. RDMA is tested where there is a device: `cargo
//! xtask rdma` runs these tests in a machine that has one. The cases are in `suite`, `far`, `stock` and
//! `replicas`; strangers and faulty readers in `strangers` and `limits`; nodes that take long in `slow`;
//! links that threads share in `link_pool`, and as readers of tables have them in `remote_node`.

mod limits;
mod link_pool;
mod local_tables;
mod remote_node;
mod replicas;
mod slow;
mod strangers;
mod suite;
mod support;

/// Makes a test of each case, for each transport.
macro_rules! conform {
    ($($suite:ident::$case:ident)*) => {
        mod over_tcp {
            $(#[test]
            fn $case() {
                crate::remote::$suite::$case(&crate::remote::support::Road::new(fabric::tcp::Transport::Tcp));
            })*
        }
        mod over_shm {
            $(#[test]
            fn $case() {
                crate::remote::$suite::$case(&crate::remote::support::Road::new(fabric::tcp::Transport::Shm));
            })*
        }
        mod over_verbs {
            $(#[test]
            fn $case() {
                let Some(road) = crate::remote::support::Road::verbs() else {
                    return;
                };
                crate::remote::$suite::$case(&road);
            })*
        }
    };
}

/// Makes a test of each case, for readers that share two links of four threads each.
macro_rules! conform_shared {
    ($($case:ident)*) => {
        mod shared_over_tcp {
            $(#[test]
            fn $case() {
                let road = crate::remote::support::Road::new(fabric::tcp::Transport::Tcp);
                crate::remote::remote_node::$case(&road.sharing(2, 4));
            })*
        }
        mod shared_over_shm {
            $(#[test]
            fn $case() {
                let road = crate::remote::support::Road::new(fabric::tcp::Transport::Shm);
                crate::remote::remote_node::$case(&road.sharing(2, 4));
            })*
        }
    };
}

conform_shared! {
    a_table_s_pages_come_in_the_order_in_which_they_were_asked_for
    what_a_cache_has_is_not_read_again
    the_node_reads_while_pages_of_the_cache_are_taken
    a_torn_page_is_not_believed
    a_node_that_dies_loses_its_pages
    a_node_that_is_away_for_a_moment_is_told_of_in_its_turn
    a_version_that_is_gone_is_told
}

conform! {
    suite::pages_come_as_they_are
    suite::pages_are_read_in_every_way
    suite::memory_is_shown_as_files_are
    suite::pages_of_all_sizes_come_on_one_session
    suite::what_is_not_there_is_told
    suite::many_readers_have_their_own
    suite::a_reader_that_keeps_pages_gets_all_others
    suite::a_node_that_stops_is_noticed
    suite::tasks_send_what_they_have_as_it_is_wanted
    suite::a_task_that_is_cancelled_ends
    suite::a_task_without_an_end_says_why
    suite::a_node_that_stops_ends_its_tasks
    limits::a_batch_that_is_too_long_fails_its_task
    limits::an_answer_that_is_too_long_is_told
    limits::credit_has_an_end
    link_pool::threads_that_share_links_get_the_pages_that_they_asked_for
    link_pool::many_threads_share_a_link_of_few_pages
    link_pool::threads_that_end_early_hinder_no_others
    link_pool::failed_opens_and_reads_are_reported_to_the_threads_that_asked
    link_pool::a_lost_link_fails_all_of_its_threads
    remote_node::a_table_s_pages_come_in_the_order_in_which_they_were_asked_for
    remote_node::what_a_cache_has_is_not_read_again
    remote_node::the_node_reads_while_pages_of_the_cache_are_taken
    remote_node::a_torn_page_is_not_believed
    remote_node::a_node_that_dies_loses_its_pages
    remote_node::a_node_that_is_away_for_a_moment_is_told_of_in_its_turn
    remote_node::a_version_that_is_gone_is_told
    local_tables::what_was_loaded_is_read_and_stays
    local_tables::rows_are_loaded_in_the_layout_of_rows
    local_tables::a_load_that_is_broken_off_leaves_nothing
    local_tables::a_reader_goes_on_with_the_version_that_it_began_with
    local_tables::a_load_that_cannot_be_is_refused_with_its_reason
    local_tables::a_table_that_is_damaged_says_so
    replicas::a_table_that_is_damaged_on_one_node_is_replaced_on_all
    replicas::every_depot_keeps_what_depots_keep
    replicas::replicas_are_equal_bit_by_bit
    replicas::nodes_that_differ_are_made_equal_by_replacing
    replicas::of_two_loads_at_once_one_is_on_all_nodes_and_one_on_none
    replicas::a_node_that_is_lost_leaves_the_others_as_they_were
    replicas::the_newest_version_of_any_node_is_listed
    replicas::numbers_of_versions_that_make_no_sense_are_refused
    replicas::which_nodes_have_a_version_is_told
    replicas::an_error_names_the_nodes_whose_outcome_is_unknown
    replicas::where_a_table_was_removed_is_told
    replicas::where_a_table_was_not_removed_is_told
}
