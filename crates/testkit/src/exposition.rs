//! A strict reader of Prometheus's text format (version 0.0.4): everything of which Prometheus's
//! own tools would warn is an error here.
//!
//! Beyond the grammar it requires:
//! 1. each family has its `HELP` and `TYPE`, in this order, and all its samples behind them;
//! 2. no family and no sample (name and labels) occurs twice;
//! 3. counters, and no other families, end in `_total`; none is negative;
//! 4. a histogram has rising bounds up to `+Inf`, counts that never fall, a sum, and a count equal
//!    to the last bucket;
//! 5. names use base units: seconds and bytes, not milliseconds or kilobytes.

use std::collections::{BTreeMap, BTreeSet};

use crate::error::TestkitError;

/// Families by name.
pub type Families = BTreeMap<String, Family>;

/// The samples of one name.
#[derive(Debug, Default)]
pub struct Family {
    /// `counter`, `gauge` or `histogram`.
    pub kind: String,
    /// The samples by name with labels, as in the text.
    pub samples: BTreeMap<String, f64>,
    /// The samples in the order of the text: the part behind the family's name, labels, value.
    order: Vec<(String, BTreeMap<String, String>, f64)>,
}

/// Reads a whole text.
///
/// # Errors
/// Returns an error that names the mistake and its place.
pub fn parse(text: &str) -> Result<Families, TestkitError> {
    let mut families = Families::new();
    let mut open: Option<String> = None;
    let mut helped: Option<String> = None;
    if !text.ends_with('\n') {
        return Err(TestkitError::malformed("the last line has no end"));
    }
    for line in text.lines() {
        let wrong = |what: &str| Err(TestkitError::malformed(format!("{what}: {line}")));
        if let Some(rest) = line.strip_prefix("# HELP ") {
            let (name, help) = rest.split_once(' ').unwrap_or((rest, ""));
            if !is_name(name) || help.trim() != help || help.is_empty() {
                return wrong("bad HELP");
            }
            if families.contains_key(name) {
                return wrong("a family begins twice");
            }
            helped = Some(name.to_owned());
        } else if let Some(rest) = line.strip_prefix("# TYPE ") {
            let (name, kind) = rest
                .split_once(' ')
                .ok_or_else(|| TestkitError::malformed("a TYPE without its type"))?;
            if helped.take().as_deref() != Some(name) {
                return wrong("TYPE without HELP before it");
            }
            if !["counter", "gauge", "histogram"].contains(&kind) {
                return wrong("unknown type");
            }
            let family = Family {
                kind: kind.to_owned(),
                ..Family::default()
            };
            families.insert(name.to_owned(), family);
            open = Some(name.to_owned());
        } else {
            let name = open
                .clone()
                .ok_or_else(|| TestkitError::malformed(format!("a sample first: {line}")))?;
            let family = families.get_mut(&name).expect("it was begun");
            sample(&name, family, line)
                .map_err(|what| TestkitError::malformed(format!("{what}: {line}")))?;
        }
    }
    for (name, family) in &families {
        check(name, family).map_err(|what| TestkitError::malformed(format!("{name}: {what}")))?;
    }
    Ok(families)
}

fn sample(family_name: &str, family: &mut Family, line: &str) -> Result<(), TestkitError> {
    let (key, value) = line
        .rsplit_once(' ')
        .ok_or_else(|| TestkitError::malformed("no value"))?;
    let (name, labels) = match key.split_once('{') {
        None => (key, BTreeMap::new()),
        Some((name, rest)) => (name, labels(rest)?),
    };
    let suffix = name
        .strip_prefix(family_name)
        .ok_or_else(|| TestkitError::malformed("a sample of another family"))?;
    if !is_name(name) {
        return Err(TestkitError::malformed("bad name"));
    }
    let value = match value {
        "+Inf" => f64::INFINITY,
        _ if value.starts_with(|c: char| c.is_ascii_digit() || c == '-') => value
            .parse()
            .map_err(|_| TestkitError::malformed("bad value"))?,
        _ => return Err(TestkitError::malformed("bad value")),
    };
    if family.samples.insert(key.to_owned(), value).is_some() {
        return Err(TestkitError::malformed("a sample is there twice"));
    }
    family.order.push((suffix.to_owned(), labels, value));
    Ok(())
}

