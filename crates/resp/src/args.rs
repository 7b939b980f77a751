//! The arguments of a command, as slices of the input.

use std::ops::Range;

// Positions are 32 bits: even the longest argument leaves room for others before it.
const _: () = assert!(4 * 512 * 1024 * 1024 < u32::MAX as u64);

/// The place of an argument in the input.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Span {
    start: u32,
    len: u32,
}

impl Span {
    /// Creates a span of `len` bytes from `start` on.
    ///
    /// # Panics
    /// Panics if a number is 4 GiB or more.
    #[must_use]
    pub fn new(start: usize, len: usize) -> Span {
        let narrow = |n: usize| u32::try_from(n).expect("an input buffer below 4 GiB");
        Span {
            start: narrow(start),
            len: narrow(len),
        }
    }

    /// Returns the same bytes, counted from `by` bytes earlier.
    #[must_use]
    pub fn shifted(self, by: usize) -> Span {
        Span::new(self.start as usize + by, self.len as usize)
    }

    /// Returns it as a range of indexes.
    #[must_use]
    pub fn range(self) -> Range<usize> {
        self.start as usize..self.start as usize + self.len as usize
    }

    /// Returns its length in bytes.
    #[must_use]
    pub fn len(self) -> usize {
        self.len as usize
    }

    /// Returns `true` if it has no bytes.
    #[must_use]
    pub fn is_empty(self) -> bool {
        self.len == 0
    }
}

/// The arguments of one command, the command's name first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Args<'a> {
    bytes: &'a [u8],
    spans: &'a [Span],
}

impl<'a> Args<'a> {
    /// Creates the arguments at `spans` of `bytes`.
    #[must_use]
    pub fn new(bytes: &'a [u8], spans: &'a [Span]) -> Args<'a> {
        Args { bytes, spans }
    }

    /// Returns the number of arguments.
    #[must_use]
    pub fn len(&self) -> usize {
        self.spans.len()
    }

    /// Returns `true` if there are no arguments.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.spans.is_empty()
    }

    /// Returns the argument at `index`.
    #[must_use]
    pub fn get(&self, index: usize) -> Option<&'a [u8]> {
        self.spans.get(index).map(|span| &self.bytes[span.range()])
    }

    /// Returns the argument at `index`.
    ///
    /// # Panics
    /// Panics if there is none.
    #[must_use]
    #[inline]
    pub fn at(&self, index: usize) -> &'a [u8] {
        &self.bytes[self.spans[index].range()]
    }

    /// Returns the arguments from `index` on.
    #[must_use]
    pub fn from(&self, index: usize) -> Args<'a> {
        Args {
            bytes: self.bytes,
            spans: self.spans.get(index..).unwrap_or(&[]),
        }
    }

    /// Returns those of the arguments in this range that there are.
    #[must_use]
    pub fn range(&self, range: Range<usize>) -> Args<'a> {
        let end = range.end.min(self.spans.len());
        Args {
            bytes: self.bytes,
            spans: self.spans.get(range.start..end).unwrap_or(&[]),
        }
    }

    /// Returns all of them in order.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = &'a [u8]> + use<'a> {
        let bytes = self.bytes;
        self.spans.iter().map(move |span| &bytes[span.range()])
    }

    /// Returns the total length of all arguments in bytes.
    #[must_use]
    pub fn total_bytes(&self) -> usize {
        self.spans.iter().map(|span| span.len()).sum()
    }
}
