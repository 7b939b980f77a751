//! The admin endpoint: figures, health and build information over HTTP, for monitoring.
//!
//! | path | answer |
//! |---|---|
//! | `/metrics` | all figures in Prometheus's text format; 503 while the process is starting |
//! | `/health`, `/health/ready` | 200 while requests are served as they should be; else 503 and why |
//! | `/health/live` | 200 as long as the process answers |
//! | `/log-level` | how much is logged; `PUT` changes it |
//! | `/build` | version, commit, profile and platform, as JSON |
//! | `/` | a page that lists the others |
//!
//! It runs on a thread of its own, so that it answers also while all others are busy. It reads
//! figures; the only thing that it changes is how much is logged.
//!
//! Whoever reaches it can waste its time but no more than that:
//! 1. A request is read in [`REQUEST_TIME`] and answered in [`CONNECTION_TIME`], or the connection
//!    is closed. A connection serves one request.
//! 2. A request's head has at most [`HEAD_BYTES`]; a body at most [`BODY_BYTES`], and
//!    only that of a `PUT` is read.
//! 3. There are at most [`CONNECTIONS`]; one more closes the oldest, so that slow ones do not keep
//!    others out.
//!
//! 4. A `PUT` that a web page has sent (it says its `Origin`) is refused, so that a page which an
//!    operator looks at cannot change anything.
//!
//! There is no password and no encryption: it belongs on an address that only operators reach.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, OnceLock};
use std::thread::JoinHandle;
use std::time::Duration;

use http_body_util::{BodyExt, Full, Limited};
use hyper::body::{Bytes, Incoming};
use hyper::header::{
    ALLOW, CACHE_CONTROL, CONTENT_TYPE, HeaderValue, ORIGIN, X_CONTENT_TYPE_OPTIONS,
};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use parking_lot::Mutex;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::oneshot;
use tokio::task::AbortHandle;

use crate::about::{self, Build};
use crate::exposition;

/// What an endpoint tells of.
pub trait Subject: Send + Sync + 'static {
    /// All figures, in Prometheus's text format.
    fn metrics(&self) -> String;

    /// Why requests are not served as they should be, in one line; `None` if they are.
    fn trouble(&self) -> Option<String>;
}

/// How much is logged, and a way to change it.
pub trait LogLevel: Send + Sync + 'static {
    /// How much is logged now: a level, and after commas levels of single modules.
    fn get(&self) -> String;

    /// Has so much be logged from now on.
    ///
    /// # Errors
    /// What is wrong with `text`, in one line.
    fn set(&self, text: &str) -> Result<(), String>;
}

/// Why an endpoint cannot be had.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// Anyone who can reach the address could read the figures.
    #[error(
        "the admin endpoint on {address} could be reached from other machines, and it asks for no \
         password: give --admin an address of 127.0.0.1, or --insecure to show anyone"
    )]
    Open {
        /// The address.
        address: SocketAddr,
    },
    /// The address cannot be listened on.
    #[error("cannot listen on {address}: {error}; choose another address by --admin")]
    Listen {
        /// The address.
        address: SocketAddr,
        /// What the system says.
        error: std::io::Error,
    },
    /// The system refuses a thread or descriptors.
    #[error("cannot start the thread of the admin endpoint: {0}")]
    Thread(#[from] std::io::Error),
}

/// Checks that an endpoint's address does not lie open to strangers, unless they are welcome.
///
/// # Errors
/// [`StartError::Open`] if it does.
pub fn check(address: SocketAddr, insecure: bool) -> Result<(), StartError> {
    if insecure || is_loopback(address.ip()) {
        Ok(())
    } else {
        Err(StartError::Open { address })
    }
}

fn is_loopback(ip: IpAddr) -> bool {
    match ip {
        IpAddr::V4(ip) => ip.is_loopback(),
        IpAddr::V6(ip) => {
            ip.is_loopback() || ip.to_ipv4_mapped().is_some_and(|ip| ip.is_loopback())
        }
    }
}

