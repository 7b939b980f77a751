//! Locks that several proxies share, with real processes: while nodes, proxies and connections
//! fail, there is one holder at a time, tokens grow, nothing acknowledged is lost, and late writes
//! are refused.

mod client;
mod cut;
mod history;
use std::net::SocketAddr;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use crate::support::cluster::{Cluster, Keeping};
use crate::support::process::proxy;
use crate::support::replicas::Replicas;
use client::{Client, LONGEST_LEASE_MS, Stage};
use history::History;
use testkit::Client as Connection;
use testkit::SetOnDrop;
use testkit::process::Server;
use testkit::wait::go_on_until;

const CLIENTS: usize = 10;
const KEYS: usize = 4;
/// Longer than any lease lasts by any clock.
const BEYOND_LEASES: Duration = Duration::from_millis(2 * LONGEST_LEASE_MS);

/// The processes that the faults hit.
struct Scene<'a> {
    stage: &'a Stage,
    locks: Replicas,
    data: Cluster,
    proxies: Vec<Server>,
}

fn start_proxy(locks: &Replicas, data: &Cluster) -> Server {
    let (locks, data) = (locks.file(), data.file());
    proxy(&[
        "--cluster",
        &data,
        "--lock-cluster",
        &locks,
        "--max-lease",
        "60s",
        "--network-threads",
        "1",
        "--aggregation-threads",
        "1",
    ])
}

impl Scene<'_> {
    /// Waits until locks are granted that no client could have waited for since before.
    #[track_caller]
    fn locks_are_granted(&self) {
        let grants = || self.stage.grants.load(Ordering::SeqCst);
        let enough = grants() + 2 * CLIENTS;
        go_on_until(|| grants() >= enough);
        assert!(grants() >= enough, "nothing is granted any more");
    }

    fn nodes_die(&mut self) {
        let leader = self.locks.leader(1);
        self.locks.kill_node(leader);
        self.locks_are_granted();
        self.locks.start_node(leader);
        let other = self.locks.leader(1) % self.locks.count() + 1;
        self.locks.kill_node(other);
        self.locks_are_granted();
        self.locks.start_node(other);
        self.locks_are_granted();
    }

    /// Pauses the leader for longer than leases last, and it still believes that it leads when it
    /// continues. Then all nodes are paused.
    fn nodes_pause(&mut self) {
        let leader = self.locks.leader(1);
        self.locks.pause_node(leader);
        self.locks_are_granted();
        std::thread::sleep(BEYOND_LEASES);
        self.locks.resume_node(leader);
        self.locks_are_granted();
        (1..=self.locks.count()).for_each(|node| self.locks.pause_node(node));
        std::thread::sleep(BEYOND_LEASES / 2);
        (1..=self.locks.count()).for_each(|node| self.locks.resume_node(node));
        self.locks_are_granted();
    }

    fn proxies_die_and_pause(&mut self) {
        self.proxies.remove(0).kill();
        self.tell_of_proxies();
        self.locks_are_granted();
        let paused = &self.proxies[0];
        paused.pause();
        self.locks_are_granted();
        std::thread::sleep(BEYOND_LEASES);
        paused.resume();
        self.proxies.push(start_proxy(&self.locks, &self.data));
        self.tell_of_proxies();
        self.locks_are_granted();
    }

    /// Connections of proxies to nodes, and of nodes to each other, are cut while requests travel.
    fn connections_are_cut(&self) {
        let fabrics: Vec<SocketAddr> = self.locks.fabrics().collect();
        let mut count = 0;
        for round in 0..15 {
            let proxy = &self.proxies[round % self.proxies.len()];
            match cut::cut(proxy.process(), &fabrics) {
                Ok(more) => count += more,
                Err(error) => {
                    eprintln!("left out: cutting connections ({error})");
                    return;
                }
            }
            std::thread::sleep(Duration::from_millis(50));
        }
        assert!(count > 5, "only {count} connections were cut");
        self.locks_are_granted();
    }

    fn tell_of_proxies(&self) {
        let addresses = self.proxies.iter().map(|proxy| proxy.address);
        *self.stage.proxies.lock().expect("whole") = addresses.collect();
    }

    /// Reads the tokens of the last guarded writes.
    fn read_values(&self, history: &mut History) {
        let mut connection = Connection::connect(self.proxies[0].address);
        for key in 0..KEYS {
            let value = connection.frame(&["GET", &format!("data{key}")]);
            let text = value.bytes().map(String::from_utf8_lossy);
            let token = text.map(|text| text.parse().expect("a token"));
            history.values.extend(token.map(|token| (key, token)));
        }
    }
}

#[test]
fn locks_hold_when_nodes_proxies_and_connections_fail() {
    let (locks, data) = (Replicas::start(1, 3), Cluster::start(1, Keeping::Nothing));
    let proxies: Vec<Server> = (0..3).map(|_| start_proxy(&locks, &data)).collect();
    let stage = Stage {
        proxies: Mutex::default(),
        keys: KEYS,
        is_over: AtomicBool::new(false),
        grants: AtomicUsize::new(0),
        fenced: AtomicUsize::new(0),
    };
    let mut scene = Scene {
        stage: &stage,
        locks,
        data,
        proxies,
    };
    scene.tell_of_proxies();
    let mut history = std::thread::scope(|scope| {
        let clients = (0..CLIENTS).map(|number| {
            let stage = &stage;
            scope.spawn(move || Client::new(stage, number).run())
        });
        let clients: Vec<_> = clients.collect();
        let over = SetOnDrop(&stage.is_over);
        scene.locks_are_granted();
        scene.nodes_die();
        scene.proxies_die_and_pause();
        scene.connections_are_cut();
        scene.nodes_pause();
        let fenced = || stage.fenced.load(Ordering::SeqCst);
        go_on_until(|| fenced() > 0);
        drop(over);
        let mut history = History::default();
        for client in clients {
            history.append(client.join().expect("a client"));
        }
        history
    });
    assert!(
        stage.fenced.load(Ordering::SeqCst) > 0,
        "no client came late"
    );
    scene.read_values(&mut history);
    let applied = |write: &&history::Write| write.effect == history::Effect::Applied;
    assert!(history.writes.iter().filter(applied).count() > CLIENTS);
    if let Err(what) = history.judge() {
        let file = std::env::temp_dir().join(format!("locks-{}.txt", std::process::id()));
        std::fs::write(&file, history.protocol()).expect("a file");
        panic!("{what}\nall requests: {}", file.display());
    }
}
