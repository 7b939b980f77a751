//! The longest common subsequence of two values (`LCS`).
//!
//! The table has for each pair of beginnings the length of their longest common subsequence. The way back
//! from its end gives the subsequence, from its last byte to its first one.

use resp::Writer;

/// The most entries that the table may have: more would hold the thread for too long.
const MOST_ENTRIES: usize = 16 << 20;

/// The parts of the answer that the client asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct SubsequenceOptions {
    /// Its length alone.
    pub(crate) length: bool,
    /// Where its parts are in both values.
    pub(crate) places: bool,
    /// The length of each of these parts, too.
    pub(crate) part_lengths: bool,
    /// The least length of a part that is shown.
    pub(crate) least: i64,
}

/// A part of the subsequence that is the same in both values.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct CommonPart {
    /// Where it begins in both values.
    starts: [usize; 2],
    len: usize,
}

/// Writes what the options ask for.
pub(super) fn write(values: [&[u8]; 2], options: SubsequenceOptions, writer: &mut Writer<'_>) {
    let entries = (values[0].len() + 1).checked_mul(values[1].len() + 1);
    if entries.is_none_or(|entries| entries > MOST_ENTRIES) {
        return writer.error(
            "ERR LCS of these values takes too long: the product of their lengths exceeds 16777216",
        );
    }
    let parts = common_parts(values);
    let len: usize = parts.iter().map(|part| part.len).sum();
    if options.length {
        return writer.int(len as i64);
    }
    if !options.places {
        let parts = parts.iter().rev();
        let bytes: Vec<u8> = parts
            .flat_map(|part| &values[0][part.starts[0]..part.starts[0] + part.len])
            .copied()
            .collect();
        return writer.bulk(&bytes);
    }
    let shown = |part: &&CommonPart| part.len as i64 >= options.least;
    writer.map(2);
    writer.bulk(b"matches");
    writer.array(parts.iter().filter(shown).count());
    for part in parts.iter().filter(shown) {
        writer.array(if options.part_lengths { 3 } else { 2 });
        for start in part.starts {
            writer.array(2);
            writer.int(start as i64);
            writer.int((start + part.len - 1) as i64);
        }
        if options.part_lengths {
            writer.int(part.len as i64);
        }
    }
    writer.bulk(b"len");
    writer.int(len as i64);
}

/// Returns the parts of the subsequence, the last one first.
fn common_parts([one, other]: [&[u8]; 2]) -> Vec<CommonPart> {
    let width = other.len() + 1;
    let mut table = vec![0_u32; (one.len() + 1) * width];
    for (i, a) in one.iter().enumerate() {
        let (above, row) = table[i * width..].split_at_mut(width);
        for (j, b) in other.iter().enumerate() {
            row[j + 1] = match a == b {
                true => above[j] + 1,
                false => above[j + 1].max(row[j]),
            };
        }
    }
    let (mut i, mut j) = (one.len(), other.len());
    let mut parts: Vec<CommonPart> = Vec::new();
    let mut continues = false;
    while i > 0 && j > 0 {
        let is_same = one[i - 1] == other[j - 1];
        if is_same {
            (i, j) = (i - 1, j - 1);
            match parts.last_mut().filter(|_| continues) {
                Some(part) => {
                    *part = CommonPart {
                        starts: [i, j],
                        len: part.len + 1,
                    }
                }
                None => parts.push(CommonPart {
                    starts: [i, j],
                    len: 1,
                }),
            }
        } else if table[(i - 1) * width + j] > table[i * width + j - 1] {
            i -= 1;
        } else {
            j -= 1;
        }
        continues = is_same;
    }
    parts
}

#[cfg(test)]
mod tests {
    use super::*;
    use resp::Protocol;

    #[test]
    fn parts_are_where_they_are_in_both_values() {
        let parts = common_parts([b"ohmytext", b"mynewtext"]);
        let text = CommonPart {
            starts: [4, 5],
            len: 4,
        };
        let my = CommonPart {
            starts: [2, 0],
            len: 2,
        };
        assert_eq!(parts, [text, my]);
        assert!(common_parts([b"", b"abc"]).is_empty());
        assert!(common_parts([b"xyz", b"abc"]).is_empty());
    }

    #[test]
    fn values_that_take_too_long_are_refused() {
        let long = vec![b'a'; MOST_ENTRIES];
        let mut out = Vec::new();
        let mut writer = Writer::new(&mut out, Protocol::Resp2);
        write([&long, b"a"], SubsequenceOptions::default(), &mut writer);
        assert!(out.starts_with(b"-ERR LCS"), "{out:?}");
    }
}
