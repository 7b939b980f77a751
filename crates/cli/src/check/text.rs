//! Numbers, sizes and times in the description of a data directory.

use base::utc::UtcTime;

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
    let time = UtcTime(ms);
    let (year, month, day) = time.date();
    let (hour, minute, second, _) = time.time_of_day();
    format!("{year:04}-{month:02}-{day:02} {hour:02}:{minute:02}:{second:02} UTC")
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
