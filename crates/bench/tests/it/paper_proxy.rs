//! The proxies of paper 3: both give every client its own answers, and end when they cannot.

use std::collections::HashMap;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bench::paper_proxy::{
    BatchLimits, NetworkProcess, NetworkProcessConfig, PaperProxy, PaperProxyConfig, ProxyDesign,
};
use testkit::peers::{self, Group};
use testkit::process::Redis;
use testkit::{Client, Reply, eventually};

const DESIGNS: [ProxyDesign; 2] = [ProxyDesign::Improved, ProxyDesign::Earlier];

type Keys = Arc<Mutex<HashMap<Vec<u8>, Vec<u8>>>>;

/// Starts a node that keeps keys in memory, and closes a connection that writes the key `end`.
fn node() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let keys = Keys::default();
    std::thread::spawn(move || {
        for stream in listener.incoming().map_while(Result::ok) {
            let keys = Arc::clone(&keys);
            std::thread::spawn(move || serve(stream, &keys));
        }
    });
    address
}

fn serve(mut stream: TcpStream, keys: &Keys) {
    let (mut input, mut room) = (Vec::new(), [0; 4096]);
    let mut parser = resp::Parser::new();
    while let Ok(count @ 1..) = stream.read(&mut room) {
        input.extend_from_slice(&room[..count]);
        while let Ok(Some(end)) = parser.parse(&mut input, &resp::Limits::default()) {
            let args = resp::Args::new(&input, parser.spans());
            let words: Vec<Vec<u8>> = args.iter().map(<[u8]>::to_vec).collect();
            input.drain(..end);
            let mut keys = keys.lock().unwrap();
            let reply = match (&words[0][..], &words[1][..]) {
                (b"SET", b"end") => return,
                (b"SET", _) => {
                    keys.insert(words[1].clone(), words[2].clone());
                    b"+OK\r\n".to_vec()
                }
                (b"GET", key) => match keys.get(key) {
                    None => b"$-1\r\n".to_vec(),
                    Some(value) => {
                        let head = format!("${}\r\n", value.len());
                        [head.as_bytes(), &value[..], b"\r\n"].concat()
                    }
                },
                _ => b"-ERR unknown command\r\n".to_vec(),
            };
            if stream.write_all(&reply).is_err() {
                return;
            }
        }
    }
}

fn config(design: ProxyDesign, nodes: Vec<SocketAddr>) -> PaperProxyConfig {
    PaperProxyConfig {
        design,
        listen: SocketAddr::from(([127, 0, 0, 1], 0)),
        nodes,
        client_threads: 3,
        aggregation_threads: 2,
        batch: BatchLimits::default(),
    }
}

/// Starts a proxy. The network of an earlier one is a thread here.
fn start(config: &PaperProxyConfig) -> PaperProxy {
    if config.design == ProxyDesign::Improved {
        return PaperProxy::start(config).expect("the proxy starts");
    }
    let network = NetworkProcess::new(&NetworkProcessConfig {
        listen: config.listen,
        nodes: config.nodes.clone(),
    });
    let network = network.expect("the network starts");
    let listen = network.address();
    std::thread::spawn(move || network.run());
    let config = PaperProxyConfig {
        listen,
        ..config.clone()
    };
    PaperProxy::start(&config).expect("the proxy starts")
}

/// Many clients write and read keys of their own, one request after the other and several at once.
fn exercise(proxy: &PaperProxy) {
    let address = proxy.address();
    std::thread::scope(|scope| {
        for client in 0..8 {
            scope.spawn(move || {
                let mut connection = Client::connect(address);
                for turn in 0..100 {
                    let key = format!("{client}:{}", turn % 20);
                    let value = turn.to_string();
                    assert_eq!(connection.call(&["SET", &key, &value]), Reply::status("OK"));
                    assert_eq!(connection.call(&["GET", &key]), Reply::bulk(&value));
                }
                for turn in 0..200 {
                    connection.push(&["SET", &format!("{client}:{turn}"), &turn.to_string()]);
                }
                connection.flush().unwrap();
                for _ in 0..200 {
                    assert_eq!(connection.reply(), Reply::status("OK"));
                }
                // Keys are on several nodes, and replies in the order of requests nevertheless.
                for turn in 0..200 {
                    connection.push(&["GET", &format!("{client}:{turn}")]);
                }
                connection.flush().unwrap();
                for turn in 0..200 {
                    assert_eq!(connection.reply(), Reply::bulk(&turn.to_string()));
                }
            });
        }
    });
}

