//! Locks that proxies keep: over connections, with each kind of storage, with proxies that are
//! killed and that are paused.

use std::net::SocketAddr;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use crate::support::cluster::{Cluster, Keeping};
use crate::support::process::proxy;
use crate::support::replicas::Replicas;
use crate::support::words::{ask, granted, text, told};
use testkit::SetOnDrop;
use testkit::client::Answer;
use testkit::process::Server;
use testkit::wait::go_on_until;
use testkit::{Client, Frame, eventually};

/// Returns the holder of the lock, which is another one.
#[track_caller]
fn held_by(frame: &Frame) -> String {
    let fields = frame.frames().unwrap_or_else(|| panic!("{frame:?}"));
    assert_eq!(fields[0].int(), Some(0), "{frame:?}");
    assert!(fields[2].int().is_some_and(|left| left > 0), "{frame:?}");
    String::from_utf8_lossy(fields[1].bytes().expect("a holder")).into_owned()
}

/// Returns a grant, once the table answers.
fn acquired(client: &mut Client, command: &str) -> i64 {
    let mut last = None;
    eventually("a grant", || {
        let frame = ask(client, command);
        let is_error = frame.is_error();
        last = Some(frame);
        !is_error
    });
    granted(&last.expect("it was tried"))
}

fn each_command(address: SocketAddr) {
    let mut one = Client::connect(address);
    let mut two = Client::connect(address);
    assert_eq!(told(&mut one, "LOCK.INFO orders"), "$-1\r\n");
    let first = acquired(&mut one, "LOCK.ACQUIRE orders ann PX 30000");
    assert_eq!(
        granted(&ask(&mut two, "LOCK.ACQUIRE orders ann PX 10000")),
        first
    );
    assert_eq!(
        held_by(&ask(&mut two, "lock.acquire orders bob px 30000")),
        "ann"
    );
    assert_eq!(
        held_by(&ask(&mut two, "LOCK.RENEW orders bob PX 30000")),
        "ann"
    );
    assert_eq!(
        granted(&ask(&mut one, "LOCK.RENEW orders ann PX 30000")),
        first
    );
    assert_eq!(told(&mut two, "LOCK.RELEASE orders bob"), ":0\r\n");
    let info = told(&mut two, "LOCK.INFO orders");
    assert!(
        info.starts_with(&format!(
            "*8\r\n$5\r\nowner\r\n$3\r\nann\r\n$5\r\ntoken\r\n:{first}\r\n"
        )),
        "{info}"
    );
    // One waits, and gets it when the other releases it.
    two.send(&[
        "LOCK.ACQUIRE",
        "orders",
        "bob",
        "PX",
        "30000",
        "WAIT",
        "20000",
    ]);
    two.send(&["PING"]);
    std::thread::sleep(Duration::from_millis(50));
    assert_eq!(told(&mut one, "LOCK.RELEASE orders ann"), ":1\r\n");
    let Answer::Reply(frame) = two.receive() else {
        panic!("no reply")
    };
    let second = granted(&frame);
    assert!(second > first, "{second} after {first}");
    let Answer::Reply(pong) = two.receive() else {
        panic!("no reply")
    };
    assert_eq!(pong.raw, b"+PONG\r\n");
    // One client waits in vain.
    let begin = Instant::now();
    let frame = ask(&mut one, "LOCK.ACQUIRE orders ann PX 1000 WAIT 200");
    assert_eq!(held_by(&frame), "bob");
    assert!(begin.elapsed() >= Duration::from_millis(200));
    // A client that has gone does not wait any more: it would be granted before the next.
    let mut gone = Client::connect(address);
    gone.send(&[
        "LOCK.ACQUIRE",
        "orders",
        "gone",
        "PX",
        "30000",
        "WAIT",
        "20000",
    ]);
    std::thread::sleep(Duration::from_millis(100));
    drop(gone);
    std::thread::sleep(Duration::from_millis(100));
    assert_eq!(told(&mut two, "LOCK.RELEASE orders bob"), ":1\r\n");
    let third = granted(&ask(&mut one, "LOCK.ACQUIRE orders ann PX 300 WAIT 5000"));
    assert!(third > second);
    // A lease ends by itself.
    let fourth = granted(&ask(
        &mut two,
        "LOCK.ACQUIRE orders bob PX 30000 WAIT 20000",
    ));
    assert!(fourth > third);
    // The nodes refuse writes under an older token than one that they have seen.
    for (token, command, reply) in [
        (fourth, "SET orders:7 bob", "*2\r\n+OK\r\n+OK\r\n"),
        (third, "SET orders:7 ann", "-FENCED "),
    ] {
        assert_eq!(told(&mut one, "MULTI"), "+OK\r\n");
        let guard = format!("LOCK.GUARD orders {token}");
        assert_eq!(told(&mut one, &guard), "+QUEUED\r\n");
        assert_eq!(told(&mut one, command), "+QUEUED\r\n");
        let said = told(&mut one, "EXEC");
        assert!(said.starts_with(reply), "{said}");
    }
    assert_eq!(told(&mut one, "GET orders:7"), "$3\r\nbob\r\n");
    assert_eq!(told(&mut two, "LOCK.RELEASE orders bob"), ":1\r\n");
    what_is_refused(&mut one);
    many_in_one_piece(&mut two);
}

