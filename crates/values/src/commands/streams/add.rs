//! Commands that add and remove entries.

use base::key_event::KeyEvent;
use base::transaction::{CallError, OpError, Reply};
use smallvec::SmallVec;

use super::replies::{Executed, data_of, edited, editor_of, failed, id_reply, integer, is};
use crate::call::{CallArguments, CallOutcome, StoredData, StoredValue};
use crate::stream::{EntryId, RequestedId, StreamChange, StreamTrim, StreamView, TrimGoal};
use crate::stream_editor::StreamEditor;

/// The options of `XADD` and `XTRIM`.
struct AddOptions {
    trim: Option<StreamTrim>,
    /// A key that is absent stays so.
    makes_no_key: bool,
    id: Option<RequestedId>,
    /// The position of the first argument behind them.
    end: usize,
}

impl AddOptions {
    /// Parses the options; those of `XADD` end with an id.
    fn parse(args: &[&[u8]], is_add: bool) -> Result<AddOptions, OpError> {
        let mut options = AddOptions {
            trim: None,
            makes_no_key: false,
            id: None,
            end: args.len(),
        };
        let mut limit = None;
        let mut at = 0;
        while let Some(&option) = args.get(at) {
            let next = args.get(at + 1).copied();
            match next {
                _ if is_add && option == b"*" => options.id = Some(RequestedId::Time),
                Some(_) if is(option, "maxlen") || is(option, "minid") => {
                    at = options.parse_trim(args, at)?;
                }
                Some(next) if is(option, "limit") => {
                    limit = Some(integer(next)?);
                    if limit < Some(0) {
                        return Err(failed(CallError::NegativeLimit));
                    }
                    at += 1;
                }
                _ if is_add && is(option, "nomkstream") => options.makes_no_key = true,
                _ if is_add => options.id = Some(RequestedId::parse(option).map_err(failed)?),
                _ => return Err(failed(CallError::Syntax)),
            }
            at += 1;
            if options.id.is_some() {
                options.end = at;
                break;
            }
        }
        options.set_limit(limit, is_add)?;
        Ok(options)
    }

    /// Parses `MAXLEN` or `MINID` at a position. Returns the position of its last word.
    fn parse_trim(&mut self, args: &[&[u8]], at: usize) -> Result<usize, OpError> {
        if self.trim.is_some() {
            return Err(failed(CallError::TwoTrimStrategies));
        }
        let (approximate, value) = match args[at + 1..] {
            [b"~", _, ..] => (true, at + 2),
            [b"=", _, ..] => (false, at + 2),
            _ => (false, at + 1),
        };
        let goal = match is(args[at], "maxlen") {
            true => {
                let most = usize::try_from(integer(args[value])?);
                TrimGoal::Length(most.map_err(|_| failed(CallError::NegativeMaxLen))?)
            }
            false => TrimGoal::From(EntryId::parse(args[value]).map_err(failed)?),
        };
        let approximate = approximate.then_some(StreamTrim::USUAL_LIMIT);
        self.trim = Some(StreamTrim { goal, approximate });
        Ok(value)
    }

    /// Sets the limit of the trim, which 0 removes.
    fn set_limit(&mut self, limit: Option<i64>, is_add: bool) -> Result<(), OpError> {
        let Some(trim) = &mut self.trim else {
            return match limit {
                Some(1..) => Err(failed(CallError::LimitWithoutTrim)),
                _ if !is_add => Err(failed(CallError::NoTrimStrategy)),
                Some(_) => Err(failed(CallError::LimitOfExactTrim)),
                None => Ok(()),
            };
        };
        match (limit, &mut trim.approximate) {
            (None, _) => {}
            (Some(_), None) => return Err(failed(CallError::LimitOfExactTrim)),
            (Some(0), Some(most)) => *most = usize::MAX,
            (Some(limit), Some(most)) => *most = limit as usize,
        }
        Ok(())
    }
}

/// Returns the id of a new entry.
fn new_id(
    requested: RequestedId,
    stream: StreamView<'_>,
    now_ms: u64,
) -> Result<EntryId, CallError> {
    let last = stream.last_id();
    let id = match requested {
        RequestedId::Exact(id) => Some(id),
        RequestedId::NumberAt(ms) if ms == last.ms => last.next().filter(|next| next.ms == ms),
        RequestedId::NumberAt(ms) => Some(EntryId { ms, number: 0 }),
        RequestedId::Time if now_ms > last.ms => Some(EntryId {
            ms: now_ms,
            number: 0,
        }),
        RequestedId::Time => last.next(),
    };
    id.filter(|id| *id > last).ok_or(CallError::SmallStreamId)
}

