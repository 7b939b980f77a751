//! Sizes as people write them: `512KiB`, `64mb`, `1g`.

use std::fmt;
use std::str::FromStr;

/// A number of bytes, parsed from and shown as text.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Size(pub u64);

/// The reason why a text is not a size.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[error(
    "'{0}' is not a size; write a number with an optional unit, such as 4096, 512KiB, 64mb or 1g"
)]
pub struct BadSize(String);

impl FromStr for Size {
    type Err = BadSize;

    /// Parses a size. The units are those of `redis.conf`, in any case: `k` `m` `g` are powers of
    /// 1000, `kb` `mb` `gb` and `KiB` `MiB` `GiB` powers of 1024.
    fn from_str(text: &str) -> Result<Size, BadSize> {
        let bad = || BadSize(text.to_owned());
        let digits = text
            .find(|c: char| !c.is_ascii_digit())
            .unwrap_or(text.len());
        let number: u64 = text[..digits].parse().map_err(|_| bad())?;
        let unit = match text[digits..].trim().to_ascii_lowercase().as_str() {
            "" | "b" => 1,
            "k" => 1000,
            "m" => 1000 * 1000,
            "g" => 1000 * 1000 * 1000,
            "kb" | "kib" => 1 << 10,
            "mb" | "mib" => 1 << 20,
            "gb" | "gib" => 1 << 30,
            _ => return Err(bad()),
        };
        number.checked_mul(unit).map(Size).ok_or_else(bad)
    }
}

impl fmt::Display for Size {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let bytes = self.0 as f64;
        match self.0 {
            0..1024 => write!(f, "{}B", self.0),
            1024..1_048_576 => write!(f, "{:.1}KiB", bytes / 1024.0),
            1_048_576..1_073_741_824 => write!(f, "{:.1}MiB", bytes / 1_048_576.0),
            _ => write!(f, "{:.2}GiB", bytes / 1_073_741_824.0),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn units_are_understood() {
        for (text, bytes) in [
            ("0", 0),
            ("512KiB", 524_288),
            ("1g", 1_000_000_000),
            ("2gb", 2 << 30),
        ] {
            assert_eq!(text.parse::<Size>().unwrap().0, bytes, "{text}");
        }
        for text in ["", "x", "1x", "-1", "1.5g", "99999999999gb"] {
            assert!(text.parse::<Size>().is_err(), "{text}");
        }
    }
}
