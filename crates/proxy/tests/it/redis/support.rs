//! A proxy in this process, nodes that answer as a script says, and clients.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::PathBuf;

use bytes::BytesMut;
use kumiki_proxy::{Config, Nodes, Running};
use testkit::Client;
use testkit::peers::{self, Group};
pub(crate) use testkit::wait::PATIENCE;

/// Returns the path of `redis-server`, or `None` after printing why this test does not run.
pub(crate) fn redis_server() -> Option<PathBuf> {
    peers::program(Group::Redis, "redis-server")
}

/// Connects a client to the process at this address.
#[track_caller]
pub(crate) fn connect(address: SocketAddr) -> Client {
    let client = Client::connect(address);
    client.set_patience(PATIENCE).expect("a limit of time");
    client
}

/// Starts a node that answers with `answer`; `None`: no answer. `ended` is called when a connection
/// ends.
pub(crate) fn scripted(
    answer: impl Fn(&[Vec<u8>]) -> Option<String> + Send + Sync + 'static,
    ended: impl Fn() + Send + Sync + 'static,
) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = listener.local_addr().expect("its address");
    let shared = std::sync::Arc::new((answer, ended));
    std::thread::spawn(move || {
        for mut stream in listener.incoming().map_while(Result::ok) {
            let shared = std::sync::Arc::clone(&shared);
            std::thread::spawn(move || {
                play(&mut stream, &shared.0);
                (shared.1)();
            });
        }
    });
    address
}

fn play(stream: &mut TcpStream, answer: &dyn Fn(&[Vec<u8>]) -> Option<String>) {
    let (mut input, mut piece) = (BytesMut::new(), vec![0; 16 * 1024]);
    let mut parser = resp::Parser::new();
    while let Ok(count @ 1..) = stream.read(&mut piece) {
        input.extend_from_slice(&piece[..count]);
        while let Ok(Some(end)) = parser.parse(&mut input, &resp::Limits::default()) {
            let args = resp::Args::new(&input, parser.spans());
            let words: Vec<Vec<u8>> = args.iter().map(<[u8]>::to_vec).collect();
            let _ = input.split_to(end);
            if let Some(reply) = answer(&words)
                && stream.write_all(reply.as_bytes()).is_err()
            {
                return;
            }
        }
    }
}

/// A proxy in this process. It is stopped when this is dropped.
pub(crate) struct Proxy {
    pub(crate) address: SocketAddr,
    running: Option<Running>,
}

impl Proxy {
    pub(crate) fn start(change: impl FnOnce(&mut Config), nodes: &[SocketAddr]) -> Proxy {
        let mut config = Config::new(Nodes::Redis(
            nodes.iter().map(|&node| node.into()).collect(),
        ));
        config.listen = SocketAddr::from(([127, 0, 0, 1], 0));
        change(&mut config);
        let running = kumiki_proxy::start(&config).expect("the proxy starts");
        Proxy {
            address: running.address(),
            running: Some(running),
        }
    }

    pub(crate) fn running(&self) -> &Running {
        self.running.as_ref().expect("it runs")
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        if let Some(running) = self.running.take() {
            running.stopper().stop();
            running.wait().expect("no thread is lost");
        }
    }
}

/// Returns configurations of the proxy's threads, for tests that should hold for all.
pub(crate) fn machines() -> Vec<fn(&mut Config)> {
    vec![
        |_| {},
        |config| {
            config.network_threads = 2;
            config.aggregation_threads = 1;
        },
        |config| {
            config.network_threads = 3;
            config.aggregation_threads = 2;
            config.threads_for_each_node = 2;
            config.connections = 2;
            config.network = kumiki_proxy::Stack::Sockets;
        },
    ]
}
