//! Writes a column's arrays and its [entry](crate::entry), from pieces that follow one another.

use arrow_array::cast::AsArray;
use arrow_array::types::Decimal128Type;
use arrow_array::{Array, ArrayRef, BinaryArray, BooleanArray, StringArray};
use arrow_buffer::BooleanBufferBuilder;

use crate::distinct::Distinct;
use crate::entry::{ALIGN, Entry, Keyed, Keys};
use crate::kind::{Kind, Width};

/// A column's values, and the form in which they are stored.
pub(crate) struct Column<'a> {
    /// Arrays of one type, one after the other.
    pub(crate) pieces: &'a [ArrayRef],
    /// The kind of the values as they are stored.
    pub(crate) kind: Kind,
    /// The dictionary and the keys into it, if they are stored instead of the texts.
    pub(crate) distinct: Option<&'a Distinct>,
}

impl Column<'_> {
    fn rows(&self) -> usize {
        self.pieces.iter().map(|piece| piece.len()).sum()
    }

    /// Appends the arrays to a page or block that begins at `start`.
    pub(crate) fn write(&self, out: &mut Vec<u8>, start: usize) -> Entry {
        let nulls = self.pieces.iter().map(|piece| piece.null_count()).sum();
        let mut entry = Entry {
            kind: self.kind,
            keys: Keys::None,
            nulls,
            validity: 0,
            values: 0,
            length: 0,
            offsets: 0,
            entries: 0,
            keys_at: 0,
        };
        if nulls > 0 {
            entry.validity = align(out, start);
            self.write_validity(out);
        }
        let first = self.pieces.first().and_then(|piece| Keyed::of(piece));
        match (self.distinct, first) {
            (Some(distinct), _) => write_dictionary(out, start, &mut entry, distinct),
            (None, Some(keyed)) => write_keyed(out, start, &mut entry, &keyed),
            (None, None) => self.write_values(out, start, &mut entry),
        }
        entry
    }

    fn write_validity(&self, out: &mut Vec<u8>) {
        let mut bits = BooleanBufferBuilder::new(self.rows());
        for piece in self.pieces {
            match piece.nulls() {
                Some(nulls) => bits.append_buffer(nulls.inner()),
                None => bits.append_n(piece.len(), true),
            }
        }
        out.extend(bits.as_slice());
    }

    fn write_values(&self, out: &mut Vec<u8>, start: usize, entry: &mut Entry) {
        match self.kind {
            Kind::Utf8 => {
                let texts = self.pieces.iter().map(|piece| piece.as_string::<i32>());
                let texts = texts
                    .map(|array: &StringArray| (array.value_offsets(), array.values().as_slice()));
                write_variable(out, start, entry, texts);
            }
            Kind::Binary => {
                let values = self.pieces.iter().map(|piece| piece.as_binary::<i32>());
                let values = values
                    .map(|array: &BinaryArray| (array.value_offsets(), array.values().as_slice()));
                write_variable(out, start, entry, values);
            }
            _ => {
                entry.values = align(out, start);
                let from = out.len();
                self.write_fixed(out);
                entry.length = out.len() - from;
            }
        }
    }

    fn write_fixed(&self, out: &mut Vec<u8>) {
        match self.kind {
            Kind::Boolean => {
                let mut bits = BooleanBufferBuilder::new(self.rows());
                for piece in self.pieces {
                    let array: &BooleanArray = piece.as_boolean();
                    bits.append_buffer(array.values());
                }
                out.extend(bits.as_slice());
            }
            Kind::Decimal32(..) => self.write_decimals(out, |v| (v as i32).to_le_bytes()),
            Kind::Decimal64(..) => self.write_decimals(out, |v| (v as i64).to_le_bytes()),
            _ => self.write_as_they_are(out),
        }
    }

    /// Writes decimals as narrower ones. A null row may have a value that is too wide: its lower
    /// bytes are as good.
    fn write_decimals<const N: usize>(&self, out: &mut Vec<u8>, narrow: impl Fn(i128) -> [u8; N]) {
        for piece in self.pieces {
            let Some(array) = piece.as_primitive_opt::<Decimal128Type>() else {
                self.write_as_they_are(out);
                return;
            };
            out.extend(array.values().iter().flat_map(|&value| narrow(value)));
        }
    }

    fn write_as_they_are(&self, out: &mut Vec<u8>) {
        let Width::Bytes(width) = self.kind.width() else {
            unreachable!("{:?} has no fixed width", self.kind)
        };
        for piece in self.pieces {
            let data = piece.to_data();
            let bytes = data.buffers()[0].as_slice();
            out.extend(&bytes[data.offset() * width..][..data.len() * width]);
        }
    }
}

/// Writes texts or bytes, of arrays that may be slices of others.
fn write_variable<'a>(
    out: &mut Vec<u8>,
    start: usize,
    entry: &mut Entry,
    pieces: impl Iterator<Item = (&'a [i32], &'a [u8])> + Clone,
) {
    entry.offsets = align(out, start);
    out.extend(0_i32.to_le_bytes());
    let mut end = 0;
    for (offsets, _) in pieces.clone() {
        let shift = end - offsets[0];
        out.extend(
            offsets[1..]
                .iter()
                .flat_map(|at| (at + shift).to_le_bytes()),
        );
        end = offsets[offsets.len() - 1] + shift;
    }
    entry.values = align(out, start);
    entry.length = end as usize;
    for (offsets, bytes) in pieces {
        let (from, to) = (offsets[0] as usize, offsets[offsets.len() - 1] as usize);
        out.extend(&bytes[from..to]);
    }
}

fn write_dictionary(out: &mut Vec<u8>, start: usize, entry: &mut Entry, distinct: &Distinct) {
    entry.keys = distinct.keys();
    entry.keys_at = align(out, start);
    match entry.keys {
        Keys::OneByte => out.extend(distinct.rows().iter().map(|&key| key as u8)),
        _ => out.extend(distinct.rows().iter().flat_map(|key| key.to_le_bytes())),
    }
    entry.entries = distinct.entries();
    let (offsets, bytes) = distinct.texts();
    write_variable(out, start, entry, [(offsets, bytes)].into_iter());
}

/// Writes an array that has a dictionary already; there is one piece of it.
fn write_keyed(out: &mut Vec<u8>, start: usize, entry: &mut Entry, keyed: &Keyed<'_>) {
    entry.kind = Kind::Utf8;
    entry.keys_at = align(out, start);
    let values = match keyed {
        Keyed::OneByte(array) => {
            entry.keys = Keys::OneByte;
            out.extend(array.keys().values().iter());
            array.values()
        }
        Keyed::TwoBytes(array) => {
            entry.keys = Keys::TwoBytes;
            let keys = array.keys().values();
            out.extend(keys.iter().flat_map(|key| key.to_le_bytes()));
            array.values()
        }
    };
    entry.entries = values.len();
    let texts = values.as_string::<i32>();
    let texts = (texts.value_offsets(), texts.values().as_slice());
    write_variable(out, start, entry, [texts].into_iter());
}

/// Fills up with zeros to the next place where an array may begin, and returns this place, counted
/// from `start`.
pub(crate) fn align(out: &mut Vec<u8>, start: usize) -> usize {
    let at = (out.len() - start).next_multiple_of(ALIGN);
    out.resize(start + at, 0);
    at
}
