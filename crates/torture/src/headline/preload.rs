//! The keys of a server before it is measured.

use std::net::SocketAddr;

use anyhow::{Result, ensure};
use testkit::{Client, Reply};

use super::load::{Request, VALUE, key};

/// Requests that are under way at a time.
const REQUESTS: usize = 16;
/// The number of keys in a request.
pub(super) const KEYS_IN_REQUEST: usize = 200;
/// The initial balance of an account.
pub(super) const BALANCE: i64 = 1000;

/// Writes `keys` keys, many in each request.
pub(super) fn preload(address: SocketAddr, request: Request, keys: u32) -> Result<()> {
    let value = match request {
        Request::Transfer => BALANCE.to_string().into_bytes(),
        _ => vec![b'x'; VALUE],
    };
    let mut client = Client::try_connect(address)?;
    let all: Vec<u32> = (0..keys).collect();
    for window in all.chunks(REQUESTS * KEYS_IN_REQUEST) {
        let chunks = window.chunks(KEYS_IN_REQUEST);
        for chunk in chunks.clone() {
            let mut line = vec![b"MSET".to_vec()];
            line.extend(
                chunk
                    .iter()
                    .flat_map(|number| [key(*number), value.clone()]),
            );
            client.push(&line);
        }
        client.flush()?;
        for _ in chunks {
            let reply = client.try_reply()?;
            ensure!(
                reply == Reply::Status("OK".to_owned()),
                "MSET was answered with {reply:?}"
            );
        }
    }
    Ok(())
}
