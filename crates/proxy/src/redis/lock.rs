//! Commands about locks.
//!
//! | command | reply | |
//! |---|---|---|
//! | `LOCK.ACQUIRE key owner PX ms [WAIT ms]` | `[1, token, lease]` | granted, for so many ms from when the request was sent: what was asked for, and for how long it had waited |
//! | | `[0, holder, left]` | somebody else has it, and had for as long as the request waited; at most so many ms |
//! | `LOCK.RENEW key owner PX ms` | `[1, token, lease]` | the same |
//! | | `[0, holder, left]` | the owner does not hold it; the holder is null if nobody does |
//! | `LOCK.RELEASE key owner` | `1` | it is free |
//! | | `0` | the owner does not hold it |
//! | `LOCK.INFO key` | owner, token, left, waiters | a map, in RESP2 a list of names and values; null if nobody holds it |
//! | `LOCK.GUARD key token` | – | first in a block; see [`super::block`] |
//!
//! Tokens and times are integers; a time without end is -1. Replies are lists in both versions of
//! the protocol. Errors:
//!
//! | code | meaning |
//! |---|---|
//! | `LOCKLIMIT` | a key, owner or lease is longer than allowed |
//! | `LOCKFULL` | too many locks, or requests that wait; later it may be possible |
//! | `LOCKSETTLING` | a table in memory was emptied by a restart; says for how long |
//! | `LOCKSTOPPING` | the proxy is stopping; ask another |
//! | `LOCKUNAVAILABLE` | what keeps the table does not answer; nothing has happened |
//! | `LOCKUNKNOWN` | the same, and whether it took effect is not known |
//! | `LOCKREFUSED`, `LOCKDAMAGED` | what keeps the table refuses, or has a record that cannot be read |
//! | `LOCKCANCELLED` | the connection has ended while it waited |
//!
//! Order: a command about locks waits until everything that its connection sent before has been
//! answered by the nodes, and what is sent behind it waits for its answer. So a lock is not
//! released before what was written under it has arrived. Commands about locks that follow each
//! other do not wait for each other; on one key they are carried out in their order.

use std::time::Duration;

use ::locks::{Answer, Lease, Lock, LockError, Request};
use base::number::parse_int;
use bytes::Bytes;
use resp::{Args, Protocol, Value, Writer};

use super::client::{Client, Pending};
use super::commands::{Command, LockCommand};
use super::face::{Done, RespFace};
use crate::locks::Outcome;
use crate::locks::letters::{Aim, MOST_ASKED, Question};
use crate::machine::face::{Desk, Ended, Letter, Progress};

/// Commands that the proxy has whatever the nodes have, and how many arguments they take.
pub(crate) const COMMANDS: &[(&str, i64, LockCommand)] = &[
    ("lock.acquire", -5, LockCommand::Acquire),
    ("lock.renew", 5, LockCommand::Renew),
    ("lock.release", 3, LockCommand::Release),
    ("lock.info", 2, LockCommand::Info),
];