/// For the head of a request.
const REQUEST_TIME: Duration = Duration::from_secs(5);
/// For a whole connection.
const CONNECTION_TIME: Duration = Duration::from_secs(10);
/// Bytes of a request's line and headers together.
const HEAD_BYTES: usize = 16 * 1024;
/// Bytes of a request's body.
const BODY_BYTES: usize = 1024;
/// Headers of a request.
const HEADERS: usize = 64;
/// Connections at once.
const CONNECTIONS: usize = 32;
/// When the system has no descriptor left, accepting is tried again after this.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// A running endpoint. It stops when this is dropped.
///
/// It can be started before there is anything to serve, so that whoever watches a long recovery
/// does not take it for a server that is dead.
pub struct Admin {
    address: SocketAddr,
    state: Arc<State>,
    /// Dropped, it ends the thread.
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

/// What connections share.
#[derive(Default)]
struct State {
    /// What `/build` shows.
    build: Build,
    /// What is told of, once there is something.
    subject: OnceLock<Arc<dyn Subject>>,
    /// How much is logged, if that can be changed.
    log: OnceLock<Arc<dyn LogLevel>>,
    /// What is done before there is a subject.
    starting: Mutex<String>,
}

/// Says what a process that is starting is at. Clones speak for the same one.
#[derive(Clone)]
pub struct Starting(Arc<State>);

impl Starting {
    /// What takes time now, in one line; `/health` shows it until there is a subject.
    pub fn tell(&self, what: impl Into<String>) {
        *self.0.starting.lock() = what.into();
    }
}

impl Admin {
    /// Listens on `address` for a program of this `build`, and says that the process is starting until there is something to tell
    /// of ([`Admin::attach`]). Whether the address lies open to strangers is told by [`check`].
    ///
    /// # Errors
    /// The address cannot be listened on, or the system refuses a thread.
    pub fn start(address: SocketAddr, build: Build) -> Result<Admin, StartError> {
        let refused = |error| StartError::Listen { address, error };
        let listener = std::net::TcpListener::bind(address).map_err(refused)?;
        listener.set_nonblocking(true)?;
        let address = listener.local_addr()?;
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_io()
            .enable_time()
            .build()?;
        let state = Arc::new(State {
            build,
            ..State::default()
        });
        let (stop, stopped) = oneshot::channel();
        let own = Arc::clone(&state);
        let serve = move || {
            runtime.block_on(async {
                match TcpListener::from_std(listener) {
                    Ok(listener) => {
                        let accepting = tokio::spawn(accept(listener, own));
                        // An error says that the sender is gone, as it should be.
                        let _ = stopped.await;
                        accepting.abort();
                    }
                    Err(error) => tracing::error!(%error, "the admin endpoint cannot listen"),
                }
            });
        };
        let thread = std::thread::Builder::new()
            .name("admin".to_owned())
            .spawn(serve)?;
        Ok(Admin {
            address,
            state,
            stop: Some(stop),
            thread: Some(thread),
        })
    }

    /// Where it listens.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// What tells how the start goes.
    #[must_use]
    pub fn starting(&self) -> Starting {
        Starting(Arc::clone(&self.state))
    }

    /// From now on it tells of `subject`. An endpoint tells of the first one that it is given.
    pub fn attach(&self, subject: Arc<dyn Subject>) {
        let first = self.state.subject.set(subject);
        debug_assert!(first.is_ok(), "an endpoint tells of one subject");
    }
}

impl Admin {
    /// From now on `/log-level` shows and changes how much is logged. Only the first one counts.
    pub fn control_log(&self, level: Arc<dyn LogLevel>) {
        let first = self.state.log.set(level);
        debug_assert!(first.is_ok(), "a process has one log");
    }
}

impl Drop for Admin {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            // A panic has been reported by the thread itself.
            drop(thread.join());
        }
    }
}

async fn accept(listener: TcpListener, state: Arc<State>) {
    let mut open: VecDeque<AbortHandle> = VecDeque::new();
    loop {
        let stream = match listener.accept().await {
            Ok((stream, _)) => stream,
            Err(error) => {
                tracing::debug!(%error, "the admin endpoint cannot accept a connection");
                tokio::time::sleep(ACCEPT_PAUSE).await;
                continue;
            }
        };
        open.retain(|connection| !connection.is_finished());
        if open.len() >= CONNECTIONS
            && let Some(oldest) = open.pop_front()
        {
            oldest.abort();
        }
        let connection = tokio::spawn(serve(stream, Arc::clone(&state)));
        open.push_back(connection.abort_handle());
    }
}

async fn serve(stream: TcpStream, state: Arc<State>) {
    let answer = service_fn(move |request: Request<Incoming>| {
        let state = Arc::clone(&state);
        async move { Ok::<_, Infallible>(answer(&state, request).await) }
    });
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(REQUEST_TIME)
        .max_buf_size(HEAD_BYTES)
        .max_headers(HEADERS)
        .keep_alive(false)
        .serve_connection(TokioIo::new(stream), answer);
    match tokio::time::timeout(CONNECTION_TIME, connection).await {
        Ok(Ok(())) => {}
        Ok(Err(error)) => tracing::debug!(%error, "a connection to the admin endpoint"),
        Err(_) => tracing::debug!("a connection to the admin endpoint took too long"),
    }
}

const TEXT: &str = "text/plain; charset=utf-8";

async fn answer(state: &State, request: Request<Incoming>) -> Response<Full<Bytes>> {
    let is_put = request.method() == Method::PUT;
    if request.uri().path() == "/log-level" && is_put {
        return change_log(state, request).await;
    }
    if request.method() != Method::GET && request.method() != Method::HEAD {
        return refuse_method(request.uri().path());
    }
    show(state, request.uri().path())
}

