//! Values of the branches of a CASE, put together.

use arrow_array::BinaryArray;
use pages::task::TaskError;

use crate::types::Class;
use crate::vector::{IndexedTexts, Vector, VectorValues};

/// Values that come from several branches. Rows without a value from any branch are null.
pub(crate) struct MergedBranches {
    values: VectorValues,
    valid: Vec<u8>,
    /// The texts of the branches, one after the other.
    texts: Vec<BinaryArray>,
    first: Vec<u32>,
}

impl MergedBranches {
    /// Makes room for so many rows, of which none has a value. Integers are in 64 bits if `narrow` is set.
    pub(crate) fn new(class: Class, narrow: bool, rows: usize) -> MergedBranches {
        let values = match class {
            Class::Int if !narrow => VectorValues::I128(vec![0; rows]),
            class => VectorValues::nothing(class, rows),
        };
        MergedBranches {
            values,
            valid: vec![0; rows],
            texts: Vec::new(),
            first: vec![0; rows],
        }
    }

    /// Takes a branch's values for the rows at these places.
    pub(crate) fn put(&mut self, from: &Vector, places: &[u32]) {
        fn put<T: Copy>(into: &mut [T], from: &[T], places: &[u32]) {
            places
                .iter()
                .zip(from)
                .for_each(|(&at, &value)| into[at as usize] = value);
        }
        let from = from.expanded(places.len());
        match (&mut self.values, &from.values) {
            (VectorValues::Bool(into), VectorValues::Bool(from)) => put(into, from, places),
            (VectorValues::I64(into), VectorValues::I64(from)) => put(into, from, places),
            (VectorValues::I128(into), from) => put(into, &from.wide(), places),
            (VectorValues::F64(into), VectorValues::F64(from)) => put(into, from, places),
            (VectorValues::Bytes(into), VectorValues::Bytes(from)) => {
                put(&mut into.index, &from.index, places);
                places
                    .iter()
                    .for_each(|&at| self.first[at as usize] = self.texts.len() as u32);
                self.texts.push(from.data.clone());
            }
            (into, from) => unreachable!("branches of one type: {into:?}, {from:?}"),
        }
        for (at, &row) in places.iter().enumerate() {
            self.valid[row as usize] = u8::from(from.is_valid(at));
        }
    }

    /// Returns all values.
    ///
    /// # Errors
    /// Returns an error if the texts have two gigabytes.
    pub(crate) fn finish(self) -> Result<Vector, TaskError> {
        let MergedBranches {
            mut values,
            valid,
            texts,
            first,
        } = self;
        if let VectorValues::Bytes(bytes) = &mut values
            && !texts.is_empty()
        {
            let text = |row: usize| {
                let at = bytes.index[row] as usize;
                crate::vector::text(&texts[first[row] as usize], at)
            };
            let rows = bytes.index.len();
            *bytes = IndexedTexts::new((0..rows).map(text))?;
        }
        let valid = valid.contains(&0).then_some(valid);
        Ok(Vector::new(values, valid))
    }
}
