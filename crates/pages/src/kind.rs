//! The kinds of values, and their encoding.
//!
//! | code | kind | bytes of a value |
//! |---|---|---|
//! | 1 | boolean | a bit |
//! | 2, 3, 4, 5 | integers with a sign, of 8, 16, 32, 64 bits | 1, 2, 4, 8 |
//! | 6, 7, 8, 9 | integers without a sign, of 8, 16, 32, 64 bits | 1, 2, 4, 8 |
//! | 10, 11 | floating-point numbers of 32 and 64 bits | 4, 8 |
//! | 12 | days since 1970-01-01 | 4 |
//! | 13, 14, 15, 16 | seconds, milli-, micro-, nanoseconds since 1970-01-01 | 8 |
//! | 17, 18, 19 | decimals of 32, 64, 128 bits, unscaled | 4, 8, 16 |
//! | 20 | text in UTF-8 | as many as it has |
//! | 21 | bytes | as many as there are |
//!
//! A timestamp's zone belongs to the column, and is not encoded here.

use arrow_schema::{DECIMAL32_MAX_PRECISION, DECIMAL64_MAX_PRECISION, DataType, TimeUnit};

#[cfg(target_endian = "big")]
compile_error!("arrays lie in pages as they lie in memory, which is little-endian");

/// The least scale of decimals.
const LEAST_SCALE: i8 = -38;

/// A kind of values.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Kind {
    Boolean,
    Int8,
    Int16,
    Int32,
    Int64,
    UInt8,
    UInt16,
    UInt32,
    UInt64,
    Float32,
    Float64,
    Date32,
    Timestamp(TimeUnit),
    Decimal32(u8, i8),
    Decimal64(u8, i8),
    Decimal128(u8, i8),
    Utf8,
    Binary,
}

/// The width of a value.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Width {
    Bit,
    Bytes(usize),
    Variable,
}

impl Kind {
    /// Returns the kind of a type's values; `None` for types that pages do not support.
    pub(crate) fn of(data_type: &DataType) -> Option<Kind> {
        Some(match data_type {
            DataType::Boolean => Kind::Boolean,
            DataType::Int8 => Kind::Int8,
            DataType::Int16 => Kind::Int16,
            DataType::Int32 => Kind::Int32,
            DataType::Int64 => Kind::Int64,
            DataType::UInt8 => Kind::UInt8,
            DataType::UInt16 => Kind::UInt16,
            DataType::UInt32 => Kind::UInt32,
            DataType::UInt64 => Kind::UInt64,
            DataType::Float32 => Kind::Float32,
            DataType::Float64 => Kind::Float64,
            DataType::Date32 => Kind::Date32,
            DataType::Timestamp(unit, _) => Kind::Timestamp(*unit),
            // Ten to the power of the scale must fit into an integer.
            DataType::Decimal32(_, scale)
            | DataType::Decimal64(_, scale)
            | DataType::Decimal128(_, scale)
                if *scale < LEAST_SCALE =>
            {
                return None;
            }
            DataType::Decimal32(precision, scale) => Kind::Decimal32(*precision, *scale),
            DataType::Decimal64(precision, scale) => Kind::Decimal64(*precision, *scale),
            DataType::Decimal128(precision, scale) => Kind::Decimal128(*precision, *scale),
            DataType::Utf8 => Kind::Utf8,
            DataType::Binary => Kind::Binary,
            _ => return None,
        })
    }

    /// Returns the type of arrays of such values; timestamps have no zone.
    pub(crate) fn data_type(self) -> DataType {
        match self {
            Kind::Boolean => DataType::Boolean,
            Kind::Int8 => DataType::Int8,
            Kind::Int16 => DataType::Int16,
            Kind::Int32 => DataType::Int32,
            Kind::Int64 => DataType::Int64,
            Kind::UInt8 => DataType::UInt8,
            Kind::UInt16 => DataType::UInt16,
            Kind::UInt32 => DataType::UInt32,
            Kind::UInt64 => DataType::UInt64,
            Kind::Float32 => DataType::Float32,
            Kind::Float64 => DataType::Float64,
            Kind::Date32 => DataType::Date32,
            Kind::Timestamp(unit) => DataType::Timestamp(unit, None),
            Kind::Decimal32(precision, scale) => DataType::Decimal32(precision, scale),
            Kind::Decimal64(precision, scale) => DataType::Decimal64(precision, scale),
            Kind::Decimal128(precision, scale) => DataType::Decimal128(precision, scale),
            Kind::Utf8 => DataType::Utf8,
            Kind::Binary => DataType::Binary,
        }
    }

    /// Returns `true` if a page may store such values for a column of the kind `own`.
    pub(crate) fn stands_for(self, own: Kind) -> bool {
        match (self, own) {
            (Kind::Decimal32(_, scale), Kind::Decimal128(_, own))
            | (Kind::Decimal64(_, scale), Kind::Decimal128(_, own)) => scale == own,
            _ => self == own,
        }
    }

    pub(crate) fn width(self) -> Width {
        match self {
            Kind::Boolean => Width::Bit,
            Kind::Int8 | Kind::UInt8 => Width::Bytes(1),
            Kind::Int16 | Kind::UInt16 => Width::Bytes(2),
            Kind::Int32 | Kind::UInt32 | Kind::Float32 | Kind::Date32 | Kind::Decimal32(..) => {
                Width::Bytes(4)
            }
            Kind::Int64
            | Kind::UInt64
            | Kind::Float64
            | Kind::Timestamp(_)
            | Kind::Decimal64(..) => Width::Bytes(8),
            Kind::Decimal128(..) => Width::Bytes(16),
            Kind::Utf8 | Kind::Binary => Width::Variable,
        }
    }

