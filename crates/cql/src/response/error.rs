//! ERROR: the reason why a request failed.
//!
//! `[int]` code, `[string]` message, and then by code (*level* is a consistency level):
//!
//! | code | what follows |
//! |---|---|
//! | 0x1000 unavailable | level, `[int]` required, `[int]` alive |
//! | 0x1100 write timeout | level, `[int]` received, `[int]` required, `[string]` kind of write; in version 5, if that is `CAS`, `[short]` contentions |
//! | 0x1200 read timeout | level, `[int]` received, `[int]` required, `[byte]` whether there is data |
//! | 0x1300 read failure | level, `[int]` received, `[int]` required, failures, `[byte]` whether there is data |
//! | 0x1400 function failure | `[string]` keyspace, `[string]` function, `[string list]` types |
//! | 0x1500 write failure | level, `[int]` received, `[int]` required, failures, `[string]` kind of write |
//! | 0x1700 CAS write unknown | level, `[int]` received, `[int]` required |
//! | 0x2400 already exists | `[string]` keyspace, `[string]` table, empty for a keyspace |
//! | 0x2500 unprepared | `[short bytes]` id |
//!
//! Failures are an `[int]` number; in version 5 as many (`[inetaddr]` node, `[short]` reason)
//! follow it. All other codes have nothing behind the message, and neither have unknown codes.

use std::net::IpAddr;

use crate::consistency::Consistency;
use crate::envelope::Version;
use crate::notation::{
    Malformed, NotationReader, put_int, put_int_len, put_ip_address, put_short_bytes, put_string,
    put_string_list,
};

/// A bug of the server, or an error without another code.
pub const SERVER_ERROR: i32 = 0x0000;
/// A message that is not allowed, or not at that time.
pub const PROTOCOL_ERROR: i32 = 0x000a;
/// The client is not the user that it claims to be.
pub const AUTHENTICATION_ERROR: i32 = 0x0100;
/// Too few replicas are alive. Nothing was done.
pub const UNAVAILABLE: i32 = 0x1000;
/// The coordinator has too much to do. Nothing was done.
pub const OVERLOADED: i32 = 0x1001;
/// The coordinator is not yet part of the cluster.
pub const IS_BOOTSTRAPPING: i32 = 0x1002;
/// A table could not be truncated.
pub const TRUNCATE_ERROR: i32 = 0x1003;
/// Too few replicas acknowledged a write in time. It may happen or not.
pub const WRITE_TIMEOUT: i32 = 0x1100;
/// Too few replicas answered a read in time.
pub const READ_TIMEOUT: i32 = 0x1200;
/// Replicas failed to read.
pub const READ_FAILURE: i32 = 0x1300;
/// A user's function failed.
pub const FUNCTION_FAILURE: i32 = 0x1400;
/// Replicas failed to write. It may happen or not.
pub const WRITE_FAILURE: i32 = 0x1500;
/// There is no room for the log of changed data (version 5).
pub const CDC_WRITE_FAILURE: i32 = 0x1600;
/// A conditional write was overtaken: whether it happened is unknown (version 5).
pub const CAS_WRITE_UNKNOWN: i32 = 0x1700;
/// The text is not CQL.
pub const SYNTAX_ERROR: i32 = 0x2000;
/// The user may not do it.
pub const UNAUTHORIZED: i32 = 0x2100;
/// The statement is CQL, but cannot be executed.
pub const INVALID: i32 = 0x2200;
/// A configuration prevents it.
pub const CONFIG_ERROR: i32 = 0x2300;
/// The object that should be created exists.
pub const ALREADY_EXISTS: i32 = 0x2400;
/// The node does not know a prepared statement of this id.
pub const UNPREPARED: i32 = 0x2500;

/// The codes with more behind their messages.
const WITH_MORE: [i32; 9] = [
    UNAVAILABLE,
    WRITE_TIMEOUT,
    READ_TIMEOUT,
    READ_FAILURE,
    FUNCTION_FAILURE,
    WRITE_FAILURE,
    CAS_WRITE_UNKNOWN,
    ALREADY_EXISTS,
    UNPREPARED,
];

/// The kind of write that comes with a number of contentions in version 5.
const CAS: &str = "CAS";
const MAX_MESSAGE: usize = u16::MAX as usize;

/// The reason why a request failed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ErrorBody<'a> {
    /// The text for people.
    pub message: &'a str,
    /// The contents for programs.
    pub kind: ErrorKind<'a>,
}

