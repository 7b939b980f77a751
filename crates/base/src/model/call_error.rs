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
    ReadAtomic "ERR" "read-atomic keys have strings only";
    ScoreNan "ERR" "resulting score is not a number (NaN)";
    BadScoreBound "ERR" "min or max is not a float";
    BadMemberBound "ERR" "min or max not valid string range item";
    XxWithNx "ERR" "XX and NX options at the same time are not compatible";
    GtLtWithNx "ERR" "GT, LT, and/or NX options at the same time are not compatible";
    IncrOfSeveral "ERR" "INCR option supports a single increment-element pair";
    LimitOfRanks "ERR" "syntax error, LIMIT is only supported in combination with either BYSCORE or BYLEX";
    ScoresByLex "ERR" "syntax error, WITHSCORES not supported in combination with BYLEX";
    BadCursor "ERR" "invalid cursor";
    NotNegatable "ERR" "value is out of range, value must between -9223372036854775807 and 9223372036854775807";
    UnknownUnit "ERR" "unsupported unit provided. please use M, KM, FT, MI";
    UnknownPlace "ERR" "could not decode requested zset member";
    BadRadius "ERR" "need numeric radius";
    NegativeRadius "ERR" "radius cannot be negative";
    BadWidth "ERR" "need numeric width";
    BadHeight "ERR" "need numeric height";
    NegativeBox "ERR" "height or width cannot be negative";
    CountNotPositive "ERR" "COUNT must be > 0";
    AnyWithoutCount "ERR" "the ANY argument requires COUNT argument";
}
