//! Commands on lists.

use base::key_event::KeyEvent;
use base::nested::{NestedItem, NestedReply};
use base::number::parse_int;
use base::transaction::{CallError, Kind, OpError, Reply};

use crate::call::{CallArguments, CallOutcome, StoredData, StoredValue, W, calls, data_of};
use crate::list::{ListEditor, ListEnd, ListView};

calls! {
    LLEN = 256 => llen;
    LINDEX = 257 => lindex;
    LRANGE = 258 => lrange;
    LPOS = 259 => lpos;
    LPUSH = 260 | W => lpush;
    RPUSH = 261 | W => rpush;
    LPUSHX = 262 | W => lpushx;
    RPUSHX = 263 | W => rpushx;
    LPOP = 264 | W => lpop;
    RPOP = 265 | W => rpop;
    LSET = 266 | W => lset;
    LINSERT = 267 | W => linsert;
    LREM = 268 | W => lrem;
    LTRIM = 269 | W => ltrim;
}

/// The outcome of a command.
type Executed<'v> = Result<CallOutcome<'v>, OpError>;

const ARITY: OpError = OpError::Call(CallError::Arity);
const SYNTAX: OpError = OpError::Call(CallError::Syntax);

fn int(arg: &[u8]) -> Result<i64, OpError> {
    parse_int(arg).ok_or(OpError::NotInteger)
}

/// Returns `true` if an argument is this word, in any case.
fn is(arg: &[u8], word: &str) -> bool {
    arg.eq_ignore_ascii_case(word.as_bytes())
}

/// Returns the outcome of a command after which the list is as the editor has it.
fn edited<'v>(reply: Reply<'v>, event: KeyEvent, list: ListEditor<'_>) -> CallOutcome<'v> {
    let is_empty = list.view().len() == 0;
    CallOutcome::changed(reply, event, (Kind::List, list.into_changed(), is_empty))
}

fn nested<'e>(elements: impl Iterator<Item = &'e [u8]>, count: usize) -> Reply<'static> {
    let mut reply = NestedReply::default();
    reply.push(NestedItem::Array(count));
    elements.for_each(|element| reply.bytes(element));
    Reply::Nested(reply)
}

fn nil_array() -> Reply<'static> {
    let mut reply = NestedReply::default();
    reply.push(NestedItem::NilArray);
    Reply::Nested(reply)
}

/// `LLEN key`.
fn llen<'v>(_: CallArguments<'_>, value: Option<StoredValue<'v>>) -> Executed<'v> {
    let list = ListView::new(data_of(value, Kind::List)?);
    Ok(CallOutcome::unchanged(Reply::Int(list.len() as i64)))
}

/// `LINDEX key index`.
fn lindex<'v>(call: CallArguments<'_>, value: Option<StoredValue<'v>>) -> Executed<'v> {
    let is_there = value.is_some();
    let list = ListView::new(data_of(value, Kind::List)?);
    let [index] = call.args else {
        return Err(ARITY);
    };
    let found = match is_there {
        true => list.position(int(index)?).and_then(|at| list.nth(at)),
        false => None,
    };
    Ok(CallOutcome::unchanged(
        found.map_or(Reply::Nil, Reply::Bytes),
    ))
}

/// `LRANGE key start stop`.
fn lrange<'v>(call: CallArguments<'_>, value: Option<StoredValue<'v>>) -> Executed<'v> {
    let [start, stop] = call.args else {
        return Err(ARITY);
    };
    let (start, stop) = (int(start)?, int(stop)?);
    let list = ListView::new(data_of(value, Kind::List)?);
    let positions = list.positions(start, stop);
    let count = positions.len();
    Ok(CallOutcome::unchanged(nested(list.range(positions), count)))
}

/// The options of `LPOS`.
struct PositionOptions {
    /// The number of the first match that counts; negative: from the tail.
    rank: i64,
    /// The most matches, 0: all; `None`: one, which is not in an array.
    count: Option<usize>,
    /// The most elements that are compared; 0: all.
    most: usize,
}

impl PositionOptions {
    fn parse(args: &[&[u8]]) -> Result<PositionOptions, OpError> {
        let mut options = PositionOptions {
            rank: 1,
            count: None,
            most: 0,
        };
        let positive = |value: &[u8], error: CallError| match parse_int(value) {
            Some(number @ 0..) => Ok(number as usize),
            _ => Err(OpError::Call(error)),
        };
        // An option without a value is an error behind those of the others.
        let (pairs, alone) = args.as_chunks::<2>();
        for [option, value] in pairs {
            if is(option, "rank") {
                options.rank = int(value)?;
                if options.rank == i64::MIN {
                    return Err(OpError::Call(CallError::RankOutOfRange));
                }
                if options.rank == 0 {
                    return Err(OpError::Call(CallError::RankZero));
                }
            } else if is(option, "count") {
                options.count = Some(positive(value, CallError::CountNegative)?);
            } else if is(option, "maxlen") {
                options.most = positive(value, CallError::MaxLenNegative)?;
            } else {
                return Err(SYNTAX);
            }
        }
        match alone {
            [] => Ok(options),
            _ => Err(SYNTAX),
        }
    }

