//! The routes of commands to nodes.

use std::collections::HashMap;

use bytes::Bytes;
use cluster::slot;
use resp::Args;
use resp::command::write_command;

use super::commands::{KeySplit, NodeCommand, ReplyReduction, Special};
use super::reply_merge::MergeRule;
use super::slot_map::SlotMap;
use crate::node_kind::NodeKind;
use crate::runtime::query::NodeIndex;

/// The way of a command.
#[derive(Debug, PartialEq)]
pub(crate) enum CommandRoute {
    /// To one node, unchanged. `route` is one more than the slot that led there, or 0.
    One { node: NodeIndex, route: u32 },
    /// To one node, which executes it together with other nodes.
    Alone { node: NodeIndex, route: u32 },
    /// In parts.
    Split {
        parts: Vec<CommandPart>,
        rule: MergeRule,
    },
    /// On a connection of the client's own.
    Own { node: NodeIndex, route: u32 },
    /// To one node after another.
    Scan {
        cursors: ScanCursors,
        part: CommandPart,
    },
    /// Refused, with the error.
    Refused(&'static str),
}

/// A part of a command.
#[derive(Debug, PartialEq)]
pub(crate) struct CommandPart {
    pub(crate) node: NodeIndex,
    pub(crate) route: u32,
    pub(crate) bytes: Bytes,
}

pub(crate) const CROSS_SLOT: &str = "CROSSSLOT Keys in request don't hash to the same slot";

/// How many low bits of a cursor name the node. 0 names no node: a scan begins.
const CURSOR_BITS: u32 = 10;

/// Returns the name of a node in cursors.
fn name(node: NodeIndex) -> u64 {
    u64::from(node.0) % ((1 << CURSOR_BITS) - 1) + 1
}

/// The node names that the cursors of a step of `SCAN` may have.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct ScanCursors {
    /// The name of the node that is asked.
    node: u64,
    /// The name of the next node; 0: there is none.
    next: u64,
}

/// Returns the route by which a query with a key of this slot finds its node again.
pub(crate) fn route(slot: u16) -> u32 {
    u32::from(slot) + 1
}

/// Marks a route whose command may answer anything that its author likes, including errors of nodes.
const SCRIPT: u32 = 1 << 31;

/// Returns the route of a command, marked if the command is a script or a function.
pub(crate) fn marked(route: u32, command: &NodeCommand) -> u32 {
    match command.is_script() {
        true => route | SCRIPT,
        false => route,
    }
}

/// Returns `true` if the command of this route is a script or a function.
pub(crate) fn is_script(route: u32) -> bool {
    route & SCRIPT != 0
}

/// Returns the slot of a route.
pub(crate) fn slot_of(route: u32) -> Option<u16> {
    u16::try_from((route & !SCRIPT).checked_sub(1)?).ok()
}

/// Returns `true` if keys of these slots can be sent to one node in one command.
pub(crate) fn go_together(kind: NodeKind, map: &SlotMap, slots: &[u16]) -> bool {
    let Some((first, others)) = slots.split_first() else {
        return true;
    };
    match kind {
        NodeKind::Kumiki => true,
        NodeKind::RedisCluster | NodeKind::Cassandra => others.is_empty(),
        NodeKind::RedisServers => {
            let node = map.of_slot(*first);
            others.iter().all(|&slot| map.of_slot(slot) == node)
        }
    }
}

/// Returns the way of a command. `any` chooses the node where any will do.
pub(crate) fn way(
    kind: NodeKind,
    map: &SlotMap,
    command: &NodeCommand,
    args: Args<'_>,
    any: usize,
) -> CommandRoute {
    match command.special {
        Special::Refused(why) => return CommandRoute::Refused(why),
        Special::ReplyReduction(how) => return everywhere(map, how, args),
        _ => {}
    }
    let keys = command.keys(args);
    let mut slots: Vec<u16> = keys.iter().map(|&at| slot::of(args.at(at))).collect();
    let Some(&first) = slots.first() else {
        let node = map.all()[any % map.all().len()];
        return match command.special {
            Special::Waits => CommandRoute::Own { node, route: 0 },
            _ => CommandRoute::One { node, route: 0 },
        };
    };
    let (node, route) = (map.of_slot(first), route(first));
    if let (Special::KeySplit(split), true) = (command.special, kind != NodeKind::Kumiki) {
        return parts(kind, map, split, args, &keys, &slots)
            .unwrap_or(CommandRoute::One { node, route });
    }
    slots.dedup();
    let elsewhere = slots.iter().any(|&slot| map.of_slot(slot) != node);
    if !go_together(kind, map, &slots) {
        return CommandRoute::Refused(CROSS_SLOT);
    }
    match command.special {
        Special::Waits => CommandRoute::Own { node, route },
        _ if elsewhere => CommandRoute::Alone { node, route },
        _ => CommandRoute::One { node, route },
    }
}