/// `XADD key [NOMKSTREAM] [MAXLEN | MINID [= | ~] threshold [LIMIT count]] * | id field value [field value …]`.
pub(super) fn xadd<'v>(call: CallArguments<'_>, value: Option<StoredValue<'v>>) -> Executed<'v> {
    let options = AddOptions::parse(call.args, true)?;
    let fields = &call.args[options.end..];
    let Some(requested) = options
        .id
        .filter(|_| !fields.is_empty() && fields.len().is_multiple_of(2))
    else {
        return Err(failed(CallError::Arity));
    };
    if requested == RequestedId::Exact(EntryId::MIN) {
        return Err(failed(CallError::ZeroStreamId));
    }
    let data = data_of(value)?;
    if data.is_none() && options.makes_no_key {
        return Ok(CallOutcome::unchanged(Reply::Nil));
    }
    let mut stream = StreamEditor::new(data.unwrap_or(StoredData::Bytes(b"")));
    if stream.view().last_id() == EntryId::MAX {
        return Err(failed(CallError::StreamExhausted));
    }
    let id = new_id(requested, stream.view(), call.time_ms).map_err(failed)?;
    stream.append(id, fields);
    let trimmed = options.trim.map_or(0, |trim| stream.trim(&trim));
    let events = [KeyEvent::StreamAdd, KeyEvent::StreamTrim];
    let events = &events[..1 + usize::from(trimmed > 0)];
    Ok(edited(id_reply(id), stream, events))
}

/// `XTRIM key MAXLEN | MINID [= | ~] threshold [LIMIT count]`.
pub(super) fn xtrim<'v>(call: CallArguments<'_>, value: Option<StoredValue<'v>>) -> Executed<'v> {
    let options = AddOptions::parse(call.args, false)?;
    let Some(mut stream) = editor_of(value)? else {
        return Ok(CallOutcome::unchanged(Reply::Int(0)));
    };
    let trimmed = options.trim.map_or(0, |trim| stream.trim(&trim));
    let reply = Reply::Int(trimmed as i64);
    Ok(edited(reply, stream, &[KeyEvent::StreamTrim]))
}

/// `XDEL key id [id …]`.
pub(super) fn xdel<'v>(call: CallArguments<'_>, value: Option<StoredValue<'v>>) -> Executed<'v> {
    let Some(mut stream) = editor_of(value)? else {
        return Ok(CallOutcome::unchanged(Reply::Int(0)));
    };
    let ids = call.args.iter().map(|id| EntryId::parse(id));
    let ids: SmallVec<[EntryId; 8]> = ids.collect::<Result<_, _>>().map_err(failed)?;
    let mut delete = |id| stream.apply(&StreamChange::Delete { id });
    let deleted = ids.into_iter().filter(|id| delete(*id)).count();
    let reply = Reply::Int(deleted as i64);
    Ok(edited(reply, stream, &[KeyEvent::StreamDelete]))
}

/// `XSETID key last-id [ENTRIESADDED count] [MAXDELETEDID id]`.
pub(super) fn xsetid<'v>(call: CallArguments<'_>, value: Option<StoredValue<'v>>) -> Executed<'v> {
    let [id, options @ ..] = call.args else {
        return Err(failed(CallError::Arity));
    };
    let id = EntryId::parse(id).map_err(failed)?;
    let (mut added, mut deleted) = (None, EntryId::MIN);
    let (pairs, rest) = options.as_chunks::<2>();
    for [option, value] in pairs {
        if is(option, "entriesadded") {
            let count = u64::try_from(integer(value)?);
            added = Some(count.map_err(|_| failed(CallError::NegativeEntriesAdded))?);
        } else if is(option, "maxdeletedid") {
            deleted = EntryId::parse(value).map_err(failed)?;
            if id < deleted {
                return Err(failed(CallError::SmallerThanGivenDeletedId));
            }
        } else {
            return Err(failed(CallError::Syntax));
        }
    }
    if !rest.is_empty() {
        return Err(failed(CallError::Syntax));
    }
    let mut stream = editor_of(value)?.ok_or(failed(CallError::NoSuchKey))?;
    let view = stream.view();
    if id < view.deleted_id() {
        return Err(failed(CallError::SmallerThanDeletedId));
    }
    if view.last().is_some_and(|last| id < last.id) {
        return Err(failed(CallError::SmallerThanLastEntry));
    }
    if view.len() > 0 && added.is_some_and(|added| (view.len() as u64) > added) {
        return Err(failed(CallError::FewerThanEntries));
    }
    let change = StreamChange::SetNumbers {
        last_id: id,
        deleted_id: match deleted {
            EntryId::MIN => view.deleted_id(),
            deleted => deleted,
        },
        added: added.unwrap_or(view.added()),
    };
    stream.apply(&change);
    Ok(edited(Reply::Ok, stream, &[KeyEvent::StreamSetId]))
}
