//! Commands that carry values between servers.

use base::eviction::KeyAccess;
use base::key_event::KeyEvent;
use base::transaction::Expiry;
use resp::{Args, Writer};
use values::StoredBlock;
use values::dump::{DecodeContext, PayloadError, decode, encode};

use super::arguments::{int, is};
use crate::command::CommandKind::Compound;
use crate::command::{CommandDefinition, CompoundStop, commands};
use crate::refusal::{Refusal, write_op_error};
use crate::working_set::{WorkingSet, WorkingValue};

/// The commands of this family.
pub(super) const COMMANDS: &[CommandDefinition] = commands! { "generic";
    "dump" 2 "readonly" ONE("RO access") "keyspace" "nondeterministic_output"
        "2.6.0" "O(N) where N is the length of the value.",
        Compound(dump), "A value in the format of Redis's files.";
    "restore" -4 "write denyoom" ONE("OW update") "keyspace dangerous" ""
        "2.6.0" "O(N) where N is the length of the value.",
        Compound(restore), "Sets a key to the value that DUMP has answered.";
};

fn dump(args: Args<'_>, set: &mut WorkingSet, writer: &mut Writer<'_>) -> Result<(), CompoundStop> {
    match set.value(args.at(1)) {
        Some(value) => {
            let stored = StoredBlock {
                kind: value.kind,
                bytes: &value.bytes,
            };
            writer.bulk(&encode(stored));
        }
        None => writer.null(),
    }
    Ok(())
}

fn refusal_of(error: PayloadError) -> Refusal {
    match error {
        PayloadError::Footer => Refusal::Text("ERR DUMP payload version or checksum are wrong"),
        PayloadError::Malformed => Refusal::Text("ERR Bad data format"),
        PayloadError::TooLong => Refusal::TooLong,
    }
}

/// The options of `RESTORE` that have an effect.
#[derive(Default)]
struct RestoreOptions {
    replaces: bool,
    /// The time to live is a time since the Unix epoch.
    is_absolute: bool,
    /// How the key was used.
    access: Option<KeyAccess>,
}

impl RestoreOptions {
    fn parse(args: Args<'_>) -> Result<RestoreOptions, Refusal> {
        let mut options = RestoreOptions::default();
        let mut at = 0;
        while let Some(option) = args.get(at) {
            let value = args.get(at + 1);
            match value {
                _ if is(option, "replace") => options.replaces = true,
                _ if is(option, "absttl") => options.is_absolute = true,
                Some(seconds)
                    if is(option, "idletime")
                        && !matches!(options.access, Some(KeyAccess::SetFrequency(_))) =>
                {
                    let seconds = int(seconds)?;
                    if seconds < 0 {
                        return Err(Refusal::Text("ERR Invalid IDLETIME value, must be >= 0"));
                    }
                    let seconds = u32::try_from(seconds).unwrap_or(u32::MAX);
                    options.access = Some(KeyAccess::SetIdleSeconds(seconds));
                    at += 1;
                }
                Some(frequency)
                    if is(option, "freq")
                        && !matches!(options.access, Some(KeyAccess::SetIdleSeconds(_))) =>
                {
                    let frequency = u8::try_from(int(frequency)?).map_err(|_| {
                        Refusal::Text("ERR Invalid FREQ value, must be >= 0 and <= 255")
                    })?;
                    options.access = Some(KeyAccess::SetFrequency(frequency));
                    at += 1;
                }
                _ => return Err(Refusal::Syntax),
            }
            at += 1;
        }
        Ok(options)
    }
}

fn restore(
    args: Args<'_>,
    set: &mut WorkingSet,
    writer: &mut Writer<'_>,
) -> Result<(), CompoundStop> {
    let key = args.at(1);
    let options = RestoreOptions::parse(args.from(4))?;
    if set.value(key).is_some() && !options.replaces {
        return Err(Refusal::Text("BUSYKEY Target key name already exists.").into());
    }
    let expiry = match int(args.at(2))? {
        ..0 => return Err(Refusal::Text("ERR Invalid TTL value, must be >= 0").into()),
        0 => Expiry::Never,
        at if options.is_absolute => Expiry::AtMs(at),
        ttl => Expiry::InMs(ttl),
    };
    let context = DecodeContext {
        longest: set.longest_value(),
        time_ms: set.time_ms(),
    };
    let restored = decode(args.at(3), context).map_err(refusal_of)?;
    let deadline = expiry.deadline(set.time_ms(), None);
    let deadline = deadline.map_err(|_| Refusal::BadExpiry)?;
    let existed = set.value(key).is_some();
    let value = restored.map(|restored| WorkingValue {
        kind: restored.kind,
        bytes: restored.bytes,
        deadline,
    });
    match set.set(key, value) {
        Ok(()) => {
            match set.value(key) {
                Some(_) => {
                    set.note(key, KeyEvent::Restore);
                    set.note_access(key, options.access);
                }
                None if existed => set.note(key, KeyEvent::Del),
                None => {}
            }
            writer.ok();
        }
        Err(error) => write_op_error(error, "restore", writer),
    }
    Ok(())
}