/// Checks that waiting clients are served in their order, on any thread; a client that has gone
/// gives up its place.
fn in_order(address: SocketAddr) {
    let mut holder = Client::connect(address);
    let first = granted(&ask(&mut holder, "LOCK.ACQUIRE queue first PX 60000"));
    let waiters = |client: &mut Client| {
        let info = ask(client, "LOCK.INFO queue");
        info.frames().expect("it is held")[7].int()
    };
    let mut waiting = Vec::new();
    for number in 0..6 {
        let mut client = Client::connect(address);
        let name = format!("w{number}");
        let acquire = [
            "LOCK.ACQUIRE",
            "queue",
            &name,
            "PX",
            "60000",
            "WAIT",
            "60000",
        ];
        client.send(&acquire);
        waiting.push((name, client));
        eventually("it waits", || waiters(&mut holder) == Some(number + 1));
    }
    // One closes its connection, one only says that it sends no more.
    drop(waiting.remove(1));
    waiting[3].1.end();
    eventually("their places are given up", || {
        waiters(&mut holder) == Some(4)
    });
    let Answer::Reply(frame) = waiting[3].1.receive() else {
        panic!("it can still be told")
    };
    assert!(text(&frame).starts_with("-LOCKCANCELLED "), "{frame:?}");
    waiting.remove(3);
    let (mut last, mut owner) = (first, "first".to_owned());
    for (name, client) in &mut waiting {
        let release = format!("LOCK.RELEASE queue {owner}");
        assert_eq!(told(&mut holder, &release), ":1\r\n");
        let Answer::Reply(frame) = client.receive() else {
            panic!("{name} is not served")
        };
        let token = granted(&frame);
        assert!(token > last, "{name}: {token} after {last}");
        (last, owner) = (token, name.clone());
    }
    let release = format!("LOCK.RELEASE queue {owner}");
    assert_eq!(told(&mut holder, &release), ":1\r\n");
}

