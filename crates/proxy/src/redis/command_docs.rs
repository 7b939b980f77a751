//! The replies of `COMMAND` about the proxy's commands about locks, which nodes do not know: the proxy
//! asks a node and adds these commands to its reply.

use bytes::Bytes;
use resp::{Args, Protocol, Value, Writer};

use super::commands::NodeCommand;
use super::commands::lock::LOCK_COMMANDS;
use super::reply_merge;

/// An argument of a command: its name, its type, and, if it follows a keyword, that keyword and whether
/// it is optional.
type Argument = (&'static str, &'static str, Option<(&'static str, bool)>);

const KEY: Argument = ("key", "string", None);
const OWNER: Argument = ("owner", "string", None);
const LEASE: Argument = ("lease-milliseconds", "integer", Some(("PX", false)));
const WAIT: Argument = ("wait-milliseconds", "integer", Some(("WAIT", true)));

/// The replies of `COMMAND DOCS` for [`LOCK_COMMANDS`], in the same order: a summary of the command,
/// and its arguments.
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

const _: () = assert!(DOCS.len() == LOCK_COMMANDS.len());

/// The kind of a `COMMAND` query.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum CommandQuery {
    /// All commands.
    All,
    /// How many there are.
    Count,
    /// Their names.
    Names,
    /// Named commands: for each position, which of the proxy's commands it is.
    Some(Vec<Option<usize>>),
    /// Documentation; the value has the proxy's commands that are asked for.
    Docs(Vec<usize>),
}

/// Returns the kind of query if the command asks about commands.
pub(crate) fn telling(command: &NodeCommand, args: Args<'_>) -> Option<CommandQuery> {
    if !command.name.starts_with("command") {
        return None;
    }
    let own = |name: &[u8]| {
        let mut names = LOCK_COMMANDS.iter();
        names.position(|one| one.0.as_bytes().eq_ignore_ascii_case(name))
    };
    let sub = args.get(1).map(<[u8]>::to_ascii_lowercase);
    match (&*sub.unwrap_or_default(), args.len()) {
        (b"", 1) | (b"info", 2) => Some(CommandQuery::All),
        (b"count", 2) => Some(CommandQuery::Count),
        (b"list", 2) => Some(CommandQuery::Names),
        (b"info", _) => Some(CommandQuery::Some(args.iter().skip(2).map(own).collect())),
        (b"docs", 2) => Some(CommandQuery::Docs((0..LOCK_COMMANDS.len()).collect())),
        (b"docs", _) => Some(CommandQuery::Docs(
            args.iter().skip(2).filter_map(own).collect(),
        )),
        _ => None,
    }
}

/// Adds the proxy's commands about locks to a node's reply.
pub(crate) fn told(reply: &Bytes, telling: &CommandQuery, protocol: Protocol) -> Bytes {
    if let (CommandQuery::Count, Ok(Value::Int(count))) = (telling, Value::decode(reply)) {
        return Bytes::from(format!(":{}\r\n", count + LOCK_COMMANDS.len() as i64));
    }
    let (b'*' | b'~' | b'%') = reply.first().copied().unwrap_or_default() else {
        return reply.clone();
    };
    let elements = reply_merge::elements(reply);
    // As many fields as the node reports for a command.
    let fields = elements.iter().find_map(|one| match Value::decode(one) {
        Ok(Value::Array(fields)) if fields.len() >= 6 => Some(fields.len()),
        _ => None,
    });
    let fields = fields.unwrap_or(6);
    let mut out = Vec::new();
    let mut writer = Writer::new(&mut out, protocol);
    match telling {
        CommandQuery::Count => return reply.clone(),
        CommandQuery::Docs(places) => {
            writer.map(elements.len() / 2 + places.len());
            elements.iter().for_each(|one| writer.raw(one));
            places.iter().for_each(|place| explain(*place, &mut writer));
        }
        CommandQuery::All | CommandQuery::Names => {
            writer.array(elements.len() + LOCK_COMMANDS.len());
            elements.iter().for_each(|one| writer.raw(one));
            for (place, (name, ..)) in LOCK_COMMANDS.iter().enumerate() {
                match telling {
                    CommandQuery::Names => writer.bulk(name.as_bytes()),
                    _ => describe(place, fields, &mut writer),
                }
            }
        }
        CommandQuery::Some(places) => {
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

/// Writes a command as in the reply to `COMMAND`. A lock's name is no key.
fn describe(place: usize, fields: usize, writer: &mut Writer<'_>) {
    let (name, arity, _) = LOCK_COMMANDS[place];
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

/// Writes a command as in the reply to `COMMAND DOCS`: its name and a map.
fn explain(place: usize, writer: &mut Writer<'_>) {
    let (summary, arguments) = DOCS[place];
    writer.bulk(LOCK_COMMANDS[place].0.as_bytes());
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
    use super::*;

    #[test]
    fn command_tells_of_locks() {
        let node: &[u8] =
            b"*1\r\n*7\r\n$3\r\nget\r\n:2\r\n*1\r\n+readonly\r\n:1\r\n:1\r\n:1\r\n*0\r\n";
        let reply = Bytes::copy_from_slice(node);
        let decode = |telling: &CommandQuery, reply: &Bytes| match Value::decode(&told(
            reply,
            telling,
            Protocol::Resp2,
        )) {
            Ok(Value::Array(list)) => list,
            other => panic!("{other:?}"),
        };
        let all = decode(&CommandQuery::All, &reply);
        assert_eq!(all.len(), 1 + LOCK_COMMANDS.len());
        for one in &all[1..] {
            assert!(matches!(one, Value::Array(fields) if fields.len() == 7));
        }
        let names = Bytes::from_static(b"*1\r\n$3\r\nget\r\n");
        let names = decode(&CommandQuery::Names, &names);
        assert_eq!(names[4], Value::Bulk(b"lock.info".to_vec()));
        let some = Bytes::from_static(b"*2\r\n$-1\r\n$-1\r\n");
        let some = decode(&CommandQuery::Some(vec![None, Some(1)]), &some);
        assert!(matches!(&some[1], Value::Array(fields) if fields[1] == Value::Int(5)));
        let count = told(
            &Bytes::from_static(b":3\r\n"),
            &CommandQuery::Count,
            Protocol::Resp2,
        );
        assert_eq!(count, ":7\r\n");
        let docs = Bytes::from_static(b"*2\r\n$3\r\nget\r\n*0\r\n");
        let docs = decode(&CommandQuery::Docs(vec![2, 0]), &docs);
        assert_eq!(docs.len(), 6);
        assert_eq!(docs[2], Value::Bulk(b"lock.release".to_vec()));
        let Value::Array(fields) = &docs[5] else {
            panic!("{docs:?}")
        };
        assert_eq!(fields[6], Value::Bulk(b"arguments".to_vec()));
        assert!(matches!(&fields[7], Value::Array(all) if all.len() == 4));
        let three = Bytes::from_static(b"%1\r\n$3\r\nget\r\n%0\r\n");
        let three = told(&three, &CommandQuery::Docs(vec![1]), Protocol::Resp3);
        assert!(three.starts_with(b"%2\r\n$3\r\nget\r\n%0\r\n$10\r\nlock.renew\r\n%4\r\n"));
        let error = Bytes::from_static(b"-NOPERM no\r\n");
        assert_eq!(told(&error, &CommandQuery::All, Protocol::Resp2), error);
    }
}
