//! Commands on hashes.

use base::key_event::KeyEvent;
use base::nested::{NestedItem, NestedReply};
use base::transaction::{CallError, Kind, OpError, Reply};

use crate::call::{Call, Outcome, StoredValue, W, calls, data_of};
use crate::hash::{HashEditor, HashView};

calls! {
    HLEN = 1 => hlen;
    HGET = 2 => hget;
    HGETALL = 3 => hgetall;
    HSET = 4 | W => hset;
    HDEL = 5 | W => hdel;
}

/// `HLEN key`.
fn hlen<'v>(_: Call<'_>, value: Option<StoredValue<'v>>) -> Result<Outcome<'v>, OpError> {
    let hash = HashView::new(data_of(value, Kind::Hash)?);
    Ok(Outcome::unchanged(Reply::Int(hash.len() as i64)))
}

/// `HGET key field`.
fn hget<'v>(call: Call<'_>, value: Option<StoredValue<'v>>) -> Result<Outcome<'v>, OpError> {
    let hash = HashView::new(data_of(value, Kind::Hash)?);
    let found = call.args.first().and_then(|field| hash.get(field));
    Ok(Outcome::unchanged(found.map_or(Reply::Nil, Reply::Bytes)))
}

/// `HGETALL key`.
fn hgetall<'v>(_: Call<'_>, value: Option<StoredValue<'v>>) -> Result<Outcome<'v>, OpError> {
    let hash = HashView::new(data_of(value, Kind::Hash)?);
    let mut reply = NestedReply::default();
    reply.push(NestedItem::Map(hash.len()));
    for field in hash.iter() {
        reply.bytes(field.0);
        reply.bytes(field.1);
    }
    Ok(Outcome::unchanged(Reply::Nested(reply)))
}

/// `HSET key field value [field value …]`.
fn hset<'v>(call: Call<'_>, value: Option<StoredValue<'v>>) -> Result<Outcome<'v>, OpError> {
    let (pairs, []) = call.args.as_chunks::<2>() else {
        return Err(OpError::Call(CallError::Arity));
    };
    let mut hash = HashEditor::new(data_of(value, Kind::Hash)?);
    let mut added = 0;
    for [field, value] in pairs {
        added += i64::from(hash.set(field, value));
    }
    let changed = (Kind::Hash, hash.into_changed(), false);
    Ok(Outcome::changed(
        Reply::Int(added),
        KeyEvent::HashSet,
        changed,
    ))
}

/// `HDEL key field [field …]`.
fn hdel<'v>(call: Call<'_>, value: Option<StoredValue<'v>>) -> Result<Outcome<'v>, OpError> {
    let mut hash = HashEditor::new(data_of(value, Kind::Hash)?);
    let removed = call.args.iter().filter(|field| hash.remove(field)).count();
    let is_empty = hash.view().len() == 0;
    let changed = (Kind::Hash, hash.into_changed(), is_empty);
    Ok(Outcome::changed(
        Reply::Int(removed as i64),
        KeyEvent::HashDelete,
        changed,
    ))
}