/// What an argument of a command is: its name, its type, and, if it stands behind a word, that word
/// and whether it may be left out.
type Argument = (&'static str, &'static str, Option<(&'static str, bool)>);

const KEY: Argument = ("key", "string", None);
const OWNER: Argument = ("owner", "string", None);
const LEASE: Argument = ("lease-milliseconds", "integer", Some(("PX", false)));
const WAIT: Argument = ("wait-milliseconds", "integer", Some(("WAIT", true)));

/// What `COMMAND DOCS` tells of [`COMMANDS`], in the same order: what a command does, and its
/// arguments.
const DOCS: &[(&str, &[Argument])] = &[
    (
        "Holds a lock until it is released or its lease has ended, after waiting if others hold it.",
        &[KEY, OWNER, LEASE, WAIT],
    ),
    (
        "Makes the lease of a lock that the owner holds last at least so long from now on.",
        &[KEY, OWNER, LEASE],
    ),
    ("Releases a lock that the owner holds.", &[KEY, OWNER]),
    (
        "Tells who holds a lock, with which token, for how long, and how many wait at this proxy.",
        &[KEY],
    ),
];

const _: () = assert!(DOCS.len() == COMMANDS.len());

/// What is said of guards where nobody can enforce them.
pub(crate) const NO_GUARD: &str = "these nodes compare no tokens, so that locks are advisory \
    before them: compare the token where the data is, for example in a script";

impl RespFace {
    /// Carries out a command about locks, outside of a block.
    pub(crate) fn lock(
        &mut self,
        client: &mut Client,
        command: &Command,
        kind: LockCommand,
        args: Args<'_>,
        desk: &mut Desk<'_>,
    ) -> Done {
        let Some(locks) = &self.state.locks else {
            client.refuse(desk.out, "ERR this proxy keeps no locks");
            return Done::Taken;
        };
        if !client.has_asked_locks_alone() {
            client.alone = true;
            return Done::Not(Progress::AwaitsReply);
        }
        if client.asked.len() >= MOST_ASKED {
            return Done::Not(Progress::AwaitsReply);
        }
        let request = match read(kind, args) {
            Ok(request) => request,
            Err(text) => {
                let text = match text {
                    SYNTAX => format!("ERR {SYNTAX}, as {}", usage(command)),
                    text => format!("ERR {text}"),
                };
                client.refuse(desk.out, &text);
                return Done::Taken;
            }
        };
        let key = args.at(1);
        match locks.ask(client.id.thread, key, &request) {
            Ok(outcome) => client.answer_with(desk.out, |writer| write(&outcome, kind, writer)),
            Err(ticket) => {
                let sequence = client.expect(Pending::Waiting);
                let question = Question::new(ticket, key, Aim::of(&request), kind);
                self.letters.expect(client.id, sequence, &question);
                client.asked.insert(sequence, question);
                desk.wait_for_letter();
            }
        }
        Done::Taken
    }

    /// The locks have answered a request.
    pub(crate) fn deliver_letter(&self, client: &mut Client, letter: Letter, desk: &mut Desk<'_>) {
        let Some(question) = client.asked.remove(&letter.sequence) else {
            return;
        };
        let reply = encode(&letter.outcome, question.about, client.protocol);
        client.settle(desk.out, letter.sequence, reply);
    }

    /// Cancels the client's requests that wait for others. Whether there were any. Those that have
    /// just been answered stay: their letters tell what has become of them.
    pub(crate) fn give_up_locks(
        &mut self,
        client: &mut Client,
        why: Ended,
        desk: &mut Desk<'_>,
    ) -> bool {
        let Some(locks) = &self.state.locks else {
            return false;
        };
        let letters = &mut self.letters;
        let cancelled = client.asked.extract_if(.., |_, question| {
            question.aim == Aim::HoldsLater && letters.cancel(locks, question)
        });
        let cancelled: Vec<u64> = cancelled.map(|(sequence, _)| sequence).collect();
        let text = match why {
            Ended::Client => "LOCKCANCELLED the connection has ended, and nobody waits any more",
            Ended::Proxy => "LOCKSTOPPING the proxy is stopping; ask another one",
        };
        for &sequence in &cancelled {
            desk.forget_letter();
            let reply = Bytes::from(format!("-{text}\r\n"));
            client.settle(desk.out, sequence, reply);
        }
        !cancelled.is_empty()
    }

    /// Forgets everything that the client asked for.
    pub(crate) fn forget_locks(&mut self, client: &mut Client) {
        let Some(locks) = &self.state.locks else {
            return;
        };
        for question in std::mem::take(&mut client.asked).into_values() {
            self.letters.forget(locks, &question);
        }
    }
}

const SYNTAX: &str = "syntax error";

fn usage(command: &Command) -> &'static str {
    match &*command.name {
        "lock.acquire" => "LOCK.ACQUIRE key owner PX milliseconds [WAIT milliseconds]",
        _ => "LOCK.RENEW key owner PX milliseconds",
    }
}

/// What a command asks for.
fn read<'a>(kind: LockCommand, args: Args<'a>) -> Result<Request<'a>, &'static str> {
    let owner = || args.get(2).unwrap_or_default();
    match kind {
        LockCommand::Acquire => {
            let (lease, wait) = times(args, true)?;
            let (owner, lease) = (owner(), Lease::For(lease));
            Ok(Request::Acquire { owner, lease, wait })
        }
        LockCommand::Renew => {
            let (lease, _) = times(args, false)?;
            let (owner, lease) = (owner(), Lease::For(lease));
            Ok(Request::Renew { owner, lease })
        }
        LockCommand::Release => Ok(Request::Release { owner: owner() }),
        LockCommand::Info => Ok(Request::Info),
        LockCommand::Guard => Err("LOCK.GUARD without MULTI: it guards the block that it begins"),
    }
}

