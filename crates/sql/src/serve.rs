//! `kumiki sql serve`: PostgreSQL's protocol, so that its clients and drivers ask over tables of pages.
//!
//! | module | concept |
//! |---|---|
//! | `connection` | one client's messages, until it ends |
//! | `messages` | the form of messages |
//! | `handler` | statements, by the simple and the extended protocol |
//! | `compatible` | what clients say to PostgreSQL that DataFusion does not understand |
//! | `send` | what statements answer, on its way to the client |
//! | `activity` | what clients do, and how one ends what another does |
//! | `bounds` | what ends a statement before it is over |
//! | `copy` | rows as lines of text |
//! | `cursor` | queries whose rows are fetched in parts, by SQL |
//! | `timeout` | how long statements may take |
//! | `system` | PostgreSQL's system catalogue |
//! | `catalogue_queries` | queries over it as DataFusion takes them |
//! | `catalogue_tables` | tables of it that the library lacks |
//! | `setting_functions` | settings by functions |
//! | `auth` | who may connect |
//! | `tls` | the acceptor of TLS for each connection |
//! | `types` | types of columns |
//! | `encode` | values |
//! | `array` | the forms of arrays |
//! | `numeric` | the binary form of decimals |
//! | `parameters` | parameters of prepared statements |
//! | `errors` | errors and their SQLSTATEs |
//!
//! Each connection has a session: what it sets concerns itself. SQL of clients reads tables and
//! nothing else; statements that would touch files of this machine are refused.

mod activity;
mod array;
mod auth;
mod bounds;
mod catalogue_queries;
mod catalogue_tables;
mod compatible;
mod connection;
mod copy;
mod cursor;
mod encode;
mod errors;
mod handler;
mod messages;
mod numeric;
mod opaque_arc;
mod parameters;
mod send;
mod setting_functions;
mod system;
mod timeout;
mod tls;
mod types;

use std::net::SocketAddr;
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use pgwire::api::ConnectionManager;
use pgwire::api::cancel::DefaultCancelHandler;
use reactor::newcomers::Newcomers;
use reactor::tls::ServerTls;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Notify, Semaphore, watch};
use tokio::task::JoinSet;

use crate::error::Error;
use crate::serve::activity::{Activity, Own};
use crate::serve::auth::{Authenticator, PasswordHash, WrongPasswords};
use crate::serve::catalogue_tables::SharedCatalogue;
use crate::serve::connection::{Newcomer, PgConnection};
use crate::serve::handler::Handler;
use crate::session::Shared;

/// How long connections have to end by themselves when the server stops.
const FAREWELL: Duration = Duration::from_secs(5);

/// Statements that are planned at once. Each takes a thread, also after its client has cancelled it.
const PLANNED_AT_ONCE: usize = 32;

/// Connections whose clients have not authenticated yet. When there are more, the oldest is closed.
const NEWCOMERS: usize = 64;

/// How a server is started.
#[derive(Clone)]
pub struct Options {
    /// Where to listen.
    pub listen: SocketAddr,
    /// What clients must know; `None`: nothing.
    pub password: Option<String>,
    /// Clients must speak TLS, by this certificate; `None`: they cannot. The caller may keep it to have its
    /// files read again ([`ServerTls::reload`]).
    pub certificate: Option<Arc<ServerTls>>,
    /// A public address may be served without a password.
    pub insecure: bool,
    /// Connections at once; others are closed.
    pub connections: NonZeroUsize,
    /// Queries at once; others wait.
    pub queries: NonZeroUsize,
    /// How long a query waits for its client to take rows, until it gives its place to others; `None`: for
    /// ever.
    pub patience: Option<Duration>,
}

/// A server that listens.
pub struct SqlServer {
    listener: TcpListener,
    shared: Shared,
    secret: Option<PasswordHash>,
    wrong_passwords: Arc<WrongPasswords>,
    certificate: Option<Arc<ServerTls>>,
    manager: Arc<ConnectionManager>,
    running: Arc<Semaphore>,
    planning: Arc<Semaphore>,
    patience: Option<Duration>,
    connections: Arc<Semaphore>,
    newcomers: Arc<Mutex<Newcomers<Arc<Notify>>>>,
    activity: Arc<Activity>,
    system: SharedCatalogue,
    stop: watch::Receiver<bool>,
}

/// Stops a server.
#[derive(Clone, Debug)]
pub struct Stopper(Arc<watch::Sender<bool>>);

impl Stopper {
    /// Has the server end: it takes no connections any more, and what runs has a few seconds.
    pub fn stop(&self) {
        self.0.send_replace(true);
    }
}

