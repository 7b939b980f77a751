//! Merges writes of several clients that wait for one node at the same time into one `UNLOGGED` batch,
//! with `--merge-writes`.
//!
//! A write may be merged if it is the EXECUTE of an INSERT, UPDATE or DELETE without a condition,
//! without functions and without adding to existing values; if its values have no names, it gives the
//! whole key of a partition, and it requests nothing else (a trace, a payload). Such writes are marked:
//!
//! | bits of [`BackendQuery::part`] | meaning |
//! |---|---|
//! | 20…31 | keyspace and replicas, as a hash; 0: it is not to be merged |
//! | 0…19 | the key, as a hash |
//!
//! Invariants:
//! 1. The writes of a batch have the same keyspace and replicas, the same two consistencies, and the
//!    same timestamp and time if their clients have given them, or else none.
//! 2. No two writes are of one partition: with one timestamp for both, some columns of the one could
//!    win and some of the other.
//! 3. A batch is smaller than the limits at which nodes warn, in bytes and in partitions.
//! 4. Each write has an answer of its own. If the batch shows that one of its writes cannot be
//!    executed, nothing has happened, and each is sent by itself. A query that is sent again is not
//!    merged.

use std::hash::BuildHasher;

use bytes::Bytes;
use cql::request::{
    Batch, BatchKind, BatchStatement, Execute, Parameters, Request, Statement as Part,
};
use cql::response::{
    ErrorBody, ErrorKind, IS_BOOTSTRAPPING, OVERLOADED, SERVER_ERROR, UNAVAILABLE, WRITE_FAILURE,
    WRITE_TIMEOUT, peek_error_code,
};
use cql::token::partition_key;
use cql::{
    BoundValues, Consistency, Direction, Envelope, Flags, Header, Opcode, Response,
    ResponseMessage, ResultBody, StreamId, Version,
};
use foldhash::fast::FixedState;

use super::frames::header_of;
use super::prepared::CachedStatement;
use super::route::envelope;
use crate::runtime::query::{BackendQuery, NodeIndex};

/// The most writes of a CQL batch. Nodes warn of batches over more than ten partitions.
pub(crate) const MOST: usize = 10;
/// The most bytes of requests that become a CQL batch. Nodes warn of batches above 5 KiB.
pub(crate) const BYTES: usize = 4096;
const KEY_BITS: u32 = 20;

/// Returns the mark of a request; 0: it is not to be merged.
pub(crate) fn mark(
    header: Header,
    statement: &CachedStatement,
    execute: &Execute<'_>,
    replicas: &[NodeIndex],
) -> u32 {
    let values = &execute.parameters.values;
    if !statement.merges || replicas.is_empty() || header.flags != Flags::default() {
        return 0;
    }
    let mut scratch = Vec::new();
    let key = match partition_key(values, &statement.key, &mut scratch) {
        Ok(key) if !values.are_named() => key,
        _ => return 0,
    };
    let state = FixedState::default();
    // The replicas are in the order of the ring, which differs from key to key.
    let mut sorted = smallvec::SmallVec::<[NodeIndex; 8]>::from_slice(replicas);
    sorted.sort_unstable();
    let place = state.hash_one((&statement.keyspace, &sorted[..])) as u32 >> KEY_BITS;
    let key = state.hash_one(key) as u32 & ((1 << KEY_BITS) - 1);
    place.max(1) << KEY_BITS | key
}

/// Returns `true` if a query may be merged with others.
pub(crate) fn may_merge(query: &BackendQuery) -> bool {
    query.part >> KEY_BITS != 0 && query.retries == 0 && query.bytes[4] == Opcode::Execute as u8
}

/// A request to be sent.
pub(crate) enum Outgoing {
    Alone(BackendQuery),
    /// A CQL batch, which is the request of all these queries.
    Together(Vec<BackendQuery>, Bytes),
}

/// The properties that the writes of a batch have in common.
#[derive(PartialEq, Eq)]
struct BatchTraits {
    place: u32,
    consistency: Consistency,
    serial_consistency: Option<Consistency>,
    timestamp: Option<i64>,
    keyspace: Option<String>,
    now_in_seconds: Option<i32>,
}

struct Group {
    traits: BatchTraits,
    queries: Vec<BackendQuery>,
    bytes: usize,
}

fn execute_of(query: &BackendQuery) -> Option<Execute<'_>> {
    let header = header_of(&query.bytes, Direction::Request)?;
    Execute::decode(&envelope(header, &query.bytes)).ok()
}

