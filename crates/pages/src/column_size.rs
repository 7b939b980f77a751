//! The room that a column's values take in a page, and the form in which they take the least.
//!
//! Invariant: the size never shrinks as rows are added. So the most rows that fit are found by
//! adding some, and taking back those that were too many.

use arrow_array::cast::AsArray;
use arrow_array::types::Decimal128Type;
use arrow_array::{Array, ArrayRef};

use crate::distinct::Distinct;
use crate::entry::ALIGN;
use crate::kind::{Kind, Width, narrowest};

/// A column's rows since the page was begun.
pub(crate) struct ColumnSize {
    kind: Kind,
    now: Counts,
    /// The counts at the last [`ColumnSize::keep`].
    kept: Counts,
    /// The distinct texts, as long as a dictionary may save room.
    distinct: Option<Distinct>,
}

#[derive(Clone, Copy, Default)]
struct Counts {
    rows: usize,
    nulls: usize,
    /// Bytes of texts and bytes.
    bytes: usize,
    /// The least and the greatest decimal.
    min: i128,
    max: i128,
    /// Entries of the dictionary.
    entries: usize,
}

/// The number of rows after which a dictionary that saves no room is given up. One that is too
/// large is given up at once.
const PATIENCE: usize = 512;

impl ColumnSize {
    pub(crate) fn new(kind: Kind) -> ColumnSize {
        ColumnSize {
            kind,
            now: Counts::default(),
            kept: Counts::default(),
            distinct: (kind == Kind::Utf8).then(Distinct::default),
        }
    }

    /// Adds rows.
    pub(crate) fn add(&mut self, array: &ArrayRef) {
        self.now.rows += array.len();
        self.now.nulls += array.null_count();
        match self.kind {
            Kind::Decimal128(..) => self.add_decimals(array),
            Kind::Utf8 => {
                let texts = array.as_string::<i32>();
                self.now.bytes += span(texts.value_offsets());
                if let Some(distinct) = &mut self.distinct {
                    for text in texts {
                        distinct.push(text.unwrap_or_default().as_bytes());
                    }
                    self.now.entries = distinct.entries();
                }
            }
            Kind::Binary => self.now.bytes += span(array.as_binary::<i32>().value_offsets()),
            _ => {}
        }
    }

    fn add_decimals(&mut self, array: &ArrayRef) {
        let decimals = array.as_primitive::<Decimal128Type>();
        let Counts { min, max, .. } = &mut self.now;
        if decimals.null_count() == 0 {
            for &value in decimals.values() {
                *min = value.min(*min);
                *max = value.max(*max);
            }
        } else {
            for value in decimals.iter().flatten() {
                *min = value.min(*min);
                *max = value.max(*max);
            }
        }
    }

    /// Keeps the rows that were added.
    pub(crate) fn keep(&mut self) {
        self.kept = self.now;
        let given_up = self.distinct.as_ref().is_some_and(|distinct| {
            let size = distinct.size();
            size.is_none_or(|size| self.now.rows >= PATIENCE && size >= self.plain())
        });
        if given_up {
            self.distinct = None;
            self.kept.entries = 0;
            self.now.entries = 0;
        }
    }

    /// Takes back the rows that were added since the last [`ColumnSize::keep`].
    pub(crate) fn take_back(&mut self) {
        self.now = self.kept;
        if let Some(distinct) = &mut self.distinct {
            distinct.truncate(self.now.rows, self.now.entries);
        }
    }

    /// Returns the number of bytes of all arrays, each up to the place where the next one may
    /// begin.
    pub(crate) fn size(&self) -> usize {
        let bitmap = if self.now.nulls > 0 {
            self.now.rows.div_ceil(8)
        } else {
            0
        };
        let keyed = self.distinct.as_ref().and_then(Distinct::size);
        let values = keyed.map_or(self.plain(), |keyed| keyed.min(self.plain()));
        bitmap.next_multiple_of(ALIGN) + values
    }

    /// Returns the number of bytes of the values without a dictionary.
    fn plain(&self) -> usize {
        let rows = self.now.rows;
        match self.stored().width() {
            Width::Bit => rows.div_ceil(8).next_multiple_of(ALIGN),
            Width::Bytes(width) => (rows * width).next_multiple_of(ALIGN),
            Width::Variable => {
                (4 * (rows + 1)).next_multiple_of(ALIGN) + self.now.bytes.next_multiple_of(ALIGN)
            }
        }
    }

    /// Returns the kind in which values are stored.
    pub(crate) fn stored(&self) -> Kind {
        match self.kind {
            Kind::Decimal128(precision, scale) => {
                narrowest(precision, scale, self.now.min, self.now.max)
            }
            kind => kind,
        }
    }

    /// Returns the dictionary, if it saves room.
    pub(crate) fn dictionary(&self) -> Option<&Distinct> {
        let distinct = self.distinct.as_ref()?;
        (distinct.size()? < self.plain()).then_some(distinct)
    }
}

/// Returns the number of bytes of consecutive texts.
fn span(offsets: &[i32]) -> usize {
    (offsets[offsets.len() - 1] - offsets[0]) as usize
}
