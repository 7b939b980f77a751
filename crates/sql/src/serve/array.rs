//! Arrays as PostgreSQL's clients want them.
//!
//! | form | of an array |
//! |---|---|
//! | text | elements between braces, with commas between them; a brace for each dimension |
//! | binary | the number of dimensions, 1 if there are nulls, the elements' type; for each dimension its length and the number of its first element, which is 1; then the elements, each with its length before it |
//!
//! Rows of an array of arrays have one length, in PostgreSQL: others are refused.

use std::ops::Range;

use bytes::{BufMut, BytesMut};
use datafusion::arrow::array::AsArray;
use datafusion::arrow::error::ArrowError;

use crate::serve::encode::Column;
use crate::serve::types;

/// Writes the text form of an array, which is a row of a column.
///
/// # Errors
/// Fails when its rows have different lengths.
pub(super) fn text(column: &Column, row: usize, into: &mut BytesMut) -> Result<(), ArrowError> {
    match Shape::of(column, row)?.lengths.contains(&0) {
        true => into.put_slice(b"{}"),
        false => nested_text(column, row, into)?,
    }
    Ok(())
}

fn nested_text(column: &Column, row: usize, into: &mut BytesMut) -> Result<(), ArrowError> {
    let Some(elements) = &column.elements else {
        return element_text(column, row, into);
    };
    into.put_u8(b'{');
    for (number, element) in range(column, row).enumerate() {
        if number > 0 {
            into.put_u8(b',');
        }
        nested_text(elements, element, into)?;
    }
    into.put_u8(b'}');
    Ok(())
}

/// Writes an element, in quotes if it could be mistaken for something else.
fn element_text(column: &Column, row: usize, into: &mut BytesMut) -> Result<(), ArrowError> {
    if column.is_null(row) {
        into.put_slice(b"NULL");
        return Ok(());
    }
    let mut value = BytesMut::new();
    column.text(row, &mut value)?;
    let is_special = |byte: &u8| {
        matches!(byte, b'{' | b'}' | b',' | b'"' | b'\\' | 0x0b) || byte.is_ascii_whitespace()
    };
    let is_quoted =
        value.is_empty() || value.eq_ignore_ascii_case(b"null") || value.iter().any(is_special);
    if !is_quoted {
        into.put_slice(&value);
        return Ok(());
    }
    into.put_u8(b'"');
    for byte in value {
        if matches!(byte, b'"' | b'\\') {
            into.put_u8(b'\\');
        }
        into.put_u8(byte);
    }
    into.put_u8(b'"');
    Ok(())
}

/// Writes the binary form of an array, which is a row of a column.
///
/// # Errors
/// Fails when its rows have different lengths, or when its elements have no binary form.
pub(super) fn binary(column: &Column, row: usize, into: &mut BytesMut) -> Result<(), ArrowError> {
    let shape = Shape::of(column, row)?;
    let element = types::element_of(&column.kind).map_or(0, |element| element.oid());
    let is_empty = shape.lengths.contains(&0);
    let lengths = if is_empty { &[] } else { &shape.lengths[..] };
    into.put_i32(word(lengths.len())?);
    into.put_i32(i32::from(!is_empty && shape.has_nulls));
    into.put_u32(element);
    for length in lengths {
        into.put_i32(word(*length)?);
        into.put_i32(1);
    }
    if !is_empty {
        for row in shape.rows {
            shape.elements.write(row, into)?;
        }
    }
    Ok(())
}

fn word(length: usize) -> Result<i32, ArrowError> {
    i32::try_from(length)
        .map_err(|_| ArrowError::InvalidArgumentError("an array is too long".into()))
}

/// Returns the rows of a column of elements that are an array's.
fn range(column: &Column, row: usize) -> Range<usize> {
    let offsets = column.array.as_list::<i32>().value_offsets();
    let offset = |row: usize| usize::try_from(offsets[row]).unwrap_or(0);
    offset(row)..offset(row + 1)
}

/// The dimensions of an array, and its innermost elements.
struct Shape<'a> {
    lengths: Vec<usize>,
    elements: &'a Column,
    rows: Range<usize>,
    has_nulls: bool,
}

impl Shape<'_> {
    fn of(column: &Column, row: usize) -> Result<Shape<'_>, ArrowError> {
        let mut lengths = Vec::new();
        let (mut at, mut rows) = (column, row..row + 1);
        while let Some(elements) = &at.elements {
            let lens: Vec<usize> = rows.clone().map(|row| range(at, row).len()).collect();
            let length = lens.first().copied().unwrap_or(0);
            // An array that is null within another one has no length.
            if lens.iter().any(|other| *other != length) || rows.clone().any(|row| at.is_null(row))
            {
                return Err(ArrowError::InvalidArgumentError(
                    "multidimensional arrays must have sub-arrays with matching dimensions".into(),
                ));
            }
            lengths.push(length);
            let next = match rows.is_empty() {
                true => 0..0,
                false => range(at, rows.start).start..range(at, rows.end - 1).end,
            };
            (at, rows) = (elements, next);
        }
        Ok(Shape {
            has_nulls: rows.clone().any(|row| at.is_null(row)),
            lengths,
            elements: at,
            rows,
        })
    }
}
