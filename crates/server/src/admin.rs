//! The admin endpoint: figures, health and build information over HTTP, for monitoring.
//!
//! | path | answer |
//! |---|---|
//! | `/metrics` | all figures in Prometheus's text format |
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
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::header::{ALLOW, CACHE_CONTROL, CONTENT_TYPE, HeaderValue, X_CONTENT_TYPE_OPTIONS};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
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
pub(crate) struct Admin {
    pub(crate) address: SocketAddr,
    /// Dropped or used, it ends the thread.
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Admin {
    /// Listens on `address`.
    pub(crate) fn listen(address: SocketAddr) -> Result<std::net::TcpListener, StartError> {
        let refused = |error| StartError::ListenAdmin { address, error };
        let listener = std::net::TcpListener::bind(address).map_err(refused)?;
        listener.set_nonblocking(true)?;
        Ok(listener)
    }

    /// Serves the figures of `shared`.
    pub(crate) fn start(
        listener: std::net::TcpListener,
        shared: Arc<Shared>,
    ) -> std::io::Result<Admin> {
        let address = listener.local_addr()?;
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_io()
            .enable_time()
            .build()?;
        let (stop, stopped) = oneshot::channel();
        let serve = move || {
            runtime.block_on(async {
                match TcpListener::from_std(listener) {
                    Ok(listener) => {
                        let accepting = tokio::spawn(accept(listener, shared));
                        // An error says that the sender is gone, which means the same.
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
            stop: Some(stop),
            thread: Some(thread),
        })
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

async fn accept(listener: TcpListener, shared: Arc<Shared>) {
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
        let connection = tokio::spawn(serve(stream, Arc::clone(&shared)));
        open.push_back(connection.abort_handle());
    }
}

async fn serve(stream: TcpStream, shared: Arc<Shared>) {
    let answer = service_fn(move |request: Request<Incoming>| {
        let answer = answer(&shared, request.method(), request.uri().path());
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

fn answer(shared: &Shared, method: &Method, path: &str) -> Response<Full<Bytes>> {
    const TEXT: &str = "text/plain; charset=utf-8";
    if method != Method::GET && method != Method::HEAD {
        let status = StatusCode::METHOD_NOT_ALLOWED;
        let mut refusal = response(status, TEXT, "only GET and HEAD are known here\n".into());
        let methods = HeaderValue::from_static("GET, HEAD");
        refusal.headers_mut().insert(ALLOW, methods);
        return refusal;
    }
    match path {
        "/metrics" => {
            let text = metrics::report(&Figures::now(shared));
            response(StatusCode::OK, metrics::CONTENT_TYPE, text)
        }
        "/health" | "/health/ready" => match trouble(shared) {
            None => response(StatusCode::OK, TEXT, "ok\n".into()),
            Some(why) => response(StatusCode::SERVICE_UNAVAILABLE, TEXT, format!("{why}\n")),
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

/// Why requests are not served as they should be.
fn trouble(shared: &Shared) -> Option<String> {
    if let Some(reason) = shared.db.durable().failed {
        return Some(format!("the log has failed, writes are refused: {reason}"));
    }
    shared.is_stopping().then(|| "stopping".to_owned())
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
