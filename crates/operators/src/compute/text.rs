//! Parts of texts, patterns over them, and the years of dates.

use arrow_array::Array;

use crate::compute::like::Pattern;
use crate::vector::{IndexedTexts, Vector, VectorValues};
use pages::task::TaskError;

/// Finds for each text whether it matches a pattern.
pub(crate) fn like(of: &Vector, pattern: &Pattern, negated: bool) -> Vector {
    let texts = of.values.bytes();
    let values = texts.map(|text| u8::from(pattern.matches(text) != negated));
    Vector {
        values: VectorValues::Bool(values),
        valid: of.valid.clone(),
        constant: of.constant,
    }
}

/// Returns parts of texts: so many characters, from a character on that is counted from 1.
///
/// # Errors
/// Returns an error if the parts have two gigabytes.
pub(crate) fn substring(of: &Vector, from: i64, count: i64) -> Result<Vector, TaskError> {
    let texts = of.values.bytes();
    // The part may begin before the text; the characters before it count, too.
    let start = from.saturating_sub(1);
    let end = start.saturating_add(count).max(0) as u64;
    let start = start.max(0) as u64;
    let bytes = if texts.data.len() <= texts.index.len() {
        let all =
            (0..texts.data.len()).map(|at| part(crate::vector::text(&texts.data, at), start, end));
        IndexedTexts {
            index: texts.index.clone(),
            ..IndexedTexts::new(all)?
        }
    } else {
        let rows = texts.index.len();
        IndexedTexts::new((0..rows).map(|row| part(texts.get(row), start, end)))?
    };
    Ok(Vector {
        values: VectorValues::Bytes(bytes),
        valid: of.valid.clone(),
        constant: of.constant,
    })
}

fn part(text: &[u8], start: u64, end: u64) -> &[u8] {
    let starts = text
        .iter()
        .enumerate()
        .filter(|(_, byte)| **byte & 0xC0 != 0x80);
    let (mut from, mut to) = (text.len(), text.len());
    for (character, (at, _)) in (0u64..).zip(starts) {
        if character == start {
            from = at;
        }
        if character == end {
            to = at;
            break;
        }
    }
    text.get(from..to).unwrap_or(&[])
}

/// Returns the years of dates, given in days since 1970; null where the calendar has none.
pub(crate) fn year(of: &Vector) -> Vector {
    let VectorValues::I64(days) = &of.values else {
        unreachable!("dates have 32 bits");
    };
    let years: Vec<i64> = days.iter().map(|&day| year_of(day)).collect();
    let known = |year: &i64| (-262_143..=262_142).contains(year);
    let valid = if years.iter().all(known) {
        of.valid.clone()
    } else {
        let row = |(row, year)| u8::from(known(year) && of.is_valid(row));
        Some(years.iter().enumerate().map(row).collect())
    };
    let years = years
        .iter()
        .map(|year| if known(year) { *year } else { 0 })
        .collect();
    Vector {
        values: VectorValues::I64(years),
        valid,
        constant: of.constant,
    }
}

/// Returns the year of a day, counted from 1970-01-01, in the Gregorian calendar.
pub(crate) fn year_of(day: i64) -> i64 {
    // Eras of 400 years that begin in March, so that leap days are at the ends of years.
    const ERA: i64 = 146_097;
    let day = day + 719_468;
    let era = day.div_euclid(ERA);
    let day = day.rem_euclid(ERA);
    let year = (day - day / 1460 + day / 36_524 - day / 146_096) / 365;
    let day_of_year = day - (365 * year + year / 4 - year / 100);
    // March is the first month: days from 306 on are in January and February.
    year + era * 400 + i64::from(day_of_year >= 306)
}

#[cfg(test)]
mod tests {
    use super::{part, year_of};

    #[test]
    fn years() {
        for (day, year) in [
            (0, 1970),
            (-1, 1969),
            (364, 1970),
            (365, 1971),
            (10_956, 1999),
            (10_957, 2000),
            (11_015, 2000),
            (11_322, 2000),
            (11_323, 2001),
            (-719_528, 0),
            (-719_529, -1),
        ] {
            assert_eq!(year_of(day), year, "day {day}");
        }
    }

    #[test]
    fn parts() {
        assert_eq!(part("alphabet".as_bytes(), 0, 2), b"al");
        assert_eq!(part("joséésoj".as_bytes(), 4, 6), "és".as_bytes());
        assert_eq!(part(b"abc", 1, 99), b"bc");
        assert_eq!(part(b"abc", 7, 9), b"");
        assert_eq!(part(b"abc", 1, 1), b"");
    }
}
