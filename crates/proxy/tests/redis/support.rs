//! Servers, a proxy in this process, and a plain client.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use bytes::BytesMut;
use kumiki_proxy::{Config, Nodes, Running};
use resp::command::write_command;
use resp::{ReplyParser, Value};

/// How long anything may take.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);

/// Where `redis-server` lies, or `None` after saying that this test is skipped.
pub(crate) fn redis_server() -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let found = std::env::split_paths(&path)
        .map(|dir| dir.join("redis-server"))
        .find(|program| program.is_file());
    if found.is_none() {
        let required = std::env::var("KUMIKI_REQUIRE_PEERS").is_ok_and(|value| value == "1");
        assert!(
            !required,
            "redis-server is not installed, and KUMIKI_REQUIRE_PEERS=1 asks for it"
        );
        // Written directly: what a test prints is hidden when it passes.
        let _ = std::io::stderr().write_all(b"skipped: redis-server is not installed\n");
    }
    found
}

/// A `redis-server`. It is killed when this is dropped.
pub(crate) struct Redis {
    pub(crate) address: SocketAddr,
    program: PathBuf,
    options: Vec<String>,
    child: Child,
    dir: tempfile::TempDir,
}

impl Redis {
    pub(crate) fn start(program: &std::path::Path, options: &[&str]) -> Redis {
        let options: Vec<String> = options.iter().map(|option| (*option).to_owned()).collect();
        for _ in 0..5 {
            let dir = tempfile::tempdir().expect("a temporary directory");
            let address = free_address();
            let child = spawn(program, address, &options, dir.path());
            let mut redis = Redis {
                address,
                program: program.to_owned(),
                options: options.clone(),
                child,
                dir,
            };
            if redis.wait_until_listening() {
                return redis;
            }
        }
        panic!("redis-server does not start");
    }

    fn wait_until_listening(&mut self) -> bool {
        let begin = Instant::now();
        while begin.elapsed() < PATIENCE {
            if self.child.try_wait().expect("child").is_some() {
                // Somebody else has the port.
                return false;
            }
            if TcpStream::connect(self.address).is_ok() {
                std::thread::sleep(Duration::from_millis(20));
                return self.child.try_wait().expect("child").is_none();
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        false
    }

    /// Kills it as a crash would.
    pub(crate) fn kill(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    /// Starts it anew, empty.
    pub(crate) fn restart(&mut self) {
        self.kill();
        let begin = Instant::now();
        loop {
            self.child = spawn(&self.program, self.address, &self.options, self.dir.path());
            if self.wait_until_listening() {
                return;
            }
            assert!(
                begin.elapsed() < PATIENCE,
                "redis-server does not start again"
            );
        }
    }

    /// Has it stand still, or go on.
    pub(crate) fn signal(&self, signal: rustix::process::Signal) {
        let process = rustix::process::Pid::from_child(&self.child);
        rustix::process::kill_process(process, signal).expect("a signal");
    }
}

impl Drop for Redis {
    fn drop(&mut self) {
        self.kill();
    }
}

fn spawn(
    program: &std::path::Path,
    address: SocketAddr,
    options: &[String],
    dir: &std::path::Path,
) -> Child {
    Command::new(program)
        .args(["--bind", "127.0.0.1", "--save", "", "--appendonly", "no"])
        .args(["--port", &address.port().to_string()])
        .arg("--dir")
        .arg(dir)
        .args(options)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .expect("start redis-server")
}

pub(crate) fn free_address() -> SocketAddr {
    // A Redis Cluster's second port lies 10,000 higher, and is to be none of clients', too.
    loop {
        let address = loopback::free_address().expect("a free port");
        if address.port() < 22_000 {
            return address;
        }
    }
}

/// A node that answers as `answer` likes; `None`: it does not. It is told when a connection ends.
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
        let mut config = Config::new(Nodes::Redis(nodes.to_vec()));
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

/// A client that sends and receives.
pub(crate) struct Client {
    stream: Box<dyn Stream>,
    input: BytesMut,
}

/// What bytes come and go through.
pub(crate) trait Stream: Read + Write {}

impl<S: Read + Write> Stream for S {}

impl Client {
    pub(crate) fn connect(address: SocketAddr) -> Client {
        let stream = TcpStream::connect(address).expect("a connection");
        stream.set_read_timeout(Some(PATIENCE)).expect("a limit");
        stream.set_nodelay(true).expect("no delay");
        Client::over(stream)
    }

    /// A client over a stream that is connected.
    pub(crate) fn over(stream: impl Stream + 'static) -> Client {
        Client {
            stream: Box::new(stream),
            input: BytesMut::new(),
        }
    }

    pub(crate) fn send(&mut self, words: &[&str]) {
        let words: Vec<&[u8]> = words.iter().map(|word| word.as_bytes()).collect();
        let mut out = Vec::new();
        write_command(&mut out, &words);
        self.send_raw(&out);
    }

    pub(crate) fn send_raw(&mut self, bytes: &[u8]) {
        self.stream.write_all(bytes).expect("it takes it");
    }

    pub(crate) fn receive(&mut self) -> Value {
        self.try_receive().expect("a reply")
    }

    pub(crate) fn try_receive(&mut self) -> std::io::Result<Value> {
        let mut parser = ReplyParser::new();
        let mut piece = vec![0; 64 * 1024];
        loop {
            if let Some(end) = parser.parse(&self.input).expect("RESP") {
                let reply = self.input.split_to(end);
                return Ok(Value::decode(&reply).expect("a reply"));
            }
            match self.stream.read(&mut piece)? {
                0 => return Err(std::io::ErrorKind::UnexpectedEof.into()),
                count => self.input.extend_from_slice(&piece[..count]),
            }
        }
    }

    pub(crate) fn call(&mut self, words: &[&str]) -> Value {
        self.send(words);
        self.receive()
    }

    /// The reply as a short text.
    pub(crate) fn told(&mut self, command: &str) -> String {
        let words: Vec<&str> = command.split(' ').collect();
        shown(&self.call(&words))
    }
}

/// A reply as a short text.
pub(crate) fn shown(value: &Value) -> String {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    match value {
        Value::Status(status) => format!("+{}", text(status)),
        Value::Error(error) => format!("-{}", text(error)),
        Value::Int(number) => number.to_string(),
        Value::Bulk(bytes) | Value::Verbatim { text: bytes, .. } => text(bytes),
        Value::Null => "nil".to_owned(),
        Value::Array(values) | Value::Set(values) => {
            let values: Vec<String> = values.iter().map(shown).collect();
            format!("[{}]", values.join(" "))
        }
        other => format!("{other:?}"),
    }
}

/// How the proxy's threads are set up, for tests that should hold for all.
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
            config.queues = kumiki_proxy::Queues::Mutex;
            config.network = kumiki_proxy::Stack::Sockets;
        },
        |config| {
            config.network_threads = 2;
            config.aggregation_threads = 1;
            config.queues = kumiki_proxy::Queues::Mutex;
            config.network = kumiki_proxy::Stack::Relayed;
        },
    ]
}

pub(crate) fn eventually(what: &str, mut is_so: impl FnMut() -> bool) {
    let begin = Instant::now();
    while !is_so() {
        assert!(
            begin.elapsed() < PATIENCE,
            "{what}: not within {PATIENCE:?}"
        );
        std::thread::sleep(Duration::from_millis(10));
    }
}
