//! A client with client-side caching: it keeps what it has read until the server tells it that it has changed.

use std::collections::HashMap;
use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use crate::wait::PATIENCE;
use crate::{Client, Reply};

/// See the module's description.
#[derive(Debug)]
pub struct CachedReader {
    client: Client,
    kept: HashMap<String, String>,
    /// How many reads were answered from what is kept.
    pub hits: u64,
}

impl CachedReader {
    /// Connects, and turns client-side caching on, with these options of `CLIENT TRACKING ON`.
    ///
    /// # Panics
    /// Panics if the server does not do that.
    #[track_caller]
    pub fn connect(address: SocketAddr, options: &str) -> CachedReader {
        let mut client = Client::connect(address);
        client.call(&["HELLO", "3"]);
        let begun = client.told(format!("CLIENT TRACKING ON {options}").trim_end());
        assert_eq!(begun, "+OK");
        CachedReader {
            client,
            kept: HashMap::new(),
            hits: 0,
        }
    }

    /// Returns the value of a key, which it has kept, or reads.
    ///
    /// # Errors
    /// Returns an error if the connection is lost.
    pub fn read(&mut self, key: &str) -> io::Result<String> {
        if let Some(value) = self.kept.get(key) {
            self.hits += 1;
            return Ok(value.clone());
        }
        self.client.send(&["GET", key]);
        loop {
            match self.client.try_reply()? {
                Reply::Push(news) => self.forget(&news),
                Reply::Error(text) => return Err(io::Error::other(text)),
                value => {
                    self.kept.insert(key.to_owned(), value.shown());
                    return Ok(value.shown());
                }
            }
        }
    }

    /// Takes the news that come until none comes in this time.
    ///
    /// # Errors
    /// Returns an error if the connection is lost.
    ///
    /// # Panics
    /// Panics if something else comes.
    pub fn take_news(&mut self, wait: Duration) -> io::Result<()> {
        while self.client.has_reply(wait)? {
            self.client.set_patience(PATIENCE)?;
            match self.client.try_reply()? {
                Reply::Push(news) => self.forget(&news),
                other => panic!("{other:?} was not asked for"),
            }
        }
        self.client.set_patience(PATIENCE)
    }

    fn forget(&mut self, news: &[Reply]) {
        match news {
            [word, Reply::Array(keys)] if word.shown() == "invalidate" => {
                for key in keys {
                    self.kept.remove(&key.shown());
                }
            }
            _ => self.kept.clear(),
        }
    }
}