/// Reads the text behind `{`, up to and including `}`.
fn labels(text: &str) -> Result<BTreeMap<String, String>, TestkitError> {
    let mut labels = BTreeMap::new();
    let mut rest = text;
    loop {
        let (name, after) = rest
            .split_once("=\"")
            .ok_or_else(|| TestkitError::malformed("a label without a value"))?;
        if !is_name(name) || name.contains(':') || name.starts_with("__") {
            return Err(TestkitError::malformed("bad name of a label"));
        }
        let mut value = String::new();
        let mut letters = after.char_indices();
        let end = loop {
            match letters
                .next()
                .ok_or_else(|| TestkitError::malformed("a value without its end"))?
            {
                (at, '"') => break at,
                (_, '\\') => match letters.next() {
                    Some((_, 'n')) => value.push('\n'),
                    Some((_, escaped @ ('\\' | '"'))) => value.push(escaped),
                    _ => return Err(TestkitError::malformed("bad escape")),
                },
                (_, letter) => value.push(letter),
            }
        };
        if labels.insert(name.to_owned(), value).is_some() {
            return Err(TestkitError::malformed("a label is there twice"));
        }
        rest = &after[end + 1..];
        match rest.split_at_checked(1) {
            Some(("}", "")) => return Ok(labels),
            Some((",", more)) => rest = more,
            _ => return Err(TestkitError::malformed("bad end of labels")),
        }
    }
}

fn is_name(name: &str) -> bool {
    let letter = |c: char| c.is_ascii_alphabetic() || c == '_' || c == ':';
    name.starts_with(letter) && name.chars().all(|c| letter(c) || c.is_ascii_digit())
}

fn check(name: &str, family: &Family) -> Result<(), TestkitError> {
    if family.order.is_empty() {
        return Err(TestkitError::malformed("no samples"));
    }
    if name.ends_with("_total") != (family.kind == "counter") {
        return Err(TestkitError::malformed(
            "counters end in _total, and nothing else does",
        ));
    }
    let units = [
        "_ms", "_us", "_millis", "_micros", "_kb", "_kib", "_percent",
    ];
    if units.iter().any(|unit| name.contains(unit)) {
        return Err(TestkitError::malformed("not a base unit"));
    }
    if family.kind == "histogram" {
        return check_histogram(family);
    }
    let plain = family.order.iter().all(|(suffix, ..)| suffix.is_empty());
    if !plain {
        return Err(TestkitError::malformed("a sample of another name"));
    }
    let negative = family.order.iter().any(|(.., value)| *value < 0.0);
    if family.kind == "counter" && negative {
        return Err(TestkitError::malformed("a counter is negative"));
    }
    let sets: BTreeSet<Vec<&String>> = family
        .order
        .iter()
        .map(|(_, labels, _)| labels.keys().collect())
        .collect();
    if sets.len() > 1 {
        return Err(TestkitError::malformed("samples have different labels"));
    }
    Ok(())
}

/// Checks the histograms of a family: one for each set of labels, besides that of the bound.
fn check_histogram(family: &Family) -> Result<(), TestkitError> {
    let mut histograms: BTreeMap<BTreeMap<String, String>, Vec<Sample<'_>>> = BTreeMap::new();
    for (suffix, labels, value) in &family.order {
        let mut own = labels.clone();
        let bound = own.remove("le");
        let samples = histograms.entry(own).or_default();
        samples.push((suffix, bound, *value));
    }
    histograms
        .values()
        .try_for_each(|samples| check_one(samples))
}

/// The part behind the family's name, the bound of a bucket, the value.
type Sample<'a> = (&'a str, Option<String>, f64);

fn check_one(samples: &[Sample<'_>]) -> Result<(), TestkitError> {
    let mut bound = f64::NEG_INFINITY;
    let mut below = 0.0;
    let [mut sum, mut count] = [None; 2];
    for (suffix, le, value) in samples {
        match *suffix {
            "_bucket" => {
                let le = le
                    .as_ref()
                    .ok_or_else(|| TestkitError::malformed("a bucket without its bound"))?;
                let le = match le.as_str() {
                    "+Inf" => f64::INFINITY,
                    le => le
                        .parse()
                        .map_err(|_| TestkitError::malformed("bad bound"))?,
                };
                if le <= bound || *value < below {
                    return Err(TestkitError::malformed(
                        "bounds rise and counts do not fall",
                    ));
                }
                (bound, below) = (le, *value);
            }
            "_sum" => sum = Some(*value),
            "_count" => count = Some(*value),
            _ => {
                return Err(TestkitError::malformed(
                    "a sample that histograms do not have",
                ));
            }
        }
    }
    if bound != f64::INFINITY || count != Some(below) || sum.is_none_or(|sum| sum < 0.0) {
        return Err(TestkitError::malformed(
            "a histogram ends with +Inf, its sum and its count",
        ));
    }
    Ok(())
}
