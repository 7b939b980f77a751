//! Merges the replies to the parts of a split command into one.

use bytes::Bytes;
use resp::{Protocol, Value, Writer};

use super::retry_policy::{NOTHING, UNKNOWN};

/// How the replies of the parts become one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum MergeRule {
    /// Numbers are added (`DEL`, `EXISTS`, `DBSIZE`).
    Sum,
    /// All must be the same; the first is used (`MSET`, `FLUSHALL`).
    First,
    /// Lists are appended to each other (`KEYS`).
    Append,
    /// Lists of values; for each part, the positions of its values in the whole (`MGET`).
    Places(Vec<Vec<u32>>),
}

/// The replies that have come so far.
#[derive(Debug)]
pub(crate) struct ReplyMerge {
    rule: MergeRule,
    /// The command changes nothing.
    read_only: bool,
    parts: Vec<Option<Bytes>>,
    missing: usize,
}

impl ReplyMerge {
    pub(crate) fn new(rule: MergeRule, read_only: bool, parts: usize) -> ReplyMerge {
        ReplyMerge {
            rule,
            read_only,
            parts: vec![None; parts],
            missing: parts,
        }
    }

    /// Adds the reply of a part. Returns the whole reply if it was the last part.
    pub(crate) fn add(&mut self, part: u32, reply: Bytes, protocol: Protocol) -> Option<Bytes> {
        let place = &mut self.parts[part as usize];
        if place.replace(reply).is_none() {
            self.missing -= 1;
        }
        (self.missing == 0).then(|| self.whole(protocol))
    }

    fn whole(&self, protocol: Protocol) -> Bytes {
        let parts: Vec<&Bytes> = self.parts.iter().flatten().collect();
        if let Some(error) = self.error(&parts) {
            return error;
        }
        let mut out = Vec::new();
        let mut writer = Writer::new(&mut out, protocol);
        match &self.rule {
            MergeRule::First => return parts[0].clone(),
            MergeRule::Sum => writer.int(parts.iter().map(|part| number(part)).sum()),
            MergeRule::Append => {
                let lists: Vec<Vec<&[u8]>> = parts.iter().map(|part| elements(part)).collect();
                writer.array(lists.iter().map(Vec::len).sum());
                out.extend(lists.concat().concat());
            }
            MergeRule::Places(places) => {
                let count: usize = places.iter().map(Vec::len).sum();
                let mut values: Vec<&[u8]> = vec![&[]; count];
                for (part, places) in parts.iter().zip(places) {
                    for (value, &place) in elements(part).into_iter().zip(places) {
                        values[place as usize] = value;
                    }
                }
                if values.iter().any(|value| value.is_empty()) {
                    writer.error("ERR a node has answered with fewer values than were asked for");
                } else {
                    writer.array(count);
                    out.extend(values.concat());
                }
            }
        }
        out.into()
    }
}

impl ReplyMerge {
    /// Returns the error of the command if a part failed. If other parts have changed something, the
    /// error says so, even if the part's own error denies it.
    fn error(&self, parts: &[&Bytes]) -> Option<Bytes> {
        let is_error = |part: &&&Bytes| part.first() == Some(&b'-');
        let errors: Vec<&Bytes> = parts.iter().filter(is_error).copied().collect();
        let unknown = |error: &&&Bytes| error.starts_with(UNKNOWN.as_bytes());
        let error = errors.iter().find(unknown).or(errors.first())?;
        let (all, done) = (parts.len(), parts.len() - errors.len());
        if done == 0 || self.read_only {
            return Some(Bytes::clone(error));
        }
        let text = String::from_utf8_lossy(&error[1..]);
        let text = text.trim_end();
        let text = text.strip_suffix(NOTHING).unwrap_or(text);
        let told =
            format!("-PARTIAL {done} of {all} parts of the command were executed, but: {text}\r\n");
        Some(told.into())
    }
}

fn number(reply: &[u8]) -> i64 {
    match Value::decode(reply) {
        Ok(Value::Int(number)) => number,
        _ => 0,
    }
}

/// Returns the elements of a list, undecoded.
pub(crate) fn elements(list: &[u8]) -> Vec<&[u8]> {
    let Some(head) = list.iter().position(|&byte| byte == b'\n') else {
        return Vec::new();
    };
    let mut rest = &list[head + 1..];
    let mut found = Vec::new();
    while let Ok(Some(end)) = resp::ReplyParser::new().parse(rest) {
        found.push(&rest[..end]);
        rest = &rest[end..];
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn joined(rule: MergeRule, parts: &[&'static [u8]]) -> Vec<u8> {
        joined_of(rule, true, parts)
    }

    fn joined_of(rule: MergeRule, read_only: bool, parts: &[&'static [u8]]) -> Vec<u8> {
        let mut join = ReplyMerge::new(rule, read_only, parts.len());
        // The parts may come in any order.
        let mut whole = None;
        for (part, reply) in parts.iter().enumerate().rev() {
            assert!(whole.is_none());
            whole = join.add(part as u32, Bytes::from_static(reply), Protocol::Resp2);
        }
        whole.expect("all parts are there").to_vec()
    }

    #[test]
    fn replies_become_one() {
        assert_eq!(joined(MergeRule::Sum, &[b":1\r\n", b":2\r\n"]), b":3\r\n");
        assert_eq!(
            joined(MergeRule::First, &[b"+OK\r\n", b"+OK\r\n"]),
            b"+OK\r\n"
        );
        assert_eq!(
            joined(
                MergeRule::Append,
                &[b"*1\r\n$1\r\na\r\n", b"*0\r\n", b"*1\r\n$1\r\nb\r\n"]
            ),
            b"*2\r\n$1\r\na\r\n$1\r\nb\r\n"
        );
        assert_eq!(
            joined(
                MergeRule::Places(vec![vec![2, 0], vec![1]]),
                &[b"*2\r\n$1\r\nc\r\n$-1\r\n", b"*1\r\n$1\r\nb\r\n"]
            ),
            b"*3\r\n$-1\r\n$1\r\nb\r\n$1\r\nc\r\n"
        );
    }

    #[test]
    fn an_error_of_one_part_is_that_of_the_whole() {
        let parts: [&[u8]; 2] = [b":1\r\n", b"-OOM no\r\n"];
        assert_eq!(joined(MergeRule::Sum, &parts), b"-OOM no\r\n");
        let down: &[u8] = b"-CLUSTERDOWN node a is gone; nothing has happened, retry it\r\n";
        let unknown: &[u8] = b"-UNKNOWN node b is gone\r\n";
        let writes = |parts: &[&'static [u8]]| joined_of(MergeRule::First, false, parts);
        assert_eq!(writes(&[down, down]), down);
        assert_eq!(writes(&[down, unknown]), unknown);
        assert_eq!(
            writes(&[b"+OK\r\n", down]),
            b"-PARTIAL 1 of 2 parts of the command were executed, but: CLUSTERDOWN node a is gone\r\n"
        );
        assert_eq!(
            writes(&[b"+OK\r\n", down, unknown]),
            b"-PARTIAL 1 of 3 parts of the command were executed, but: UNKNOWN node b is gone\r\n"
        );
        let fewer: [&[u8]; 1] = [b"*1\r\n$1\r\na\r\n"];
        let told = joined(MergeRule::Places(vec![vec![0, 1]]), &fewer);
        assert!(told.starts_with(b"-ERR"));
    }
}
