//! Plans as commands of Redis, and results of their steps from the replies.
//!
//! | step | command | reply |
//! |---|---|---|
//! | get | `GET` | a number or null |
//! | put | `SET` | `OK` |
//! | add | `INCRBY`, `DECRBY` | the sum |
//! | delete | `DEL` | 1 or 0 |
//! | on collections | see [`CollectionStep`](super::CollectionStep) | |
//!
//! A plan of several steps is a block: `MULTI`, the commands, `EXEC`; or a script that calls the commands.
//! Scans have no command.

use history::Value;

use crate::error::TestkitError;
use crate::{Client, Reply};

use super::{Ended, Plan, Seen, Step, Subject};

/// The number of times that a plan is tried again if other clients interfere.
const TRIES: usize = 1000;

/// Returns the requests of a plan.
///
/// # Panics
/// Panics if the plan scans.
#[must_use]
pub fn requests(plan: &Plan) -> Vec<Vec<String>> {
    let commands = plan.steps.iter().map(request);
    match plan.steps.len() {
        1 => commands.collect(),
        _ => {
            let word = |word: &str| vec![word.to_owned()];
            let begin = std::iter::once(word("MULTI"));
            begin.chain(commands).chain([word("EXEC")]).collect()
        }
    }
}

/// Executes the commands among its arguments, each behind the number of its words, and returns their replies.
const SCRIPT: &str = "local out, at = {}, 1 \
    while at <= #ARGV do \
        local last = at + ARGV[at] \
        out[#out + 1] = redis.call(unpack(ARGV, at + 1, last)) \
        at = last + 1 \
    end \
    return out";

/// Returns the one request that executes a plan as a script, which does not say what its keys are. Its reply
/// is that of `EXEC` for the [`requests`] of the plan.
///
/// # Panics
/// Panics if the plan scans.
#[must_use]
pub fn script(plan: &Plan) -> Vec<String> {
    let mut words = ["EVAL", SCRIPT, "0"].map(str::to_owned).to_vec();
    for command in plan.steps.iter().map(request) {
        words.push(command.len().to_string());
        words.extend(command);
    }
    words
}

fn request(step: &Step) -> Vec<String> {
    let words = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect();
    match step {
        Step::Get { key } => words(&["GET", key]),
        Step::Put { key, value } => words(&["SET", key, &value.to_string()]),
        Step::Add { key, delta } if *delta < 0 => {
            words(&["DECRBY", key, &delta.unsigned_abs().to_string()])
        }
        Step::Add { key, delta } => words(&["INCRBY", key, &delta.to_string()]),
        Step::Delete { key } => words(&["DEL", key]),
        Step::Collection(step) => step.request(),
        Step::Scan { .. } => panic!("there is no command for {step:?}"),
    }
}

/// Returns the outcome of a plan whose [`requests`] had these replies, none of them an error.
///
/// # Errors
/// Returns an error if a reply does not fit its request; the message says which.
pub fn ended(plan: &Plan, replies: &[Reply]) -> Result<Ended, TestkitError> {
    let items = match (plan.steps.len(), replies.last()) {
        (1, _) => replies,
        (_, Some(Reply::NullArray)) => return Ok(Ended::Aborted),
        (_, Some(Reply::Array(items))) => items,
        _ => &[],
    };
    if items.len() != plan.steps.len() {
        return Err(TestkitError::deviation(format!(
            "{plan:?} was answered with {replies:?}"
        )));
    }
    let pairs = plan.steps.iter().zip(items);
    let seen: Result<Vec<Seen>, TestkitError> =
        pairs.map(|(step, reply)| seen(step, reply)).collect();
    seen.map(Ended::Committed)
}

fn seen(step: &Step, reply: &Reply) -> Result<Seen, TestkitError> {
    match (step, reply) {
        (Step::Get { .. }, Reply::Null) => Some(Seen::Value(None)),
        (Step::Get { .. }, Reply::Bulk(_)) => number(reply).map(|value| Seen::Value(Some(value))),
        (Step::Put { .. }, Reply::Status(_)) => Some(Seen::Done),
        (Step::Add { .. }, Reply::Int(sum)) => Some(Seen::Value(Some(*sum))),
        (Step::Delete { .. }, Reply::Int(count)) => Some(Seen::Deleted(*count == 1)),
        (Step::Collection(step), reply) => step.seen(reply),
        _ => None,
    }
    .ok_or_else(|| TestkitError::deviation(format!("{step:?} was answered with {reply:?}")))
}

/// The way in which transactions that write are executed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Writes {
    /// By a block, which no other client can abort.
    Block,
    /// By `WATCH`, reads, and a block that sets the sums. Plans add, and do nothing else.
    Watch,
    /// By a script.
    Script,
}

/// Runs plans by a connection to one server, whose errors are all failures of the test, except
/// `TRYAGAIN`: then the plan is tried again. Plans that only read are `MGET`.
#[derive(Debug)]
pub struct Connected {
    client: Client,
    writes: Writes,
}

impl Connected {
    /// Runs plans by this connection.
    #[must_use]
    pub fn new(client: Client, writes: Writes) -> Connected {
        Connected { client, writes }
    }

    /// Runs a plan. Returns `None` if other clients interfered.
    fn attempt(&mut self, plan: &Plan) -> Option<Ended> {
        let is_read = |step: &Step| matches!(step, Step::Get { .. });
        if plan.steps.iter().all(is_read) {
            let read = self.ask(&command("MGET", plan))?;
            let items = match &read {
                Reply::Array(items) => items.as_slice(),
                _ => &[],
            };
            return Some(committed(plan, items));
        }
        if self.writes == Writes::Watch {
            return self.attempt_watching(plan);
        }
        let ended = self.execute(plan)?;
        assert_ne!(ended, Ended::Aborted, "a block that watches nothing");
        Some(ended)
    }