impl SqlServer {
    /// Listens. Sessions should have [`Rights::Read`](crate::Rights) alone.
    ///
    /// # Errors
    /// Returns an error if the address is not available, or is public and clients need neither a password nor a
    /// certificate; the text says what to do.
    pub async fn bind(options: &Options, shared: Shared) -> Result<(SqlServer, Stopper), Error> {
        let listen = options.listen;
        let certificate = options.certificate.as_deref();
        let is_closed =
            options.password.is_some() || certificate.is_some_and(ServerTls::requires_certificates);
        if !listen.ip().is_loopback() && !is_closed && !options.insecure {
            return Err(format!(
                "{listen} can be reached from other machines, and all clients that reach it can read all tables: \
                 require a password (--password-file) or certificates of clients (--tls-ca), listen on 127.0.0.1, \
                 or say --insecure"
            ).into());
        }
        let listener = TcpListener::bind(listen).await;
        let listener = listener
            .map_err(|error| Error::System(format!("cannot listen on {listen}: {error}")))?;
        let secret = options
            .password
            .as_deref()
            .map(PasswordHash::new)
            .transpose()?;
        let (stopper, stop) = watch::channel(false);
        let server = SqlServer {
            listener,
            shared,
            secret,
            wrong_passwords: Arc::default(),
            certificate: options.certificate.clone(),
            manager: Arc::new(ConnectionManager::new()),
            running: Arc::new(Semaphore::new(options.queries.get())),
            planning: Arc::new(Semaphore::new(PLANNED_AT_ONCE)),
            patience: options.patience,
            connections: Arc::new(Semaphore::new(options.connections.get())),
            newcomers: Arc::new(Mutex::new(Newcomers::new(NEWCOMERS, connection::STARTUP))),
            activity: Activity::new(),
            system: SharedCatalogue::default(),
            stop,
        };
        Ok((server, Stopper(Arc::new(stopper))))
    }

    /// Returns the address at which it listens.
    ///
    /// # Errors
    /// If the system does not say.
    pub fn address(&self) -> std::io::Result<SocketAddr> {
        self.listener.local_addr()
    }

    /// Serves until it is stopped.
    pub async fn serve(self) {
        let mut stop = self.stop.clone();
        let mut tasks = JoinSet::new();
        loop {
            tokio::select! {
                _ = stop.wait_for(|stop| *stop) => break,
                Some(_) = tasks.join_next() => {}
                accepted = self.listener.accept() => match accepted {
                    Ok((socket, _)) => self.welcome(socket, &mut tasks),
                    Err(error) => {
                        tracing::warn!("a connection could not be accepted: {error}");
                        // Mostly for want of descriptors, of which some come back soon.
                        tokio::time::sleep(Duration::from_millis(50)).await;
                    }
                },
            }
        }
        let all = async { while tasks.join_next().await.is_some() {} };
        if tokio::time::timeout(FAREWELL, all).await.is_err() {
            tracing::info!("connections are closed in the middle of queries");
        }
    }

    fn welcome(&self, socket: TcpStream, tasks: &mut JoinSet<()>) {
        let session = match self.shared.session() {
            Ok(session) => session,
            Err(error) => {
                tracing::error!("a connection is closed: there is no session for it: {error}");
                return;
            }
        };
        let connection = PgConnection {
            handler: Arc::new(Handler::new(
                session,
                &self.running,
                &self.planning,
                self.patience,
                Own::new(&self.activity),
                &self.system,
            )),
            door: Arc::new(Authenticator::new(
                self.secret.as_ref(),
                &self.manager,
                self.certificate.is_some(),
                &self.connections,
                &self.wrong_passwords,
            )),
            cancel: Arc::new(DefaultCancelHandler::new(Arc::clone(&self.manager))),
            newcomer: Newcomer::admit(&self.newcomers),
        };
        let mut stop = self.stop.clone();
        let tls = self.certificate.as_deref().map(tls::acceptor);
        let has_password = self.secret.is_some();
        tasks.spawn(async move {
            tokio::select! {
                served = connection::serve(socket, tls, has_password, connection) => {
                    if let Err(error) = served {
                        tracing::debug!("a connection broke: {error}");
                    }
                }
                () = stopped(&mut stop) => {}
            }
        });
    }
}

/// Waits until the server stops, and the time after that has passed in which queries may end.
async fn stopped(stop: &mut watch::Receiver<bool>) {
    let _ = stop.wait_for(|stop| *stop).await;
    tokio::time::sleep(FAREWELL).await;
}
