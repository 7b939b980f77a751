//! The descriptions of commands by `COMMAND`, compared with Redis's.

use std::net::SocketAddr;

use testkit::{Client, Reply};

/// Returns `true` for commands of Kumiki's own, and those of later releases of Redis.
fn is_unknown_to_redis(name: &str) -> bool {
    let own = [
        "watch.version",
        "watch.at",
        "lock.guard",
        "cluster|replication",
    ];
    let later = ["client|setinfo", "client|no-touch", "waitaof"];
    let of_fields = [
        "hexpire",
        "hpexpire",
        "hexpireat",
        "hpexpireat",
        "httl",
        "hpttl",
        "hexpiretime",
        "hpexpiretime",
        "hpersist",
        "hgetex",
        "hsetex",
        "hgetdel",
    ];
    let lists = [&own[..], &later, &of_fields];
    name.starts_with("kumiki.") || lists.iter().any(|list| list.contains(&name))
}

/// Flags that mean something else here, and why.
const OWN_FLAGS: [(&str, &str, &str); 2] = [
    ("cluster|countkeysinslot", "no_multi", "it runs in slices"),
    ("cluster|getkeysinslot", "no_multi", "it runs in slices"),
];

/// The least number of arguments of commands that have got options in later releases.
const LATER_ARITIES: [(&str, i64); 2] = [("zrank", -3), ("zrevrank", -3)];

fn list(reply: Reply) -> Vec<Reply> {
    match reply {
        Reply::Array(list) => list,
        other => panic!("a list: {other:?}"),
    }
}

fn names(client: &mut Client) -> Vec<String> {
    let names = list(client.call(&["COMMAND", "LIST"])).into_iter();
    let text = |name| match name {
        Reply::Bulk(name) => String::from_utf8(name).expect("a name"),
        other => panic!("{other:?}"),
    };
    names.map(text).collect()
}

/// Returns the fields of a command's description, without its second words.
fn described(client: &mut Client, name: &str) -> Vec<Reply> {
    let mut answer = list(client.call(&["COMMAND", "INFO", name]));
    let mut fields = list(answer.swap_remove(0));
    fields.truncate(9);
    fields
}

/// Returns a field of `COMMAND DOCS`.
fn documented(client: &mut Client, name: &str, field: &str) -> Reply {
    let mut answer = list(client.call(&["COMMAND", "DOCS", name]));
    let fields = list(answer.swap_remove(1));
    let at = fields.iter().position(|one| *one == Reply::bulk(field));
    fields[at.expect("the field") + 1].clone()
}

/// Changes Redis's description to the one that is expected here.
fn expected(name: &str, mut fields: Vec<Reply>) -> Vec<Reply> {
    let later = LATER_ARITIES.iter().find(|(command, _)| *command == name);
    if let Some((_, arity)) = later {
        fields[1] = Reply::Int(*arity);
    }
    let is_of_several = |tip: &Reply| *tip == Reply::bulk("request_policy:multi_shard");
    // Commands of several keys must not be split.
    if list(fields[7].clone()).iter().any(is_of_several) {
        fields[7] = Reply::Array(Vec::new());
    }
    if let Reply::Array(specifications) = &mut fields[8] {
        for specification in specifications {
            if let Reply::Array(pairs) = specification
                && pairs.first() == Some(&Reply::bulk("notes"))
            {
                pairs.drain(..2);
            }
        }
    }
    if let Reply::Array(flags) = &mut fields[2] {
        // Later releases allow these in scripts, where they do not wait.
        if flags.contains(&Reply::status("blocking")) {
            flags.retain(|flag| *flag != Reply::status("noscript"));
        }
        let own = OWN_FLAGS.iter().filter(|(command, ..)| *command == name);
        flags.extend(own.map(|(_, flag, _)| Reply::status(flag)));
    }
    fields
}

/// Compares the descriptions. Returns their number.
pub(crate) fn compare(redis: SocketAddr, subject: SocketAddr) -> usize {
    let (mut redis, mut subject) = (Client::connect(redis), Client::connect(subject));
    let mut compared = 0;
    for name in names(&mut subject) {
        if is_unknown_to_redis(&name) {
            continue;
        }
        let right = expected(&name, described(&mut redis, &name));
        assert_eq!(described(&mut subject, &name), right, "{name}");
        for field in ["since", "group"] {
            let right = documented(&mut redis, &name, field);
            assert_eq!(documented(&mut subject, &name, field), right, "{name}");
        }
        compared += 1;
    }
    compared
}