fn what_is_refused(client: &mut Client) {
    for (command, error) in [
        ("LOCK.ACQUIRE orders", "-ERR wrong number of arguments"),
        ("LOCK.RENEW orders ann PX", "-ERR wrong number of arguments"),
        ("LOCK.RELEASE orders", "-ERR wrong number of arguments"),
        ("LOCK.INFO", "-ERR wrong number of arguments"),
        (
            "LOCK.ACQUIRE orders ann EX 3",
            "-ERR syntax error, as LOCK.ACQUIRE key",
        ),
        (
            "LOCK.ACQUIRE orders ann PX x",
            "-ERR milliseconds are a number",
        ),
        ("LOCK.ACQUIRE orders ann PX 0", "-LOCKLIMIT a lease lasts"),
        (
            "LOCK.ACQUIRE orders ann PX 60001",
            "-LOCKLIMIT a lease lasts",
        ),
        ("LOCK.GUARD orders 7", "-ERR LOCK.GUARD without MULTI"),
        ("MULTI", "+OK"),
        (
            "LOCK.RELEASE orders ann",
            "-ERR lock.release is not allowed in a block",
        ),
        ("EXEC", "-EXECABORT"),
        ("MULTI", "+OK"),
        ("SET a 1", "+QUEUED"),
        ("LOCK.GUARD orders 7", "-ERR LOCK.GUARD must come first"),
        ("EXEC", "-EXECABORT"),
    ] {
        let said = told(client, command);
        assert!(said.starts_with(error), "{command}: {said}");
    }
    let info = told(client, "INFO locks");
    assert!(
        info.contains("lock_keeping:") && !info.contains("# Server"),
        "{info}"
    );
    let figure = |name: &str| -> u64 {
        let line = info
            .lines()
            .find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
        let line = line.unwrap_or_else(|| panic!("{name}: {info}"));
        line.trim().parse().expect("a number")
    };
    assert!(figure("lock_acquired") >= 5 && figure("lock_renewed") == 1);
    assert!(figure("lock_refused") >= 3 && figure("lock_released") >= 3);
    assert!(figure("lock_failed") >= 2 && figure("lock_cancelled") == 1);
    assert!(figure("lock_held") == 0 && figure("lock_waiting") == 0);
    assert!(figure("lock_expired") >= 1 && figure("lock_kept") >= 1);
    let told = ask(client, "COMMAND INFO lock.acquire get");
    let told = told.frames().expect("a list");
    assert_eq!(told[0].frames().expect("known")[1].int(), Some(-5));
    assert!(told[1].frames().is_some());
    let docs = ask(client, "COMMAND DOCS lock.acquire nothing get LOCK.INFO");
    let docs = docs.frames().expect("a list");
    let names: Vec<_> = docs.iter().step_by(2).map(Frame::bytes).collect();
    let expected: [&[u8]; 3] = [b"get", b"lock.acquire", b"lock.info"];
    assert_eq!(names, expected.map(Some));
    let all = ask(client, "COMMAND DOCS");
    let all = all.frames().expect("a list").len() / 2;
    let count = ask(client, "COMMAND COUNT").int().expect("a number");
    assert_eq!(all, count as usize);
    let count = ask(client, "COMMAND COUNT").int().expect("a number");
    let all = ask(client, "COMMAND");
    assert_eq!(all.frames().map(<[Frame]>::len), Some(count as usize));
}

/// Commands of a connection that does not wait for replies have their effects in order.
fn many_in_one_piece(client: &mut Client) {
    for round in 0..20 {
        let (key, value) = (format!("many{round}"), round.to_string());
        client.send(&["LOCK.ACQUIRE", &key, "ann", "PX", "30000"]);
        client.send(&["LOCK.ACQUIRE", &key, "bob", "PX", "30000"]);
        client.send(&["SET", &key, &value]);
        client.send(&["LOCK.RELEASE", &key, "ann"]);
        client.send(&["GET", &key]);
    }
    for round in 0..20 {
        let mut next = || match client.receive() {
            Answer::Reply(frame) => frame,
            other => panic!("{other:?}"),
        };
        granted(&next());
        assert_eq!(held_by(&next()), "ann");
        assert_eq!(next().raw, b"+OK\r\n");
        assert_eq!(next().raw, b":1\r\n");
        assert_eq!(next().bytes(), Some(round.to_string().as_bytes()));
    }
}

/// Returns a proxy of two threads before this cluster.
fn before(file: &str, more: &[&str]) -> Server {
    let args = [
        &["--cluster", file, "--network-threads", "2"][..],
        &["--max-lease", "60s"],
        more,
    ];
    proxy(&args.concat())
}

#[test]
fn commands_do_the_same_in_all_keepings() {
    let replicas = Replicas::start(1, 3);
    let file = replicas.file();
    for more in [
        &["--locks", "memory"][..],
        &["--locks", "durable", "--aggregation-threads", "1"],
        &["--lock-cluster", &file],
    ] {
        let proxy = before(&file, more);
        each_command(proxy.address);
        in_order(proxy.address);
        // The next one has a table of its own, whose tokens grow nevertheless.
        assert!(proxy.terminate().success(), "{more:?}");
    }
}

