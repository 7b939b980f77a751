//! A client that waits for a transaction over several nodes costs no processor time, nor do nodes
//! that have nothing to do. Alone in its process, whose time is measured.

use std::time::Duration;

use crate::support::nodes::{Nodes, NodesOptions};
use crate::support::prepared_transaction::PreparedTransaction;
use crate::support::{bulk, config, ephemeral, int, ok};
use testkit::own_process::run_alone;

/// Returns the processor time of this process so far.
fn cpu_time() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    Duration::try_from(time).expect("time goes forward")
}

#[test]
fn waiting_costs_nothing() {
    run_alone("cluster_idle::waiting_costs_nothing", measure);
}

fn measure() {
    let mut options = NodesOptions {
        count: 2,
        durable: false,
        ..NodesOptions::default()
    };
    options.timeouts.doubt = Duration::from_secs(600);
    let nodes = Nodes::start(options);
    let [a, b] = [1, 2].map(|node| nodes.key_of(node, "key"));
    // A server that is in no cluster can have data with prepared transactions.
    let alone = ephemeral(config());
    PreparedTransaction::new(&alone.db, "k").commit();
    let here = PreparedTransaction::new(&alone.db, "k");
    let there = PreparedTransaction::new(nodes.db(2), &b);
    let mut parked = alone.client();
    parked.send(&["APPEND", "k", "y"]);
    let [mut coordinated, mut remote] = [nodes.client(1), nodes.client(2)];
    remote.send(&["APPEND", &b, "y"]);
    let a_while = Duration::from_millis(200);
    assert!(parked.is_silent(a_while) && remote.is_silent(a_while));
    coordinated.send(&["MSET", &a, "1", &b, "2"]);
    assert!(coordinated.is_silent(a_while));
    let (before, time) = (cpu_time(), Duration::from_millis(500));
    std::thread::sleep(time);
    let spent = cpu_time() - before;
    // A loop that does not sleep would take all of it.
    assert!(spent < time / 3, "{spent:?} of {time:?}");
    here.commit();
    there.commit();
    assert_eq!(parked.reply(), int(3));
    assert_eq!(alone.client().call(&["GET", "k"]), bulk("xxy"));
    assert_eq!(coordinated.reply(), ok());
    remote.reply();
}