/// What stands behind `PX` and `WAIT`, in any order.
fn times(args: Args<'_>, waits: bool) -> Result<(Duration, Duration), &'static str> {
    let (mut lease, mut wait) = (None, None);
    let mut at = 3;
    while let Some(word) = args.get(at) {
        let into = if word.eq_ignore_ascii_case(b"PX") {
            &mut lease
        } else if waits && word.eq_ignore_ascii_case(b"WAIT") {
            &mut wait
        } else {
            return Err(SYNTAX);
        };
        if into.is_some() {
            return Err(SYNTAX);
        }
        let number = args.get(at + 1).ok_or(SYNTAX)?;
        let number = parse_int(number).and_then(|number| u64::try_from(number).ok());
        let number = number.ok_or("milliseconds are a number that is not negative")?;
        *into = Some(Duration::from_millis(number));
        at += 2;
    }
    Ok((lease.ok_or(SYNTAX)?, wait.unwrap_or_default()))
}

fn encode(outcome: &Outcome, kind: LockCommand, protocol: Protocol) -> Bytes {
    let mut out = Vec::new();
    write(outcome, kind, &mut Writer::new(&mut out, protocol));
    out.into()
}

/// The reply to a command.
fn write(outcome: &Outcome, kind: LockCommand, writer: &mut Writer<'_>) {
    match outcome {
        Err(error) => writer.error(&format!("{} {error}", code(error))),
        Ok(Answer::Granted { token, lease }) => {
            writer.array(3);
            writer.int(1);
            writer.int(token.0 as i64);
            writer.int(milliseconds(*lease, Duration::as_millis));
        }
        Ok(Answer::Released) => writer.int(1),
        Ok(Answer::NotHeld(_)) if kind == LockCommand::Release => writer.int(0),
        Ok(Answer::Held(lock)) => not_granted(Some(lock), writer),
        Ok(Answer::NotHeld(lock)) => not_granted(lock.as_ref(), writer),
        Ok(Answer::Info(None)) => writer.null(),
        Ok(Answer::Info(Some(lock))) => {
            writer.map(4);
            writer.bulk(b"owner");
            writer.bulk(&lock.value);
            let numbers = [
                ("token", lock.token.0 as i64),
                ("left", left(lock)),
                ("waiters", lock.waiters as i64),
            ];
            for (name, number) in numbers {
                writer.bulk(name.as_bytes());
                writer.int(number);
            }
        }
        // No command asks for these.
        Ok(Answer::Changed { .. } | Answer::Listing(_)) => writer.null(),
    }
}

fn not_granted(lock: Option<&Lock>, writer: &mut Writer<'_>) {
    writer.array(3);
    writer.int(0);
    match lock {
        Some(lock) => {
            writer.bulk(&lock.value);
            writer.int(left(lock));
        }
        None => {
            writer.null();
            writer.int(0);
        }
    }
}

/// How long a lock lasts at most; never told too short.
fn left(lock: &Lock) -> i64 {
    milliseconds(lock.left, |time| time.as_nanos().div_ceil(1_000_000))
}

fn milliseconds(lease: Lease, round: impl FnOnce(&Duration) -> u128) -> i64 {
    match lease {
        Lease::For(time) => i64::try_from(round(&time)).unwrap_or(i64::MAX),
        Lease::Endless => -1,
    }
}

fn code(error: &LockError) -> &'static str {
    match error {
        LockError::KeyLength { .. }
        | LockError::ValueLength { .. }
        | LockError::LeaseLength { .. }
        | LockError::NeedsLease => "LOCKLIMIT",
        LockError::TooManyLocks { .. } | LockError::TooManyWaiters { .. } => "LOCKFULL",
        LockError::Settling { .. } => "LOCKSETTLING",
        LockError::Stopping => "LOCKSTOPPING",
        LockError::Unavailable { .. } => "LOCKUNAVAILABLE",
        LockError::Uncertain { .. } => "LOCKUNKNOWN",
        LockError::Refused { .. } => "LOCKREFUSED",
        LockError::Damaged => "LOCKDAMAGED",
    }
}