#[test]
fn clients_get_what_they_wrote() {
    for design in DESIGNS {
        let nodes = [node(), node(), node()].to_vec();
        // Fewer threads than nodes, one for each, and several that share a node's queue.
        for aggregation_threads in [2, 3, 7] {
            exercise(&start(&PaperProxyConfig {
                aggregation_threads,
                ..config(design, nodes.clone())
            }));
        }
    }
}

#[test]
fn batches_of_any_size_and_wait_lose_nothing() {
    for (queries, wait_us) in [(1, 0), (3, 500), (1000, 2000)] {
        let config = PaperProxyConfig {
            batch: BatchLimits { queries, wait_us },
            ..config(ProxyDesign::Improved, [node(), node()].to_vec())
        };
        exercise(&start(&config));
    }
}

#[test]
fn clients_of_redis_get_what_they_wrote() {
    let Some(program) = peers::program(Group::Redis, "redis-server") else {
        return;
    };
    let redis = [Redis::start(&program, &[]), Redis::start(&program, &[])];
    for design in DESIGNS {
        let nodes = redis.iter().map(|one| one.address).collect();
        exercise(&start(&config(design, nodes)));
    }
}

#[test]
fn locks_have_one_owner_on_all_threads() {
    for design in DESIGNS {
        let proxy = start(&config(design, [node(), node(), node()].to_vec()));
        let (mut one, mut other) = (
            Client::connect(proxy.address()),
            Client::connect(proxy.address()),
        );
        let grant = |token| Reply::Array([1, token, 30_000].map(Reply::Int).to_vec());
        for token in 1..=20 {
            let name = format!("lock{}", token % 5);
            let acquire = |owner| ["LOCK.ACQUIRE", &name, owner, "PX", "30000"].map(str::to_owned);
            assert_eq!(one.call(&acquire("one")), grant(token), "{design:?}");
            let Reply::Array(refused) = other.call(&acquire("other")) else {
                panic!("a lock that is held was granted");
            };
            assert_eq!(refused[..2], [Reply::Int(0), Reply::bulk("one")]);
            assert_eq!(other.call(&["LOCK.RELEASE", &name, "other"]), Reply::Int(0));
            assert_eq!(one.call(&["LOCK.RELEASE", &name, "one"]), Reply::Int(1));
        }
    }
}

#[test]
fn what_is_not_served_is_an_error_in_its_place() {
    for design in DESIGNS {
        let proxy = start(&config(design, [node()].to_vec()));
        let mut client = Client::connect(proxy.address());
        client.push(&["SET", "key", "value"]);
        client.push(&["MSET", "a", "1", "b", "2"]);
        client.push(&["PING"]);
        client.push(&["GET", "absent"]);
        client.flush().unwrap();
        assert_eq!(client.reply(), Reply::status("OK"));
        let refused = format!("{:?}", client.reply());
        assert!(refused.contains("this proxy serves GET"), "{refused}");
        assert_eq!(client.reply(), Reply::status("PONG"));
        assert_eq!(client.reply(), Reply::Null);
        // Not before the reply to SET: threads that share a node's queue send what they take on connections of
        // their own.
        assert_eq!(client.call(&["GET", "key"]), Reply::bulk("value"));
        let mut garbage = Client::connect(proxy.address());
        garbage.send_raw(b"*x\r\n");
        assert!(garbage.is_closed(), "{design:?}");
        assert_eq!(client.call(&["PING"]), Reply::status("PONG"));
    }
}

#[test]
fn clients_that_leave_disturb_no_other() {
    for design in DESIGNS {
        let proxy = start(&config(design, [node(), node()].to_vec()));
        let mut stays = Client::connect(proxy.address());
        for turn in 0..50 {
            let mut leaves = Client::connect(proxy.address());
            for key in 0..20 {
                leaves.push(&["SET", &format!("leaves:{key}"), "value"]);
            }
            leaves.flush().unwrap();
            drop(leaves);
            let value = turn.to_string();
            assert_eq!(stays.call(&["SET", "stays", &value]), Reply::status("OK"));
            assert_eq!(stays.call(&["GET", "stays"]), Reply::bulk(&value));
        }
    }
}