fn refuse_method(path: &str) -> Response<Full<Bytes>> {
    let (methods, text) = match path {
        "/log-level" => ("GET, HEAD, PUT", "only GET, HEAD and PUT are known here\n"),
        _ => ("GET, HEAD", "only GET and HEAD are known here\n"),
    };
    let mut refusal = response(StatusCode::METHOD_NOT_ALLOWED, TEXT, text.into());
    let methods = HeaderValue::from_static(methods);
    refusal.headers_mut().insert(ALLOW, methods);
    refusal
}

async fn change_log(state: &State, request: Request<Incoming>) -> Response<Full<Bytes>> {
    let refuse = |status, why: &str| response(status, TEXT, format!("{why}\n"));
    let Some(log) = state.log.get() else {
        return no_such_page();
    };
    if request.headers().contains_key(ORIGIN) {
        return refuse(
            StatusCode::FORBIDDEN,
            "a web page may not change how much is logged",
        );
    }
    let body = Limited::new(request.into_body(), BODY_BYTES)
        .collect()
        .await;
    let Ok(body) = body else {
        let why = "the body is too long, or ended too early";
        return refuse(StatusCode::BAD_REQUEST, why);
    };
    let bytes = body.to_bytes();
    let set = std::str::from_utf8(&bytes)
        .map_err(|_| "the body is not text".to_owned())
        .and_then(|text| log.set(text.trim()));
    match set {
        Ok(()) => response(StatusCode::OK, TEXT, format!("{}\n", log.get())),
        Err(why) => refuse(StatusCode::BAD_REQUEST, &why),
    }
}

fn no_such_page() -> Response<Full<Bytes>> {
    let text = "there is no such page; / lists those that are there\n";
    response(StatusCode::NOT_FOUND, TEXT, text.into())
}

fn show(state: &State, path: &str) -> Response<Full<Bytes>> {
    match path {
        "/metrics" => match state.subject.get() {
            Some(subject) => response(StatusCode::OK, exposition::CONTENT_TYPE, subject.metrics()),
            None => response(StatusCode::SERVICE_UNAVAILABLE, TEXT, starting(state)),
        },
        "/health" | "/health/ready" => match trouble(state) {
            None => response(StatusCode::OK, TEXT, "ok\n".into()),
            Some(why) => response(StatusCode::SERVICE_UNAVAILABLE, TEXT, why),
        },
        "/health/live" => response(StatusCode::OK, TEXT, "ok\n".into()),
        "/build" => response(StatusCode::OK, "application/json", describe(state.build)),
        "/" => response(StatusCode::OK, "text/html; charset=utf-8", page()),
        "/log-level" => match state.log.get() {
            Some(log) => response(StatusCode::OK, TEXT, format!("{}\n", log.get())),
            None => no_such_page(),
        },
        _ => no_such_page(),
    }
}

fn response(status: StatusCode, kind: &'static str, body: String) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(Bytes::from(body)));
    *response.status_mut() = status;
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(kind));
    // Every answer is of its moment.
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    response
}

/// Why requests are not served as they should be, in one line.
fn trouble(state: &State) -> Option<String> {
    let Some(subject) = state.subject.get() else {
        return Some(starting(state));
    };
    let reason = subject.trouble()?;
    Some(reason.replace(['\r', '\n'], " ") + "\n")
}

fn starting(state: &State) -> String {
    match state.starting.lock().as_str() {
        "" => "starting\n".to_owned(),
        what => format!("starting: {what}\n"),
    }
}

/// No other value of these needs escaping: versions and names of platforms.
fn describe(build: Build) -> String {
    let [system, processor] = about::PLATFORM;
    format!(
        "{{\"version\":\"{}\",\"commit\":\"{}\",\"profile\":\"{}\",\"os\":\"{system}\",\
         \"arch\":\"{processor}\",\"redis_version\":\"{}\"}}\n",
        about::VERSION,
        build.commit.escape_default(),
        build.profile.escape_default(),
        about::REDIS_VERSION,
    )
}

fn page() -> String {
    let links: String = [
        ("/metrics", "figures, in Prometheus's text format"),
        ("/health", "whether requests are served as they should be"),
        ("/health/live", "whether the process answers"),
        ("/health/ready", "the same as /health"),
        ("/log-level", "how much is logged; PUT changes it"),
        ("/build", "what was built, and from what"),
    ]
    .iter()
    .map(|(path, what)| format!("<li><a href=\"{path}\">{path}</a>: {what}</li>\n"))
    .collect();
    format!(
        "<!doctype html>\n<html lang=\"en\">\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width\">\n\
         <meta name=\"color-scheme\" content=\"light dark\">\n\
         <title>Kumiki</title>\n<h1>Kumiki {}</h1>\n<ul>\n{links}</ul>\n</html>\n",
        about::VERSION
    )
}
