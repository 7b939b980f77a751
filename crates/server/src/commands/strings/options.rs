//! The options of `SET` and its kin.

use base::transaction::{Expiry, When};
use resp::Args;

use crate::commands::arguments::{in_ms, in_ms_from_now, int, is};
use crate::refusal::Refusal;

/// The unit of an expiry, and its reference point.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct ExpiryUnit {
    pub(super) seconds: bool,
    pub(super) date: bool,
}

/// Parses the expiry of `SET` and its kin, which must lie in the future.
pub(super) fn expiry_of(arg: &[u8], unit: ExpiryUnit) -> Result<Expiry, Refusal> {
    let given = int(arg)?;
    let expiry = if unit.date {
        in_ms(given, unit.seconds).map(Expiry::AtMs)
    } else {
        in_ms_from_now(given, unit.seconds).map(Expiry::InMs)
    };
    expiry.filter(|_| given > 0).ok_or(Refusal::BadExpiry)
}

/// The command whose options are parsed.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum StringCommand {
    Set,
    GetEx,
}

/// The options of `SET` and `GETEX`.
#[derive(Default)]
pub(super) struct StringOptions {
    pub(super) when: When,
    pub(super) get: bool,
    pub(super) expiry: Option<Expiry>,
}

/// An expiry as it is parsed: which option gave it, so that another one is refused.
#[derive(Clone, Copy, PartialEq, Eq)]
enum ExpiryOption<'a> {
    Keep,
    Persist,
    Given(ExpiryUnit, &'a [u8]),
}

impl StringOptions {
    pub(super) fn parse(args: Args<'_>, command: StringCommand) -> Result<StringOptions, Refusal> {
        let mut options = StringOptions::default();
        let mut expiry: Option<ExpiryOption<'_>> = None;
        let mut at = 0;
        while let Some(arg) = args.get(at) {
            at += 1;
            if command == StringCommand::Set && is(arg, "nx") && options.when != When::Present {
                options.when = When::Absent;
            } else if command == StringCommand::Set && is(arg, "xx") && options.when != When::Absent
            {
                options.when = When::Present;
            } else if command == StringCommand::Set && is(arg, "get") {
                options.get = true;
            } else {
                let (option, used) = expiry_option(arg, args.get(at), command)?;
                let same = |other| same_option(other, option);
                if !expiry.is_none_or(same) {
                    return Err(Refusal::Syntax);
                }
                expiry = Some(option);
                at += used;
            }
        }
        options.expiry = match expiry {
            None => None,
            Some(ExpiryOption::Keep) => Some(Expiry::Keep),
            Some(ExpiryOption::Persist) => Some(Expiry::Never),
            Some(ExpiryOption::Given(unit, arg)) => Some(expiry_of(arg, unit)?),
        };
        Ok(options)
    }
}

/// Parses the option at `arg`. Returns it and the number of arguments behind it that belong to it.
fn expiry_option<'a>(
    arg: &[u8],
    next: Option<&'a [u8]>,
    command: StringCommand,
) -> Result<(ExpiryOption<'a>, usize), Refusal> {
    if command == StringCommand::Set && is(arg, "keepttl") {
        return Ok((ExpiryOption::Keep, 0));
    }
    if command == StringCommand::GetEx && is(arg, "persist") {
        return Ok((ExpiryOption::Persist, 0));
    }
    let units = [
        ("ex", true, false),
        ("px", false, false),
        ("exat", true, true),
        ("pxat", false, true),
    ];
    for (word, seconds, date) in units {
        if is(arg, word) {
            let next = next.ok_or(Refusal::Syntax)?;
            return Ok((ExpiryOption::Given(ExpiryUnit { seconds, date }, next), 1));
        }
    }
    Err(Refusal::Syntax)
}

/// Returns `true` if both are the same option, which may be given again; the last one counts.
fn same_option(a: ExpiryOption<'_>, b: ExpiryOption<'_>) -> bool {
    match (a, b) {
        (ExpiryOption::Given(a, _), ExpiryOption::Given(b, _)) => a == b,
        (a, b) => a == b,
    }
}