#[test]
fn a_table_in_memory_waits_for_the_longest_lease_unless_nothing_was_held() {
    const LONGEST: Duration = Duration::from_secs(2);
    let cluster = Cluster::start(1, Keeping::Nothing);
    let data = tempfile::tempdir().expect("a directory");
    let data = data.path().display().to_string();
    let file = cluster.file();
    let start = || {
        let memory = ["--locks", "memory", "--max-lease", "2s", "--data", &data];
        proxy(&[&["--cluster", &file], &memory[..]].concat())
    };
    let mut proxy = start();
    let mut last = 0;
    for round in 0..2 {
        let mut client = Client::connect(proxy.address);
        let token = acquired(&mut client, "LOCK.ACQUIRE k ann PX 2000");
        let begin = Instant::now();
        assert!(token > last);
        last = token;
        proxy.kill();
        proxy = start();
        let mut client = Client::connect(proxy.address);
        for command in ["LOCK.ACQUIRE k bob PX 100", "LOCK.INFO k"] {
            let said = told(&mut client, command);
            assert!(said.starts_with("-LOCKSETTLING "), "round {round}: {said}");
        }
        let token = acquired(&mut client, "LOCK.ACQUIRE k bob PX 100");
        assert!(begin.elapsed() >= LONGEST, "{:?}", begin.elapsed());
        assert!(token > last, "{token} after {last}");
        last = token;
        told(&mut client, "LOCK.RELEASE k bob");
    }
    // Stopped without a lock, it grants at once.
    assert!(proxy.terminate().success());
    let proxy = start();
    let mut client = Client::connect(proxy.address);
    let token = granted(&ask(&mut client, "LOCK.ACQUIRE k ann PX 2000"));
    assert!(token > last, "{token} after {last}");
    // The directory has one user.
    let (code, _, said) = crate::support::process::run(&[
        "proxy",
        "--cluster",
        &file,
        "--listen",
        "127.0.0.1:0",
        "--locks",
        "memory",
        "--data",
        &data,
    ]);
    assert!(
        code == Some(1) && said.contains("used by another process"),
        "{said}"
    );
}

#[test]
fn durable_locks_outlive_a_crash() {
    let cluster = Cluster::start(1, Keeping::Nothing);
    let data = tempfile::tempdir().expect("a directory");
    let data = data.path().display().to_string();
    let file = cluster.file();
    let start = || proxy(&["--cluster", &file, "--data", &data]);
    let mut proxy = start();
    let mut last = [0; 2];
    for round in 0..3 {
        let key = format!("k{}", round % 2);
        let last = &mut last[round % 2];
        let mut client = Client::connect(proxy.address);
        let token = acquired(&mut client, &format!("LOCK.ACQUIRE {key} ann PX 60000"));
        assert!(token > *last);
        proxy.kill();
        proxy = start();
        let mut client = Client::connect(proxy.address);
        let bob = ask(&mut client, &format!("LOCK.ACQUIRE {key} bob PX 60000"));
        assert_eq!(held_by(&bob), "ann");
        let ann = ask(&mut client, &format!("LOCK.ACQUIRE {key} ann PX 60000"));
        assert_eq!(granted(&ann), token);
        told(&mut client, &format!("LOCK.RELEASE {key} ann"));
        let bob = granted(&ask(
            &mut client,
            &format!("LOCK.ACQUIRE {key} bob PX 60000"),
        ));
        assert!(bob > token, "{bob} after {token}");
        told(&mut client, &format!("LOCK.RELEASE {key} bob"));
        *last = bob;
    }
    // Locks that were kept in one way cannot be forgotten by keeping them in another way.
    assert!(proxy.terminate().success());
    let (code, _, said) = crate::support::process::run(&[
        "proxy",
        "--cluster",
        &file,
        "--locks",
        "memory",
        "--data",
        &data,
    ]);
    assert!(
        code == Some(1) && said.contains("--locks durable"),
        "{said}"
    );
}

