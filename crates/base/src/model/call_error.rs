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
    ReadAtomic "ERR" "the key is declared read atomic, and such keys have strings only, because their versions are written as a whole: give the key another beginning, or declare other keys read atomic";
    ScoreNan "ERR" "resulting score is not a number (NaN)";
    BadScoreBound "ERR" "min or max is not a float";
    BadMemberBound "ERR" "min or max not valid string range item";
    XxWithNx "ERR" "XX and NX options at the same time are not compatible";
    GtLtWithNx "ERR" "GT, LT, and/or NX options at the same time are not compatible";
    IncrOfSeveral "ERR" "INCR option supports a single increment-element pair";
    LimitOfRanks "ERR" "syntax error, LIMIT is only supported in combination with either BYSCORE or BYLEX";
    ScoresByLex "ERR" "syntax error, WITHSCORES not supported in combination with BYLEX";
    BadCursor "ERR" "invalid cursor";
    UnknownUnit "ERR" "unsupported unit provided. please use M, KM, FT, MI";
    UnknownPlace "ERR" "could not decode requested zset member";
    BadRadius "ERR" "need numeric radius";
    NegativeRadius "ERR" "radius cannot be negative";
    BadWidth "ERR" "need numeric width";
    BadHeight "ERR" "need numeric height";
    NegativeBox "ERR" "height or width cannot be negative";
    CountNotPositive "ERR" "COUNT must be > 0";
    AnyWithoutCount "ERR" "the ANY argument requires COUNT argument";
    BadStreamId "ERR" "Invalid stream ID specified as stream command argument";
    BadIntervalStart "ERR" "invalid start ID for the interval";
    BadIntervalEnd "ERR" "invalid end ID for the interval";
    ZeroStreamId "ERR" "The ID specified in XADD must be greater than 0-0";
    SmallStreamId "ERR" "The ID specified in XADD is equal or smaller than the target stream top item";
    StreamExhausted "ERR" "The stream has exhausted the last possible ID, unable to add more items";
    TwoTrimStrategies "ERR" "syntax error, MAXLEN and MINID options at the same time are not compatible";
    NegativeMaxLen "ERR" "The MAXLEN argument must be >= 0.";
    NegativeLimit "ERR" "The LIMIT argument must be >= 0.";
    LimitWithoutTrim "ERR" "syntax error, LIMIT cannot be used without specifying a trimming strategy";
    LimitOfExactTrim "ERR" "syntax error, LIMIT cannot be used without the special ~ option";
    NoTrimStrategy "ERR" "syntax error, XTRIM must be called with a trimming strategy";
    NegativeEntriesAdded "ERR" "entries_added must be positive";
    SmallerThanGivenDeletedId "ERR" "The ID specified in XSETID is smaller than the provided max_deleted_entry_id";
    SmallerThanDeletedId "ERR" "The ID specified in XSETID is smaller than current max_deleted_entry_id";
    SmallerThanLastEntry "ERR" "The ID specified in XSETID is smaller than the target stream top item";
    FewerThanEntries "ERR" "The entries_added specified in XSETID is smaller than the target stream length";
    NewEntriesWithoutGroup "ERR" "The > ID can be specified only when calling XREADGROUP using the GROUP <group> <consumer> option.";
    LastIdInGroup "ERR" "The $ ID is meaningless in the context of XREADGROUP: you want to read the history of this consumer by specifying a proper ID, or use the > ID to get new messages. The $ ID would just return an empty result set.";
    LastEntryInGroup "ERR" "The + ID is meaningless in the context of XREADGROUP: you want to read the history of this consumer by specifying a proper ID, or use the > ID to get new messages. The + ID would just return an empty result set.";
    GroupNeedsKey "ERR" "The XGROUP subcommand requires the key to exist. Note that for CREATE you may want to use the MKSTREAM option to create an empty stream automatically.";
    BadEntriesRead "ERR" "value for ENTRIESREAD must be positive or -1";
    BusyGroup "BUSYGROUP" "Consumer Group name already exists";
    NoGroup "NOGROUP" "No such consumer group";
    NoKeyOrGroup "NOGROUP" "No such key or consumer group";
    SubcommandSyntax "ERR" "unknown subcommand or wrong number of arguments";
    UnknownClaimOption "ERR" "Unrecognized XCLAIM option";
    BadClaimLeastIdle "ERR" "Invalid min-idle-time argument for XCLAIM";
    BadClaimIdle "ERR" "Invalid IDLE option argument for XCLAIM";
    BadClaimTime "ERR" "Invalid TIME option argument for XCLAIM";
    BadClaimRetryCount "ERR" "Invalid RETRYCOUNT option argument for XCLAIM";
    BadAutoClaimLeastIdle "ERR" "Invalid min-idle-time argument for XAUTOCLAIM";
    InvalidCursor "ERR" "invalid cursor";
    CountOutOfRange "ERR" "value is out of range, value must between -9223372036854775807 and 9223372036854775807";
    ReplyTooLong "ERR" "the reply would be too long";
    NegativeExpiry "ERR" "invalid expire time, must be >= 0";
    FieldsMissing "ERR" "Mandatory argument FIELDS is missing or not at the right position";
    FieldCountMismatch "ERR" "The `numfields` parameter must match the number of arguments";
    FieldCountNotGreater "ERR" "Parameter `numFields` should be greater than 0";
    FieldCountNotPositive "ERR" "Number of fields must be a positive integer";
    FieldCountInvalid "ERR" "invalid number of fields";
    OneFieldCondition "ERR" "Only one of FXX or FNX arguments can be specified";
    OneFieldExpiry "ERR" "Only one of EX, PX, EXAT, PXAT or KEEPTTL arguments can be specified";
    UnknownArgument "ERR" "unknown argument";
    NoHyperLogLog "WRONGTYPE" "Key is not a valid HyperLogLog string value.";
    CorruptHyperLogLog "INVALIDOBJ" "Corrupted HLL object detected";
    AbsentKey "ERR" "The specified key does not exist";
    NotSparse "ERR" "HLL encoding is not sparse";
    WeightNotNumber "ERR" "One or more scores can't be converted into double";
    RankZero "ERR" "RANK can't be zero: use 1 to start from the first match, 2 from the second ... or use negative to start from the end of the list";
    RankOutOfRange "ERR" "value is out of range, value must between -9223372036854775807 and 9223372036854775807";
    CountNegative "ERR" "COUNT can't be negative";
    MaxLenNegative "ERR" "MAXLEN can't be negative";
}