/// What `COMMAND` asks of a node, which does not know of the proxy's commands about locks.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Telling {
    /// All commands.
    All,
    /// How many there are.
    Count,
    /// Their names.
    Names,
    /// Those that are named: at each place, which of the proxy's it is.
    Some(Vec<Option<usize>>),
    /// What they do, and of the proxy's, which are asked for.
    Docs(Vec<usize>),
}

/// What a command asks for, if it asks about commands.
pub(crate) fn telling(command: &Command, args: Args<'_>) -> Option<Telling> {
    if !command.name.starts_with("command") {
        return None;
    }
    let own = |name: &[u8]| {
        let mut names = COMMANDS.iter();
        names.position(|one| one.0.as_bytes().eq_ignore_ascii_case(name))
    };
    let sub = args.get(1).map(<[u8]>::to_ascii_lowercase);
    match (&*sub.unwrap_or_default(), args.len()) {
        (b"", 1) | (b"info", 2) => Some(Telling::All),
        (b"count", 2) => Some(Telling::Count),
        (b"list", 2) => Some(Telling::Names),
        (b"info", _) => Some(Telling::Some(args.iter().skip(2).map(own).collect())),
        (b"docs", 2) => Some(Telling::Docs((0..COMMANDS.len()).collect())),
        (b"docs", _) => Some(Telling::Docs(args.iter().skip(2).filter_map(own).collect())),
        _ => None,
    }
}

/// A node's reply, with the proxy's commands about locks.
pub(crate) fn told(reply: &Bytes, telling: &Telling, protocol: Protocol) -> Bytes {
    if let (Telling::Count, Ok(Value::Int(count))) = (telling, Value::decode(reply)) {
        return Bytes::from(format!(":{}\r\n", count + COMMANDS.len() as i64));
    }
    let (b'*' | b'~' | b'%') = reply.first().copied().unwrap_or_default() else {
        return reply.clone();
    };
    let elements = super::join::elements(reply);
    // As many fields as the node tells of a command.
    let fields = elements.iter().find_map(|one| match Value::decode(one) {
        Ok(Value::Array(fields)) if fields.len() >= 6 => Some(fields.len()),
        _ => None,
    });
    let fields = fields.unwrap_or(6);
    let mut out = Vec::new();
    let mut writer = Writer::new(&mut out, protocol);
    match telling {
        Telling::Count => return reply.clone(),
        Telling::Docs(places) => {
            writer.map(elements.len() / 2 + places.len());
            elements.iter().for_each(|one| writer.raw(one));
            places.iter().for_each(|place| explain(*place, &mut writer));
        }
        Telling::All | Telling::Names => {
            writer.array(elements.len() + COMMANDS.len());
            elements.iter().for_each(|one| writer.raw(one));
            for (place, (name, ..)) in COMMANDS.iter().enumerate() {
                match telling {
                    Telling::Names => writer.bulk(name.as_bytes()),
                    _ => describe(place, fields, &mut writer),
                }
            }
        }
        Telling::Some(places) => {
            writer.array(elements.len());
            for (at, element) in elements.iter().enumerate() {
                match places.get(at) {
                    Some(&Some(place)) => describe(place, fields, &mut writer),
                    _ => writer.raw(element),
                }
            }
        }
    }
    out.into()
}

