//! The admin endpoint: metrics, health and build information over HTTP or HTTPS, for
//! monitoring.
//!
//! | path | answer |
//! |---|---|
//! | `/metrics` | all metrics in Prometheus's text format; 503 while the process is starting |
//! | `/health`, `/health/ready` | 200 while requests are served as they should be; else 503 and why |
//! | `/health/live` | 200 as long as the process answers |
//! | `/log-level` | the log level; `PUT` changes it |
//! | `/build` | version, commit, profile and platform, as JSON |
//! | `/` | a page that lists the others |
//!
//! It runs on a thread of its own, so that it answers even if all others are busy. It reads
//! metrics; the only thing that it changes is the log level.
//!
//! A client that reaches it can waste its time, but no more than that:
//! 1. A handshake of TLS takes at most [`REQUEST_TIME`], and so does reading a request. A connection
//!    is closed after [`CONNECTION_TIME`], and serves one request.
//! 2. A request's head has at most [`HEAD_BYTES`]; a body at most [`BODY_BYTES`], and only that of
//!    a `PUT` is read.
//! 3. There are at most [`CONNECTIONS`]; one more closes the oldest, so that slow ones do not keep
//!    others out.
//! 4. A `PUT` that a web page has sent (it has an `Origin` header) is refused, so that a page that
//!    an operator opens cannot change anything.
//!
//! There is no password. With a certificate the endpoint speaks HTTPS alone, and the certificate's
//! settings say which clients are served. Without one that asks for certificates of clients, the
//! endpoint belongs on an address that only operators reach.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::io;
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
use reactor::tls::{ServerTls, handshake_error};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::oneshot;
use tokio::task::AbortHandle;
use tokio::time::timeout;
use tokio_rustls::TlsAcceptor;

use crate::about::{self, Build};
use crate::exposition;

/// The source of an endpoint's information.
pub trait Subject: Send + Sync + 'static {
    /// Returns all metrics, in Prometheus's text format.
    fn metrics(&self) -> String;

    /// Returns the reason why requests are not served as they should be, in one line; `None` if
    /// they are.
    fn trouble(&self) -> Option<String>;
}

/// The log level, and a way to change it.
pub trait LogLevel: Send + Sync + 'static {
    /// Returns the current log level, followed by levels of single modules after commas.
    fn get(&self) -> String;

    /// Sets the log level.
    ///
    /// # Errors
    /// Returns an error, in one line, if `text` is not valid, or if the level cannot be changed.
    fn set(&self, text: &str) -> Result<(), LogLevelError>;
}

/// The reason why a log level is not changed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LogLevelError {
    /// The text is no log level; the reason says which there are.
    #[error("{0}")]
    Invalid(String),
    /// The log does not take the level.
    #[error("{0}")]
    Unchanged(String),
}

/// The reason why an endpoint cannot be started.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// Any machine that reaches the address could read the metrics.
    #[error(
        "the admin endpoint on {address} could be reached from other machines, and it asks for no \
         password: give --admin an address of 127.0.0.1, have clients show certificates (--admin-tls \
         with --tls-ca), or give --insecure to show anyone"
    )]
    Open {
        /// The address.
        address: SocketAddr,
    },
    /// The endpoint cannot listen on the address.
    #[error("cannot listen on {address}: {error}; choose another address by --admin")]
    Listen {
        /// The address.
        address: SocketAddr,
        /// The error of the operating system.
        error: io::Error,
    },
    /// The operating system refuses a thread or descriptors.
    #[error("cannot start the thread of the admin endpoint: {0}")]
    Thread(#[from] io::Error),
}

