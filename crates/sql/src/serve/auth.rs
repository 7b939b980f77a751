//! Authentication: with a password, by SCRAM-SHA-256, or none.

use std::fmt::{self, Debug};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use async_trait::async_trait;
use base::log_limit::LogLimit;
use base::passwords::LoginDelay;
use futures::Sink;
use parking_lot::Mutex;
use pgwire::api::auth::noop::NoopStartupHandler;
use pgwire::api::auth::sasl::SASLAuthStartupHandler;
use pgwire::api::auth::sasl::scram::{ScramAuth, gen_salted_password};
use pgwire::api::auth::{
    AuthSource, DefaultServerParameterProvider, LoginInfo, Password, StartupHandler,
};
use pgwire::api::{ClientInfo, ConnectionManager, PgWireConnectionState};
use pgwire::error::{PgWireError, PgWireResult};
use pgwire::messages::{PgWireBackendMessage, PgWireFrontendMessage};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::error::Error;
use crate::serve::errors::{FULL, NOT_ENCRYPTED, TOO_MANY_CLIENTS, fatal};

/// How often the password is hashed, as PostgreSQL does.
const ITERATIONS: usize = 4096;

/// Lets clients in.
pub(crate) struct Authenticator {
    lock: Lock,
    /// Clients must use TLS.
    encrypted: bool,
    /// Places of clients that have authenticated, of all connections.
    places: Arc<Semaphore>,
    /// This client's place, once it has one.
    place: Mutex<Option<OwnedSemaphorePermit>>,
    wrong_passwords: Arc<WrongPasswords>,
}

/// Wrong passwords are logged at most once in this time, with their number.
const LOG_INTERVAL: Duration = Duration::from_secs(10);

/// Counts the wrong passwords of all connections, and logs them at a limited rate.
pub(crate) struct WrongPasswords {
    started: Instant,
    log_limit: Mutex<LogLimit<()>>,
}

impl Default for WrongPasswords {
    fn default() -> WrongPasswords {
        WrongPasswords {
            started: Instant::now(),
            log_limit: Mutex::new(LogLimit::new(LOG_INTERVAL)),
        }
    }
}

impl WrongPasswords {
    fn note(&self, client: SocketAddr) {
        let now = self.started.elapsed();
        if let Some(left_out) = self.log_limit.lock().count((), now) {
            tracing::warn!(%client, "a client gave a wrong password{left_out}");
        }
    }
}

enum Lock {
    Open(Open),
    Locked(Box<SASLAuthStartupHandler<DefaultServerParameterProvider>>),
}

/// Lets everybody in.
pub(crate) struct Open(Arc<ConnectionManager>);

#[async_trait]
impl NoopStartupHandler for Open {
    fn connection_manager(&self) -> Option<Arc<ConnectionManager>> {
        Some(Arc::clone(&self.0))
    }
}

impl Authenticator {
    /// Clients need this password, with any user name; `None`: they need none.
    pub(crate) fn new(
        secret: Option<&PasswordHash>,
        connections: &Arc<ConnectionManager>,
        encrypted: bool,
        places: &Arc<Semaphore>,
        wrong_passwords: &Arc<WrongPasswords>,
    ) -> Authenticator {
        Authenticator {
            lock: Lock::new(secret, Arc::clone(connections)),
            encrypted,
            places: Arc::clone(places),
            place: Mutex::default(),
            wrong_passwords: Arc::clone(wrong_passwords),
        }
    }
}

impl Lock {
    fn new(secret: Option<&PasswordHash>, connections: Arc<ConnectionManager>) -> Lock {
        let Some(secret) = secret else {
            return Lock::Open(Open(connections));
        };
        let mut scram = ScramAuth::new(Arc::new(secret.clone()));
        scram.set_iterations(ITERATIONS);
        let parameters = Arc::new(DefaultServerParameterProvider::default());
        let door = SASLAuthStartupHandler::new(parameters);
        Lock::Locked(Box::new(
            door.with_scram(scram).with_connection_manager(connections),
        ))
    }
}

#[async_trait]
impl StartupHandler for Authenticator {
    async fn on_startup<C>(
        &self,
        client: &mut C,
        message: PgWireFrontendMessage,
    ) -> PgWireResult<()>
    where
        C: ClientInfo + Sink<PgWireBackendMessage> + Unpin + Send + Sync,
        C::Error: Debug,
        PgWireError: From<<C as Sink<PgWireBackendMessage>>::Error>,
    {
        if self.encrypted && !client.is_secure() {
            return Err(fatal(
                NOT_ENCRYPTED,
                "this server speaks TLS alone: connect with sslmode=require",
            ));
        }
        // It is kept by a client that has authenticated by this message, and given back else.
        let place = Arc::clone(&self.places).try_acquire_owned();
        let place = place.map_err(|_| {
            tracing::warn!("a client is refused: there are as many as --connections allows");
            fatal(TOO_MANY_CLIENTS, FULL)
        })?;
        let started = match &self.lock {
            Lock::Open(open) => open.on_startup(client, message).await,
            Lock::Locked(locked) => locked.on_startup(client, message).await,
        };
        if let Err(PgWireError::InvalidPassword(_)) = &started {
            // A client that waits for its refusal takes no place from others.
            drop(place);
            self.wrong_passwords.note(client.socket_addr());
            tokio::time::sleep(LoginDelay::default().count()).await;
            return started;
        }
        started?;
        if matches!(client.state(), PgWireConnectionState::ReadyForQuery) {
            *self.place.lock() = Some(place);
        }
        Ok(())
    }
}

/// A password, hashed with a salt that was drawn for it.
#[derive(Clone)]
pub(crate) struct PasswordHash {
    salt: Vec<u8>,
    hashed: Vec<u8>,
}

impl PasswordHash {
    /// Hashes a password.
    ///
    /// # Errors
    /// If the system gives no random numbers.
    pub(crate) fn new(password: &str) -> Result<PasswordHash, Error> {
        let mut salt = vec![0; 16];
        getrandom::fill(&mut salt).map_err(|error| {
            Error::System(format!("the system gives no random numbers: {error}"))
        })?;
        let hashed = gen_salted_password(password, &salt, ITERATIONS);
        Ok(PasswordHash { salt, hashed })
    }
}

impl fmt::Debug for PasswordHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret")
    }
}

// The trait's own signature hides a lifetime, and must be met to the letter.
#[allow(elided_lifetimes_in_paths)]
#[async_trait]
impl AuthSource for PasswordHash {
    async fn get_password(&self, _: &LoginInfo) -> PgWireResult<Password> {
        Ok(Password::new(Some(self.salt.clone()), self.hashed.clone()))
    }
}