#[test]
fn locks_lie_in_one_of_several_partitions_and_do_without_the_others() {
    const NAMES: usize = 100;
    let mut replicas = Replicas::start(2, 3);
    let data = Cluster::start(1, Keeping::Nothing);
    let (file, data_file) = (replicas.file(), data.file());
    let start = || proxy(&["--cluster", &data_file, "--lock-cluster", &file]);
    let proxies = [start(), start()];
    let slot =
        Client::connect(replicas.address(1)).frame(&["CLUSTER", "KEYSLOT", "{kumiki-locks}"]);
    let own = if slot.int().expect("a slot") < 8192 {
        1
    } else {
        2
    };
    let mut clients = proxies.each_ref().map(|one| Client::connect(one.address));
    let acquire = |client: &mut Client, name: usize, owner: &str| {
        ask(client, &format!("LOCK.ACQUIRE name{name} {owner} PX 60000"))
    };
    acquired(&mut clients[0], "LOCK.ACQUIRE first ann PX 60000");
    let tokens: Vec<i64> = (0..NAMES)
        .map(|name| granted(&acquire(&mut clients[name % 2], name, "ann")))
        .collect();
    // The locks do not need the other partition, not even to begin; and the leader may change.
    let others = if own == 1 { 4..=6 } else { 1..=3 };
    others.for_each(|node| replicas.kill_node(node));
    replicas.kill_node(replicas.leader(own));
    let third = start();
    let mut third = Client::connect(third.address);
    acquired(&mut third, "LOCK.ACQUIRE second ann PX 60000");
    for (name, token) in tokens.into_iter().enumerate() {
        assert_eq!(held_by(&acquire(&mut third, name, "bob")), "ann");
        let renewed = ask(&mut third, &format!("LOCK.RENEW name{name} ann PX 60000"));
        assert_eq!(granted(&renewed), token);
        let release = format!("LOCK.RELEASE name{name} ann");
        assert_eq!(told(&mut clients[(name + 1) % 2], &release), ":1\r\n");
        assert!(granted(&acquire(&mut third, name, "bob")) > token);
    }
}

#[test]
fn before_a_cluster_without_replicas_locks_cannot_be_shared() {
    let cluster = Cluster::start(1, Keeping::Nothing);
    let file = cluster.file();
    let (code, _, said) =
        crate::support::process::run(&["proxy", "--cluster", &file, "--lock-cluster", &file]);
    assert!(
        code == Some(1) && said.contains("is not replicated"),
        "{said}"
    );
}

const KEYS: usize = 3;
const LEASE: Duration = Duration::from_millis(1500);

/// A time in which a client certainly held a lock.
#[derive(Clone, Copy, Debug)]
struct HeldLock {
    key: usize,
    owner: usize,
    token: i64,
    from: Instant,
    to: Instant,
}

/// Acquires, holds and releases by one proxy after the other until it is stopped.
fn use_locks(owner: usize, proxies: &[SocketAddr], over: &AtomicBool, all: &Mutex<Vec<HeldLock>>) {
    let mut random = fastrand::Rng::with_seed(owner as u64);
    let (mut at, mut client): (usize, Option<Client>) = (owner, None);
    let name = format!("owner{owner}");
    while !over.load(Ordering::SeqCst) {
        let Some(connected) = &mut client else {
            at += 1;
            client = Client::try_connect(proxies[at % proxies.len()]).ok();
            std::thread::sleep(Duration::from_millis(10));
            continue;
        };
        let key = random.usize(..KEYS);
        let sent = Instant::now();
        let lease = LEASE.as_millis().to_string();
        let named = format!("k{key}");
        let answer =
            connected.answer(&["LOCK.ACQUIRE", &named, &name, "PX", &lease, "WAIT", "300"]);
        let Answer::Reply(frame) = answer else {
            client = None;
            continue;
        };
        let Some([one, token, _]) = frame.frames() else {
            // The storage of the locks cannot be reached.
            std::thread::sleep(Duration::from_millis(20));
            continue;
        };
        if one.int() != Some(1) {
            continue;
        }
        let from = Instant::now();
        std::thread::sleep(Duration::from_millis(random.u64(1..20)));
        let to = Instant::now().min(sent + LEASE);
        if from < to {
            let token = token.int().expect("a token");
            all.lock().expect("whole").push(HeldLock {
                key,
                owner,
                token,
                from,
                to,
            });
        }
        // Some forget to release.
        if random.u8(..20) > 0 && connected.answer(&["LOCK.RELEASE", &named, &name]).is_last() {
            client = None;
        }
    }
}

