//! Types as bytes.

use arrow_schema::{DataType, TimeUnit};

use super::bytes::{FragmentReader, FragmentWriter, code as code_of};
use super::error::CodecError;

/// Types that are encoded as their code alone; their places here are the codes.
const PLAIN: [DataType; 15] = [
    DataType::Boolean,
    DataType::Int8,
    DataType::Int16,
    DataType::Int32,
    DataType::Int64,
    DataType::UInt8,
    DataType::UInt16,
    DataType::UInt32,
    DataType::UInt64,
    DataType::Float32,
    DataType::Float64,
    DataType::Date32,
    DataType::Date64,
    DataType::Utf8,
    DataType::Binary,
];

/// Units of timestamps, whose codes begin at [`TIMESTAMP`].
const UNITS: [TimeUnit; 4] = [
    TimeUnit::Second,
    TimeUnit::Millisecond,
    TimeUnit::Microsecond,
    TimeUnit::Nanosecond,
];

const TIMESTAMP: u8 = 32;
const DECIMAL32: u8 = 40;
const DECIMAL64: u8 = 41;
const DECIMAL128: u8 = 42;

pub(super) fn write(to: &mut FragmentWriter, data_type: &DataType) -> Result<(), CodecError> {
    match data_type {
        DataType::Timestamp(unit, zone) => {
            to.byte(TIMESTAMP + code_of(&UNITS, unit));
            return to.option(zone.as_ref(), |to, zone| {
                to.text(zone.as_bytes());
                Ok(())
            });
        }
        &DataType::Decimal32(p, s) => to.bytes.extend([DECIMAL32, p, s as u8]),
        &DataType::Decimal64(p, s) => to.bytes.extend([DECIMAL64, p, s as u8]),
        &DataType::Decimal128(p, s) => to.bytes.extend([DECIMAL128, p, s as u8]),
        plain => match PLAIN.iter().position(|known| known == plain) {
            Some(code) => to.byte(code as u8),
            None => return Err(CodecError::Type(plain.to_string())),
        },
    }
    Ok(())
}

pub(super) fn read(from: &mut FragmentReader<'_>) -> Result<DataType, CodecError> {
    let code = from.byte()?;
    if let Some(plain) = PLAIN.get(usize::from(code)) {
        return Ok(plain.clone());
    }
    let unit = code
        .checked_sub(TIMESTAMP)
        .and_then(|unit| UNITS.get(usize::from(unit)));
    if let Some(unit) = unit {
        let zone = from.option(|from| from.utf8())?;
        return Ok(DataType::Timestamp(*unit, zone.map(Into::into)));
    }
    let most = match code {
        DECIMAL32 => 9,
        DECIMAL64 => 18,
        DECIMAL128 => 38,
        _ => return Err(CodecError::Malformed("there is no such type")),
    };
    let (precision, scale) = (from.byte()?, from.byte()? as i8);
    let scales = -(most as i16)..=i16::from(precision);
    if !(1..=most).contains(&precision) || !scales.contains(&scale.into()) {
        return Err(CodecError::Malformed(
            "a decimal's precision or scale is out of range",
        ));
    }
    Ok(match code {
        DECIMAL32 => DataType::Decimal32(precision, scale),
        DECIMAL64 => DataType::Decimal64(precision, scale),
        _ => DataType::Decimal128(precision, scale),
    })
}
