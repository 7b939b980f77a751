//! The results of a unit's tests, as the suite prints them.
//!
//! A result begins a line with `[KIND]: `; the lines up to the next result belong to it. A test that fails is
//! followed by ` in FILE` in the first line, and an exception outside all tests is not.

use std::collections::{BTreeMap, BTreeSet};

use super::left_out::LeftOutTest;

/// The results of a unit's tests.
#[derive(Debug, Default)]
pub(super) struct UnitReport {
    passed: BTreeSet<String>,
    /// Tests that failed, with the reason; a test that failed once has failed.
    failed: BTreeMap<String, String>,
    /// Tests that were not run, because the command line names them.
    skipped: BTreeSet<String>,
    /// The number of tests, or blocks of them, that were not run because of a tag.
    untested: usize,
    /// The suite came to the unit's end.
    has_ended: bool,
}

impl UnitReport {
    /// Reads the suite's output.
    pub(super) fn parse(output: &str) -> UnitReport {
        let mut report = UnitReport::default();
        let output = without_colours(output);
        // The results of failed tests are repeated behind the end.
        let results = output.split("The End").next().unwrap_or_default();
        for result in results.split("\n[").skip(1) {
            let (kind, text) = result.split_once("]: ").unwrap_or((result, ""));
            let line = text.lines().next().unwrap_or_default();
            match kind {
                // Behind the name is the time that the test took.
                "ok" => {
                    let name = line.rsplit_once(" (").map_or(line, |(name, _)| name);
                    report.passed.insert(name.to_owned());
                }
                "err" => {
                    let name = line
                        .rsplit_once(" in tests/")
                        .map_or(line, |(name, _)| name);
                    report
                        .failed
                        .entry(name.to_owned())
                        .or_insert_with(|| text.to_owned());
                }
                "skip" => {
                    report.skipped.insert(line.to_owned());
                }
                "ignore" => report.untested += 1,
                "TIMEOUT" | "exception" => {
                    report.failed.insert(format!("({kind})"), text.to_owned());
                }
                _ => report.has_ended |= kind.ends_with(" done"),
            }
        }
        let failed = &report.failed;
        report.passed.retain(|name| !failed.contains_key(name));
        report
    }

    /// Returns the number of tests that passed.
    pub(super) fn passed(&self) -> usize {
        self.passed.len()
    }

    /// Returns the number of tests that were not run, or failed as the list expects.
    pub(super) fn left_out(&self, list: &[LeftOutTest]) -> usize {
        let fails = |test: &&LeftOutTest| test.runs && self.failed.contains_key(&test.name);
        self.untested + self.skipped.len() + list.iter().filter(fails).count()
    }

    /// Returns the results that the list does not expect.
    pub(super) fn faults(&self, list: &[LeftOutTest]) -> Vec<String> {
        let is_listed = |name: &str| list.iter().any(|test| test.runs && test.name == name);
        let failed = self.failed.iter().filter(|(name, _)| !is_listed(name));
        let mut faults: Vec<String> = failed.map(|(_, text)| text.trim_end().to_owned()).collect();
        for LeftOutTest { name, runs } in list {
            let is_as_expected = match runs {
                true => self.failed.contains_key(name),
                false => self.skipped.contains(name),
            };
            if !is_as_expected {
                let found = match self.passed.contains(name) {
                    true => "passes",
                    false => "was not met",
                };
                faults.push(format!("{name}: the test is in the list, but {found}"));
            }
        }
        if !self.has_ended {
            faults.push("the suite did not come to the end of the unit".to_owned());
        }
        faults
    }
}

/// Returns a text without the sequences that set colours.
fn without_colours(text: &str) -> String {
    let mut parts = text.split("\u{1b}[");
    let first = parts.next().unwrap_or_default().to_owned();
    parts.fold(first, |text, part| {
        text + part.split_once('m').map_or(part, |(_, rest)| rest)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const OUTPUT: &str = "\
Cleanup: may take some time... OK
[ready]: 15751
\u{1b}[1;37;49mTesting unit/other\u{1b}[0m
[\u{1b}[0;32;49mok\u{1b}[0m]: one (of two) (12 ms)
[ok]: twice (0 ms)
[err]: twice in tests/unit/other.tcl
Expected '1'
[err]: lists in tests/unit/other.tcl
no lists
[skip]: left out
[ignore]: a block: Tag: needs:repl denied
[1/1 done]: unit/other (3 seconds)

                   The End

*** [err]: lists in tests/unit/other.tcl
";

    fn test(name: &str, runs: bool) -> LeftOutTest {
        let name = name.to_owned();
        LeftOutTest { name, runs }
    }

    #[test]
    fn results_are_counted_by_names() {
        let report = UnitReport::parse(OUTPUT);
        let list = [
            test("twice", true),
            test("lists", true),
            test("left out", false),
        ];
        assert_eq!(report.faults(&list), Vec::<String>::new());
        assert_eq!((report.passed(), report.left_out(&list)), (1, 4));
    }

    #[test]
    fn a_test_that_fails_without_being_listed_is_a_fault() {
        let faults = UnitReport::parse(OUTPUT).faults(&[test("lists", true)]);
        assert_eq!(faults, ["twice in tests/unit/other.tcl\nExpected '1'"]);
    }

    #[test]
    fn a_test_that_is_listed_and_passes_or_is_missing_is_a_fault() {
        let list = [
            test("twice", true),
            test("lists", true),
            test("one (of two)", true),
            test("gone", false),
        ];
        let faults = UnitReport::parse(OUTPUT).faults(&list);
        assert_eq!(
            faults,
            [
                "one (of two): the test is in the list, but passes",
                "gone: the test is in the list, but was not met"
            ]
        );
    }

    #[test]
    fn a_unit_without_an_end_is_a_fault() {
        let (output, _) = OUTPUT.split_once("[1/1").expect("an end");
        let faults = UnitReport::parse(output).faults(&[test("twice", true), test("lists", true)]);
        assert_eq!(faults, ["the suite did not come to the end of the unit"]);
    }
}
