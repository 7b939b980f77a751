//! Reading values.
//!
//! The elements become a block as they are read, and then the block is checked as a whole.

use std::collections::HashSet;

use base::number::parse_int;
use base::transaction::Kind;

use super::block_entry::BlockEntry;
use super::listpack::ListpackEntries;
use super::payload::{DecodeContext, DumpedValue, PayloadError, longest_block};
use super::reader::PayloadReader;
use super::value_type as types;
use super::ziplist::ZiplistEntries;
use super::{intset, streams, zipmap};
use crate::encoding::SET_INTEGERS;
use crate::packed::{BlockForm, PackedEditor, PackedView};
use crate::score::{self, SCORE_BYTES};

/// Up to so many elements are compared with each other.
const FEW: usize = 16;

/// The latest deadline of a field, as Redis has it.
const LATEST_MS: u64 = (1 << 48) - 2;

/// The text length that stands for no number, and those that stand for the infinities.
const TEXT_NAN: u8 = 253;
const TEXT_INFINITY: u8 = 254;
const TEXT_MINUS_INFINITY: u8 = 255;

/// Reads a value with its type.
pub(super) fn read(
    rest: &mut PayloadReader<'_>,
    context: DecodeContext,
) -> Result<Option<DumpedValue>, PayloadError> {
    let encoding = rest.byte()?;
    let longest = context.longest;
    let (kind, form) = match encoding {
        types::STRING => {
            let (kind, bytes) = (Kind::String, rest.string(longest)?.into_owned());
            return Ok(Some(DumpedValue { kind, bytes }));
        }
        types::LIST | types::LIST_ZIPLIST | types::LIST_ZIPLISTS | types::LIST_NODES => {
            (Kind::List, BlockForm::Single)
        }
        types::SET | types::SET_INTSET | types::SET_LISTPACK => (Kind::Set, BlockForm::Single),
        types::SORTED_SET
        | types::SORTED_SET_TEXT
        | types::SORTED_SET_LISTPACK
        | types::SORTED_SET_ZIPLIST => (Kind::SortedSet, BlockForm::Single),
        types::HASH | types::HASH_LISTPACK | types::HASH_ZIPLIST | types::HASH_ZIPMAP => {
            (Kind::Hash, BlockForm::Pairs)
        }
        types::HASH_DEADLINES
        | types::HASH_DEADLINES_LISTPACK
        | types::HASH_DEADLINES_EARLY
        | types::HASH_DEADLINES_LISTPACK_EARLY => {
            return read_expiring(encoding, rest, context);
        }
        types::STREAM | types::STREAM_2 | types::STREAM_3 => {
            let (kind, bytes) = (Kind::Stream, streams::read(encoding, rest, context)?);
            return Ok(Some(DumpedValue { kind, bytes }));
        }
        _ => return Err(PayloadError::Malformed),
    };
    let mut to = Elements::new(form, longest);
    read_elements(encoding, rest, &mut to)?;
    let bytes = to.finish(kind, encoding)?;
    Ok(Some(DumpedValue { kind, bytes }))
}