/// The replicas that failed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Failures {
    /// Their number.
    pub count: usize,
    /// The nodes, and their reasons by Cassandra's numbers. In version 5 all of them are here; in
    /// earlier ones the list is empty.
    pub reasons: Vec<(IpAddr, u16)>,
}

/// A code and its contents.
#[derive(Clone, PartialEq, Eq, Debug)]
#[allow(missing_docs)] // The fields are those of the table above; the codes are documented.
pub enum ErrorKind<'a> {
    Unavailable {
        consistency: Consistency,
        required: i32,
        alive: i32,
    },
    WriteTimeout {
        consistency: Consistency,
        received: i32,
        required: i32,
        write: &'a str,
        contentions: Option<u16>,
    },
    ReadTimeout {
        consistency: Consistency,
        received: i32,
        required: i32,
        data_present: bool,
    },
    ReadFailure {
        consistency: Consistency,
        received: i32,
        required: i32,
        failures: Failures,
        data_present: bool,
    },
    FunctionFailure {
        keyspace: &'a str,
        function: &'a str,
        arguments: Vec<&'a str>,
    },
    WriteFailure {
        consistency: Consistency,
        received: i32,
        required: i32,
        failures: Failures,
        write: &'a str,
    },
    CasWriteUnknown {
        consistency: Consistency,
        received: i32,
        required: i32,
    },
    AlreadyExists {
        keyspace: &'a str,
        table: &'a str,
    },
    Unprepared {
        id: &'a [u8],
    },
    /// A code with nothing behind its message.
    Plain(i32),
}

impl ErrorKind<'_> {
    /// Returns the number on the wire.
    #[must_use]
    pub fn code(&self) -> i32 {
        match self {
            ErrorKind::Unavailable { .. } => UNAVAILABLE,
            ErrorKind::WriteTimeout { .. } => WRITE_TIMEOUT,
            ErrorKind::ReadTimeout { .. } => READ_TIMEOUT,
            ErrorKind::ReadFailure { .. } => READ_FAILURE,
            ErrorKind::FunctionFailure { .. } => FUNCTION_FAILURE,
            ErrorKind::WriteFailure { .. } => WRITE_FAILURE,
            ErrorKind::CasWriteUnknown { .. } => CAS_WRITE_UNKNOWN,
            ErrorKind::AlreadyExists { .. } => ALREADY_EXISTS,
            ErrorKind::Unprepared { .. } => UNPREPARED,
            ErrorKind::Plain(code) => *code,
        }
    }
}

impl<'a> ErrorBody<'a> {
    /// Returns an error with a code that has nothing behind its message.
    ///
    /// # Panics
    /// Panics if the code is one that has.
    #[must_use]
    pub fn plain(code: i32, message: &'a str) -> ErrorBody<'a> {
        assert!(!WITH_MORE.contains(&code), "more belongs to {code:#06x}");
        ErrorBody {
            message,
            kind: ErrorKind::Plain(code),
        }
    }

    pub(super) fn read(
        reader: &mut NotationReader<'a>,
        version: Version,
    ) -> Result<ErrorBody<'a>, Malformed> {
        let code = reader.int()?;
        let message = reader.string()?;
        let kind = read_kind(reader, code, version)?;
        Ok(ErrorBody { message, kind })
    }

    /// Writes the body. A message that is too long for the wire is cut.
    ///
    /// # Panics
    /// Panics if another string is too long for the wire.
    pub(super) fn write(&self, out: &mut Vec<u8>, version: Version) {
        put_int(out, self.kind.code());
        put_string(out, start_of(self.message, MAX_MESSAGE));
        self.kind.write(out, version);
    }
}

/// Returns as much of `text` as fits `max` bytes.
fn start_of(text: &str, max: usize) -> &str {
    let end = (0..=max.min(text.len())).rev();
    let end = end.into_iter().find(|&end| text.is_char_boundary(end));
    &text[..end.unwrap_or(0)]
}

impl Failures {
    fn read(reader: &mut NotationReader<'_>, version: Version) -> Result<Failures, Malformed> {
        let mut reasons = Vec::new();
        let count = reader.count("a negative number of failures")?;
        if version >= Version::V5 {
            for _ in 0..count {
                reasons.push((reader.ip_address()?, reader.short()?));
            }
        }
        Ok(Failures { count, reasons })
    }

    fn write(&self, out: &mut Vec<u8>, version: Version) {
        if version < Version::V5 {
            return put_int_len(out, self.count);
        }
        put_int_len(out, self.reasons.len());
        for (node, reason) in &self.reasons {
            put_ip_address(out, *node);
            out.extend_from_slice(&reason.to_be_bytes());
        }
    }
}

