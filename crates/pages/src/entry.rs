//! A column's entry: where its arrays lie, in a page or in a block.
//!
//! An entry has 32 bytes. *Places* are counted in units of 64 bytes from the beginning of the page or block,
//! so that all arrays are aligned; 0 stands for no array.
//!
//! | at | bytes | field | meaning |
//! |---|---|---|---|
//! | 0 | 1 | kind | of the values, see the table of kinds |
//! | 1 | 1 | keys | 0: rows have values; 1, 2: they have keys of so many bytes, which count entries of a dictionary of texts |
//! | 2 | 1 | precision | of decimals |
//! | 3 | 1 | scale | of decimals |
//! | 4 | 4 | nulls | how many rows have no value |
//! | 8 | 4 | validity | place of a bitmap with a 1 for each value, the lowest bit first; 0 without nulls |
//! | 12 | 4 | values | place of the values, or of the bytes of all texts, those of the dictionary if there is one |
//! | 16 | 4 | length | of that, in bytes |
//! | 20 | 4 | offsets | place of the texts' beginnings in `values`, 4 bytes each, and behind them the end of the last; 0 for other kinds |
//! | 24 | 4 | entries | of the dictionary; 0 without keys |
//! | 28 | 4 | place of keys | 0 without keys |
//!
//! Booleans are bits. Null rows have values, too, or keys, which have no meaning.

use std::sync::Arc;

use arrow_array::types::{
    ArrowPrimitiveType, Date32Type, Decimal32Type, Decimal64Type, Decimal128Type, Float32Type,
    Float64Type, Int8Type, Int16Type, Int32Type, Int64Type, TimestampMicrosecondType,
    TimestampMillisecondType, TimestampNanosecondType, TimestampSecondType, UInt8Type, UInt16Type,
    UInt32Type, UInt64Type,
};
use arrow_array::{
    Array, ArrayRef, BinaryArray, BooleanArray, DictionaryArray, PrimitiveArray, StringArray,
};
use arrow_buffer::{BooleanBuffer, Buffer, NullBuffer, OffsetBuffer, ScalarBuffer};
use arrow_schema::TimeUnit;

use base::codec::{put_at, u32_at};

use crate::format_error::FormatError;
use crate::kind::{Kind, Width};

/// Bytes of an entry.
pub(crate) const ENTRY: usize = 32;
/// Arrays begin at multiples of this.
pub(crate) const ALIGN: usize = 64;

/// How a column's rows refer to its values.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) enum Keys {
    #[default]
    None,
    OneByte,
    TwoBytes,
}

impl Keys {
    pub(crate) fn bytes(self) -> usize {
        self as usize
    }

    fn decode(code: u8) -> Option<Keys> {
        [Keys::None, Keys::OneByte, Keys::TwoBytes]
            .into_iter()
            .find(|keys| *keys as u8 == code)
    }
}

/// An entry; see the module's table. Places are in bytes here.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Entry {
    pub(crate) kind: Kind,
    pub(crate) keys: Keys,
    pub(crate) nulls: usize,
    pub(crate) validity: usize,
    pub(crate) values: usize,
    pub(crate) length: usize,
    pub(crate) offsets: usize,
    pub(crate) entries: usize,
    pub(crate) keys_at: usize,
}

impl Entry {
    pub(crate) fn encode(&self) -> [u8; ENTRY] {
        let mut bytes = [0; ENTRY];
        let [kind, precision, scale] = self.kind.encode();
        put_at(&mut bytes, 0, &[kind, self.keys as u8, precision, scale]);
        let place = |at: usize| (at / ALIGN) as u32;
        let words = [
            self.nulls as u32,
            place(self.validity),
            place(self.values),
            self.length as u32,
            place(self.offsets),
            self.entries as u32,
            place(self.keys_at),
        ];
        for (i, word) in words.iter().enumerate() {
            put_at(&mut bytes, 4 + 4 * i, &word.to_le_bytes());
        }
        bytes
    }

    /// Reads the entry of a column with so many rows, whose arrays lie in `bytes` after `from`. All
    /// places are verified, and so is the number of nulls.
    ///
    /// # Errors
    /// Returns a text that says what is wrong.
    pub(crate) fn decode(
        entry: &[u8; ENTRY],
        rows: usize,
        bytes: &[u8],
        from: usize,
    ) -> Result<Entry, FormatError> {
        let kind = Kind::decode([entry[0], entry[2], entry[3]]);
        let kind = kind.ok_or_else(|| format!("there is no kind {:?}", &entry[..4]))?;
        let keys = Keys::decode(entry[1]);
        let keys = keys.ok_or_else(|| format!("there are no keys of {} bytes", entry[1]))?;
        let word = |at| u32_at(entry, at) as usize;
        let entry = Entry {
            kind,
            keys,
            nulls: word(4),
            validity: word(8) * ALIGN,
            values: word(12) * ALIGN,
            length: word(16),
            offsets: word(20) * ALIGN,
            entries: word(24),
            keys_at: word(28) * ALIGN,
        };
        entry.verify(rows, bytes, from)?;
        Ok(entry)
    }

