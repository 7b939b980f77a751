//! One client's connection: its messages, one after the other, until it ends.
//!
//! An error before the client is known ends the connection, and so does a malformed message. A client that
//! goes away ends what it has asked for.

use std::io;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::time::Duration;

use bytes::BytesMut;
use futures::{FutureExt, StreamExt};
use parking_lot::Mutex;
use pgwire::api::cancel::DefaultCancelHandler;
use pgwire::api::{ClientInfo, NoopHandler, PgWireConnectionState};
use pgwire::error::{ErrorInfo, PgWireError};
use pgwire::messages::PgWireFrontendMessage;
use pgwire::tokio::TlsAcceptor;
use pgwire::tokio::server::{
    MaybeTls, PgWireMessageServerCodec, negotiate_tls, process_error, process_message,
};
use reactor::newcomers::{AdmissionTicket, Newcomers};
use reactor::tls::handshake_error;
use tokio::io::Interest;
use tokio::net::TcpStream;
use tokio::sync::Notify;
use tokio::time::sleep;
use tokio_util::codec::{Framed, FramedParts};

use crate::serve::activity::Own;
use crate::serve::auth::Authenticator;
use crate::serve::errors::{PROTOCOL_VIOLATION, TERMINATED, fatal};
use crate::serve::handler::extended::Extended;
use crate::serve::handler::{ExtendedStatement, Handler};
use crate::serve::messages::{MalformedFrontendMessage, PgMessages};

/// How long a client has to say who it is.
pub(crate) const STARTUP: Duration = Duration::from_secs(60);
/// How often the server looks whether a client that waits for an answer is still there.
const WATCH: Duration = Duration::from_millis(250);

/// What serves one connection.
pub(crate) struct PgConnection {
    pub(crate) handler: Arc<Handler>,
    pub(crate) door: Arc<Authenticator>,
    pub(crate) cancel: Arc<DefaultCancelHandler>,
    pub(crate) newcomer: Newcomer,
}

/// A place of a client that has not authenticated yet.
pub(crate) struct Newcomer {
    places: Arc<Mutex<Newcomers<Arc<Notify>>>>,
    place: AdmissionTicket,
    lost: Arc<Notify>,
}

impl Newcomer {
    /// Takes a place: that of the client that has waited for the longest, if there is no other.
    pub(crate) fn admit(places: &Arc<Mutex<Newcomers<Arc<Notify>>>>) -> Newcomer {
        let lost = Arc::new(Notify::new());
        // Each connection measures its own time.
        let (place, evicted) = places.lock().admit(Arc::clone(&lost), Duration::ZERO);
        if let Some(evicted) = evicted {
            evicted.notify_one();
        }
        Newcomer {
            places: Arc::clone(places),
            place,
            lost,
        }
    }

    /// Waits until a newer client has got the place.
    async fn is_lost(&self) {
        self.lost.notified().await;
    }

    /// Gives the place back: the client has authenticated.
    fn leave(&self) {
        self.places.lock().leave(self.place);
    }
}

impl Drop for Newcomer {
    fn drop(&mut self) {
        self.leave();
    }
}

type Socket = Framed<PgMessages<MaybeTls>, PgWireMessageServerCodec<ExtendedStatement>>;

