//! The proxy on a TCP stack of its own: clients and nodes in another network namespace, reached by AF_XDP.

use std::net::SocketAddr;
use std::process::{Child, Command, Stdio};

use kumiki_proxy::{Config, Nodes, Running, Stack, StartError};
use testkit::namespaces::LinkedNamespaces;
use testkit::peers::{Group, program};
use testkit::{Client, Reply, eventually};

const CLIENTS: usize = 20;

/// A Redis in the namespace of the clients.
struct Redis(Child);

impl Drop for Redis {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn start_redis(linked: &LinkedNamespaces) -> Option<(Redis, SocketAddr)> {
    let server = program(Group::Redis, "redis-server")?;
    let address = SocketAddr::from((LinkedNamespaces::PEER_ADDRESS, 6379));
    let mut command = Command::new(server);
    command.args(["--port", "6379", "--bind", &address.ip().to_string()]);
    command.args(["--protected-mode", "no", "--save", "", "--appendonly", "no"]);
    command.stdout(Stdio::null()).stdin(Stdio::null());
    let child = linked.peer.run(|| command.spawn().expect("it starts"));
    let redis = Redis(child);
    eventually("redis listens", || {
        linked
            .peer
            .run(|| std::net::TcpStream::connect(address).is_ok())
    });
    Some((redis, address))
}

fn config(redis: SocketAddr) -> Config {
    let mut config = Config::new(Nodes::Redis(vec![redis.into()]));
    config.listen = SocketAddr::from((LinkedNamespaces::ADDRESS, 6390));
    config.network = Stack::Xdp(LinkedNamespaces::INTERFACE.to_owned());
    config.insecure = true;
    config
}

fn stop(running: Running) {
    running.stopper().stop();
    running.wait().expect("no thread is lost");
}

/// Has clients write and read values of many lengths, some in pipelines.
fn serve_clients(linked: &LinkedNamespaces, address: SocketAddr) {
    let work = |client: usize| {
        let mut connection = Client::connect(address);
        for turn in 0..50 {
            let key = format!("{client}:{turn}");
            let value = key.repeat(1 + turn * turn * 20);
            assert_eq!(connection.call(&["SET", &key, &value]), Reply::status("OK"));
            assert_eq!(connection.call(&["GET", &key]), Reply::bulk(&value));
        }
    };
    linked.peer.run(|| {
        std::thread::scope(|scope| {
            for client in 0..CLIENTS {
                scope.spawn(move || work(client));
            }
        });
    });
}

/// Returns the number of the kernel's TCP connections in the proxy's namespace with this port on either side.
fn kernel_connections(linked: &LinkedNamespaces, port: u16) -> usize {
    let read = || std::fs::read_to_string("/proc/thread-self/net/tcp").expect("the kernel's list");
    let (listed, port) = (linked.own.run(read), format!(":{port:04X}"));
    let is_one = |line: &&str| {
        let words: Vec<_> = line.split_whitespace().collect();
        words[3] == "01" && (words[1].ends_with(&port) || words[2].ends_with(&port))
    };
    listed.lines().skip(1).filter(is_one).count()
}

#[test]
fn clients_and_nodes_are_served_past_the_kernel() {
    let Some(linked) = LinkedNamespaces::for_test(1) else {
        return;
    };
    let Some((_redis, redis)) = start_redis(&linked) else {
        return;
    };
    let config = config(redis);
    let running = linked
        .own
        .run(|| kumiki_proxy::start(&config).expect("it starts"));
    let address = running.address();
    serve_clients(&linked, address);
    // Neither the clients' connections nor those to the node are the kernel's.
    let mut client = linked.peer.run(|| Client::connect(address));
    assert_eq!(client.call(&["PING"]), Reply::status("PONG"));
    assert_eq!(client.call(&["SET", "a", "b"]), Reply::status("OK"));
    assert_eq!(kernel_connections(&linked, address.port()), 0);
    eventually(
        "requests about the topology, which are the kernel's, have ended",
        || kernel_connections(&linked, redis.port()) == 0,
    );
    assert_eq!(client.call(&["GET", "a"]), Reply::bulk("b"));
    // A client of the proxy's own machine comes by the kernel, to the same listener.
    let mut near = linked.own.run(|| Client::connect(address));
    assert_eq!(near.call(&["GET", "a"]), Reply::bulk("b"));
    assert!(kernel_connections(&linked, address.port()) > 0);
    drop((client, near));
    if let Some(benchmark) = program(Group::Redis, "redis-benchmark") {
        let mut command = Command::new(benchmark);
        let (host, port) = (address.ip().to_string(), address.port().to_string());
        command.args([
            "-h", &host, "-p", &port, "-c", "50", "-n", "20000", "-P", "4",
        ]);
        command.args(["-t", "set,get", "-d", "3000", "-r", "1000", "--csv"]);
        let output = linked.peer.run(|| command.output().expect("it starts"));
        let said = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success(), "{said}");
        assert!(
            said.contains("\"SET\"") && said.contains("\"GET\""),
            "{said}"
        );
    }
    stop(running);
    // The program has left the interface.
    let shown = linked
        .own
        .ip(&["link", "show", LinkedNamespaces::INTERFACE])
        .expect("a line");
    assert!(!shown.contains("xdp"), "{shown}");
}

#[test]
fn a_proxy_says_why_it_cannot_use_an_interface() {
    let Some(linked) = LinkedNamespaces::for_test(1) else {
        return;
    };
    let Some((_redis, redis)) = start_redis(&linked) else {
        return;
    };
    let refused = |change: &dyn Fn(&mut Config)| {
        let mut config = config(redis);
        change(&mut config);
        let started = linked.own.run(|| kumiki_proxy::start(&config));
        let error = started.err().expect("it is refused");
        assert!(matches!(error, StartError::Xdp(_)), "{error}");
        error.to_string()
    };
    let absent = refused(&|config| config.network = Stack::Xdp("absent".to_owned()));
    assert!(absent.contains("there is no interface absent"), "{absent}");
    let elsewhere = refused(&|config| config.listen = SocketAddr::from(([127, 0, 0, 1], 0)));
    assert!(elsewhere.contains("which has 10.99.0.1"), "{elsewhere}");
    let threads = refused(&|config| config.network_threads = 3);
    assert!(threads.contains("use 1 threads"), "{threads}");
    let first = linked
        .own
        .run(|| kumiki_proxy::start(&config(redis)).expect("it starts"));
    let second = refused(&|config| config.listen.set_port(0));
    assert!(second.contains("has an XDP program already"), "{second}");
    stop(first);
}
