//! A server that sends back what it receives, by the event loop's network that the other servers use: what it
//! costs is what the network costs any server. An array that is a request is a reply as well, so that
//! redis-benchmark accepts it.

use std::collections::HashMap;
use std::io::{ErrorKind, IoSlice};
use std::net::{SocketAddr, TcpListener};

use anyhow::Result;
use reactor::{Io, Network, Sockets, Uring};

/// The listener's token; streams have smaller ones.
const LISTENER: usize = usize::MAX - 1;
/// Bytes read at a time, as in the server.
const READ: usize = 16 * 1024;

/// Serves at `listen`, by one thread, until the process is ended. `io` is `auto`, `epoll` or `uring`.
///
/// # Errors
/// Returns an error if it cannot listen, or if the network fails.
pub fn run(listen: SocketAddr, io: &str) -> Result<()> {
    let io = match io {
        "epoll" => Io::Epoll,
        "uring" => Io::Uring,
        _ => Io::Auto,
    };
    match io.choose()? {
        Io::Uring => serve::<Uring>(listen),
        _ => serve::<Sockets>(listen),
    }
}

fn serve<N: Network>(listen: SocketAddr) -> Result<()> {
    let mut network = N::open()?;
    let listener = network.listen(TcpListener::bind(listen)?, LISTENER)?;
    let mut streams: HashMap<usize, N::Stream> = HashMap::new();
    let (mut next, mut events, mut memory) = (0, Vec::new(), vec![0; READ]);
    loop {
        network.wait(&mut events, None)?;
        for event in events.drain(..) {
            if event.token == LISTENER {
                while let Ok((mut stream, _)) = network.accept(&listener) {
                    network.watch(&mut stream, next)?;
                    streams.insert(next, stream);
                    next += 1;
                }
            } else if event.readable
                && let Some(stream) = streams.get_mut(&event.token)
                && !echo(&mut network, stream, &mut memory)
                && let Some(stream) = streams.remove(&event.token)
            {
                network.close(stream);
            }
        }
    }
}

/// Sends back what has come. Returns `false` if the connection is over, or takes not all of it: clients of a
/// benchmark take every reply before they send more than a pipeline.
fn echo<N: Network>(network: &mut N, stream: &mut N::Stream, memory: &mut [u8]) -> bool {
    loop {
        match network.read(stream, memory) {
            Ok(0) => return false,
            Ok(count) => {
                let written = network.write(stream, &[IoSlice::new(&memory[..count])]);
                if !written.is_ok_and(|written| written == count) {
                    return false;
                }
                if count < memory.len() {
                    return true;
                }
            }
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return error.kind() == ErrorKind::WouldBlock,
        }
    }
}
