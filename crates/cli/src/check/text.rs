//! Numbers, sizes and times in the description of a data directory.

/// Formats a number of things.
pub(super) fn count(n: u64, what: &str) -> String {
    format!("{n} {what}{}", if n == 1 { "" } else { "s" })
}

/// Formats a number of bytes.
pub(super) fn mib(bytes: u64) -> String {
    format!("{:.1} MiB", bytes as f64 / 1_048_576.0)
}

/// Formats a time as a date and time of day in UTC.
pub(super) fn utc(ms: u64) -> String {
    let seconds = ms / 1000;
    let (day, second) = ((seconds / 86_400) as i64, seconds % 86_400);
    // Days are counted from 1 March of year 0, so that a leap day is the last of its year.
    let day = day + 719_468;
    let (era, of_era) = (day.div_euclid(146_097), day.rem_euclid(146_097));
    let year = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year + year / 4 - year / 100);
    let month = (5 * of_year + 2) / 153;
    let date = of_year - (153 * month + 2) / 5 + 1;
    let (month, year) = if month < 10 {
        (month + 3, year + era * 400)
    } else {
        (month - 9, year + era * 400 + 1)
    };
    let (hour, minute) = (second / 3600, second / 60 % 60);
    format!(
        "{year:04}-{month:02}-{date:02} {hour:02}:{minute:02}:{:02} UTC",
        second % 60
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_those_of_the_calendar() {
        for (ms, text) in [
            (0, "1970-01-01 00:00:00 UTC"),
            (951_782_399_000, "2000-02-28 23:59:59 UTC"),
            (951_782_400_000, "2000-02-29 00:00:00 UTC"),
            (1_709_251_199_999, "2024-02-29 23:59:59 UTC"),
            (4_102_444_800_000, "2100-01-01 00:00:00 UTC"),
        ] {
            assert_eq!(utc(ms), text);
        }
    }
}