#[test]
fn a_lost_node_ends_the_proxy_and_is_named() {
    for design in DESIGNS {
        let lost = node();
        let proxy = start(&config(design, [lost].to_vec()));
        let mut client = Client::connect(proxy.address());
        client.send(&["SET", "end", "now"]);
        let said = proxy.wait().unwrap_err().to_string();
        assert!(said.contains(&lost.to_string()), "{said}");
        assert!(client.is_closed());
    }
}

#[test]
fn a_proxy_that_cannot_work_does_not_start() {
    let nodes = [node()].to_vec();
    for config in [
        config(ProxyDesign::Improved, Vec::new()),
        PaperProxyConfig {
            aggregation_threads: 0,
            ..config(ProxyDesign::Improved, nodes.clone())
        },
        PaperProxyConfig {
            client_threads: 0,
            ..config(ProxyDesign::Improved, nodes.clone())
        },
    ] {
        let said = PaperProxy::start(&config).err().expect("it does not start");
        assert!(said.to_string().contains("needs a node"), "{said}");
    }
    let gone = testkit::free_address().unwrap();
    let said = PaperProxy::start(&config(ProxyDesign::Improved, [gone].to_vec())).err();
    let said = said.expect("it does not start").to_string();
    assert!(
        said.contains(&format!("connecting to node {gone}")),
        "{said}"
    );
    // The network process of an earlier proxy must run before it.
    let lonely = PaperProxyConfig {
        listen: gone,
        ..config(ProxyDesign::Earlier, nodes)
    };
    assert!(PaperProxy::start(&lonely).is_err());
    assert!(bench::paper_proxy::serve("{}").is_err());
    assert!(bench::paper_proxy::serve_network("nonsense").is_err());
}

/// Returns the process of the experiment `bench` whose arguments begin with `argument`.
fn child_with(bench: &Child, argument: &str) -> Option<u32> {
    let processes = std::fs::read_dir("/proc").ok()?;
    let ids = processes.filter_map(|one| one.ok()?.file_name().to_str()?.parse::<u32>().ok());
    ids.into_iter().find(|id| {
        let read = |file: &str| std::fs::read_to_string(format!("/proc/{id}/{file}"));
        let parent = format!("PPid:\t{}\n", bench.id());
        read("status").is_ok_and(|status| status.contains(&parent))
            && read("cmdline").is_ok_and(|line| line.split('\0').nth(1) == Some(argument))
    })
}

/// The experiment says which process has ended, and how.
#[test]
fn a_killed_proxy_ends_the_experiment_with_its_name() {
    for (system, load, argument, name) in [
        ("paper", "load=closed sent=0", "paper-proxy", "proxy"),
        (
            "older",
            "load=closed sent=0",
            "paper-proxy-network",
            "network",
        ),
        ("paper", "load=open sent=20000", "paper-proxy", "proxy"),
    ] {
        let dir = tempfile::tempdir().unwrap();
        let only = format!("nodes=servers {load} system={system}");
        let mut command = Command::new(env!("CARGO_BIN_EXE_kumiki-bench"));
        command.args(["run", "proxy-designs", "--quick", "--memory", "."]);
        command.args(["--repetitions", "1", "--seconds", "3", "--only", &only]);
        command.current_dir(dir.path());
        command.stdout(Stdio::null()).stderr(Stdio::piped());
        let mut bench = command.spawn().unwrap();
        let mut child = None;
        eventually("the proxy runs", || {
            child = child_with(&bench, argument);
            child.is_some()
        });
        // It has clients by then; if it has none yet, the run fails all the same.
        std::thread::sleep(Duration::from_millis(300));
        let killed = Command::new("kill")
            .args(["-9", &child.unwrap().to_string()])
            .status();
        assert!(killed.unwrap().success());
        let mut said = String::new();
        bench
            .stderr
            .take()
            .unwrap()
            .read_to_string(&mut said)
            .unwrap();
        assert_eq!(bench.wait().unwrap().code(), Some(1), "{said}");
        let ended = format!("the process '{name}' has ended (signal: 9");
        assert!(said.contains(&ended), "{said}");
    }
}