fn read_elements(
    encoding: u8,
    rest: &mut PayloadReader<'_>,
    to: &mut Elements,
) -> Result<(), PayloadError> {
    let longest = to.longest_block();
    match encoding {
        types::LIST | types::SET | types::HASH => read_strings(rest, to),
        types::LIST_ZIPLIST => read_ziplist(&rest.string(longest)?, to),
        types::LIST_ZIPLISTS => {
            for _ in 0..rest.length()? {
                read_ziplist(&rest.string(longest)?, to)?;
            }
            Ok(())
        }
        types::LIST_NODES => read_nodes(rest, to),
        types::SET_INTSET => {
            for number in intset::read(&rest.string(longest)?)? {
                to.single(number.to_string().as_bytes())?;
            }
            Ok(())
        }
        types::SET_LISTPACK => read_listpack(&rest.string(longest)?, to),
        types::HASH_LISTPACK | types::HASH_ZIPLIST => {
            let is_ziplist = encoding == types::HASH_ZIPLIST;
            for_each_pair(&rest.string(longest)?, is_ziplist, |field, value| {
                to.pair(&field.bytes(), &value.bytes())
            })
        }
        types::HASH_ZIPMAP => zipmap::read(&rest.string(longest)?, &mut |field, value| {
            to.pair(field, value)
        }),
        types::SORTED_SET_LISTPACK | types::SORTED_SET_ZIPLIST => {
            let is_ziplist = encoding == types::SORTED_SET_ZIPLIST;
            for_each_pair(&rest.string(longest)?, is_ziplist, |member, score| {
                let score = score::parse(&score.bytes());
                to.scored(&member.bytes(), score.ok_or(PayloadError::Malformed)?)
            })
        }
        _ => read_scored(rest, encoding == types::SORTED_SET_TEXT, to),
    }
}

/// Reads a hash whose fields may have deadlines. `None`: those of all fields have passed.
fn read_expiring(
    encoding: u8,
    rest: &mut PayloadReader<'_>,
    context: DecodeContext,
) -> Result<Option<DumpedValue>, PayloadError> {
    let is_early = matches!(
        encoding,
        types::HASH_DEADLINES_EARLY | types::HASH_DEADLINES_LISTPACK_EARLY
    );
    let least = match is_early {
        true => 1,
        false => u64::from_le_bytes(rest.array()?),
    };
    let mut hash = ExpiringHash::new(context);
    if matches!(
        encoding,
        types::HASH_DEADLINES | types::HASH_DEADLINES_EARLY
    ) {
        for _ in 0..rest.length()? {
            let deadline = match rest.length()? {
                0 => 0,
                offset => least
                    .checked_add(offset - 1)
                    .ok_or(PayloadError::Malformed)?,
            };
            let name = rest.string(context.longest)?;
            hash.add(&name, &rest.string(context.longest)?, deadline)?;
        }
        return hash.finish();
    }
    let block = rest.string(hash.all.longest_block())?;
    let mut entries = ListpackEntries::new(&block)?;
    while let Some(name) = entries.next() {
        let value = entries.next().ok_or(PayloadError::Malformed)??;
        let deadline = entries.next().ok_or(PayloadError::Malformed)??;
        let deadline = match deadline {
            BlockEntry::Int(deadline) => u64::try_from(deadline).ok(),
            BlockEntry::Bytes(_) => None,
        };
        let deadline = deadline.ok_or(PayloadError::Malformed)?;
        hash.add(&name?.bytes(), &value.bytes(), deadline)?;
    }
    hash.finish()
}

