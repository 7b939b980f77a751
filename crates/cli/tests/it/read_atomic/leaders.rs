//! The region of the leader of a replicated partition is believed as long as the leader has a
//! lease, and not when another one may have followed it.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use ::client::{Client, Transport};

use crate::read_atomic::deaths::{BOTH, ENOUGH, Run, get, put, warm};
use crate::read_atomic::{TOP, connect_with, figure};
use crate::support::replicas::Replicas;
use testkit::SetOnDrop;
use testkit::eventually;

const TIMEOUT: Duration = Duration::from_millis(500);

fn start(further: &[&str]) -> Replicas {
    let further = [&["--transport", "shm"], further].concat();
    Replicas::start_declared_with(1, 3, &further, TOP)
}

fn connect(replicas: &Replicas, timeout: Duration) -> Client {
    connect_with(replicas.fabrics(), |options| {
        options.transport = Transport::Shm;
        options.timeout = timeout;
    })
}

/// Without leases a leader must ask the others before it answers a read; no reader may bypass that
/// by reading its memory.
#[test]
fn a_leader_without_a_lease_publishes_nothing() {
    let replicas = start(&[]);
    let client = connect(&replicas, Duration::from_secs(20));
    put(&client, &BOTH, 1).expect("it is written");
    for _ in 0..50 {
        assert_eq!(get(&client, &BOTH).expect("it is read"), [1, 1]);
    }
    assert_eq!(client.read_counts().in_memory, 0);
}

/// The fault of a leader.
#[derive(Clone, Copy, Debug)]
enum Trouble {
    /// It is paused, and does not know afterwards that it no longer leads.
    StandsStill,
    /// It is killed.
    Dies,
    /// It hands its leadership over, and stops.
    Stops,
}

#[test]
fn nothing_older_is_seen_when_leaders_change() {
    let mut replicas = start(&["--lease-reads"]);
    let run = Run::default();
    let patient = connect(&replicas, Duration::from_secs(20));
    put(&patient, &BOTH, 0).expect("it is written");
    let writer = connect(&replicas, Duration::from_secs(2));
    let readers = [(); 3].map(|()| connect(&replicas, TIMEOUT));
    let counts = [const { AtomicU64::new(0) }; 3];
    std::thread::scope(|scope| {
        let run = &run;
        let writer = scope.spawn(move || run.write(&writer));
        let readings: Vec<_> = readers
            .iter()
            .zip(&counts)
            .map(|(client, count)| scope.spawn(move || run.read(client, &BOTH, count)))
            .collect();
        let ends = SetOnDrop(&run.stop);
        let troubles = [Trouble::StandsStill, Trouble::Dies, Trouble::Stops];
        for trouble in troubles.into_iter().chain([Trouble::StandsStill]) {
            let leader = replicas.leader(1);
            for reader in &readers {
                let before = reader.read_counts().in_memory;
                eventually("the leader's memory is read", || {
                    reader.read_counts().in_memory > before + 20 || !run.goes_on()
                });
            }
            let before = run.acknowledged.load(Ordering::SeqCst);
            match trouble {
                Trouble::StandsStill => replicas.pause_node(leader),
                Trouble::Dies => replicas.kill_node(leader),
                Trouble::Stops => assert!(replicas.stop_node(leader).success()),
            }
            eventually("another one leads, and a client writes", || {
                run.acknowledged.load(Ordering::SeqCst) > before + 20 || !run.goes_on()
            });
            match trouble {
                Trouble::StandsStill => replicas.resume_node(leader),
                Trouble::Dies | Trouble::Stops => replicas.start_node(leader),
            }
            assert!(
                run.goes_on(),
                "something was wrong, when a leader: {trouble:?}"
            );
        }
        run.suffices(&counts);
        drop(ends);
        writer.join().expect("the writer");
        for (reading, reads) in readings.into_iter().zip(&counts) {
            let longest = reading.join().expect("nothing older was read");
            let reads = reads.load(Ordering::Relaxed);
            println!("{reads} reads; the longest that failed took {longest:?}");
            assert!(reads > ENOUGH, "{reads} reads");
        }
    });
    warm(&patient, &BOTH);
    let leader = replicas.leader(1);
    assert!(figure(replicas.address(leader), "published_versions") > 0);
}
