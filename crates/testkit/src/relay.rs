//! A relay between two peers, which can read and change the bytes that pass: a machine in between that no one
//! should have to trust.

use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

/// The time after which threads look if the relay ends.
const LOOK: Duration = Duration::from_millis(20);

/// Bytes that pass a relay.
#[derive(Debug)]
pub struct Passing<'a> {
    /// The number of the connection, from 0 on.
    pub connection: usize,
    /// `true` if they go to the peer that listens.
    pub to_listener: bool,
    /// The number of bytes that have passed in this direction before.
    pub offset: u64,
    /// The bytes.
    pub bytes: &'a mut [u8],
}

type Change = Arc<Mutex<dyn FnMut(Passing<'_>) + Send>>;

/// See the module documentation. It ends when it is dropped.
#[derive(Debug)]
pub struct Relay {
    address: SocketAddr,
    stop: Arc<AtomicBool>,
    acceptor: Option<JoinHandle<()>>,
}

impl Relay {
    /// Listens on a free port of the loopback interface, connects each connection to `to`, and has `change` see
    /// all bytes.
    ///
    /// # Errors
    /// Returns the system's errors.
    pub fn start(
        to: SocketAddr,
        change: impl FnMut(Passing<'_>) + Send + 'static,
    ) -> io::Result<Relay> {
        Relay::start_at("127.0.0.1:0".parse().expect("an address"), to, change)
    }

    /// As [`Relay::start`], at this address.
    ///
    /// # Errors
    /// Returns the system's errors.
    pub fn start_at(
        address: SocketAddr,
        to: SocketAddr,
        change: impl FnMut(Passing<'_>) + Send + 'static,
    ) -> io::Result<Relay> {
        let listener = TcpListener::bind(address)?;
        listener.set_nonblocking(true)?;
        let address = listener.local_addr()?;
        let stop = Arc::new(AtomicBool::new(false));
        let (stopped, change): (_, Change) = (Arc::clone(&stop), Arc::new(Mutex::new(change)));
        let acceptor = std::thread::spawn(move || accept(&listener, to, &stopped, &change));
        Ok(Relay {
            address,
            stop,
            acceptor: Some(acceptor),
        })
    }

    /// Returns the address to which peers connect.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(acceptor) = self.acceptor.take() {
            let ended = acceptor.join();
            assert!(
                ended.is_ok() || std::thread::panicking(),
                "the relay failed"
            );
        }
    }
}

fn accept(listener: &TcpListener, to: SocketAddr, stop: &Arc<AtomicBool>, change: &Change) {
    let mut threads = Vec::new();
    let mut connection = 0;
    while !stop.load(Ordering::Relaxed) {
        let Ok((near, _)) = listener.accept() else {
            std::thread::sleep(LOOK / 10);
            continue;
        };
        // A peer that is not there has not answered the other one either.
        let Ok(far) = TcpStream::connect(to) else {
            continue;
        };
        for to_listener in [true, false] {
            let (from, into) = match to_listener {
                true => (near.try_clone(), far.try_clone()),
                false => (far.try_clone(), near.try_clone()),
            };
            let (Ok(from), Ok(into)) = (from, into) else {
                continue;
            };
            let (stop, change) = (Arc::clone(stop), Arc::clone(change));
            threads.push(std::thread::spawn(move || {
                copy(&from, &into, &stop, |offset, bytes| {
                    let mut change = change.lock().unwrap_or_else(|held| held.into_inner());
                    change(Passing {
                        connection,
                        to_listener,
                        offset,
                        bytes,
                    });
                });
            }));
        }
        connection += 1;
    }
    for thread in threads {
        // A panic of the test's own function has been printed.
        drop(thread.join());
    }
}

/// Copies bytes until one of the sides has ended, and then ends the other.
fn copy(
    mut from: &TcpStream,
    mut into: &TcpStream,
    stop: &AtomicBool,
    mut change: impl FnMut(u64, &mut [u8]),
) {
    let prepared = from
        .set_nonblocking(false)
        .and_then(|()| from.set_read_timeout(Some(LOOK)))
        .and_then(|()| into.set_nodelay(true));
    let mut buffer = vec![0; 64 << 10];
    let mut offset = 0;
    while prepared.is_ok() && !stop.load(Ordering::Relaxed) {
        match from.read(&mut buffer) {
            Ok(0) => break,
            Ok(count) => {
                change(offset, &mut buffer[..count]);
                offset += count as u64;
                if into.write_all(&buffer[..count]).is_err() {
                    break;
                }
            }
            Err(error) if crate::client::is_late(&error) => {}
            Err(_) => break,
        }
    }
    // Either side may have ended already.
    drop(into.shutdown(Shutdown::Write));
    if stop.load(Ordering::Relaxed) {
        drop(from.shutdown(Shutdown::Both));
    }
}
