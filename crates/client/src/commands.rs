//! Calls for single keys, and for several.

use base::Op;
use base::partition::OwnedReply;

use crate::client::Client;
use crate::error::Error;
use crate::replies::{check, number, value};

impl Client {
    /// Returns the value of a key, or `None` if the key is absent.
    ///
    /// # Errors
    /// See [`Error`].
    pub fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>, Error> {
        value(0, self.one(Op::Get { key })?)
    }

    /// Sets a key that does not expire. An earlier value is replaced.
    ///
    /// # Errors
    /// See [`Error`].
    pub fn put(&self, key: &[u8], value: &[u8]) -> Result<(), Error> {
        self.one(Op::put(key, value)).map(drop)
    }

    /// Deletes a key. Returns `true` if it was there.
    ///
    /// # Errors
    /// See [`Error`].
    pub fn delete(&self, key: &[u8]) -> Result<bool, Error> {
        Ok(number(self.one(Op::Delete { key })?)? != 0)
    }

    /// Adds to the value, a decimal number; an absent key counts as 0. Returns the sum.
    ///
    /// # Errors
    /// See [`Error`].
    pub fn add(&self, key: &[u8], delta: i64) -> Result<i64, Error> {
        number(self.one(Op::Add { key, delta })?)
    }

    /// Returns the values of keys, as of one moment; `None` for a key that is absent or no string.
    ///
    /// # Errors
    /// See [`Error`].
    pub fn mget(&self, keys: &[&[u8]]) -> Result<Vec<Option<Vec<u8>>>, Error> {
        let ops: Vec<Op<'_>> = keys.iter().map(|key| Op::GetIfString { key }).collect();
        let replies = self.execute(&ops)?.into_iter().enumerate();
        replies.map(|(at, reply)| value(at, reply)).collect()
    }

    /// Sets several keys atomically.
    ///
    /// # Errors
    /// See [`Error`].
    pub fn mset(&self, pairs: &[(&[u8], &[u8])]) -> Result<(), Error> {
        let ops: Vec<Op<'_>> = pairs
            .iter()
            .map(|(key, value)| Op::put(key, value))
            .collect();
        self.execute(&ops).and_then(|replies| check(&replies))
    }

    fn one(&self, op: Op<'_>) -> Result<OwnedReply, Error> {
        let mut replies = self.execute(&[op])?;
        check(&replies)?;
        Ok(replies.remove(0))
    }
}