    fn verify(&self, rows: usize, bytes: &[u8], from: usize) -> Result<(), FormatError> {
        let array = |what: &str, at: usize, length: usize| {
            let inside = at >= from && at.checked_add(length).is_some_and(|to| to <= bytes.len());
            let wrong = || format!("{what} of {length} bytes at {at} are not within it");
            inside.then_some(()).ok_or_else(|| FormatError(wrong()))
        };
        let absent = |what: &str, at: usize| {
            let wrong = || format!("{what} where there are none");
            (at == 0).then_some(()).ok_or_else(|| FormatError(wrong()))
        };
        array("values", self.values, self.length)?;
        if self.keys == Keys::None {
            absent("keys", self.keys_at)?;
            absent("entries of a dictionary", self.entries)?;
        } else {
            if self.kind != Kind::Utf8 {
                return Err(format!("a dictionary of {:?}", self.kind).into());
            }
            array("keys", self.keys_at, rows * self.keys.bytes())?;
        }
        let stored = if self.entries > 0 { self.entries } else { rows };
        let length = match self.kind.width() {
            Width::Bit => stored.div_ceil(8),
            Width::Bytes(width) => stored * width,
            Width::Variable => self.length,
        };
        if length != self.length {
            return Err(format!("{} bytes of values, not {length}", self.length).into());
        }
        if self.kind.width() == Width::Variable {
            array("offsets", self.offsets, 4 * (stored + 1))?;
        } else {
            absent("offsets", self.offsets)?;
        }
        if self.nulls == 0 {
            return absent("a bitmap of nulls", self.validity);
        }
        array("a bitmap of nulls", self.validity, rows.div_ceil(8))?;
        let bitmap = &bytes[self.validity..][..rows.div_ceil(8)];
        let nulls = rows - ones(bitmap, rows);
        let wrong = || format!("{nulls} nulls, not {}", self.nulls);
        (nulls == self.nulls)
            .then_some(())
            .ok_or_else(|| FormatError(wrong()))
    }

    /// Returns the column's array, which shares the memory. `buffer` was verified by
    /// [`Entry::decode`].
    ///
    /// # Errors
    /// Returns a text that says what is wrong with offsets, texts, or keys.
    pub(crate) fn array(&self, buffer: &Buffer, rows: usize) -> Result<ArrayRef, FormatError> {
        let nulls = (self.nulls > 0).then(|| {
            let bitmap = buffer.slice_with_length(self.validity, rows.div_ceil(8));
            NullBuffer::new(BooleanBuffer::new(bitmap, 0, rows))
        });
        if self.keys == Keys::None {
            return self.plain(buffer, rows, nulls);
        }
        let dictionary = self.plain(buffer, self.entries, None)?;
        let keys = buffer.slice_with_length(self.keys_at, rows * self.keys.bytes());
        let array = if self.keys == Keys::OneByte {
            let keys = PrimitiveArray::<UInt8Type>::new(ScalarBuffer::new(keys, 0, rows), nulls);
            DictionaryArray::try_new(keys, dictionary).map(|array| Arc::new(array) as ArrayRef)
        } else {
            let keys = PrimitiveArray::<UInt16Type>::new(ScalarBuffer::new(keys, 0, rows), nulls);
            DictionaryArray::try_new(keys, dictionary).map(|array| Arc::new(array) as ArrayRef)
        };
        array.map_err(|error| FormatError(error.to_string()))
    }

