//! The admin endpoint: figures, health and build information over HTTP, for monitoring.
//!
//! | path | answer |
//! |---|---|
//! | `/metrics` | all figures in Prometheus's text format; 503 while the server is starting |
//! | `/health`, `/health/ready` | 200 while requests are served as they should be; else 503 and why |
//! | `/health/live` | 200 as long as the process answers |
//! | `/build` | version, commit, profile and platform, as JSON |
//! | `/` | a page that lists the others |
//!
//! It runs on a thread of its own, so that it answers also while all runtimes are busy, and takes
//! nothing from clients: it only reads figures.
//!
//! Whoever reaches it can waste its time but no more than that:
//! 1. A request is read in [`REQUEST_TIME`] and answered in [`CONNECTION_TIME`], or the connection
//!    is closed. A connection serves one request.
//! 2. A request's head has at most [`HEAD_BYTES`]; its body is not read.
//! 3. There are at most [`CONNECTIONS`]; one more closes the oldest, so that slow ones do not keep
//!    others out.
//!
//! There is no password and no encryption: it belongs on an address that only operators reach.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::{Arc, OnceLock};
use std::thread::JoinHandle;
use std::time::Duration;

use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::header::{ALLOW, CACHE_CONTROL, CONTENT_TYPE, HeaderValue, X_CONTENT_TYPE_OPTIONS};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use parking_lot::Mutex;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::oneshot;
use tokio::task::AbortHandle;

use crate::about;
use crate::config::StartError;
use crate::figures::Figures;
use crate::metrics;
use crate::shared::Shared;

/// For the head of a request.
const REQUEST_TIME: Duration = Duration::from_secs(5);
/// For a whole connection.
const CONNECTION_TIME: Duration = Duration::from_secs(10);
/// Bytes of a request's line and headers together.
const HEAD_BYTES: usize = 16 * 1024;
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

/// What an endpoint tells of.
#[derive(Default)]
struct State {
    /// The server, once there is one.
    server: OnceLock<Arc<Shared>>,
    /// What is done before that.
    starting: Mutex<String>,
}

/// Says what a server that is starting is at. Clones speak for the same one.
#[derive(Clone)]
pub struct Starting(Arc<State>);

impl Starting {
    /// What takes time now, in one line; `/health` shows it until the server serves.
    pub fn tell(&self, what: impl Into<String>) {
        *self.0.starting.lock() = what.into();
    }
}

impl Admin {
    /// Listens on `address`, and says that the server is starting until it is given one by
    /// [`serve_with`](crate::serve_with). Whether the address lies open to strangers is told by
    /// [`Config::check`](crate::Config::check).
    ///
    /// # Errors
    /// The address cannot be listened on, or the system refuses a thread.
    pub fn start(address: SocketAddr) -> Result<Admin, StartError> {
        let refused = |error| StartError::ListenAdmin { address, error };
        let listener = std::net::TcpListener::bind(address).map_err(refused)?;
        listener.set_nonblocking(true)?;
        let address = listener.local_addr()?;
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_io()
            .enable_time()
            .build()?;
        let state = Arc::<State>::default();
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

    /// From now on it tells of `server`.
    pub(crate) fn attach(&self, server: &Arc<Shared>) {
        let first = self.state.server.set(Arc::clone(server));
        debug_assert!(first.is_ok(), "an endpoint tells of one server");
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
        let answer = answer(&state, request.method(), request.uri().path());
        std::future::ready(Ok::<_, Infallible>(answer))
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

fn answer(state: &State, method: &Method, path: &str) -> Response<Full<Bytes>> {
    const TEXT: &str = "text/plain; charset=utf-8";
    if method != Method::GET && method != Method::HEAD {
        let status = StatusCode::METHOD_NOT_ALLOWED;
        let mut refusal = response(status, TEXT, "only GET and HEAD are known here\n".into());
        let methods = HeaderValue::from_static("GET, HEAD");
        refusal.headers_mut().insert(ALLOW, methods);
        return refusal;
    }
    match path {
        "/metrics" => match state.server.get() {
            Some(server) => {
                let text = metrics::report(&Figures::now(server));
                response(StatusCode::OK, metrics::CONTENT_TYPE, text)
            }
            None => response(StatusCode::SERVICE_UNAVAILABLE, TEXT, starting(state)),
        },
        "/health" | "/health/ready" => match trouble(state) {
            None => response(StatusCode::OK, TEXT, "ok\n".into()),
            Some(why) => response(StatusCode::SERVICE_UNAVAILABLE, TEXT, why),
        },
        "/health/live" => response(StatusCode::OK, TEXT, "ok\n".into()),
        "/build" => response(StatusCode::OK, "application/json", build()),
        "/" => response(StatusCode::OK, "text/html; charset=utf-8", page()),
        _ => {
            let text = "there is no such page; / lists those that are there\n";
            response(StatusCode::NOT_FOUND, TEXT, text.into())
        }
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
    let Some(server) = state.server.get() else {
        return Some(starting(state));
    };
    if let Some(reason) = server.partition.failed() {
        let reason = reason.replace(['\r', '\n'], " ");
        return Some(match server.partition.replicated() {
            None => format!("the log has failed, writes are refused: {reason}\n"),
            Some(_) => format!(
                "this node's replica has stopped, and nothing is served until the node is \
                 restarted: {reason}\n"
            ),
        });
    }
    server.is_stopping().then(|| "stopping\n".to_owned())
}

fn starting(state: &State) -> String {
    match state.starting.lock().as_str() {
        "" => "starting\n".to_owned(),
        what => format!("starting: {what}\n"),
    }
}

/// No value of these needs escaping: versions, hexadecimal digits and names of platforms.
fn build() -> String {
    let [system, processor] = about::PLATFORM;
    format!(
        "{{\"version\":\"{}\",\"commit\":\"{}\",\"profile\":\"{}\",\"os\":\"{system}\",\
         \"arch\":\"{processor}\",\"redis_version\":\"{}\"}}\n",
        about::VERSION,
        about::COMMIT.escape_default(),
        about::PROFILE,
        about::REDIS_VERSION,
    )
}

fn page() -> String {
    let links: String = [
        ("/metrics", "figures, in Prometheus's text format"),
        ("/health", "whether requests are served as they should be"),
        ("/health/live", "whether the process answers"),
        ("/health/ready", "the same as /health"),
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
