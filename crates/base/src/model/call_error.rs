//! Why a command on a collection failed, in Redis's words.

/// Defines the errors: of each its code and its text. Their order gives their numbers in messages.
macro_rules! call_errors {
    ($($variant:ident $code:literal $text:literal;)*) => {
        /// The reason why a command on a collection failed.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
        #[repr(u8)]
        #[allow(missing_docs)] // The texts say what the errors are.
        pub enum CallError {
            $(#[error($text)] $variant,)*
        }

        impl CallError {
            /// All errors, in the order of their numbers.
            pub const ALL: &[CallError] = &[$(CallError::$variant),*];

            /// Returns the first word of the error in RESP.
            #[must_use]
            pub fn code(self) -> &'static str {
                match self {
                    $(CallError::$variant => $code,)*
                }
            }
        }
    };
}

call_errors! {
    UnknownCommand "ERR" "this node does not know the command: it runs another release";
    Corrupt "ERR" "the value is damaged";
    Syntax "ERR" "syntax error";
    Arity "ERR" "wrong number of arguments";
    HashNotInteger "ERR" "hash value is not an integer";
    HashNotFloat "ERR" "hash value is not a float";
    NanOrInfinity "ERR" "value is NaN or Infinity";
    OutOfRange "ERR" "value is out of range";
    NotPositive "ERR" "value is out of range, must be positive";
    IndexOutOfRange "ERR" "index out of range";
    NoSuchKey "ERR" "no such key";
    RankZero "ERR" "RANK can't be zero: use 1 to start from the first match, 2 from the second ... or use negative to start from the end of the list";
    RankOutOfRange "ERR" "value is out of range, value must between -9223372036854775807 and 9223372036854775807";
    CountNegative "ERR" "COUNT can't be negative";
    MaxLenNegative "ERR" "MAXLEN can't be negative";
}
