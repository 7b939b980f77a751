//! Tests that must be alone in their process, because they measure it: its processor time, its memory.
//!
//! The tests of a crate are one program, whose tests run on several threads. Such a test starts that
//! program again with itself as the only test.

use std::process::{Command, Stdio};

/// The variable that is set for the process that has one test.
const ALONE: &str = "KUMIKI_TEST_ALONE";

/// Returns a command that runs one test in a process of its own: the test `name` of the module `module`
/// (the caller's `module_path!()`), which plays a part in the test that starts it. Its output is not
/// captured.
///
/// # Panics
/// Panics if `module` is a crate's root.
#[must_use]
#[track_caller]
pub fn test_as_process(module: &str, name: &str) -> Command {
    let (_, module) = module.split_once("::").expect("tests are in a module");
    only_test(&format!("{module}::{name}"))
}

fn only_test(path: &str) -> Command {
    let mut command = Command::new(std::env::current_exe().expect("this program"));
    command.args(["--exact", path, "--nocapture"]);
    command
}

/// Runs `test` in a process that has no other test. `name` is the path of the calling test in its
/// program, such as `idle::waiting_costs_nothing`.
///
/// # Panics
/// Panics if the test fails, or if the program has no test of this name.
#[track_caller]
pub fn run_alone(name: &str, test: impl FnOnce()) {
    if std::env::var(ALONE).is_ok_and(|only| only == name) {
        test();
        return;
    }
    let mut command = only_test(name);
    command.env(ALONE, name).stdin(Stdio::null());
    // With several arenas, glibc reads a file below `/proc` before it gives memory back: system calls that no test
    // expects, in some runs.
    command.env("MALLOC_ARENA_MAX", "1");
    let output = command.output().expect("it starts");
    let text = [output.stdout, output.stderr].concat();
    let text = String::from_utf8_lossy(&text);
    assert!(output.status.success(), "{name} in its own process: {text}");
    // If no test has the name, the program runs nothing and succeeds.
    assert!(text.contains("1 passed"), "{name} is no test: {text}");
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::panic::{AssertUnwindSafe, catch_unwind};

    #[test]
    fn the_test_runs_in_another_process() {
        let mut ran_here = false;
        run_alone(
            "own_process::tests::the_test_runs_in_another_process",
            || {
                ran_here = true;
            },
        );
        let is_alone = std::env::var_os(ALONE).is_some();
        assert_eq!(ran_here, is_alone);
    }

    #[test]
    fn a_failure_there_is_a_failure_here() {
        const NAME: &str = "own_process::tests::a_failure_there_is_a_failure_here";
        let failed = || run_alone(NAME, || panic!("as planned"));
        if std::env::var_os(ALONE).is_some() {
            failed();
        }
        assert!(catch_unwind(failed).is_err());
    }

    #[test]
    fn a_name_that_no_test_has_is_a_failure() {
        let unknown = AssertUnwindSafe(|| run_alone("own_process::tests::no_such_test", || ()));
        assert!(catch_unwind(unknown).is_err());
    }
}
