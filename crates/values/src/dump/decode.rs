//! Reading values.
//!
//! The elements become a block as they are read, and then the block is checked as a whole.

use std::collections::HashSet;

use base::number::parse_int;
use base::transaction::Kind;

use super::PayloadError;
use super::block_entry::BlockEntry;
use super::listpack::ListpackEntries;
use super::reader::PayloadReader;
use super::value_type as types;
use super::ziplist::ZiplistEntries;
use super::{intset, zipmap};
use crate::encoding;
use crate::packed::{Form, PackedBuilder, PackedView};
use crate::score::{self, SCORE_BYTES};

/// The most bytes of a block besides its elements, and more.
const BLOCK_MARGIN: usize = 64;

/// Up to so many elements are compared with each other.
const FEW: usize = 16;

/// The text length that stands for no number, and those that stand for the infinities.
const TEXT_NAN: u8 = 253;
const TEXT_INFINITY: u8 = 254;
const TEXT_MINUS_INFINITY: u8 = 255;

/// Reads a value of at most `longest` bytes with its type.
pub(super) fn read(
    rest: &mut PayloadReader<'_>,
    longest: usize,
) -> Result<(Kind, Vec<u8>), PayloadError> {
    let encoding = rest.byte()?;
    let mut to = Elements::new(longest);
    match encoding {
        types::STRING => return Ok((Kind::String, rest.string(longest)?.into_owned())),
        types::LIST => read_strings(rest, 1, &mut to)?,
        types::LIST_ZIPLIST => read_ziplist(&rest.string(to.longest_block())?, &mut to)?,
        types::LIST_ZIPLISTS => {
            for _ in 0..rest.length()? {
                read_ziplist(&rest.string(to.longest_block())?, &mut to)?;
            }
        }
        types::LIST_NODES => read_nodes(rest, &mut to)?,
        types::SET => read_strings(rest, 1, &mut to)?,
        types::SET_INTSET => {
            for number in intset::read(&rest.string(to.longest_block())?)? {
                to.single(number.to_string().as_bytes())?;
            }
        }
        types::SET_LISTPACK => read_listpack(&rest.string(to.longest_block())?, &mut to)?,
        types::HASH => read_strings(rest, 2, &mut to)?,
        types::HASH_LISTPACK | types::HASH_ZIPLIST => {
            let block = rest.string(to.longest_block())?;
            for_each_pair(&block, encoding == types::HASH_ZIPLIST, |field, value| {
                to.pair(&field.bytes(), &value.bytes())
            })?;
        }
        types::HASH_ZIPMAP => {
            let block = rest.string(to.longest_block())?;
            zipmap::read(&block, &mut |field, value| to.pair(field, value))?;
        }
        types::SORTED_SET | types::SORTED_SET_TEXT => {
            read_scored(rest, encoding == types::SORTED_SET_TEXT, &mut to)?;
        }
        types::SORTED_SET_LISTPACK | types::SORTED_SET_ZIPLIST => {
            let block = rest.string(to.longest_block())?;
            let is_ziplist = encoding == types::SORTED_SET_ZIPLIST;
            for_each_pair(&block, is_ziplist, |member, score| {
                let score = score::parse(&score.bytes());
                to.scored(&member.bytes(), score.ok_or(PayloadError::Malformed)?)
            })?;
        }
        types::STREAM | types::STREAM_2 | types::STREAM_3 => return Err(PayloadError::Unsupported),
        types::HASH_DEADLINES
        | types::HASH_DEADLINES_LISTPACK
        | types::HASH_DEADLINES_EARLY
        | types::HASH_DEADLINES_LISTPACK_EARLY => return Err(PayloadError::Unsupported),
        _ => return Err(PayloadError::Malformed),
    }
    to.finish(encoding)
}

/// Reads a number of elements of so many strings.
fn read_strings(
    rest: &mut PayloadReader<'_>,
    strings: usize,
    to: &mut Elements,
) -> Result<(), PayloadError> {
    for _ in 0..rest.length()? {
        let first = rest.string(to.longest)?;
        match strings {
            1 => to.single(&first)?,
            _ => to.pair(&first, &rest.string(to.longest)?)?,
        }
    }
    Ok(())
}

/// Reads the nodes of a list.
fn read_nodes(rest: &mut PayloadReader<'_>, to: &mut Elements) -> Result<(), PayloadError> {
    for _ in 0..rest.length()? {
        let container = rest.length()?;
        let node = rest.string(to.longest_block())?;
        match container {
            types::NODE_ELEMENT => to.single(&node)?,
            types::NODE_LISTPACK => read_listpack(&node, to)?,
            _ => return Err(PayloadError::Malformed),
        }
    }
    Ok(())
}

/// Reads a number of members with their scores.
fn read_scored(
    rest: &mut PayloadReader<'_>,
    are_texts: bool,
    to: &mut Elements,
) -> Result<(), PayloadError> {
    for _ in 0..rest.length()? {
        let member = rest.string(to.longest)?;
        let score = match are_texts {
            true => score_text(rest)?,
            false => f64::from_le_bytes(rest.array()?),
        };
        to.scored(&member, score)?;
    }
    Ok(())
}

fn score_text(rest: &mut PayloadReader<'_>) -> Result<f64, PayloadError> {
    match rest.byte()? {
        TEXT_NAN => Err(PayloadError::Malformed),
        TEXT_INFINITY => Ok(f64::INFINITY),
        TEXT_MINUS_INFINITY => Ok(f64::NEG_INFINITY),
        length => {
            let text = rest.take(length.into())?;
            score::parse(text).ok_or(PayloadError::Malformed)
        }
    }
}