/// A command as `COMMAND` tells of it. A lock's name is no key.
fn describe(place: usize, fields: usize, writer: &mut Writer<'_>) {
    let (name, arity, _) = COMMANDS[place];
    writer.array(fields);
    writer.bulk(name.as_bytes());
    writer.int(arity);
    writer.set(1);
    writer.status("fast");
    for _ in 0..3 {
        writer.int(0);
    }
    for _ in 6..fields {
        writer.array(0);
    }
}

/// A command as `COMMAND DOCS` tells of it: its name and a map.
fn explain(place: usize, writer: &mut Writer<'_>) {
    let (summary, arguments) = DOCS[place];
    writer.bulk(COMMANDS[place].0.as_bytes());
    writer.map(4);
    for (name, text) in [("summary", summary), ("since", "1.0.0"), ("group", "locks")] {
        writer.bulk(name.as_bytes());
        writer.bulk(text.as_bytes());
    }
    writer.bulk(b"arguments");
    writer.array(arguments.len());
    for (name, kind, word) in arguments {
        let is_optional = matches!(word, Some((_, true)));
        writer.map(2 + usize::from(word.is_some()) + usize::from(is_optional));
        let word = word.map(|(word, _)| ("token", word));
        for (field, text) in [("name", *name), ("type", *kind)].into_iter().chain(word) {
            writer.bulk(field.as_bytes());
            writer.bulk(text.as_bytes());
        }
        if is_optional {
            writer.bulk(b"flags");
            writer.array(1);
            writer.status("optional");
        }
    }
}

#[cfg(test)]
mod tests {
    use ::locks::Token;

    use super::super::commands::tests::with_args;
    use super::*;

    fn request(kind: LockCommand, words: &str) -> Result<String, String> {
        with_args(words, |args| {
            read(kind, args)
                .map(|request| format!("{request:?}"))
                .map_err(str::to_owned)
        })
    }

    #[test]
    fn commands_are_read() {
        let read = |words: &str| request(LockCommand::Acquire, words);
        let with_wait = read("lock.acquire k me PX 500 WAIT 20").expect("it is one");
        assert!(with_wait.contains("500ms") && with_wait.contains("wait: 20ms"));
        assert_eq!(read("lock.acquire k me wait 20 px 500"), Ok(with_wait));
        let without = read("lock.acquire k me PX 500").expect("it is one");
        assert!(without.contains("wait: 0ns"), "{without}");
        for words in [
            "lock.acquire k me EX 500",
            "lock.acquire k me WAIT 500",
            "lock.acquire k me PX 500 PX 600",
            "lock.acquire k me PX 500 WAIT",
            "lock.acquire k me PX",
        ] {
            assert_eq!(read(words), Err(SYNTAX.to_owned()), "{words}");
        }
        for number in ["-1", "x", "1.5", "99999999999999999999", ""] {
            let words = format!("lock.acquire k me PX {number}");
            let error = read(&words).expect_err("no number");
            assert!(error.contains("milliseconds"), "{words}");
        }
        let renew = "lock.renew k me PX 500 WAIT 20";
        assert_eq!(request(LockCommand::Renew, renew), Err(SYNTAX.to_owned()));
        let guard = request(LockCommand::Guard, "lock.guard k 7");
        assert!(guard.expect_err("no block").contains("without MULTI"));
    }