    /// Returns code, precision and scale.
    pub(crate) fn encode(self) -> [u8; 3] {
        let (code, precision, scale) = match self {
            Kind::Boolean => (1, 0, 0),
            Kind::Int8 => (2, 0, 0),
            Kind::Int16 => (3, 0, 0),
            Kind::Int32 => (4, 0, 0),
            Kind::Int64 => (5, 0, 0),
            Kind::UInt8 => (6, 0, 0),
            Kind::UInt16 => (7, 0, 0),
            Kind::UInt32 => (8, 0, 0),
            Kind::UInt64 => (9, 0, 0),
            Kind::Float32 => (10, 0, 0),
            Kind::Float64 => (11, 0, 0),
            Kind::Date32 => (12, 0, 0),
            Kind::Timestamp(TimeUnit::Second) => (13, 0, 0),
            Kind::Timestamp(TimeUnit::Millisecond) => (14, 0, 0),
            Kind::Timestamp(TimeUnit::Microsecond) => (15, 0, 0),
            Kind::Timestamp(TimeUnit::Nanosecond) => (16, 0, 0),
            Kind::Decimal32(precision, scale) => (17, precision, scale),
            Kind::Decimal64(precision, scale) => (18, precision, scale),
            Kind::Decimal128(precision, scale) => (19, precision, scale),
            Kind::Utf8 => (20, 0, 0),
            Kind::Binary => (21, 0, 0),
        };
        [code, precision, scale as u8]
    }

    /// Reads the bytes that [`Kind::encode`] has written; `None` for all others.
    pub(crate) fn decode([code, precision, scale]: [u8; 3]) -> Option<Kind> {
        let scale = scale as i8;
        let kind = match code {
            1 => Kind::Boolean,
            2 => Kind::Int8,
            3 => Kind::Int16,
            4 => Kind::Int32,
            5 => Kind::Int64,
            6 => Kind::UInt8,
            7 => Kind::UInt16,
            8 => Kind::UInt32,
            9 => Kind::UInt64,
            10 => Kind::Float32,
            11 => Kind::Float64,
            12 => Kind::Date32,
            13 => Kind::Timestamp(TimeUnit::Second),
            14 => Kind::Timestamp(TimeUnit::Millisecond),
            15 => Kind::Timestamp(TimeUnit::Microsecond),
            16 => Kind::Timestamp(TimeUnit::Nanosecond),
            17 => Kind::Decimal32(precision, scale),
            18 => Kind::Decimal64(precision, scale),
            19 => Kind::Decimal128(precision, scale),
            20 => Kind::Utf8,
            21 => Kind::Binary,
            _ => return None,
        };
        let most = match kind {
            Kind::Decimal32(..) => DECIMAL32_MAX_PRECISION,
            Kind::Decimal64(..) => DECIMAL64_MAX_PRECISION,
            Kind::Decimal128(..) => arrow_schema::DECIMAL128_MAX_PRECISION,
            _ if precision == 0 && scale == 0 => return Some(kind),
            _ => return None,
        };
        // Arrow does not allow a scale greater than the precision, nor a precision of zero.
        let scales = i16::from(LEAST_SCALE)..=precision.into();
        let sensible = (1..=most).contains(&precision) && scales.contains(&scale.into());
        sensible.then_some(kind)
    }
}

/// Returns the narrowest decimal that holds values between these, of a column with this precision
/// and scale.
pub(crate) fn narrowest(precision: u8, scale: i8, min: i128, max: i128) -> Kind {
    let fits = |digits: u8| {
        let most = 10_i128.pow(digits.into()) - 1;
        -most <= min && max <= most && i16::from(scale) <= i16::from(digits)
    };
    if fits(DECIMAL32_MAX_PRECISION) {
        Kind::Decimal32(precision.min(DECIMAL32_MAX_PRECISION), scale)
    } else if fits(DECIMAL64_MAX_PRECISION) {
        Kind::Decimal64(precision.min(DECIMAL64_MAX_PRECISION), scale)
    } else {
        Kind::Decimal128(precision, scale)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_encoded_is_decoded_and_nothing_else() {
        for code in 0..=255 {
            for precision in [0, 1, 9, 10, 18, 19, 38, 39] {
                for scale in [-3_i8, 0, 2, 9, 38] {
                    let bytes = [code, precision, scale as u8];
                    if let Some(kind) = Kind::decode(bytes) {
                        assert_eq!(kind.encode(), bytes);
                        assert_eq!(Kind::of(&kind.data_type()), Some(kind));
                    }
                }
            }
        }
        assert_eq!(Kind::decode([17, 10, 2]), None);
        assert_eq!(Kind::decode([5, 1, 0]), None);
        assert_eq!(Kind::decode([19, 4, 5]), None);
    }

    #[test]
    fn decimals_are_as_narrow_as_their_values_let_them_be() {
        let kind = |precision, scale, value: i128| narrowest(precision, scale, -value, value);
        assert_eq!(kind(15, 2, 999_999_999), Kind::Decimal32(9, 2));
        assert_eq!(kind(15, 2, 1_000_000_000), Kind::Decimal64(15, 2));
        assert_eq!(kind(5, 2, 99_999), Kind::Decimal32(5, 2));
        assert_eq!(kind(38, 2, 10_i128.pow(18) - 1), Kind::Decimal64(18, 2));
        assert_eq!(kind(38, 2, 10_i128.pow(18)), Kind::Decimal128(38, 2));
        // The scale does not fit into fewer digits.
        assert_eq!(kind(38, 12, 5), Kind::Decimal64(18, 12));
        assert_eq!(kind(38, 30, 5), Kind::Decimal128(38, 30));
    }
}