fn read_listpack(block: &[u8], to: &mut Elements) -> Result<(), PayloadError> {
    for entry in ListpackEntries::new(block)? {
        to.single(&entry?.bytes())?;
    }
    Ok(())
}

fn read_ziplist(block: &[u8], to: &mut Elements) -> Result<(), PayloadError> {
    for entry in ZiplistEntries::new(block)? {
        to.single(&entry?.bytes())?;
    }
    Ok(())
}

/// Reads a listpack or a ziplist of pairs.
fn for_each_pair<'b>(
    block: &'b [u8],
    is_ziplist: bool,
    add: impl FnMut(BlockEntry<'b>, BlockEntry<'b>) -> Result<(), PayloadError>,
) -> Result<(), PayloadError> {
    match is_ziplist {
        true => pairs_of(ZiplistEntries::new(block)?, add),
        false => pairs_of(ListpackEntries::new(block)?, add),
    }
}

fn pairs_of<'b>(
    mut entries: impl Iterator<Item = Result<BlockEntry<'b>, PayloadError>>,
    mut add: impl FnMut(BlockEntry<'b>, BlockEntry<'b>) -> Result<(), PayloadError>,
) -> Result<(), PayloadError> {
    while let Some(first) = entries.next() {
        let second = entries.next().ok_or(PayloadError::Malformed)?;
        add(first?, second?)?;
    }
    Ok(())
}

/// The elements that were read.
struct Elements {
    block: PackedBuilder,
    longest: usize,
}

impl Elements {
    fn new(longest: usize) -> Elements {
        Elements {
            block: PackedBuilder::new(),
            longest,
        }
    }

    /// Returns the length of the longest string that can be a block of elements: one takes at most twice as many
    /// bytes there.
    fn longest_block(&self) -> usize {
        self.longest.saturating_mul(2).saturating_add(BLOCK_MARGIN)
    }

    fn single(&mut self, blob: &[u8]) -> Result<(), PayloadError> {
        self.block.push(blob);
        self.check_length()
    }

    fn pair(&mut self, first: &[u8], second: &[u8]) -> Result<(), PayloadError> {
        self.block.push(first);
        self.block.push_second(second);
        self.check_length()
    }

    fn scored(&mut self, member: &[u8], score: f64) -> Result<(), PayloadError> {
        if score.is_nan() {
            return Err(PayloadError::Malformed);
        }
        self.single(&[&score::sortable(score), member].concat())
    }

    fn check_length(&self) -> Result<(), PayloadError> {
        let fits = self.block.bytes() <= self.longest;
        fits.then_some(()).ok_or(PayloadError::TooLong)
    }

    /// Returns the value with this encoding, if it is one.
    fn finish(self, encoding: u8) -> Result<(Kind, Vec<u8>), PayloadError> {
        let (kind, form) = match encoding {
            types::LIST | types::LIST_ZIPLIST | types::LIST_ZIPLISTS | types::LIST_NODES => {
                (Kind::List, Form::Single)
            }
            types::SET | types::SET_INTSET | types::SET_LISTPACK => (Kind::Set, Form::Single),
            types::HASH | types::HASH_LISTPACK | types::HASH_ZIPLIST | types::HASH_ZIPMAP => {
                (Kind::Hash, Form::Pairs)
            }
            _ => (Kind::SortedSet, Form::Single),
        };
        let block = self.block.finish(form);
        let view = PackedView::new(&block);
        if view.len() == 0 {
            return Err(PayloadError::Malformed);
        }
        let is_table = matches!(encoding, types::SORTED_SET | types::SORTED_SET_TEXT);
        let ordered = match kind {
            Kind::Set if encoding::is_intset(view) => Some(in_order(view, |member| {
                parse_int(member).unwrap_or_default()
            })),
            Kind::SortedSet if is_table => Some(in_order(view, |element| element)),
            _ => None,
        };
        let checked = ordered.as_deref().map_or(view, PackedView::new);
        let elements = || checked.iter().map(|element| element.first);
        let is_valid = match kind {
            Kind::List => true,
            Kind::SortedSet => {
                let are_ordered = elements().is_sorted_by(|one, next| one < next);
                let members = elements().map(|element| &element[SCORE_BYTES..]);
                are_ordered && are_different(members, checked.len())
            }
            _ => are_different(elements(), checked.len()),
        };
        match is_valid {
            true => Ok((kind, ordered.unwrap_or(block))),
            false => Err(PayloadError::Malformed),
        }
    }
}

/// Returns a block of the same elements in the order of these keys.
fn in_order<'v, K: Ord>(view: PackedView<'v>, key: impl Fn(&'v [u8]) -> K) -> Vec<u8> {
    let mut elements: Vec<&[u8]> = view.iter().map(|element| element.first).collect();
    elements.sort_by_cached_key(|element| key(element));
    let mut block = PackedBuilder::new();
    elements.iter().for_each(|element| block.push(element));
    block.finish(Form::Single)
}

/// Returns `true` if no two of so many elements are the same.
fn are_different<'v>(elements: impl Iterator<Item = &'v [u8]> + Clone, count: usize) -> bool {
    if count > FEW {
        let mut seen = HashSet::with_capacity(count);
        return { elements }.all(|element| seen.insert(element));
    }
    let mut rest = elements;
    while let Some(element) = rest.next() {
        if rest.clone().any(|other| other == element) {
            return false;
        }
    }
    true
}