    #[test]
    fn replies_have_their_shapes() {
        let lock = |left| Lock {
            value: b"you".as_slice().into(),
            token: Token(9),
            left,
            waiters: 2,
        };
        let some = lock(Lease::For(Duration::from_micros(1500)));
        let endless = lock(Lease::Endless);
        let granted = Answer::Granted {
            token: Token(8),
            lease: Lease::For(Duration::from_micros(1900)),
        };
        use LockCommand::{Acquire, Info, Release, Renew};
        for (answer, kind, two, three) in [
            (granted, Acquire, "*3 :1 :8 :1 ", None),
            (
                Answer::Held(some.clone()),
                Acquire,
                "*3 :0 $3 you :2 ",
                None,
            ),
            (Answer::Held(endless), Acquire, "*3 :0 $3 you :-1 ", None),
            (
                Answer::NotHeld(None),
                Renew,
                "*3 :0 $-1 :0 ",
                Some("*3 :0 _ :0 "),
            ),
            (Answer::NotHeld(None), Release, ":0 ", None),
            (Answer::Released, Release, ":1 ", None),
            (Answer::Info(None), Info, "$-1 ", Some("_ ")),
            (
                Answer::Info(Some(some)),
                Info,
                "*8 $5 owner $3 you $5 token :9 $4 left :2 $7 waiters :2 ",
                Some("%4 $5 owner $3 you $5 token :9 $4 left :2 $7 waiters :2 "),
            ),
        ] {
            let outcome = Ok(answer);
            for (protocol, text) in [
                (Protocol::Resp2, two),
                (Protocol::Resp3, three.unwrap_or(two)),
            ] {
                let expected = text.replace(' ', "\r\n");
                assert_eq!(encode(&outcome, kind, protocol), expected, "{outcome:?}");
            }
        }
        let error = Err(LockError::Settling {
            left: Duration::from_millis(7),
        });
        let text = encode(&error, LockCommand::Info, Protocol::Resp2);
        assert!(text.starts_with(b"-LOCKSETTLING the table"), "{text:?}");
    }

    #[test]
    fn command_tells_of_locks() {
        let node: &[u8] =
            b"*1\r\n*7\r\n$3\r\nget\r\n:2\r\n*1\r\n+readonly\r\n:1\r\n:1\r\n:1\r\n*0\r\n";
        let reply = Bytes::copy_from_slice(node);
        let decode = |telling: &Telling, reply: &Bytes| match Value::decode(&told(
            reply,
            telling,
            Protocol::Resp2,
        )) {
            Ok(Value::Array(list)) => list,
            other => panic!("{other:?}"),
        };
        let all = decode(&Telling::All, &reply);
        assert_eq!(all.len(), 1 + COMMANDS.len());
        for one in &all[1..] {
            assert!(matches!(one, Value::Array(fields) if fields.len() == 7));
        }
        let names = Bytes::from_static(b"*1\r\n$3\r\nget\r\n");
        let names = decode(&Telling::Names, &names);
        assert_eq!(names[4], Value::Bulk(b"lock.info".to_vec()));
        let some = Bytes::from_static(b"*2\r\n$-1\r\n$-1\r\n");
        let some = decode(&Telling::Some(vec![None, Some(1)]), &some);
        assert!(matches!(&some[1], Value::Array(fields) if fields[1] == Value::Int(5)));
        let count = told(
            &Bytes::from_static(b":3\r\n"),
            &Telling::Count,
            Protocol::Resp2,
        );
        assert_eq!(count, ":7\r\n");
        let docs = Bytes::from_static(b"*2\r\n$3\r\nget\r\n*0\r\n");
        let docs = decode(&Telling::Docs(vec![2, 0]), &docs);
        assert_eq!(docs.len(), 6);
        assert_eq!(docs[2], Value::Bulk(b"lock.release".to_vec()));
        let Value::Array(fields) = &docs[5] else {
            panic!("{docs:?}")
        };
        assert_eq!(fields[6], Value::Bulk(b"arguments".to_vec()));
        assert!(matches!(&fields[7], Value::Array(all) if all.len() == 4));
        let three = Bytes::from_static(b"%1\r\n$3\r\nget\r\n%0\r\n");
        let three = told(&three, &Telling::Docs(vec![1]), Protocol::Resp3);
        assert!(three.starts_with(b"%2\r\n$3\r\nget\r\n%0\r\n$10\r\nlock.renew\r\n%4\r\n"));
        let error = Bytes::from_static(b"-NOPERM no\r\n");
        assert_eq!(told(&error, &Telling::All, Protocol::Resp2), error);
    }
}
