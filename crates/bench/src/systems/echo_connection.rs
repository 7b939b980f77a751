//! The shortest possible round trip on this machine: a thread answers bytes with bytes, over
//! loopback. Also the exchange of a request and its reply on a connection.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};

use crate::driver::{BlockingClient, DONE};
use crate::error::RunError;

/// Room for a reply, right or wrong.
const ROOM: usize = 512;

/// A connection to a thread that answers each request.
pub(crate) struct EchoConnection {
    link: TcpStream,
    request: Vec<u8>,
    reply: usize,
}

impl EchoConnection {
    /// Creates a connection with requests and replies of so many bytes.
    pub(crate) fn new(request: usize, reply: usize) -> std::io::Result<EchoConnection> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
        let link = TcpStream::connect(listener.local_addr()?)?;
        link.set_nodelay(true)?;
        let (mut peer, _) = listener.accept()?;
        peer.set_nodelay(true)?;
        // It ends with the connection.
        std::thread::spawn(move || {
            let mut room = vec![b'*'; request.max(reply)];
            while peer.read_exact(&mut room[..request]).is_ok() {
                if peer.write_all(&room[..reply]).is_err() {
                    return;
                }
            }
        });
        Ok(EchoConnection {
            link,
            request: vec![b'*'; request],
            reply,
        })
    }
}

impl BlockingClient for EchoConnection {
    fn run(&mut self) -> Result<u64, RunError> {
        let whole = |reply: &[u8]| Ok(reply.len() == self.reply);
        exchange(&mut self.link, &self.request, whole)?;
        Ok(DONE)
    }

    fn settle(&mut self, _: u64) -> Result<(), RunError> {
        Ok(())
    }
}

/// Sends a request, and reads until the reply is whole.
///
/// # Errors
/// Returns an error if the connection fails or is closed, or if `whole` returns one for this reply.
pub(crate) fn exchange(
    link: &mut TcpStream,
    request: &[u8],
    whole: impl Fn(&[u8]) -> Result<bool, RunError>,
) -> Result<(), RunError> {
    let sent = link.write_all(request);
    sent.map_err(RunError::of)?;
    let mut room = [0; ROOM];
    let mut count = 0;
    loop {
        match link.read(&mut room[count..]) {
            Ok(0) => return Err(RunError::Failed("a connection was closed".to_owned())),
            Ok(more) => count += more,
            Err(error) => return Err(RunError::of(error)),
        }
        if whole(&room[..count])? {
            return Ok(());
        }
    }
}
