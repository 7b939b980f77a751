//! The list of tests that are left out.
//!
//! | line | what it says |
//! |---|---|
//! | `# TEXT` | a comment |
//! | `reason WORD TEXT` | a reason, and its short name |
//! | `tag TAG WORD` | tests with this tag of the suite are not run, for this reason |
//! | `unit NAME` | the lines behind it are about this unit |
//! | `fails WORD TEST` | this test is run and must fail, for this reason |
//! | `skips WORD TEST` | this test is not run, for this reason: it would disturb those behind it |
//!
//! Tests of one name count as one test.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Context, Result, bail};

/// A test that is left out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct LeftOutTest {
    pub(super) name: String,
    /// The test is run, and must fail.
    pub(super) runs: bool,
}

/// The tests that are left out, by their units, and the tags of others.
#[derive(Debug, Default)]
pub(super) struct LeftOut {
    tags: Vec<String>,
    units: BTreeMap<String, Vec<LeftOutTest>>,
}

impl LeftOut {
    /// Reads a list.
    ///
    /// # Errors
    /// Returns an error with the first line that is none of the above, or if a reason has no use.
    pub(super) fn parse(text: &str) -> Result<LeftOut> {
        let mut list = LeftOut::default();
        let mut reasons = BTreeSet::new();
        let mut used = BTreeSet::new();
        let mut unit = None;
        let is_empty = |line: &str| line.is_empty() || line.starts_with('#');
        for line in text.lines().filter(|line| !is_empty(line)) {
            let (kind, rest) = line.split_once(' ').unwrap_or((line, ""));
            let (first, second) = rest.split_once(' ').unwrap_or((rest, ""));
            let (reason, name) = (first, second.trim_start());
            match (kind, name.is_empty()) {
                ("reason", false) => {
                    reasons.insert(reason);
                    continue;
                }
                ("unit", true) => {
                    unit = Some(list.units.entry(reason.to_owned()).or_default());
                    continue;
                }
                ("tag", false) => {
                    list.tags.push(format!("-{first}"));
                    used.insert(name);
                }
                ("fails" | "skips", false) => {
                    let tests = unit
                        .as_mut()
                        .context("a test stands before the first unit")?;
                    let runs = kind == "fails";
                    let name = name.to_owned();
                    tests.push(LeftOutTest { name, runs });
                    used.insert(reason);
                }
                _ => bail!("the list of tests has a line of no kind: {line}"),
            }
        }
        if let Some(reason) = used.symmetric_difference(&reasons).next() {
            bail!("the list of tests does not both give and use the reason '{reason}'");
        }
        Ok(list)
    }

    /// Returns the tags, as the suite's option has them.
    pub(super) fn tags(&self) -> String {
        self.tags.join(" ")
    }

    /// Returns the tests of a unit.
    pub(super) fn tests(&self, unit: &str) -> &[LeftOutTest] {
        self.units.get(unit).map_or(&[], Vec::as_slice)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIST: &str = "\
# A comment.
reason lists Lists do not exist.
reason copies There are no copies.

tag needs:repl copies
unit type/string
fails lists SETRANGE against key with wrong type
skips lists   MGET, and more
unit quit
";

    #[test]
    fn a_list_has_tags_and_tests_of_units() {
        let list = LeftOut::parse(LIST).expect("a list");
        assert_eq!(list.tags(), "-needs:repl");
        let test = |name: &str, runs| LeftOutTest {
            name: name.to_owned(),
            runs,
        };
        assert_eq!(
            list.tests("type/string"),
            [
                test("SETRANGE against key with wrong type", true),
                test("MGET, and more", false)
            ]
        );
        assert_eq!(list.tests("quit"), []);
    }

    #[test]
    fn a_reason_that_is_missing_or_without_use_is_an_error() {
        for (line, instead) in [
            ("reason lists", "reason sets"),
            ("tag needs:repl copies", ""),
        ] {
            let error = LeftOut::parse(&LIST.replace(line, instead)).expect_err("an error");
            assert!(error.to_string().contains("reason"), "{error}");
        }
        assert!(LeftOut::parse("fails").is_err());
        assert!(LeftOut::parse("reason a b\nfails a name").is_err());
    }
}