fn everywhere(map: &SlotMap, how: ReplyReduction, args: Args<'_>) -> CommandRoute {
    let nodes = map.all();
    let rule = match how {
        ReplyReduction::Sum => MergeRule::Sum,
        ReplyReduction::Append => MergeRule::Append,
        ReplyReduction::First => MergeRule::First,
        ReplyReduction::Scan => return scan(map, args),
    };
    let bytes = super::multi_block::encode(args);
    let parts = nodes.iter().map(|&node| CommandPart {
        node,
        route: 0,
        bytes: bytes.clone(),
    });
    CommandRoute::Split {
        parts: parts.collect(),
        rule,
    }
}

/// Returns the way of a step of `SCAN`: the cursor's low bits name the node, the others are that node's
/// cursor.
fn scan(map: &SlotMap, args: Args<'_>) -> CommandRoute {
    const INVALID: CommandRoute = CommandRoute::Refused("ERR invalid cursor");
    let cursor = args.get(1).and_then(|arg| std::str::from_utf8(arg).ok());
    let Some(cursor) = cursor.and_then(|text| text.parse::<u64>().ok()) else {
        return INVALID;
    };
    let (named, inner) = (cursor & ((1 << CURSOR_BITS) - 1), cursor >> CURSOR_BITS);
    if named == 0 && inner != 0 {
        return INVALID;
    }
    let is_named = (named != 0).then_some(|node| name(node) == named);
    let Some(step) = map.step(is_named) else {
        return INVALID;
    };
    let inner = if step.is_named { inner } else { 0 };
    let inner = inner.to_string();
    let mut words: Vec<&[u8]> = args.iter().collect();
    words[1] = inner.as_bytes();
    let mut out = Vec::new();
    write_command(&mut out, &words);
    let part = CommandPart {
        node: step.node,
        route: 0,
        bytes: out.into(),
    };
    let cursors = ScanCursors {
        node: name(step.node),
        next: step.next.map_or(0, name),
    };
    CommandRoute::Scan { cursors, part }
}

/// Returns one node's reply to a step of `SCAN`, with the cursor for the next step.
pub(crate) fn scanned(reply: &Bytes, cursors: ScanCursors) -> Bytes {
    let elements = super::reply_merge::elements(reply);
    let &[cursor, keys] = &elements[..] else {
        return reply.clone();
    };
    let text = cursor
        .split(|&byte| byte == b'\n')
        .nth(1)
        .unwrap_or_default();
    let text = text.strip_suffix(b"\r").unwrap_or(text);
    let Some(inner) = std::str::from_utf8(text)
        .ok()
        .and_then(|text| text.parse::<u64>().ok())
    else {
        return reply.clone();
    };
    let next = match inner {
        0 => cursors.next,
        inner if inner >> (u64::BITS - CURSOR_BITS) == 0 => inner << CURSOR_BITS | cursors.node,
        _ => return Bytes::from_static(b"-ERR the node's cursor is too large for the proxy\r\n"),
    };
    let mut out = Vec::new();
    write_command(&mut out, &[next.to_string().as_bytes()]);
    // Makes it a list of two: the cursor, and the keys as they came.
    out[1] = b'2';
    out.extend_from_slice(keys);
    out.into()
}

/// Splits a command on several keys into a part for each slot (Redis Cluster refuses keys of several
/// slots even if one node has them) or for each node. `None`: one part is enough.
fn parts(
    kind: NodeKind,
    map: &SlotMap,
    split: KeySplit,
    args: Args<'_>,
    keys: &[usize],
    slots: &[u16],
) -> Option<CommandRoute> {
    let group_of = |slot: u16| match kind {
        NodeKind::RedisCluster => u32::from(slot),
        _ => map.of_slot(slot).0,
    };
    let mut groups: Vec<(u16, Vec<u32>)> = Vec::new();
    let mut places: HashMap<u32, usize, foldhash::fast::RandomState> = HashMap::default();
    for (place, &slot) in slots.iter().enumerate() {
        let at = *places.entry(group_of(slot)).or_insert(groups.len());
        if at == groups.len() {
            groups.push((slot, Vec::new()));
        }
        groups[at].1.push(place as u32);
    }
    if groups.len() == 1 {
        return None;
    }
    let parts = groups.iter().map(|(slot, places)| {
        let mut words = vec![args.at(0)];
        for &place in places {
            let key = keys[place as usize];
            words.push(args.at(key));
            if split == KeySplit::Pairs {
                words.extend(args.get(key + 1));
            }
        }
        let mut out = Vec::new();
        write_command(&mut out, &words);
        CommandPart {
            node: map.of_slot(*slot),
            route: route(*slot),
            bytes: out.into(),
        }
    });
    let parts = parts.collect();
    let rule = match split {
        KeySplit::Values => MergeRule::Places(groups.into_iter().map(|group| group.1).collect()),
        KeySplit::Pairs => MergeRule::First,
        KeySplit::Sum => MergeRule::Sum,
    };
    Some(CommandRoute::Split { parts, rule })
}

#[cfg(test)]
mod tests {
    use super::super::commands::tests::{some, with_args};
    use super::*;

    fn two() -> SlotMap {
        SlotMap::even(&[NodeIndex(0), NodeIndex(1)])
    }

    fn way_of(kind: NodeKind, words: &str) -> CommandRoute {
        let commands = some();
        with_args(words, |args| {
            way(kind, &two(), commands.find(args).unwrap(), args, 1)
        })
    }

