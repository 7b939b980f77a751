//! The forms of attributes in records.

use crate::kind::Kind;

/// The form of an attribute in a record. Module [`row`](crate::row) has the table of forms.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[allow(missing_docs)]
pub enum Form {
    U8,
    U16,
    U32,
    U64,
    I8,
    I16,
    I32,
    I64,
    I128,
    F32,
    F64,
    /// So many bytes.
    Chars(u16),
}

impl Form {
    pub(crate) const NUMBERS: [Form; 11] = [
        Form::U8,
        Form::U16,
        Form::U32,
        Form::U64,
        Form::I8,
        Form::I16,
        Form::I32,
        Form::I64,
        Form::I128,
        Form::F32,
        Form::F64,
    ];

    pub(crate) fn code(self) -> u8 {
        let number = Form::NUMBERS.iter().position(|&form| form == self);
        number.map_or(12, |at| at as u8 + 1)
    }

    /// Returns a form as three bytes: its number, and its width.
    pub(crate) fn encode(self) -> [u8; 3] {
        let [low, high] = (self.width() as u16).to_le_bytes();
        [self.code(), low, high]
    }

    pub(crate) fn decode([code, low, high]: [u8; 3]) -> Option<Form> {
        match code {
            12 => Some(Form::Chars(u16::from_le_bytes([low, high]))),
            _ => Form::NUMBERS.into_iter().find(|form| form.code() == code),
        }
    }

    /// Returns its number of bytes.
    #[must_use]
    pub fn width(self) -> usize {
        match self {
            Form::U8 | Form::I8 => 1,
            Form::U16 | Form::I16 => 2,
            Form::U32 | Form::I32 | Form::F32 => 4,
            Form::U64 | Form::I64 | Form::F64 => 8,
            Form::I128 => 16,
            Form::Chars(bytes) => bytes.into(),
        }
    }

    pub(crate) fn align(self) -> usize {
        match self {
            Form::Chars(_) => 1,
            number => number.width(),
        }
    }

    pub(crate) fn is_unsigned(self) -> bool {
        matches!(self, Form::U8 | Form::U16 | Form::U32 | Form::U64)
    }

    pub(crate) fn is_float(self) -> bool {
        matches!(self, Form::F32 | Form::F64)
    }

    /// Returns `true` if values of this kind may have this form.
    pub(crate) fn suits(self, kind: Kind) -> bool {
        let chars = matches!(self, Form::Chars(_));
        let number = !chars && !self.is_float();
        match kind {
            Kind::Boolean => self == Form::U8,
            Kind::Int8 | Kind::Int16 | Kind::Int32 | Kind::Int64 => number,
            Kind::UInt8 | Kind::UInt16 | Kind::UInt32 | Kind::UInt64 => number,
            Kind::Float32 | Kind::Float64 => self.is_float(),
            Kind::Date32 => {
                number && !self.is_unsigned() || matches!(self, Form::Chars(bytes) if bytes >= 11)
            }
            Kind::Timestamp(_) => number && !self.is_unsigned(),
            Kind::Decimal32(..) | Kind::Decimal64(..) | Kind::Decimal128(..) => !chars,
            Kind::Utf8 | Kind::Binary => chars,
        }
    }
}