    /// Returns the positions of matches, in the order of the search.
    fn positions(&self, list: ListView<'_>, element: &[u8]) -> Vec<usize> {
        let len = list.len();
        let compared = match self.most {
            0 => len,
            most => most.min(len),
        };
        let passed = usize::try_from(self.rank.unsigned_abs() - 1).unwrap_or(usize::MAX);
        let count = match self.count {
            None => 1,
            Some(0) => usize::MAX,
            Some(count) => count,
        };
        let first = if self.rank > 0 { 0 } else { len - compared };
        let elements = list.range(first..first + compared).enumerate();
        let matches = elements.filter(|(_, own)| *own == element);
        let matches = matches.map(|(at, _)| first + at);
        if self.rank > 0 {
            return matches.skip(passed).take(count).collect();
        }
        let all: Vec<usize> = matches.collect();
        all.into_iter().rev().skip(passed).take(count).collect()
    }
}

/// `LPOS key element [RANK rank] [COUNT num-matches] [MAXLEN len]`.
fn lpos<'v>(call: CallArguments<'_>, value: Option<StoredValue<'v>>) -> Executed<'v> {
    let [element, options @ ..] = call.args else {
        return Err(ARITY);
    };
    let options = PositionOptions::parse(options)?;
    let list = ListView::new(data_of(value, Kind::List)?);
    let positions = options.positions(list, element);
    let reply = match options.count {
        None => positions
            .first()
            .map_or(Reply::Nil, |at| Reply::Int(*at as i64)),
        Some(_) => {
            let mut reply = NestedReply::default();
            reply.push(NestedItem::Array(positions.len()));
            let numbers = positions.iter().map(|at| NestedItem::Int(*at as i64));
            numbers.for_each(|number| reply.push(number));
            Reply::Nested(reply)
        }
    };
    Ok(CallOutcome::unchanged(reply))
}

fn push<'v>(end: ListEnd, call: CallArguments<'_>, value: Option<StoredValue<'v>>) -> Executed<'v> {
    let mut list = ListEditor::new(data_of(value, Kind::List)?);
    list.push(end, call.args);
    let event = match end {
        ListEnd::Left => KeyEvent::ListPushLeft,
        ListEnd::Right => KeyEvent::ListPushRight,
    };
    let len = list.view().len() as i64;
    Ok(edited(Reply::Int(len), event, list))
}

/// `LPUSH key element [element …]`.
fn lpush<'v>(call: CallArguments<'_>, value: Option<StoredValue<'v>>) -> Executed<'v> {
    push(ListEnd::Left, call, value)
}

/// `RPUSH key element [element …]`.
fn rpush<'v>(call: CallArguments<'_>, value: Option<StoredValue<'v>>) -> Executed<'v> {
    push(ListEnd::Right, call, value)
}

/// `LPUSHX key element [element …]`.
fn lpushx<'v>(call: CallArguments<'_>, value: Option<StoredValue<'v>>) -> Executed<'v> {
    match value {
        Some(_) => push(ListEnd::Left, call, value),
        None => Ok(CallOutcome::unchanged(Reply::Int(0))),
    }
}

/// `RPUSHX key element [element …]`.
fn rpushx<'v>(call: CallArguments<'_>, value: Option<StoredValue<'v>>) -> Executed<'v> {
    match value {
        Some(_) => push(ListEnd::Right, call, value),
        None => Ok(CallOutcome::unchanged(Reply::Int(0))),
    }
}

/// Returns a reply with a copy of an element.
fn copied(element: &[u8]) -> Reply<'static> {
    let mut reply = NestedReply::default();
    reply.bytes(element);
    Reply::Nested(reply)
}

