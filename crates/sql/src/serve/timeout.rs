//! How long a connection's statements may take, as its client wants it: `statement_timeout`.
//!
//! Values are PostgreSQL's: milliseconds, or a number with one of the units below; 0 is without end.

use std::time::Duration;

use parking_lot::Mutex;

/// The setting's name.
pub(crate) const NAME: &str = "statement_timeout";

/// Units, the longest first, and their milliseconds.
const UNITS: [(&str, u64); 5] = [
    ("d", 86_400_000),
    ("h", 3_600_000),
    ("min", 60_000),
    ("s", 1000),
    ("ms", 1),
];
/// As long as PostgreSQL lets it be, in milliseconds.
const LONGEST: u64 = i32::MAX as u64;

/// The setting of one connection.
#[derive(Debug, Default)]
pub(crate) struct Timeout(Mutex<Limits>);

/// In milliseconds.
#[derive(Debug, Default)]
struct Limits {
    session: u64,
    /// Until the transaction ends, in the place of the other.
    local: Option<u64>,
}

impl Limits {
    fn now(&self) -> u64 {
        self.local.unwrap_or(self.session)
    }
}

impl Timeout {
    pub(crate) fn set(&self, milliseconds: u64) {
        *self.0.lock() = Limits {
            session: milliseconds,
            local: None,
        };
    }

    /// Sets the time limit until the transaction ends.
    pub(crate) fn set_local(&self, milliseconds: u64) {
        self.0.lock().local = Some(milliseconds);
    }

    /// Restores the time limit at the end of a transaction.
    pub(crate) fn end_transaction(&self) {
        self.0.lock().local = None;
    }

    /// Returns the time that a statement may take; `None` is without end.
    pub(crate) fn get(&self) -> Option<Duration> {
        let milliseconds = self.0.lock().now();
        (milliseconds > 0).then(|| Duration::from_millis(milliseconds))
    }

    /// Returns the value as it is shown: in the longest unit that has no rest.
    pub(crate) fn show(&self) -> String {
        let milliseconds = self.0.lock().now();
        let whole = |(_, unit): &&(&str, u64)| milliseconds.is_multiple_of(*unit);
        match UNITS.iter().find(whole) {
            Some((name, unit)) if milliseconds > 0 => format!("{}{name}", milliseconds / unit),
            _ => "0".to_owned(),
        }
    }
}

/// A setting does not exist, or cannot have a value; the text says which.
#[derive(PartialEq, Eq, Debug)]
pub(crate) struct InvalidSetting(pub(crate) String);

/// Returns the milliseconds of a value as a client writes it.
///
/// # Errors
/// Returns what is wrong with it.
pub(crate) fn parse(value: &str) -> Result<u64, InvalidSetting> {
    let text = value.trim().trim_matches('\'').trim();
    if text.eq_ignore_ascii_case("default") {
        return Ok(0);
    }
    let digits = text.find(|c: char| !c.is_ascii_digit());
    let (number, unit) = text.split_at(digits.unwrap_or(text.len()));
    let unit = match unit.trim() {
        "" => Some(1),
        name => UNITS.iter().find(|unit| unit.0 == name).map(|unit| unit.1),
    };
    let product = |number: u64| number.checked_mul(unit?);
    let milliseconds = number.parse().ok().and_then(product);
    milliseconds
        .filter(|&milliseconds| milliseconds <= LONGEST)
        .ok_or_else(|| {
            InvalidSetting(format!(
                "invalid value for parameter \"{NAME}\": \"{text}\": give milliseconds, or a number and one \
                 of ms, s, min, h and d, of 24 days at most"
            ))
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_local_ends_with_the_transaction() {
        let timeout = Timeout::default();
        timeout.set(2000);
        timeout.set_local(7);
        assert_eq!(timeout.show(), "7ms");
        timeout.end_transaction();
        assert_eq!(timeout.show(), "2s");
        timeout.set_local(7);
        timeout.set(0);
        assert_eq!(timeout.get(), None);
    }

    #[test]
    fn values_are_read_and_shown_as_postgresql_does() {
        let timeout = Timeout::default();
        assert_eq!((timeout.get(), timeout.show().as_str()), (None, "0"));
        for (value, milliseconds, shown) in [
            ("1500", 1500, "1500ms"),
            ("'5s'", 5000, "5s"),
            ("'2 min'", 120_000, "2min"),
            ("36h", 129_600_000, "36h"),
            ("'0'", 0, "0"),
            ("DEFAULT", 0, "0"),
        ] {
            assert_eq!(parse(value), Ok(milliseconds), "{value}");
            timeout.set(milliseconds);
            assert_eq!(timeout.show(), shown);
        }
        for value in [
            "",
            "soon",
            "'5 weeks'",
            "-1",
            "1.5s",
            "25d",
            "99999999999999999999",
        ] {
            assert!(parse(value).is_err(), "{value}");
        }
    }
}
