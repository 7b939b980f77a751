//! Writing values.

use base::number::parse_int;
use base::transaction::Kind;

use super::value_type::{
    HASH, HASH_DEADLINES, HASH_DEADLINES_LISTPACK, HASH_LISTPACK, LIST_NODES, NODE_LISTPACK, SET,
    SET_INTSET, SORTED_SET, SORTED_SET_LISTPACK, STRING,
};
use super::{intset, streams, writer};
use crate::call::{StoredBlock, StoredData};
use crate::encoding;
use crate::hash::HashView;
use crate::listpack::ListpackWriter;
use crate::packed::{BlockForm, PackedView};
use crate::score;
use crate::stream::StreamView;

/// The bytes that Redis adds to the length of an element when it looks whether a node has room for it.
const NODE_MARGIN: usize = 8;

/// Writes a value with its type.
pub(super) fn write(value: StoredBlock<'_>, out: &mut Vec<u8>) {
    let view = PackedView::new(value.bytes);
    match value.kind {
        Kind::String => {
            out.push(STRING);
            writer::string(value.bytes, out);
        }
        Kind::Hash if view.form() == Some(BlockForm::ExpiringPairs) => {
            write_expiring_hash(all_fields(value.bytes), out);
        }
        Kind::Hash => write_hash(all_fields(value.bytes), out),
        Kind::List => write_list(view, out),
        Kind::Set => write_set(view, out),
        Kind::SortedSet => write_sorted_set(view, out),
        Kind::Stream => streams::write(StreamView::new(value.bytes), out),
    }
}

/// Returns a hash with all its fields, also those whose deadlines have passed.
fn all_fields(bytes: &[u8]) -> HashView<'_> {
    HashView::new(StoredData::Bytes(bytes), 0)
}

fn write_hash(hash: HashView<'_>, out: &mut Vec<u8>) {
    if encoding::is_hash_listpack(hash) {
        let mut listpack = ListpackWriter::new();
        for field in hash.iter() {
            listpack.push(field.name);
            listpack.push(field.value);
        }
        out.push(HASH_LISTPACK);
        return writer::string(&listpack.finish(), out);
    }
    out.push(HASH);
    writer::length(hash.len(), out);
    for field in hash.iter() {
        writer::string(field.name, out);
        writer::string(field.value, out);
    }
}

/// Writes a hash of which some fields have deadlines.
fn write_expiring_hash(hash: HashView<'_>, out: &mut Vec<u8>) {
    let least = hash.next_deadline().unwrap_or(0);
    if encoding::is_hash_listpack(hash) {
        let fields = hash.iter();
        let (mut expiring, lasting): (Vec<_>, Vec<_>) =
            fields.partition(|field| field.deadline.is_some());
        // Of fields with the same deadline, Redis has the one first that got it last.
        expiring.reverse();
        expiring.sort_by_key(|field| field.deadline);
        let mut listpack = ListpackWriter::new();
        for field in expiring.iter().chain(&lasting) {
            listpack.push(field.name);
            listpack.push(field.value);
            listpack.push(field.deadline.unwrap_or(0).to_string().as_bytes());
        }
        out.push(HASH_DEADLINES_LISTPACK);
        out.extend(least.to_le_bytes());
        return writer::string(&listpack.finish(), out);
    }
    out.push(HASH_DEADLINES);
    out.extend(least.to_le_bytes());
    writer::length(hash.len(), out);
    for field in hash.iter() {
        let offset = field.deadline.map_or(0, |deadline| deadline - least + 1);
        writer::length(offset as usize, out);
        writer::string(field.name, out);
        writer::string(field.value, out);
    }
}

/// Writes a list in the nodes that it has if its elements were pushed one by one at the tail.
fn write_list(list: PackedView<'_>, out: &mut Vec<u8>) {
    let mut nodes = vec![ListpackWriter::new()];
    for element in list.iter() {
        let node = nodes.last_mut().expect("it has one");
        let length = node.len() + element.first.len() + NODE_MARGIN;
        let node = match node.is_empty() || length <= encoding::LIST_NODE {
            true => node,
            false => nodes.push_mut(ListpackWriter::new()),
        };
        node.push(element.first);
    }
    out.push(LIST_NODES);
    writer::length(nodes.len(), out);
    for node in nodes {
        writer::length(NODE_LISTPACK as usize, out);
        writer::string(&node.finish(), out);
    }
}

fn write_set(set: PackedView<'_>, out: &mut Vec<u8>) {
    if encoding::is_intset(set) {
        let numbers = set.iter().filter_map(|member| parse_int(member.first));
        let numbers: Vec<i64> = numbers.collect();
        out.push(SET_INTSET);
        return writer::string(&intset::write(&numbers), out);
    }
    out.push(SET);
    writer::length(set.len(), out);
    for member in set.iter() {
        writer::string(member.first, out);
    }
}

fn write_sorted_set(set: PackedView<'_>, out: &mut Vec<u8>) {
    let members = || set.iter().map(|element| score::split(element.first));
    if encoding::is_sorted_set_listpack(set) {
        let mut listpack = ListpackWriter::new();
        for (score, member) in members() {
            listpack.push(member);
            // Whole numbers are integers there, however large.
            let whole = score as i64;
            let is_whole = score.abs() <= (i64::MAX / 2) as f64 && whole as f64 == score;
            match is_whole {
                true => listpack.push(whole.to_string().as_bytes()),
                false => listpack.push(score::text(score).as_bytes()),
            }
        }
        out.push(SORTED_SET_LISTPACK);
        return writer::string(&listpack.finish(), out);
    }
    out.push(SORTED_SET);
    writer::length(set.len(), out);
    let members: Vec<(f64, &[u8])> = members().collect();
    for (score, member) in members.into_iter().rev() {
        writer::string(member, out);
        out.extend(score.to_le_bytes());
    }
}