fn judge(mut all: Vec<HeldLock>) {
    all.sort_by_key(|held| (held.key, held.from));
    let mut last: Option<HeldLock> = None;
    for held in all {
        // The longest-lasting time of those that have begun, and its token.
        let Some(before) = last.filter(|before| before.key == held.key) else {
            last = Some(held);
            continue;
        };
        assert!(
            held.token >= before.token,
            "tokens fall: {before:?}, {held:?}"
        );
        if held.owner != before.owner {
            assert!(before.to <= held.from, "two holders: {before:?}, {held:?}");
            assert!(
                held.token > before.token,
                "a token twice: {before:?}, {held:?}"
            );
        }
        let is_longer = held.token > before.token || held.to >= before.to;
        last = Some(if is_longer { held } else { before });
    }
}

#[test]
fn several_proxies_share_a_table_and_none_is_missed() {
    let replicas = Replicas::start(1, 3);
    let file = replicas.file();
    let mut proxies: Vec<Option<Server>> = (0..3)
        .map(|_| Some(before(&file, &["--lock-cluster", &file])))
        .collect();
    let addresses: Vec<SocketAddr> = proxies
        .iter()
        .map(|proxy| proxy.as_ref().expect("it runs").address)
        .collect();
    let mut client = Client::connect(addresses[0]);
    let long = acquired(&mut client, "LOCK.ACQUIRE long ann PX 60000");
    let (over, all) = (AtomicBool::new(false), Mutex::new(Vec::new()));
    let clients = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        let _ended = SetOnDrop(&over);
        for owner in 0..8 {
            let (over, all, addresses, clients) = (&over, &all, &addresses, &clients);
            scope.spawn(move || {
                use_locks(owner, addresses, over, all);
                clients.fetch_add(1, Ordering::SeqCst);
            });
        }
        let grants = || all.lock().expect("whole").len();
        let some_more = || {
            let enough = grants() + 30;
            go_on_until(|| grants() >= enough);
            assert!(grants() >= enough, "nothing is granted");
        };
        some_more();
        proxies[0].take().expect("it runs").kill();
        some_more();
        let paused = proxies[1].as_ref().expect("it runs");
        paused.pause();
        some_more();
        std::thread::sleep(2 * LEASE);
        paused.resume();
        some_more();
        over.store(true, Ordering::SeqCst);
    });
    assert_eq!(clients.load(Ordering::SeqCst), 8);
    // A grant by the proxy that died is held, and its holder continues with another proxy.
    for address in &addresses[1..] {
        let mut client = Client::connect(*address);
        let bob = ask(&mut client, "LOCK.ACQUIRE long bob PX 1000");
        assert_eq!(held_by(&bob), "ann");
        let ann = ask(&mut client, "LOCK.RENEW long ann PX 60000");
        assert_eq!(granted(&ann), long);
    }
    let all = all.into_inner().expect("whole");
    let owners: std::collections::BTreeSet<usize> = all.iter().map(|held| held.owner).collect();
    assert!(owners.len() > 4, "{owners:?}");
    judge(all);
}

/// Returns two times of two owners, so many milliseconds apart, with these tokens.
fn two_holders(apart_ms: u64, tokens: [i64; 2]) -> Vec<HeldLock> {
    let begin = Instant::now();
    let held = |owner: usize| {
        let from = begin + Duration::from_millis(apart_ms) * owner as u32;
        HeldLock {
            key: 0,
            owner,
            token: tokens[owner],
            from,
            to: from + Duration::from_millis(10),
        }
    };
    vec![held(1), held(0)]
}

#[test]
fn the_judge_sees_what_is_wrong() {
    judge(two_holders(10, [1, 2]));
    for (apart_ms, tokens) in [(9, [1, 2]), (10, [2, 1]), (10, [1, 1])] {
        let judged = std::panic::catch_unwind(|| judge(two_holders(apart_ms, tokens)));
        assert!(judged.is_err(), "{apart_ms} ms apart, tokens {tokens:?}");
    }
    // A long time is not hidden by a short one of the same owner within it.
    let mut three = two_holders(20, [1, 2]);
    let short = three[1];
    three.push(HeldLock {
        to: short.from + Duration::from_millis(100),
        ..short
    });
    let judged = std::panic::catch_unwind(|| judge(three));
    assert!(judged.is_err(), "a short time hides a long one");
}
