//! The calls that must precede a reply in the trace of system calls.
//!
//! Several clients set keys of their own, each waiting for its reply before it continues. For each
//! acknowledged write, in this order, each ended before the next begins:
//! 1. a file in the data directory is written, and the bytes contain the write's key;
//! 2. the same file is synced, with success;
//! 3. the reply is sent.
//!
//! And if the file was created in the traced time: its directory was synced, after the creation and
//! before the reply. Otherwise a power failure may remove the file with its name.

use std::collections::HashMap;
use std::net::SocketAddr;

use crate::trace::strace::Call;

const WRITES: &[&str] = &["write", "pwrite64", "writev", "pwritev", "pwritev2"];
const SYNCS: &[&str] = &["fdatasync", "fsync"];
const SENDS: &[&str] = &["write", "writev", "sendto", "sendmsg"];

/// The demands on a trace.
#[derive(Clone, Copy, Debug)]
pub struct Demand<'a> {
    /// The directory in which the log lies, with a slash at its end.
    pub data: &'a str,
    /// The writes of each client.
    pub clients: &'a [ClientKeys],
    /// `true` if the directory of a created file must be synced too.
    pub directories: bool,
}

/// The keys that one client set.
#[derive(Clone, Debug)]
pub struct ClientKeys {
    /// The client's end of the connection.
    pub addr: SocketAddr,
    /// In the order in which they were set; each was answered before the next was sent.
    pub keys: Vec<String>,
}

/// Checks the order. Returns complaints; the list is empty if all is right.
#[must_use]
pub fn check(calls: &[Call], demand: &Demand<'_>) -> Vec<String> {
    let created = created(calls, demand.data);
    let mut complaints = Vec::new();
    for client in demand.clients {
        let peer = format!("->{}]", client.addr);
        let replies: Vec<&Call> = calls.iter().filter(|call| is_reply(call, &peer)).collect();
        if replies.len() != client.keys.len() {
            let (found, sent) = (replies.len(), client.keys.len());
            complaints.push(format!("the trace has {found} replies to {sent} requests"));
            continue;
        }
        let pairs = client.keys.iter().zip(replies);
        complaints.extend(
            pairs.filter_map(|(key, reply)| check_one(calls, key, reply, demand, &created)),
        );
    }
    complaints
}

fn is_reply(call: &Call, peer: &str) -> bool {
    SENDS.contains(&call.name.as_str())
        && call.target().is_some_and(|target| target.ends_with(peer))
        && call.args.contains("\"+OK\\r\\n\"")
}

fn check_one(
    calls: &[Call],
    key: &str,
    reply: &Call,
    demand: &Demand<'_>,
    created: &HashMap<&str, usize>,
) -> Option<String> {
    let mut written = calls.iter().filter(|call| {
        WRITES.contains(&call.name.as_str())
            && call.succeeded()
            && call
                .target()
                .is_some_and(|path| path.starts_with(demand.data))
            && call.args.contains(key)
    });
    let Some(write) = written.next() else {
        return Some(format!("{key}: no file was written with it"));
    };
    let file = write.target().unwrap_or_default();
    if !synced(calls, file, write.end, reply.begin) {
        return Some(format!(
            "{key}: written at line {}, replied at line {}, and no sync of {file} between them",
            write.end + 1,
            reply.begin + 1
        ));
    }
    let directory = file.rsplit_once('/').map_or("", |(directory, _)| directory);
    match created.get(file) {
        Some(&at) if demand.directories && !synced(calls, directory, at, reply.begin) => {
            Some(format!(
                "{key}: {file} was created at line {}, and {directory} not synced before the reply",
                at + 1
            ))
        }
        _ => None,
    }
}

/// Returns `true` if `path` was synced successfully between the lines `after` and `before`.
fn synced(calls: &[Call], path: &str, after: usize, before: usize) -> bool {
    calls.iter().any(|call| {
        SYNCS.contains(&call.name.as_str())
            && call.result == 0
            && call.target() == Some(path)
            && call.begin > after
            && call.end < before
    })
}

/// Returns the files of the data directory that were created, by path, with the lines at which they
/// were.
fn created<'c>(calls: &'c [Call], data: &str) -> HashMap<&'c str, usize> {
    let opened = calls
        .iter()
        .filter(|call| call.name == "openat" && call.succeeded());
    let creating = opened.filter(|call| call.args.contains("O_CREAT"));
    let paths = creating.filter_map(|call| Some((call.args.split('"').nth(1)?, call.end)));
    paths.filter(|(path, _)| path.starts_with(data)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trace::strace::parse;

    const OPEN: &str = "1 openat(AT_FDCWD</>, \"/d/log\", O_WRONLY|O_CREAT, 0666) = 5</d/log>\n";
    const DIRECTORY: &str = "1 fsync(4</d>) = 0\n";
    const WRITE: &str = "1 write(5</d/log>, \"..key-1..\", 9) = 9\n";
    const SYNC: &str = "1 fdatasync(5</d/log>) = 0\n";
    const REPLY: &str =
        "2 sendto(7<TCP:[127.0.0.1:1->127.0.0.1:2]>, \"+OK\\r\\n\", 5, 0, NULL, 0) = 5\n";

    fn complaints(lines: &[&str]) -> usize {
        let calls = parse(&lines.concat());
        let client = ClientKeys {
            addr: ([127, 0, 0, 1], 2).into(),
            keys: vec!["key-1".to_owned()],
        };
        check(
            &calls,
            &Demand {
                data: "/d/",
                clients: &[client],
                directories: true,
            },
        )
        .len()
    }

    #[test]
    fn the_right_order_is_accepted() {
        assert_eq!(complaints(&[OPEN, DIRECTORY, WRITE, SYNC, REPLY]), 0);
        assert_eq!(complaints(&[OPEN, WRITE, SYNC, DIRECTORY, REPLY]), 0);
        assert_eq!(
            complaints(&[WRITE, SYNC, REPLY]),
            0,
            "an old file's name is safe already"
        );
    }

    #[test]
    fn every_wrong_order_is_found() {
        assert_eq!(complaints(&[WRITE, REPLY, SYNC]), 1, "sync after the reply");
        assert_eq!(
            complaints(&[SYNC, WRITE, REPLY]),
            1,
            "sync before the write"
        );
        assert_eq!(complaints(&[SYNC, REPLY]), 1, "no write");
        assert_eq!(
            complaints(&[OPEN, WRITE, SYNC, REPLY]),
            1,
            "no sync of the directory"
        );
        assert_eq!(complaints(&[WRITE, SYNC]), 1, "no reply");
        let stranger = REPLY.replace("127.0.0.1:2]", "127.0.0.1:3]");
        assert_eq!(
            complaints(&[WRITE, SYNC, &stranger]),
            1,
            "another client's reply"
        );
        let failed = "1 fdatasync(5</d/log>) = -1 EIO (Input/output error)\n";
        assert_eq!(complaints(&[WRITE, failed, REPLY]), 1, "a failed sync");
        let other = "1 fdatasync(6</d/other>) = 0\n";
        assert_eq!(complaints(&[WRITE, other, REPLY]), 1, "another file's sync");
        let begun = "1 fdatasync(5</d/log> <unfinished ...>\n";
        let ended = "1 <... fdatasync resumed>) = 0\n";
        assert_eq!(
            complaints(&[WRITE, begun, REPLY, ended]),
            1,
            "a reply during the sync"
        );
    }
}
