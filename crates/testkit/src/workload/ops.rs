//! Plans as operations of a store in this process, and results of their steps from its replies.

use base::transaction::ScanContents;
use base::{Op, Reply};

use super::{Plan, Seen, Step};
use crate::error::TestkitError;

/// Returns the text of the value that each step puts, which its operation borrows.
#[must_use]
pub fn texts(plan: &Plan) -> Vec<String> {
    let text = |step: &Step| match step {
        Step::Put { value, .. } => value.to_string(),
        _ => String::new(),
    };
    plan.steps.iter().map(text).collect()
}

/// Returns the operation of a step. `text` is the value that it puts.
///
/// # Panics
/// Panics if the step is one on collections.
#[must_use]
pub fn op<'a>(step: &'a Step, text: &'a str) -> Op<'a> {
    match step {
        Step::Get { key } => Op::Get {
            key: key.as_bytes(),
        },
        Step::Put { key, .. } => Op::put(key.as_bytes(), text.as_bytes()),
        Step::Add { key, delta } => Op::Add {
            key: key.as_bytes(),
            delta: *delta,
        },
        Step::Delete { key } => Op::Delete {
            key: key.as_bytes(),
        },
        Step::Collection(step) => panic!("there is no operation for {step:?}"),
        Step::Scan { from, to, limit } => Op::Scan {
            from: from.as_bytes(),
            to: to.as_deref().map(str::as_bytes),
            limit: *limit,
            contents: ScanContents::Values,
        },
    }
}

/// Returns the result of a step.
///
/// # Errors
/// Returns an error if the reply does not belong to the step.
pub fn seen(step: &Step, reply: &Reply<'_>) -> Result<Seen, TestkitError> {
    let number = |text: &[u8]| {
        let text = std::str::from_utf8(text).ok();
        let number = text.and_then(|text| text.parse::<i64>().ok());
        number.ok_or_else(|| {
            TestkitError::deviation(format!(
                "{step:?} was answered with {text:?}, which is no number"
            ))
        })
    };
    Ok(match (step, reply) {
        (_, Reply::Ok) => Seen::Done,
        (_, Reply::Nil) => Seen::Value(None),
        (Step::Delete { .. }, Reply::Int(count)) => Seen::Deleted(*count == 1),
        (_, Reply::Int(sum)) => Seen::Value(Some(*sum)),
        (_, Reply::Bytes(text)) => Seen::Value(Some(number(text)?)),
        (_, Reply::Pairs(pairs)) => {
            let pair = |(key, text): &(&[u8], &[u8])| {
                Ok((String::from_utf8_lossy(key).into_owned(), number(text)?))
            };
            Seen::Pairs(
                pairs
                    .iter()
                    .map(pair)
                    .collect::<Result<_, TestkitError>>()?,
            )
        }
        (_, other) => {
            return Err(TestkitError::deviation(format!(
                "{step:?} was answered with {other:?}"
            )));
        }
    })
}
