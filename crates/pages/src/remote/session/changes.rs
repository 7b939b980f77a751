//! Requests that change tables: loads, and removing a table.

use std::time::Duration;

use super::Session;
use crate::error::Error;
use crate::protocol::{NodeQuery, NodeRequest};

impl Session {
    /// Has the node remove a table.
    ///
    /// # Errors
    /// See [`Error`]. The table is as it was, except for [`Error::Doubtful`].
    pub fn remove(&mut self, name: &str) -> Result<(), Error> {
        let request = self.begin_query(NodeQuery::Remove(name))?;
        self.answer_of_change(request).map(drop)
    }

    /// Begins a load; the answer to this request is empty.
    pub(in crate::remote) fn begin_load(&mut self, definition: &[u8]) -> Result<u32, Error> {
        let request = self.new_request();
        self.send_request(&NodeRequest::Load {
            request,
            definition,
        })?;
        Ok(request)
    }

    /// Sends a block of rows of a load; the answer to this request is empty.
    pub(in crate::remote) fn send_block(&mut self, load: u32, block: &[u8]) -> Result<u32, Error> {
        let request = self.new_request();
        self.send_request(&NodeRequest::LoadBlock {
            request,
            load,
            block,
        })?;
        self.turn(Duration::ZERO)?;
        Ok(request)
    }

    /// Asks the node to make a load's rows durable; the answer to this request is empty.
    pub(in crate::remote) fn prepare_load(&mut self, load: u32) -> Result<u32, Error> {
        let request = self.new_request();
        self.send_request(&NodeRequest::Prepare { request, load })?;
        Ok(request)
    }

    /// Asks the node to make a load's rows part of the table; the answer is the table's new version.
    pub(in crate::remote) fn commit_load(&mut self, load: u32) -> Result<u32, Error> {
        let request = self.new_request();
        self.send_request(&NodeRequest::Commit { request, load })?;
        Ok(request)
    }

    /// Waits as [`Session::answer_to`], for a request that changes tables.
    pub(in crate::remote) fn answer_of_change(&mut self, request: u32) -> Result<Vec<u8>, Error> {
        self.answer_to(request).map_err(Error::of_requested_change)
    }
}