/// Reads level, received and required, with which several codes begin.
fn read_counts(reader: &mut NotationReader<'_>) -> Result<(Consistency, i32, i32), Malformed> {
    Ok((Consistency::read(reader)?, reader.int()?, reader.int()?))
}

fn read_kind<'a>(
    reader: &mut NotationReader<'a>,
    code: i32,
    version: Version,
) -> Result<ErrorKind<'a>, Malformed> {
    Ok(match code {
        UNAVAILABLE => ErrorKind::Unavailable {
            consistency: Consistency::read(reader)?,
            required: reader.int()?,
            alive: reader.int()?,
        },
        WRITE_TIMEOUT => {
            let (consistency, received, required) = read_counts(reader)?;
            let write = reader.string()?;
            let contended = version >= Version::V5 && write == CAS;
            ErrorKind::WriteTimeout {
                consistency,
                received,
                required,
                write,
                contentions: contended.then(|| reader.short()).transpose()?,
            }
        }
        READ_TIMEOUT => {
            let (consistency, received, required) = read_counts(reader)?;
            ErrorKind::ReadTimeout {
                consistency,
                received,
                required,
                data_present: reader.byte()? != 0,
            }
        }
        READ_FAILURE => {
            let (consistency, received, required) = read_counts(reader)?;
            ErrorKind::ReadFailure {
                consistency,
                received,
                required,
                failures: Failures::read(reader, version)?,
                data_present: reader.byte()? != 0,
            }
        }
        FUNCTION_FAILURE => ErrorKind::FunctionFailure {
            keyspace: reader.string()?,
            function: reader.string()?,
            arguments: reader.string_list()?,
        },
        WRITE_FAILURE => {
            let (consistency, received, required) = read_counts(reader)?;
            ErrorKind::WriteFailure {
                consistency,
                received,
                required,
                failures: Failures::read(reader, version)?,
                write: reader.string()?,
            }
        }
        CAS_WRITE_UNKNOWN => {
            let (consistency, received, required) = read_counts(reader)?;
            ErrorKind::CasWriteUnknown {
                consistency,
                received,
                required,
            }
        }
        ALREADY_EXISTS => ErrorKind::AlreadyExists {
            keyspace: reader.string()?,
            table: reader.string()?,
        },
        UNPREPARED => ErrorKind::Unprepared {
            id: reader.short_bytes()?,
        },
        code => ErrorKind::Plain(code),
    })
}

impl ErrorKind<'_> {
    fn write(&self, out: &mut Vec<u8>, version: Version) {
        let counts = |out: &mut Vec<u8>, consistency: &Consistency, first: &i32, second: &i32| {
            consistency.write(out);
            put_int(out, *first);
            put_int(out, *second);
        };
        match self {
            ErrorKind::Unavailable {
                consistency,
                required,
                alive,
            } => counts(out, consistency, required, alive),
            ErrorKind::WriteTimeout {
                consistency,
                received,
                required,
                write,
                contentions,
            } => {
                counts(out, consistency, received, required);
                put_string(out, write);
                if version >= Version::V5 && *write == CAS {
                    out.extend_from_slice(&contentions.unwrap_or(0).to_be_bytes());
                }
            }
            ErrorKind::ReadTimeout {
                consistency,
                received,
                required,
                data_present,
            } => {
                counts(out, consistency, received, required);
                out.push((*data_present).into());
            }
            ErrorKind::ReadFailure {
                consistency,
                received,
                required,
                failures,
                data_present,
            } => {
                counts(out, consistency, received, required);
                failures.write(out, version);
                out.push((*data_present).into());
            }
            ErrorKind::FunctionFailure {
                keyspace,
                function,
                arguments,
            } => {
                put_string(out, keyspace);
                put_string(out, function);
                put_string_list(out, arguments);
            }
            ErrorKind::WriteFailure {
                consistency,
                received,
                required,
                failures,
                write,
            } => {
                counts(out, consistency, received, required);
                failures.write(out, version);
                put_string(out, write);
            }
            ErrorKind::CasWriteUnknown {
                consistency,
                received,
                required,
            } => counts(out, consistency, received, required),
            ErrorKind::AlreadyExists { keyspace, table } => {
                put_string(out, keyspace);
                put_string(out, table);
            }
            ErrorKind::Unprepared { id } => put_short_bytes(out, id),
            ErrorKind::Plain(_) => {}
        }
    }
}
