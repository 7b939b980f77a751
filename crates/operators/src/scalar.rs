//! A value and its type.

use arrow_schema::DataType;

/// A value of a type.
#[derive(Clone, PartialEq, Debug)]
pub struct Scalar {
    /// Its type.
    pub data_type: DataType,
    /// The value.
    pub value: Value,
}

/// A value, in the form that fits its type.
#[derive(Clone, PartialEq, Debug)]
pub enum Value {
    /// Null.
    Null,
    /// Of a boolean.
    Bool(bool),
    /// Of integers, dates, timestamps, and decimals, unscaled.
    Int(i128),
    /// Of floating-point numbers.
    Float(f64),
    /// Of texts.
    Text(String),
    /// Of bytes.
    Bytes(Vec<u8>),
}
