//! Which two replies count as equal.
//!
//! Byte for byte, unless the command reports something that cannot agree between two servers:
//!
//! | rule | asks for | used by |
//! |---|---|---|
//! | `exact` | the same bytes | all others |
//! | `near N` | integers that differ by at most N; negative ones exactly | times to live and deadlines |
//! | `set` | the same elements in any order | `KEYS`, `COMMAND LIST`, those of hashes and sets |
//! | `shape` | the same frames, lengths and null-ness, with any text | `TIME`, `CLIENT ID` |
//! | `kind` | the same first byte | `INFO`, `CLIENT LIST` |
//! | `hello` | `shape`, and exactly for `proto`, `mode`, `role`, `modules` | `HELLO` |
//! | `scan` | the same set of keys over the whole iteration | `SCAN` |
//! | `differs ID` | replies that differ, as `docs/differences-from-redis.md` says under ID | |
//! | `any` | a reply | setting up |
//!
//! An error is always compared byte for byte, except by `differs` and `any`.

use testkit::Frame;
use testkit::client::Answer;
use testkit::frame::Body;

/// See the module's table.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Rule {
    Exact,
    Near(u64),
    Set,
    Shape,
    Kind,
    Hello,
    Scan,
    Differs(String),
    Any,
    /// The elements of an `EXEC`, each by its own rule.
    Each(Vec<Rule>),
}

impl Rule {
    /// Returns a rule from its text in a script.
    pub(crate) fn parse(text: &str) -> Option<Rule> {
        let mut words = text.split_whitespace();
        let rule = match words.next()? {
            "exact" => Rule::Exact,
            "near" => Rule::Near(words.next()?.parse().ok()?),
            "set" => Rule::Set,
            "shape" => Rule::Shape,
            "kind" => Rule::Kind,
            "hello" => Rule::Hello,
            "scan" => Rule::Scan,
            "differs" => Rule::Differs(words.next()?.to_owned()),
            "any" => Rule::Any,
            _ => return None,
        };
        words.next().is_none().then_some(rule)
    }

    /// Returns the rule for a command that says nothing else.
    pub(crate) fn usual(args: &[Vec<u8>]) -> Rule {
        let word = |i: usize| {
            args.get(i)
                .map(|a| a.to_ascii_uppercase())
                .unwrap_or_default()
        };
        match (&word(0)[..], &word(1)[..]) {
            (b"TTL" | b"EXPIRETIME", _) => Rule::Near(2),
            (b"PTTL" | b"PEXPIRETIME", _) => Rule::Near(2000),
            (b"KEYS", _) | (b"COMMAND", b"LIST") => Rule::Set,
            (b"HGETALL" | b"HKEYS" | b"HVALS", _) => Rule::Set,
            (b"SMEMBERS" | b"SINTER" | b"SUNION" | b"SDIFF", _) => Rule::Set,
            (b"TIME", _) | (b"CLIENT", b"ID") => Rule::Shape,
            (b"INFO", _) | (b"CLIENT", b"LIST" | b"INFO") => Rule::Kind,
            (b"HELLO", _) => Rule::Hello,
            _ => Rule::Exact,
        }
    }

    /// Returns `true` if Redis's answer and the subject's count as equal.
    pub(crate) fn holds(&self, redis: &Answer, subject: &Answer) -> bool {
        match (self, redis, subject) {
            (_, Answer::Broken(_), _) | (_, _, Answer::Broken(_)) => false,
            (Rule::Differs(_), _, _) => redis != subject,
            (Rule::Any, _, _) => true,
            (_, Answer::Reply(redis), Answer::Reply(subject)) => self.agree(redis, subject),
            _ => redis == subject,
        }
    }

    fn agree(&self, redis: &Frame, subject: &Frame) -> bool {
        if redis.is_error() || subject.is_error() {
            return redis.raw == subject.raw;
        }
        match self {
            Rule::Exact => redis.raw == subject.raw,
            Rule::Near(by) => match (redis.int(), subject.int()) {
                (Some(a), Some(b)) if a >= 0 && b >= 0 => a.abs_diff(b) <= *by,
                _ => redis.raw == subject.raw,
            },
            Rule::Set | Rule::Scan => match (sorted(redis), sorted(subject)) {
                (Some(a), Some(b)) => redis.tag == subject.tag && a == b,
                _ => redis.raw == subject.raw,
            },
            Rule::Shape => same_shape(redis, subject),
            Rule::Kind => redis.tag == subject.tag,
            Rule::Hello => same_hello(redis, subject),
            Rule::Each(rules) => match (redis.frames(), subject.frames()) {
                (Some(a), Some(b)) if a.len() == rules.len() && b.len() == rules.len() => a
                    .iter()
                    .zip(b)
                    .zip(rules)
                    .all(|((a, b), rule)| rule.agree(a, b)),
                _ => redis.raw == subject.raw,
            },
            Rule::Differs(_) | Rule::Any => unreachable!("told apart by `holds`"),
        }
    }
}

/// Follows one connection through `MULTI` and `EXEC`, where replies come later than commands.
#[derive(Default)]
pub(crate) struct Queue(Option<Vec<Rule>>);

impl Queue {
    /// Returns the rule for the immediate reply to `args`, whose own rule is `rule`.
    pub(crate) fn rule(&mut self, args: &[Vec<u8>], rule: Rule) -> Rule {
        let name = args
            .first()
            .map(|name| name.to_ascii_uppercase())
            .unwrap_or_default();
        let alone = args.len() == 1;
        match (&name[..], &mut self.0) {
            (b"MULTI", None) if alone => {
                self.0 = Some(Vec::new());
                rule
            }
            (b"MULTI" | b"WATCH", Some(_)) => rule,
            // An EXEC that is refused gives the block up.
            (b"EXEC", Some(_)) => match rule {
                Rule::Exact => Rule::Each(self.0.take().unwrap_or_default()),
                other => {
                    self.0 = None;
                    other
                }
            },
            (b"DISCARD" | b"RESET" | b"QUIT", _) if alone => {
                self.0 = None;
                rule
            }
            (_, Some(queued)) => {
                queued.push(rule);
                Rule::Exact
            }
            (_, None) => rule,
        }
    }
}

fn sorted(frame: &Frame) -> Option<Vec<&[u8]>> {
    let mut elements: Vec<&[u8]> = frame.frames()?.iter().map(|f| &f.raw[..]).collect();
    elements.sort_unstable();
    Some(elements)
}

fn same_shape(a: &Frame, b: &Frame) -> bool {
    a.tag == b.tag
        && match (&a.body, &b.body) {
            (Body::Frames(a), Body::Frames(b)) => {
                a.len() == b.len() && a.iter().zip(b).all(|(a, b)| same_shape(a, b))
            }
            (Body::Bytes(_), Body::Bytes(_)) | (Body::Null, Body::Null) => true,
            _ => false,
        }
}

/// Compares two `HELLO` replies, whose values follow their names, in either protocol.
fn same_hello(a: &Frame, b: &Frame) -> bool {
    let (Some(x), Some(y)) = (a.frames(), b.frames()) else {
        return false;
    };
    same_shape(a, b)
        && x.chunks(2).zip(y.chunks(2)).all(|(x, y)| {
            let own = matches!(x[0].bytes(), Some(b"server" | b"version" | b"id"));
            x[0] == y[0] && (own || x[1] == y[1])
        })
}