fn traits(query: &BackendQuery) -> Option<BatchTraits> {
    let parameters = execute_of(query)?.parameters;
    Some(BatchTraits {
        place: query.part >> KEY_BITS,
        consistency: parameters.consistency,
        serial_consistency: parameters.serial_consistency,
        timestamp: parameters.timestamp,
        keyspace: parameters.keyspace.map(str::to_owned),
        now_in_seconds: parameters.now_in_seconds,
    })
}

impl Group {
    fn takes(&self, traits: &BatchTraits, query: &BackendQuery) -> bool {
        self.queries.len() < MOST
            && self.bytes + query.bytes.len() <= BYTES
            && self.traits == *traits
            && self.queries.iter().all(|one| one.part != query.part)
    }

    fn parcel(mut self, version: Version) -> Outgoing {
        if self.queries.len() == 1
            && let Some(query) = self.queries.pop()
        {
            return Outgoing::Alone(query);
        }
        let executes: Vec<Execute<'_>> = self.queries.iter().filter_map(execute_of).collect();
        let statements = executes.iter().map(|execute| BatchStatement {
            statement: Part::Prepared(execute.id),
            values: execute.parameters.values,
        });
        let batch = Batch {
            kind: BatchKind::Unlogged,
            statements: statements.collect(),
            parameters: Parameters {
                consistency: self.traits.consistency,
                values: BoundValues::none(version),
                skip_metadata: false,
                page_size: None,
                paging_state: None,
                serial_consistency: self.traits.serial_consistency,
                timestamp: self.traits.timestamp,
                keyspace: self.traits.keyspace.as_deref(),
                now_in_seconds: self.traits.now_in_seconds,
            },
        };
        let mut bytes = Vec::new();
        let message = Request::Batch(batch).into_message();
        message.write(&mut bytes, version, StreamId(0), Flags::default());
        Outgoing::Together(self.queries, bytes.into())
    }
}

/// Merges writes that agree, in the order in which they came.
pub(crate) fn parcels(queries: Vec<BackendQuery>, version: Version) -> Vec<Outgoing> {
    let mut groups: Vec<Group> = Vec::new();
    let mut parcels = Vec::new();
    for query in queries {
        let Some(traits) = traits(&query) else {
            // The node will return the error.
            parcels.push(Outgoing::Alone(query));
            continue;
        };
        let bytes = query.bytes.len();
        match groups.iter_mut().find(|group| group.takes(&traits, &query)) {
            Some(group) => {
                group.bytes += bytes;
                group.queries.push(query);
            }
            None => groups.push(Group {
                traits,
                queries: vec![query],
                bytes,
            }),
        }
    }
    parcels.extend(groups.into_iter().map(|group| group.parcel(version)));
    parcels
}

/// The meaning of a batch's answer for its writes.
pub(crate) enum BatchOutcome {
    /// It is the answer to each write.
    Each(Bytes),
    /// Nothing has happened, perhaps because of one write: each is to be sent by itself.
    Again,
}

/// Returns the meaning of an answer. Warnings of nodes are not passed on: they concern the batch.
pub(crate) fn meaning(whole: Envelope<'_>, bytes: &Bytes) -> BatchOutcome {
    let version = whole.header.version;
    let each = |response: Response<'_>| {
        let mut out = Vec::new();
        response.write(&mut out, version, StreamId(0));
        BatchOutcome::Each(out.into())
    };
    if whole.header.opcode == Opcode::Result {
        return each(Response::Result(ResultBody::Void));
    }
    if whole.header.opcode != Opcode::Error {
        return BatchOutcome::Each(bytes.clone());
    }
    match peek_error_code(&whole) {
        Ok(
            UNAVAILABLE | OVERLOADED | IS_BOOTSTRAPPING | SERVER_ERROR | WRITE_TIMEOUT
            | WRITE_FAILURE,
        ) => match ResponseMessage::decode(whole).map(|message| message.response) {
            Ok(Response::Error(error)) => each(Response::Error(of_one(error))),
            _ => BatchOutcome::Each(bytes.clone()),
        },
        _ => BatchOutcome::Again,
    }
}

/// Turns the error of a batch into that of one of its writes.
fn of_one(mut error: ErrorBody<'_>) -> ErrorBody<'_> {
    if let ErrorKind::WriteTimeout { write, .. } | ErrorKind::WriteFailure { write, .. } =
        &mut error.kind
    {
        *write = "SIMPLE";
    }
    error
}

#[cfg(test)]
mod tests;