/// Checks that an endpoint's address cannot be reached from other machines, unless clients must show
/// certificates or `insecure` allows that.
///
/// # Errors
/// Returns [`StartError::Open`] if it can.
pub fn check(
    address: SocketAddr,
    certificate: Option<&ServerTls>,
    insecure: bool,
) -> Result<(), StartError> {
    let is_closed = certificate.is_some_and(ServerTls::requires_certificates);
    if is_closed || insecure || is_loopback(address.ip()) {
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

/// The time limit for the handshake of TLS, and for the head of a request.
const REQUEST_TIME: Duration = Duration::from_secs(5);
/// The time limit for a whole connection.
const CONNECTION_TIME: Duration = Duration::from_secs(10);
/// The limit on the bytes of a request's line and headers together.
const HEAD_BYTES: usize = 16 * 1024;
/// The limit on the bytes of a request's body.
const BODY_BYTES: usize = 1024;
/// The limit on the headers of a request.
const HEADERS: usize = 64;
/// The limit on connections at a time.
const CONNECTIONS: usize = 32;
/// The pause until accepting is tried again when the system has no descriptor left.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// A running endpoint. It stops when this is dropped.
///
/// It can be started before there is anything to serve, so that an operator who watches a long
/// recovery does not take the server for dead.
pub struct Admin {
    address: SocketAddr,
    state: Arc<EndpointState>,
    /// Dropping it ends the thread.
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

/// The state that connections share.
#[derive(Default)]
struct EndpointState {
    /// The build that `/build` shows.
    build: Build,
    /// The source of information, once there is one.
    subject: OnceLock<Arc<dyn Subject>>,
    /// The log level, if it can be changed.
    log: OnceLock<Arc<dyn LogLevel>>,
    /// The step of the start that is in progress before there is a subject.
    starting: Mutex<String>,
}

/// A handle that reports the progress of a start. Clones report for the same endpoint.
#[derive(Clone)]
pub struct Starting(Arc<EndpointState>);

impl Starting {
    /// Sets the step that takes time now, in one line; `/health` shows it until there is a subject.
    pub fn tell(&self, what: impl Into<String>) {
        *self.0.starting.lock() = what.into();
    }
}

impl Admin {
    /// Listens on `address` for a program of this `build`: for HTTPS if there is a certificate, else
    /// for HTTP. The endpoint reports that the process is starting until a subject is attached
    /// ([`Admin::attach`]). [`check`] tells if other machines can reach the address.
    ///
    /// # Errors
    /// Returns an error if the address is not available, or if the operating system refuses a
    /// thread.
    pub fn start(
        address: SocketAddr,
        certificate: Option<Arc<ServerTls>>,
        build: Build,
    ) -> Result<Admin, StartError> {
        let refused = |error| StartError::Listen { address, error };
        let listener = std::net::TcpListener::bind(address).map_err(refused)?;
        listener.set_nonblocking(true)?;
        let address = listener.local_addr()?;
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_io()
            .enable_time()
            .build()?;
        let state = Arc::new(EndpointState {
            build,
            ..EndpointState::default()
        });
        let (stop, stopped) = oneshot::channel();
        let own = Arc::clone(&state);
        let serve = move || {
            runtime.block_on(async {
                match TcpListener::from_std(listener) {
                    Ok(listener) => {
                        let accepting = tokio::spawn(accept(listener, certificate, own));
                        // An error means that the sender is gone, which ends the endpoint as well.
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

    /// Returns the address on which it listens.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Returns the handle that reports the progress of the start.
    #[must_use]
    pub fn starting(&self) -> Starting {
        Starting(Arc::clone(&self.state))
    }

    /// Reports `subject` from now on. Only the first subject counts.
    pub fn attach(&self, subject: Arc<dyn Subject>) {
        let first = self.state.subject.set(subject);
        debug_assert!(first.is_ok(), "an endpoint tells of one subject");
    }
}

impl Admin {
    /// Makes `/log-level` show and change this log level from now on. Only the first one counts.
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

async fn accept(
    listener: TcpListener,
    certificate: Option<Arc<ServerTls>>,
    state: Arc<EndpointState>,
) {
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
        // The certificate may have been read again since the last connection.
        let acceptor = certificate
            .as_ref()
            .map(|certificate| TlsAcceptor::from(certificate.config()));
        let connection = tokio::spawn(serve(stream, acceptor, Arc::clone(&state)));
        open.push_back(connection.abort_handle());
    }
}

async fn serve(stream: TcpStream, acceptor: Option<TlsAcceptor>, state: Arc<EndpointState>) {
    let served = async {
        let Some(acceptor) = acceptor else {
            return serve_http(stream, state).await;
        };
        let handshake = timeout(REQUEST_TIME, acceptor.accept(stream)).await?;
        serve_http(handshake.map_err(handshake_error)?, state).await
    };
    match timeout(CONNECTION_TIME, served).await {
        Ok(Ok(())) => {}
        Ok(Err(error)) => tracing::debug!(%error, "a connection to the admin endpoint"),
        Err(_) => tracing::debug!("a connection to the admin endpoint took too long"),
    }
}

/// Answers one request.
async fn serve_http<S: AsyncRead + AsyncWrite + Unpin>(
    stream: S,
    state: Arc<EndpointState>,
) -> io::Result<()> {
    let answer = service_fn(move |request: Request<Incoming>| {
        let state = Arc::clone(&state);
        async move { Ok::<_, Infallible>(answer(&state, request).await) }
    });
    http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(REQUEST_TIME)
        .max_buf_size(HEAD_BYTES)
        .max_headers(HEADERS)
        .keep_alive(false)
        .serve_connection(TokioIo::new(stream), answer)
        .await
        .map_err(io::Error::other)
}

const TEXT: &str = "text/plain; charset=utf-8";

async fn answer(state: &EndpointState, request: Request<Incoming>) -> Response<Full<Bytes>> {
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

async fn change_log(state: &EndpointState, request: Request<Incoming>) -> Response<Full<Bytes>> {
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
    let Ok(text) = std::str::from_utf8(&bytes) else {
        return refuse(StatusCode::BAD_REQUEST, "the body is not text");
    };
    match log.set(text.trim()) {
        Ok(()) => response(StatusCode::OK, TEXT, format!("{}\n", log.get())),
        Err(error) => refuse(StatusCode::BAD_REQUEST, &error.to_string()),
    }
}

fn no_such_page() -> Response<Full<Bytes>> {
    let text = "there is no such page; / lists those that are there\n";
    response(StatusCode::NOT_FOUND, TEXT, text.into())
}

fn show(state: &EndpointState, path: &str) -> Response<Full<Bytes>> {
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
    // Every answer describes a moment.
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    response
}

/// Returns the reason why requests are not served as they should be, in one line.
fn trouble(state: &EndpointState) -> Option<String> {
    let Some(subject) = state.subject.get() else {
        return Some(starting(state));
    };
    let reason = subject.trouble()?;
    Some(reason.replace(['\r', '\n'], " ") + "\n")
}

fn starting(state: &EndpointState) -> String {
    match state.starting.lock().as_str() {
        "" => "starting\n".to_owned(),
        what => format!("starting: {what}\n"),
    }
}

/// Describes the build as JSON. The other values, versions and names of platforms, need no
/// escaping.
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
