//! One suite that every implementation of `Messages` passes, see `suite`. Cases for TCP alone:
//! strangers, see `strangers`, and clients that block, see `caller`. Cases for shared memory: peers
//! that are killed or stopped, see `shm`, and the cost of looking, see `looking`. Encrypted
//! connections, and an attacker between the peers, see `encryption`.

mod caller;
mod encryption;
mod idle_cost;
mod net;
mod shm;
mod sim;
mod strangers;
mod suite;
mod tcp;

use kumiki_fabric::tcp::Transport;

/// Makes a test of each case, for each implementation.
macro_rules! conform {
    ($($case:ident)*) => {
        mod over_tcp {
            $(#[test]
            fn $case() {
                crate::conformance::suite::$case(crate::conformance::tcp::Loopback::new());
            })*
        }
        mod over_shm {
            $(#[test]
            fn $case() {
                crate::conformance::suite::$case(crate::conformance::tcp::Loopback::over(crate::conformance::Transport::Shm));
            })*
        }
        mod over_encrypted_tcp {
            $(#[test]
            fn $case() {
                crate::conformance::suite::$case(crate::conformance::tcp::Loopback::encrypted(crate::conformance::Transport::Tcp));
            })*
        }
        mod over_encrypted_shm {
            $(#[test]
            fn $case() {
                crate::conformance::suite::$case(crate::conformance::tcp::Loopback::encrypted(crate::conformance::Transport::Shm));
            })*
        }
        mod over_io_uring {
            $(#[test]
            fn $case() {
                crate::conformance::suite::$case(crate::conformance::tcp::LoopbackOver::<reactor::Uring>::new());
            })*
        }
        mod over_shm_and_io_uring {
            $(#[test]
            fn $case() {
                crate::conformance::suite::$case(crate::conformance::tcp::LoopbackOver::<reactor::Uring>::over(crate::conformance::Transport::Shm));
            })*
        }
        mod over_encrypted_io_uring {
            $(#[test]
            fn $case() {
                crate::conformance::suite::$case(crate::conformance::tcp::LoopbackOver::<reactor::Uring>::encrypted(crate::conformance::Transport::Tcp));
            })*
        }
        mod over_emulated_send_receive {
            $(#[test]
            fn $case() {
                crate::conformance::suite::$case(crate::conformance::tcp::Loopback::over(crate::conformance::Transport::ShmSend));
            })*
        }
        mod over_emulated_send_receive_and_io_uring {
            $(#[test]
            fn $case() {
                crate::conformance::suite::$case(crate::conformance::tcp::LoopbackOver::<reactor::Uring>::over(crate::conformance::Transport::ShmSend));
            })*
        }
        mod over_verbs {
            $(#[test]
            fn $case() {
                if let Some(net) = crate::conformance::tcp::Loopback::over_verbs(crate::conformance::Transport::Verbs) {
                    crate::conformance::suite::$case(net);
                }
            })*
        }
        mod over_verbs_send_receive {
            $(#[test]
            fn $case() {
                if let Some(net) = crate::conformance::tcp::Loopback::over_verbs(crate::conformance::Transport::VerbsSend) {
                    crate::conformance::suite::$case(net);
                }
            })*
        }
        mod over_sim {
            $(#[test]
            fn $case() {
                for seed in 0..20 {
                    crate::conformance::suite::$case(crate::conformance::sim::Simulated::new(seed));
                }
            })*
        }
    };
}

conform! {
    peers_learn_who_the_other_is
    messages_of_all_sizes_arrive_whole_and_in_order
    both_directions_carry_at_once
    many_small_messages_arrive
    a_large_message_arrives
    what_is_sent_before_the_link_is_up_arrives
    a_full_link_says_so_and_drains
    a_message_above_the_limit_is_refused
    closing_sends_what_was_taken
    a_link_closed_before_it_is_up_sends_what_was_taken
    nothing_arrives_on_a_link_that_was_closed_here
    a_missing_node_is_not_reached
    a_node_does_not_connect_to_itself
    a_peer_that_dies_takes_its_links_down
    a_node_that_comes_back_is_reached_again
    hundreds_of_connections_carry
    links_between_two_nodes_are_independent
}

/// Events of a device are watched by another means there; the rest is as above.
mod over_verbs_send_receive_and_io_uring {
    use crate::conformance::suite;
    use crate::conformance::tcp::LoopbackOver;

    fn net() -> Option<LoopbackOver<reactor::Uring>> {
        LoopbackOver::over_verbs(crate::conformance::Transport::VerbsSend)
    }

    #[test]
    fn messages_of_all_sizes_arrive_whole_and_in_order() {
        if let Some(net) = net() {
            suite::messages_of_all_sizes_arrive_whole_and_in_order(net);
        }
    }

    #[test]
    fn closing_sends_what_was_taken() {
        if let Some(net) = net() {
            suite::closing_sends_what_was_taken(net);
        }
    }
}