fn pop<'v>(end: ListEnd, call: CallArguments<'_>, value: Option<StoredValue<'v>>) -> Executed<'v> {
    let count = match call.args {
        [] => None,
        [count] => match parse_int(count) {
            Some(count @ 0..) => Some(usize::try_from(count).unwrap_or(usize::MAX)),
            _ => return Err(OpError::Call(CallError::NotPositive)),
        },
        _ => return Err(ARITY),
    };
    let is_there = value.is_some();
    let data = data_of(value, Kind::List)?;
    let block = match data {
        StoredData::Bytes(bytes) => Some(bytes),
        _ => None,
    };
    let mut list = ListEditor::new(data);
    let view = list.view();
    let positions = view.positions_at(end, count.unwrap_or(1));
    let reply = match count {
        None if positions.is_empty() => Reply::Nil,
        None => match block {
            Some(bytes) => {
                let element = ListView::new(StoredData::Bytes(bytes)).nth(positions.start);
                element.map_or(Reply::Nil, Reply::Bytes)
            }
            // The node that has it may be changed in place.
            None => copied(view.nth(positions.start).unwrap_or_default()),
        },
        Some(_) if !is_there => nil_array(),
        Some(_) => {
            let popped = view.range(positions.clone());
            match end {
                ListEnd::Left => nested(popped, positions.len()),
                ListEnd::Right => {
                    let popped: Vec<&[u8]> = popped.collect();
                    nested(popped.into_iter().rev(), positions.len())
                }
            }
        }
    };
    list.remove(positions);
    let event = match end {
        ListEnd::Left => KeyEvent::ListPopLeft,
        ListEnd::Right => KeyEvent::ListPopRight,
    };
    Ok(edited(reply, event, list))
}

/// `LPOP key [count]`.
fn lpop<'v>(call: CallArguments<'_>, value: Option<StoredValue<'v>>) -> Executed<'v> {
    pop(ListEnd::Left, call, value)
}

/// `RPOP key [count]`.
fn rpop<'v>(call: CallArguments<'_>, value: Option<StoredValue<'v>>) -> Executed<'v> {
    pop(ListEnd::Right, call, value)
}

/// `LSET key index element`.
fn lset<'v>(call: CallArguments<'_>, value: Option<StoredValue<'v>>) -> Executed<'v> {
    let [index, element] = call.args else {
        return Err(ARITY);
    };
    if value.is_none() {
        return Err(OpError::Call(CallError::NoSuchKey));
    }
    let mut list = ListEditor::new(data_of(value, Kind::List)?);
    let position = list.view().position(int(index)?);
    let position = position.ok_or(OpError::Call(CallError::IndexOutOfRange))?;
    list.set(position, element);
    Ok(edited(Reply::Ok, KeyEvent::ListSet, list))
}

/// `LINSERT key BEFORE|AFTER pivot element`.
fn linsert<'v>(call: CallArguments<'_>, value: Option<StoredValue<'v>>) -> Executed<'v> {
    let [place, pivot, element] = call.args else {
        return Err(ARITY);
    };
    let behind = match () {
        () if is(place, "after") => 1,
        () if is(place, "before") => 0,
        () => return Err(SYNTAX),
    };
    let is_there = value.is_some();
    let mut list = ListEditor::new(data_of(value, Kind::List)?);
    let position = list.view().iter().position(|own| own == *pivot);
    let Some(position) = position else {
        let number = if is_there { -1 } else { 0 };
        return Ok(CallOutcome::unchanged(Reply::Int(number)));
    };
    list.insert(position + behind, element);
    let len = list.view().len() as i64;
    Ok(edited(Reply::Int(len), KeyEvent::ListInsert, list))
}

/// `LREM key count element`.
fn lrem<'v>(call: CallArguments<'_>, value: Option<StoredValue<'v>>) -> Executed<'v> {
    let [count, element] = call.args else {
        return Err(ARITY);
    };
    let count = int(count)?;
    let mut list = ListEditor::new(data_of(value, Kind::List)?);
    let most = usize::try_from(count.unsigned_abs()).unwrap_or(usize::MAX);
    let (end, most) = match count {
        0 => (ListEnd::Left, usize::MAX),
        1.. => (ListEnd::Left, most),
        ..0 => (ListEnd::Right, most),
    };
    let removed = list.remove_equal(element, end, most) as i64;
    Ok(edited(Reply::Int(removed), KeyEvent::ListRemove, list))
}

/// `LTRIM key start stop`.
fn ltrim<'v>(call: CallArguments<'_>, value: Option<StoredValue<'v>>) -> Executed<'v> {
    let [start, stop] = call.args else {
        return Err(ARITY);
    };
    let (start, stop) = (int(start)?, int(stop)?);
    let mut list = ListEditor::new(data_of(value, Kind::List)?);
    let (kept, len) = (list.view().positions(start, stop), list.view().len());
    list.remove(kept.end..len);
    list.remove(0..kept.start.min(kept.end));
    Ok(edited(Reply::Ok, KeyEvent::ListTrim, list))
}