    /// `bar` has slot 5061, `foo` 12182, `hello` 866.
    #[test]
    fn one_key_leads_to_its_node() {
        for kind in [
            NodeKind::Kumiki,
            NodeKind::RedisCluster,
            NodeKind::RedisServers,
        ] {
            let route = route(12182);
            let node = NodeIndex(1);
            assert_eq!(way_of(kind, "GET foo"), CommandRoute::One { node, route });
            assert_eq!(
                way_of(kind, "blpop foo 0"),
                CommandRoute::Own { node, route }
            );
            assert_eq!(way_of(kind, "time"), CommandRoute::One { node, route: 0 });
        }
    }

    #[test]
    fn kumiki_executes_commands_on_several_keys_itself() {
        let (node, route) = (NodeIndex(0), route(5061));
        let told = way_of(NodeKind::Kumiki, "MSET bar 1 foo 2");
        assert_eq!(told, CommandRoute::Alone { node, route });
        let told = way_of(NodeKind::Kumiki, "MGET bar hello");
        assert_eq!(told, CommandRoute::One { node, route });
    }

    #[test]
    fn redis_gets_a_part_for_each_slot_or_server() {
        let CommandRoute::Split { parts, rule } =
            way_of(NodeKind::RedisCluster, "mget foo bar foo hello")
        else {
            panic!("it is split");
        };
        assert_eq!(rule, MergeRule::Places(vec![vec![0, 2], vec![1], vec![3]]));
        assert_eq!(
            parts[0].bytes,
            "*3\r\n$4\r\nmget\r\n$3\r\nfoo\r\n$3\r\nfoo\r\n"
        );
        assert_eq!((parts[0].node, parts[1].node), (NodeIndex(1), NodeIndex(0)));
        let CommandRoute::Split { parts, rule } =
            way_of(NodeKind::RedisServers, "MSET foo 1 bar 2 hello 3")
        else {
            panic!("it is split");
        };
        assert_eq!((parts.len(), rule), (2, MergeRule::First));
        assert_eq!(
            parts[1].bytes,
            "*5\r\n$4\r\nMSET\r\n$3\r\nbar\r\n$1\r\n2\r\n$5\r\nhello\r\n$1\r\n3\r\n"
        );
        let together = way_of(NodeKind::RedisServers, "del bar hello");
        assert!(matches!(together, CommandRoute::One { .. }), "{together:?}");
        assert_eq!(
            way_of(NodeKind::RedisCluster, "msetnx foo 1 bar 2"),
            CommandRoute::Refused(CROSS_SLOT)
        );
    }

    #[test]
    fn a_scan_visits_all_nodes() {
        let step = |cursor: u64| match way_of(NodeKind::RedisServers, &format!("scan {cursor}")) {
            CommandRoute::Scan { cursors, part } => (cursors, part.node.0, part.bytes),
            other => panic!("{other:?}"),
        };
        let reply = |cursor: &str| {
            let len = cursor.len();
            Bytes::from(format!("*2\r\n${len}\r\n{cursor}\r\n*1\r\n$1\r\nk\r\n"))
        };
        let next = |reply: &Bytes| {
            let text = String::from_utf8(reply.to_vec()).unwrap();
            text.split("\r\n").nth(2).unwrap().parse::<u64>().unwrap()
        };
        let (cursors, node, bytes) = step(0);
        assert_eq!(node, 0);
        assert_eq!(bytes, "*2\r\n$4\r\nscan\r\n$1\r\n0\r\n");
        let second = next(&scanned(&reply("17"), cursors));
        let (cursors, node, bytes) = step(second);
        assert_eq!(node, 0);
        assert_eq!(bytes, "*2\r\n$4\r\nscan\r\n$2\r\n17\r\n");
        let third = next(&scanned(&reply("0"), cursors));
        let (cursors, node, _) = step(third);
        assert_eq!(node, 1);
        let last = scanned(&reply("0"), cursors);
        assert_eq!(last, "*2\r\n$1\r\n0\r\n*1\r\n$1\r\nk\r\n");
        // Node 0 is gone, and node 2 has its slots: a cursor of node 0 means nothing there.
        let mut map = SlotMap::even(&[NodeIndex(2), NodeIndex(1)]);
        map.follow(&two());
        let way = with_args(&format!("scan {second}"), |args| scan(&map, args));
        let CommandRoute::Scan { part, .. } = way else {
            panic!("{way:?}");
        };
        assert_eq!(part.node, NodeIndex(2));
        assert_eq!(part.bytes, "*2\r\n$4\r\nscan\r\n$1\r\n0\r\n");
        assert_eq!(
            way_of(NodeKind::RedisServers, "scan 1024"),
            CommandRoute::Refused("ERR invalid cursor")
        );
        assert_eq!(
            way_of(NodeKind::RedisServers, "scan x"),
            CommandRoute::Refused("ERR invalid cursor")
        );
        assert_eq!(
            way_of(NodeKind::RedisServers, "scan 999"),
            CommandRoute::Refused("ERR invalid cursor")
        );
    }
}
