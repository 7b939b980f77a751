//! From the types that pages have to those of columns.

use std::sync::Arc;

use arrow_array::builder::StringBuilder;
use arrow_array::cast::AsArray;
use arrow_array::types::{
    ArrowDictionaryKeyType, Decimal32Type, Decimal64Type, Decimal128Type, UInt8Type, UInt16Type,
};
use arrow_array::{Array, ArrayRef, DictionaryArray, PrimitiveArray, StringArray};
use arrow_buffer::ArrowNativeType;
use arrow_schema::DataType;

use crate::block::with_zone;

/// Returns a column in its own type if its page has it in a narrower one. Copies unless these
/// differ only in a timestamp's zone.
///
/// # Panics
/// Panics if pages have no such array for a column of this type.
#[must_use]
pub fn widen(array: &ArrayRef, data_type: &DataType) -> ArrayRef {
    if array.data_type() == data_type {
        return array.clone();
    }
    match (array.data_type(), data_type) {
        (DataType::Decimal32(..), DataType::Decimal128(..)) => {
            let decimals = array.as_primitive::<Decimal32Type>();
            wide(decimals.unary::<_, Decimal128Type>(i128::from), data_type)
        }
        (DataType::Decimal64(..), DataType::Decimal128(..)) => {
            let decimals = array.as_primitive::<Decimal64Type>();
            wide(decimals.unary::<_, Decimal128Type>(i128::from), data_type)
        }
        (DataType::Dictionary(keys, _), DataType::Utf8) if **keys == DataType::UInt8 => {
            texts(array.as_dictionary::<UInt8Type>())
        }
        (DataType::Dictionary(keys, _), DataType::Utf8) if **keys == DataType::UInt16 => {
            texts(array.as_dictionary::<UInt16Type>())
        }
        (DataType::Timestamp(..), DataType::Timestamp(..)) => {
            let array = with_zone(array.clone(), data_type);
            assert_eq!(array.data_type(), data_type, "timestamps of another unit");
            array
        }
        (from, to) => panic!("a column of {to} does not lie in pages as {from}"),
    }
}

fn wide(decimals: PrimitiveArray<Decimal128Type>, data_type: &DataType) -> ArrayRef {
    Arc::new(decimals.with_data_type(data_type.clone()))
}

fn texts<K: ArrowDictionaryKeyType>(array: &DictionaryArray<K>) -> ArrayRef {
    let values: &StringArray = array.values().as_string();
    let keys = array.keys();
    // The key of a null row may be any, also one that the dictionary does not have.
    let offsets = values.value_offsets();
    let length = |key: usize| Some(offsets.get(key + 1)? - offsets[key]);
    let bytes = keys
        .values()
        .iter()
        .filter_map(|key| length(key.as_usize()));
    let bytes = bytes.map(|length| length as usize).sum();
    let mut texts = StringBuilder::with_capacity(array.len(), bytes);
    if keys.null_count() == 0 {
        for key in keys.values() {
            texts.append_value(values.value(key.as_usize()));
        }
    } else {
        for key in keys {
            texts.append_option(key.map(|key| values.value(key.as_usize())));
        }
    }
    Arc::new(texts.finish())
}
