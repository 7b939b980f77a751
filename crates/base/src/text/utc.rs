//! Times of the calendar, in UTC, as people write them: `2026-11-30T17:15:37.250Z`.

use std::fmt;
use std::str::FromStr;

const DAY_MS: u64 = 86_400_000;
/// Days from 1 March of year 0 to 1 January 1970.
const EPOCH_DAY: i64 = 719_468;
/// The last millisecond of year 9999.
const LAST_MS: u64 = 253_402_300_799_999;

/// A time, in milliseconds since the Unix epoch. It is shown in UTC.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub struct UtcTime(pub u64);

/// A text is not a time.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[error(
    "'{0}' is not a time; write one in UTC, such as 2026-11-30T17:15:37Z or 2026-11-30T17:15:37.250Z, or \
     milliseconds since 1970"
)]
pub struct BadTime(String);

impl UtcTime {
    /// Returns year, month and day.
    #[must_use]
    pub fn date(self) -> (i64, i64, i64) {
        // Days are counted from 1 March of year 0, so that a leap day is the last of its year.
        let day = (self.0 / DAY_MS) as i64 + EPOCH_DAY;
        let (era, of_era) = (day.div_euclid(146_097), day.rem_euclid(146_097));
        let year = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
        let of_year = of_era - (365 * year + year / 4 - year / 100);
        let month = (5 * of_year + 2) / 153;
        let date = of_year - (153 * month + 2) / 5 + 1;
        if month < 10 {
            (year + era * 400, month + 3, date)
        } else {
            (year + era * 400 + 1, month - 9, date)
        }
    }

    /// Returns hour, minute, second and millisecond.
    #[must_use]
    pub fn time_of_day(self) -> (u64, u64, u64, u64) {
        let seconds = self.0 % DAY_MS / 1000;
        (
            seconds / 3600,
            seconds / 60 % 60,
            seconds % 60,
            self.0 % 1000,
        )
    }
}

impl fmt::Display for UtcTime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (year, month, day) = self.date();
        let (hour, minute, second, ms) = self.time_of_day();
        write!(
            f,
            "{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{ms:03}Z"
        )
    }
}

impl FromStr for UtcTime {
    type Err = BadTime;

    fn from_str(text: &str) -> Result<UtcTime, BadTime> {
        let bad = || BadTime(text.to_owned());
        let time = match text.parse() {
            Ok(ms) => UtcTime(ms),
            Err(_) => parse(text).ok_or_else(bad)?,
        };
        (time.0 <= LAST_MS).then_some(time).ok_or_else(bad)
    }
}

fn parse(text: &str) -> Option<UtcTime> {
    let (date, time) = text.strip_suffix('Z')?.split_once('T')?;
    let [year, month, day] = numbers(date, '-', [4, 2, 2])?;
    let (time, fraction) = time.split_once('.').unwrap_or((time, "0"));
    let [hour, minute, second] = numbers(time, ':', [2, 2, 2])?;
    let ms = match fraction.len() {
        1..=3 if fraction.bytes().all(|byte| byte.is_ascii_digit()) => {
            format!("{fraction:0<3}").parse::<i64>().ok()?
        }
        _ => return None,
    };
    if !(1..=12).contains(&month) || hour > 23 || minute > 59 || second > 59 {
        return None;
    }
    // The same count of days as above.
    let (shifted_year, shifted_month) = match month {
        3.. => (year, month - 3),
        _ => (year - 1, month + 9),
    };
    let (era, of_era) = (shifted_year.div_euclid(400), shifted_year.rem_euclid(400));
    let of_year = (153 * shifted_month + 2) / 5 + day - 1;
    let days = era * 146_097 + of_era * 365 + of_era / 4 - of_era / 100 + of_year - EPOCH_DAY;
    let seconds = (days * 24 + hour) * 3600 + minute * 60 + second;
    let time = UtcTime(u64::try_from(seconds * 1000 + ms).ok()?);
    // The month may have fewer days.
    (time.date() == (year, month, day)).then_some(time)
}

/// Returns three numbers of these many digits.
fn numbers(text: &str, between: char, digits: [usize; 3]) -> Option<[i64; 3]> {
    let mut parts = text.split(between);
    let mut found = [0; 3];
    for (number, digits) in found.iter_mut().zip(digits) {
        let part = parts.next().filter(|part| part.len() == digits)?;
        if !part.bytes().all(|byte| byte.is_ascii_digit()) {
            return None;
        }
        *number = part.parse().ok()?;
    }
    parts.next().is_none().then_some(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_those_of_the_calendar() {
        for (ms, text) in [
            (0, "1970-01-01T00:00:00.000Z"),
            (951_782_399_001, "2000-02-28T23:59:59.001Z"),
            (951_782_400_000, "2000-02-29T00:00:00.000Z"),
            (1_709_251_199_999, "2024-02-29T23:59:59.999Z"),
            (4_102_444_800_000, "2100-01-01T00:00:00.000Z"),
            (LAST_MS, "9999-12-31T23:59:59.999Z"),
        ] {
            assert_eq!(UtcTime(ms).to_string(), text);
            assert_eq!(text.parse(), Ok(UtcTime(ms)));
        }
        for day in 0..60_000 {
            let time = UtcTime(day * DAY_MS + 1);
            assert_eq!(time.to_string().parse(), Ok(time));
        }
        assert_eq!("1970-01-01T00:00:01Z".parse(), Ok(UtcTime(1000)));
        assert_eq!("1970-01-01T00:00:01.5Z".parse(), Ok(UtcTime(1500)));
        assert_eq!("1500".parse(), Ok(UtcTime(1500)));
    }

    #[test]
    fn other_texts_are_no_times() {
        for text in [
            "",
            "yesterday",
            "-1",
            "1970-01-01",
            "1970-01-01T00:00:00",
            "1970-01-01 00:00:00Z",
            "1969-12-31T23:59:59Z",
            "2023-02-29T00:00:00Z",
            "2023-00-01T00:00:00Z",
            "2023-13-01T00:00:00Z",
            "2023-01-00T00:00:00Z",
            "2023-01-01T24:00:00Z",
            "2023-01-01T00:60:00Z",
            "2023-01-01T00:00:00.Z",
            "2023-01-01T00:00:00.1234Z",
            "2023-1-01T00:00:00Z",
            "+023-01-01T00:00:00Z",
            "99999999999999999",
        ] {
            assert!(text.parse::<UtcTime>().is_err(), "{text}");
        }
    }
}