    fn attempt_watching(&mut self, plan: &Plan) -> Option<Ended> {
        assert_eq!(
            self.ask(&command("WATCH", plan))?,
            Reply::Status("OK".to_owned())
        );
        let read = self.ask(&command("MGET", plan))?;
        let Reply::Array(values) = &read else {
            panic!("MGET was answered with {read:?}");
        };
        let sum = |(step, value): (&Step, &Reply)| match step {
            Step::Add { delta, .. } => number(value).expect("a number") + delta,
            other => panic!("{other:?} does not add"),
        };
        let sums: Vec<Value> = plan.steps.iter().zip(values).map(sum).collect();
        let put = |(step, value): (&Step, &Value)| Step::Put {
            key: step.key().to_owned(),
            value: *value,
        };
        let puts = Plan {
            steps: plan.steps.iter().zip(&sums).map(put).collect(),
        };
        Some(match self.execute(&puts)? {
            Ended::Committed(_) => {
                let seen = sums.into_iter().map(|sum| Seen::Value(Some(sum)));
                Ended::Committed(seen.collect())
            }
            other => other,
        })
    }

    fn execute(&mut self, plan: &Plan) -> Option<Ended> {
        let requests = match self.writes {
            Writes::Script if plan.steps.len() > 1 => vec![script(plan)],
            _ => requests(plan),
        };
        let replies: Option<Vec<Reply>> = requests.iter().map(|words| self.ask(words)).collect();
        Some(ended(plan, &replies?).expect("replies to the plan"))
    }

    /// Sends a request, and returns the reply; `None` if other clients interfered.
    fn ask(&mut self, words: &[String]) -> Option<Reply> {
        match self.client.call(words) {
            Reply::Error(text) if text.starts_with("TRYAGAIN") => None,
            Reply::Error(text) => panic!("{words:?} was answered with {text}"),
            reply => Some(reply),
        }
    }
}

impl Subject for Connected {
    fn run(&mut self, plan: &Plan) -> Ended {
        let attempts = (0..TRIES).find_map(|_| self.attempt(plan));
        attempts.expect("others were in the way a thousand times")
    }
}

/// Returns a command with the keys of a plan.
fn command(name: &str, plan: &Plan) -> Vec<String> {
    let keys = plan.steps.iter().map(|step| step.key().to_owned());
    std::iter::once(name.to_owned()).chain(keys).collect()
}

fn committed(plan: &Plan, items: &[Reply]) -> Ended {
    assert_eq!(items.len(), plan.steps.len(), "{plan:?}: {items:?}");
    let pairs = plan.steps.iter().zip(items);
    let seen: Result<Vec<Seen>, TestkitError> =
        pairs.map(|(step, reply)| seen(step, reply)).collect();
    Ended::Committed(seen.expect("replies to the plan"))
}

/// Returns the number in a reply to `GET`; `None` if there is none.
#[must_use]
pub fn number(reply: &Reply) -> Option<Value> {
    match reply {
        Reply::Bulk(text) => std::str::from_utf8(text).ok()?.parse().ok(),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan(deltas: &[(&str, Value)]) -> Plan {
        let add = |(key, delta): &(&str, Value)| Step::Add {
            key: (*key).to_owned(),
            delta: *delta,
        };
        Plan {
            steps: deltas.iter().map(add).collect(),
        }
    }

    #[test]
    fn one_step_is_a_command_and_several_are_a_block() {
        assert_eq!(requests(&plan(&[("a", 1)])), [["INCRBY", "a", "1"]]);
        let block = requests(&plan(&[("a", -7), ("b", 7)]));
        let block: Vec<String> = block.iter().map(|words| words.join(" ")).collect();
        assert_eq!(block, ["MULTI", "DECRBY a 7", "INCRBY b 7", "EXEC"]);
        let words = script(&plan(&[("a", -7), ("b", 7)]));
        assert_eq!(
            words[3..],
            ["3", "DECRBY", "a", "7", "3", "INCRBY", "b", "7"]
        );
    }

    #[test]
    fn a_null_of_exec_is_an_abort_and_other_answers_are_wrong() {
        let both = plan(&[("a", -7), ("b", 7)]);
        let ok = Reply::Status("OK".to_owned());
        let done = Reply::Array(vec![Reply::Int(-7), Reply::Int(7)]);
        let seen = vec![Seen::Value(Some(-7)), Seen::Value(Some(7))];
        assert_eq!(
            ended(&both, &[ok.clone(), done]),
            Ok(Ended::Committed(seen))
        );
        assert_eq!(
            ended(&both, &[ok.clone(), Reply::NullArray]),
            Ok(Ended::Aborted)
        );
        let short = Reply::Array(vec![Reply::Int(-7)]);
        for wrong in [Reply::Null, short, ok] {
            assert!(ended(&both, &[wrong]).is_err());
        }
        let get = Plan {
            steps: vec![Step::Get {
                key: "a".to_owned(),
            }],
        };
        let absent = Ended::Committed(vec![Seen::Value(None)]);
        assert_eq!(ended(&get, &[Reply::Null]), Ok(absent));
        assert!(ended(&get, &[Reply::Bulk(b"x".to_vec())]).is_err());
    }
}