    fn plain(
        &self,
        buffer: &Buffer,
        rows: usize,
        nulls: Option<NullBuffer>,
    ) -> Result<ArrayRef, FormatError> {
        let values = buffer.slice_with_length(self.values, self.length);
        Ok(match self.kind {
            Kind::Boolean => Arc::new(BooleanArray::new(
                BooleanBuffer::new(values, 0, rows),
                nulls,
            )),
            Kind::Int8 => primitive::<Int8Type>(values, rows, nulls),
            Kind::Int16 => primitive::<Int16Type>(values, rows, nulls),
            Kind::Int32 => primitive::<Int32Type>(values, rows, nulls),
            Kind::Int64 => primitive::<Int64Type>(values, rows, nulls),
            Kind::UInt8 => primitive::<UInt8Type>(values, rows, nulls),
            Kind::UInt16 => primitive::<UInt16Type>(values, rows, nulls),
            Kind::UInt32 => primitive::<UInt32Type>(values, rows, nulls),
            Kind::UInt64 => primitive::<UInt64Type>(values, rows, nulls),
            Kind::Float32 => primitive::<Float32Type>(values, rows, nulls),
            Kind::Float64 => primitive::<Float64Type>(values, rows, nulls),
            Kind::Date32 => primitive::<Date32Type>(values, rows, nulls),
            Kind::Timestamp(TimeUnit::Second) => {
                primitive::<TimestampSecondType>(values, rows, nulls)
            }
            Kind::Timestamp(TimeUnit::Millisecond) => {
                primitive::<TimestampMillisecondType>(values, rows, nulls)
            }
            Kind::Timestamp(TimeUnit::Microsecond) => {
                primitive::<TimestampMicrosecondType>(values, rows, nulls)
            }
            Kind::Timestamp(TimeUnit::Nanosecond) => {
                primitive::<TimestampNanosecondType>(values, rows, nulls)
            }
            Kind::Decimal32(..) => self.decimal::<Decimal32Type>(values, rows, nulls),
            Kind::Decimal64(..) => self.decimal::<Decimal64Type>(values, rows, nulls),
            Kind::Decimal128(..) => self.decimal::<Decimal128Type>(values, rows, nulls),
            Kind::Utf8 => {
                let texts = StringArray::try_new(self.offsets(buffer, rows)?, values, nulls);
                Arc::new(texts.map_err(|error| error.to_string())?)
            }
            Kind::Binary => {
                let bytes = BinaryArray::try_new(self.offsets(buffer, rows)?, values, nulls);
                Arc::new(bytes.map_err(|error| error.to_string())?)
            }
        })
    }

    fn decimal<T: ArrowPrimitiveType>(
        &self,
        values: Buffer,
        rows: usize,
        nulls: Option<NullBuffer>,
    ) -> ArrayRef {
        let array = PrimitiveArray::<T>::new(ScalarBuffer::new(values, 0, rows), nulls);
        Arc::new(array.with_data_type(self.kind.data_type()))
    }

    /// Returns the offsets of texts, and an error for those at which `OffsetBuffer` itself panics.
    fn offsets(&self, buffer: &Buffer, rows: usize) -> Result<OffsetBuffer<i32>, FormatError> {
        let offsets = buffer.slice_with_length(self.offsets, 4 * (rows + 1));
        let offsets = ScalarBuffer::<i32>::new(offsets, 0, rows + 1);
        // There is no early exit, so that the loop is compiled to vector instructions.
        let falls = offsets
            .windows(2)
            .fold(false, |any, two| any | (two[0] > two[1]));
        if falls || offsets[0] != 0 || usize::try_from(offsets[rows]) != Ok(self.length) {
            return Err("offsets of texts do not divide their bytes".into());
        }
        Ok(OffsetBuffer::new(offsets))
    }
}

fn primitive<T: ArrowPrimitiveType>(
    values: Buffer,
    rows: usize,
    nulls: Option<NullBuffer>,
) -> ArrayRef {
    Arc::new(PrimitiveArray::<T>::new(
        ScalarBuffer::new(values, 0, rows),
        nulls,
    ))
}

/// Returns how many of the first `bits` bits are 1.
fn ones(bitmap: &[u8], bits: usize) -> usize {
    let whole: u32 = bitmap[..bits / 8]
        .iter()
        .map(|byte| byte.count_ones())
        .sum();
    let rest = bits % 8;
    let last = if rest == 0 {
        0
    } else {
        (bitmap[bits / 8] & ((1 << rest) - 1)).count_ones()
    };
    (whole + last) as usize
}

/// Returns memory in which arrays may begin at every place of an entry: the same memory if it is
/// aligned, or else a copy.
pub(crate) fn aligned(bytes: bytes::Bytes) -> Buffer {
    if (bytes.as_ptr() as usize).is_multiple_of(align_of::<i128>()) {
        Buffer::from(bytes)
    } else {
        Buffer::from(&bytes[..])
    }
}

/// An array of keys and a dictionary of texts.
pub(crate) enum Keyed<'a> {
    OneByte(&'a DictionaryArray<UInt8Type>),
    TwoBytes(&'a DictionaryArray<UInt16Type>),
}

impl<'a> Keyed<'a> {
    pub(crate) fn of(array: &'a dyn Array) -> Option<Keyed<'a>> {
        let any = array.as_any();
        let keyed = any
            .downcast_ref()
            .map(Keyed::OneByte)
            .or_else(|| any.downcast_ref().map(Keyed::TwoBytes))?;
        let values = match &keyed {
            Keyed::OneByte(array) => array.values(),
            Keyed::TwoBytes(array) => array.values(),
        };
        values.as_any().is::<StringArray>().then_some(keyed)
    }
}
