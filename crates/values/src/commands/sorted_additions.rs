//! Commands that add members to sorted sets, and change scores.

use base::double::parse_double;
use base::key_event::KeyEvent;
use base::nested::NestedItem;
use base::transaction::{CallError, Kind, OpError, Reply};
use smallvec::SmallVec;

use super::sorted_replies::{changed, reply_of};
use crate::call::{CallArguments, CallOutcome, StoredValue, data_of};
use crate::sorted_set::{ScoredMember, SortedSetEditor};

/// The options of `ZADD`.
#[derive(Default)]
struct AddOptions {
    absent_only: bool,
    present_only: bool,
    greater_only: bool,
    less_only: bool,
    counts_changes: bool,
    increments: bool,
}

/// The results of adding members so far.
#[derive(Default)]
struct AddResult {
    added: i64,
    updated: i64,
    /// The last score that was given; `None`: the options forbade it.
    score: Option<f64>,
}

impl AddOptions {
    /// Parses the options, and returns the arguments behind them.
    fn parse<'a, 'c>(mut args: &'a [&'c [u8]]) -> (AddOptions, &'a [&'c [u8]]) {
        let mut options = AddOptions::default();
        while let [option, rest @ ..] = args {
            let own = match option.to_ascii_lowercase().as_slice() {
                b"nx" => &mut options.absent_only,
                b"xx" => &mut options.present_only,
                b"gt" => &mut options.greater_only,
                b"lt" => &mut options.less_only,
                b"ch" => &mut options.counts_changes,
                b"incr" => &mut options.increments,
                _ => break,
            };
            *own = true;
            args = rest;
        }
        (options, args)
    }

    /// Checks that the options can be combined, given the number of pairs.
    fn check(&self, pairs: usize) -> Result<(), CallError> {
        let (nx, gt, lt) = (self.absent_only, self.greater_only, self.less_only);
        match () {
            () if nx && self.present_only => Err(CallError::XxWithNx),
            () if (gt || lt) && nx || gt && lt => Err(CallError::GtLtWithNx),
            () if self.increments && pairs > 1 => Err(CallError::IncrOfSeveral),
            () => Ok(()),
        }
    }

    /// Adds a member, or changes its score.
    fn add(
        &self,
        set: &mut SortedSetEditor<'_>,
        ScoredMember { member, score }: ScoredMember<'_>,
        result: &mut AddResult,
    ) -> Result<(), OpError> {
        result.score = None;
        set.set(member, |old| {
            let new = match old {
                Some(old) if self.increments => old + score,
                _ => score,
            };
            if new.is_nan() {
                return Err(OpError::Call(CallError::ScoreNan));
            }
            let allowed = match old {
                Some(old) => {
                    !(self.absent_only
                        || self.less_only && new >= old
                        || self.greater_only && new <= old)
                }
                None => !self.present_only,
            };
            if !allowed {
                return Ok(None);
            }
            result.score = Some(new);
            match old {
                None => result.added += 1,
                Some(old) if old == new => return Ok(None),
                Some(_) => result.updated += 1,
            }
            Ok(Some(new))
        })
    }
}

/// `ZADD key [NX|XX] [GT|LT] [CH] [INCR] score member [score member …]`.
pub(super) fn zadd<'v>(
    call: CallArguments<'_>,
    value: Option<StoredValue<'v>>,
) -> Result<CallOutcome<'v>, OpError> {
    let (options, args) = AddOptions::parse(call.args);
    add_texts(&options, args, value)
}

/// `ZINCRBY key increment member`.
pub(super) fn zincrby<'v>(
    call: CallArguments<'_>,
    value: Option<StoredValue<'v>>,
) -> Result<CallOutcome<'v>, OpError> {
    let options = AddOptions {
        increments: true,
        ..AddOptions::default()
    };
    add_texts(&options, call.args, value)
}

/// Adds members whose scores are texts.
fn add_texts<'v>(
    options: &AddOptions,
    args: &[&[u8]],
    value: Option<StoredValue<'v>>,
) -> Result<CallOutcome<'v>, OpError> {
    let (pairs @ [_, ..], []) = args.as_chunks::<2>() else {
        return Err(OpError::Call(CallError::Syntax));
    };
    options.check(pairs.len()).map_err(OpError::Call)?;
    let scored = pairs.iter().map(|[score, member]| {
        let score = parse_double(score).ok_or(OpError::NotNumber)?;
        Ok(ScoredMember { member, score })
    });
    let members = scored.collect::<Result<SmallVec<[ScoredMember<'_>; 2]>, OpError>>()?;
    add(options, &members, value)
}

/// Adds members as `ZADD` does with these options.
pub(super) fn add_members<'v>(
    options: &[&[u8]],
    members: &[ScoredMember<'_>],
    value: Option<StoredValue<'v>>,
) -> Result<CallOutcome<'v>, OpError> {
    let (options, _) = AddOptions::parse(options);
    add(&options, members, value)
}

fn add<'v>(
    options: &AddOptions,
    members: &[ScoredMember<'_>],
    value: Option<StoredValue<'v>>,
) -> Result<CallOutcome<'v>, OpError> {
    let mut set = SortedSetEditor::new(data_of(value, Kind::SortedSet)?);
    let mut result = AddResult::default();
    for own in members {
        options.add(&mut set, *own, &mut result)?;
    }
    let event = match options.increments {
        true => KeyEvent::SortedIncr,
        false => KeyEvent::SortedAdd,
    };
    let reply = match (options.increments, options.counts_changes) {
        (true, _) => match result.score {
            Some(score) => reply_of(NestedItem::Double(score)),
            None => Reply::Nil,
        },
        (false, true) => Reply::Int(result.added + result.updated),
        (false, false) => Reply::Int(result.added),
    };
    Ok(changed(reply, event, set))
}