/// Reads a number of elements, each of one string or two.
fn read_strings(rest: &mut PayloadReader<'_>, to: &mut Elements) -> Result<(), PayloadError> {
    for _ in 0..rest.length()? {
        let first = rest.string(to.longest)?;
        match to.form {
            BlockForm::Pairs => to.pair(&first, &rest.string(to.longest)?)?,
            _ => to.single(&first)?,
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
    form: BlockForm,
    block: PackedEditor<'static>,
    longest: usize,
}

impl Elements {
    fn new(form: BlockForm, longest: usize) -> Elements {
        Elements {
            form,
            block: PackedEditor::new(form, b""),
            longest,
        }
    }

    fn longest_block(&self) -> usize {
        longest_block(self.longest)
    }

    fn single(&mut self, blob: &[u8]) -> Result<(), PayloadError> {
        self.pair(blob, b"")
    }

    fn pair(&mut self, first: &[u8], second: &[u8]) -> Result<(), PayloadError> {
        self.block.push(first, second);
        let fits = self.block.bytes() <= self.longest;
        fits.then_some(()).ok_or(PayloadError::TooLong)
    }

    fn scored(&mut self, member: &[u8], score: f64) -> Result<(), PayloadError> {
        if score.is_nan() {
            return Err(PayloadError::Malformed);
        }
        self.single(&[&score::sortable(score), member].concat())
    }

    /// Returns the bytes of a value with these elements, if it is one.
    fn finish(self, kind: Kind, encoding: u8) -> Result<Vec<u8>, PayloadError> {
        let block = self.block.into_changed().ok_or(PayloadError::Malformed)?;
        let view = PackedView::new(&block);
        let is_table = matches!(encoding, types::SORTED_SET | types::SORTED_SET_TEXT);
        let numbers = match kind {
            Kind::Set if view.len() <= SET_INTEGERS => numbers_of(view),
            _ => None,
        };
        let block = match numbers {
            Some(mut numbers) => {
                numbers.sort_unstable();
                let texts: Vec<String> = numbers.iter().map(i64::to_string).collect();
                packed(BlockForm::Integers, texts.iter().map(String::as_bytes))
            }
            None if is_table => {
                let mut elements: Vec<&[u8]> = blobs(view).collect();
                elements.sort_unstable();
                packed(BlockForm::Single, elements.into_iter())
            }
            None => block,
        };
        let view = PackedView::new(&block);
        let is_valid = match kind {
            Kind::List => true,
            Kind::SortedSet => {
                let are_ordered = blobs(view).is_sorted_by(|one, next| one < next);
                let members = blobs(view).map(|element| &element[SCORE_BYTES..]);
                are_ordered && are_different(members, view.len())
            }
            _ => are_different(blobs(view), view.len()),
        };
        is_valid.then_some(block).ok_or(PayloadError::Malformed)
    }
}

/// The fields that were read of a hash some of whose fields may have deadlines.
struct ExpiringHash {
    /// Those whose deadlines have not passed, with their deadlines.
    all: Elements,
    /// The same ones without deadlines, as long as none has one.
    without: Option<Elements>,
    /// `true` if some were left out.
    has_expired: bool,
    time_ms: u64,
}

impl ExpiringHash {
    fn new(context: DecodeContext) -> ExpiringHash {
        ExpiringHash {
            all: Elements::new(BlockForm::ExpiringPairs, context.longest),
            without: Some(Elements::new(BlockForm::Pairs, context.longest)),
            has_expired: false,
            time_ms: context.time_ms,
        }
    }

    /// Adds a field; 0: it has no deadline.
    fn add(&mut self, name: &[u8], value: &[u8], deadline: u64) -> Result<(), PayloadError> {
        if deadline > LATEST_MS {
            return Err(PayloadError::Malformed);
        }
        if deadline > 0 && deadline <= self.time_ms {
            self.has_expired = true;
            return Ok(());
        }
        match &mut self.without {
            Some(without) if deadline == 0 => without.pair(name, value)?,
            _ => self.without = None,
        }
        self.all
            .pair(name, &[&deadline.to_le_bytes(), value].concat())
    }

    fn finish(self) -> Result<Option<DumpedValue>, PayloadError> {
        if self.has_expired && self.all.block.view().len() == 0 {
            return Ok(None);
        }
        let kind = Kind::Hash;
        let elements = self.without.unwrap_or(self.all);
        let bytes = elements.finish(kind, types::HASH_DEADLINES)?;
        Ok(Some(DumpedValue { kind, bytes }))
    }
}

/// Returns the first blobs of elements.
fn blobs<'v>(view: PackedView<'v>) -> impl Iterator<Item = &'v [u8]> + Clone {
    view.iter().map(|element| element.first)
}

/// Returns the elements as integers, if all of them are.
fn numbers_of(view: PackedView<'_>) -> Option<Vec<i64>> {
    blobs(view).map(parse_int).collect()
}

/// Returns the block of elements that are one blob each; there are some.
fn packed<'b>(form: BlockForm, blobs: impl Iterator<Item = &'b [u8]>) -> Vec<u8> {
    let mut block = PackedEditor::new(form, b"");
    blobs.for_each(|blob| block.push(blob, b""));
    block.into_changed().expect("it has elements")
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