/// Serves a client until its connection ends.
///
/// # Errors
/// Fails when the connection breaks.
pub(crate) async fn serve(
    socket: TcpStream,
    tls: Option<TlsAcceptor>,
    has_password: bool,
    connection: PgConnection,
) -> io::Result<()> {
    let peer = Peer::of(&socket)?;
    let deadline = sleep(STARTUP);
    tokio::pin!(deadline);
    let negotiated = tokio::select! {
        () = &mut deadline => return Ok(()),
        () = connection.newcomer.is_lost() => return Ok(()),
        negotiated = negotiate_tls(socket, tls) => negotiated.map_err(handshake_error)?,
    };
    let Some(mut socket) = negotiated.map(|socket| checked(socket, has_password)) else {
        return Ok(());
    };
    let own = connection.handler.own();
    let mut registered = None;
    loop {
        let starts = matches!(
            socket.state(),
            PgWireConnectionState::AwaitingStartup
                | PgWireConnectionState::AuthenticationInProgress
        );
        if !starts && registered.is_none() {
            socket.get_mut().admit();
            connection.newcomer.leave();
            registered = Some(own.register(&socket));
        }
        let message = tokio::select! {
            () = &mut deadline, if starts => return Ok(()),
            () = connection.newcomer.is_lost(), if starts => return Ok(()),
            () = terminated(own) => return terminate(&mut socket).await,
            message = socket.next() => message,
        };
        let message = match message {
            Some(Ok(PgWireFrontendMessage::Terminate(_))) | None => return Ok(()),
            Some(Ok(message)) => message,
            Some(Err(error)) => return refuse(&mut socket, &error).await,
        };
        let cancels = matches!(message, PgWireFrontendMessage::CancelRequest(_));
        let is_extended = message.is_extended_query();
        let processed = connection.process(message, &mut socket);
        let processed = tokio::select! {
            biased;
            processed = processed => processed,
            () = peer.is_gone() => {
                tracing::debug!("a client went away before its statement was over");
                return Ok(());
            }
            () = terminated(own) => return terminate(&mut socket).await,
        };
        own.end(socket.transaction_status());
        if let Err(error) = processed {
            // Nothing follows an error in the startup: the client was not let in.
            let error = if starts { as_fatal(error) } else { error };
            let is_fatal = error.is_fatal();
            process_error(&mut socket, error, is_extended).await?;
            if is_fatal {
                return Ok(());
            }
        }
        if cancels {
            return Ok(());
        }
    }
}

impl PgConnection {
    async fn process(
        &self,
        message: PgWireFrontendMessage,
        socket: &mut Socket,
    ) -> Result<(), PgWireError> {
        process_message(
            message,
            socket,
            Arc::clone(&self.door),
            Arc::clone(&self.handler),
            Arc::new(Extended(Arc::clone(&self.handler))),
            Arc::new(NoopHandler),
            Arc::clone(&self.cancel),
        )
        .await
    }
}

/// Has a client's messages be checked from now on.
fn checked(
    socket: Framed<MaybeTls, PgWireMessageServerCodec<ExtendedStatement>>,
    has_password: bool,
) -> Socket {
    let parts = socket.into_parts();
    let messages = PgMessages::new(parts.io, parts.read_buf, has_password);
    let mut checked = FramedParts::new(messages, parts.codec);
    checked.read_buf = BytesMut::new();
    checked.write_buf = parts.write_buf;
    Framed::from_parts(checked)
}

/// Answers a message that could not be read, and ends the connection.
async fn refuse(socket: &mut Socket, error: &PgWireError) -> io::Result<()> {
    let what = match error {
        PgWireError::IoError(error) => {
            let malformed = error
                .get_ref()
                .and_then(|error| error.downcast_ref::<MalformedFrontendMessage>());
            match malformed {
                Some(malformed) => malformed.to_string(),
                None => return Err(io::Error::new(error.kind(), error.to_string())),
            }
        }
        other => other.to_string(),
    };
    process_error(socket, fatal(PROTOCOL_VIOLATION, &what), true).await
}

/// Waits until another client has the connection of this one closed.
async fn terminated(own: &Own) {
    match own.client() {
        Some(client) => client.terminated().await,
        None => std::future::pending().await,
    }
}

/// Says that another client has the connection closed.
async fn terminate(socket: &mut Socket) -> io::Result<()> {
    let what = "terminating connection due to administrator command";
    process_error(socket, fatal(TERMINATED, what), false).await
}

fn as_fatal(error: PgWireError) -> PgWireError {
    let mut info = ErrorInfo::from(error);
    "FATAL".clone_into(&mut info.severity);
    PgWireError::UserError(Box::new(info))
}

/// The other end of a connection.
struct Peer(TcpStream);

impl Peer {
    fn of(socket: &TcpStream) -> io::Result<Peer> {
        let same = std::net::TcpStream::from(socket.as_fd().try_clone_to_owned()?);
        Ok(Peer(TcpStream::from_std(same)?))
    }

    /// Waits until it has closed the connection.
    async fn is_gone(&self) {
        let interest = Interest::READABLE | Interest::WRITABLE;
        loop {
            sleep(WATCH).await;
            match self.0.ready(interest).now_or_never() {
                Some(Ok(ready)) if !ready.is_read_closed() => {}
                None => {}
                Some(_) => return,
            }
        }
    }
}
