//! `kumiki bench`: the program kumiki-bench, if there is one beside kumiki.

use std::fs;
use std::path::PathBuf;
use std::process::{Command, Output};

use tempfile::{TempDir, tempdir_in};

/// Returns a directory with the binary in it, and the binary's path there. It is a link, not a
/// copy: it lies in the same file system, and no other thread's child can hold a file open that is
/// about to be executed.
fn installed() -> (TempDir, PathBuf) {
    let dir = tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a temporary directory");
    let kumiki = dir.path().join("kumiki");
    fs::hard_link(env!("CARGO_BIN_EXE_kumiki"), &kumiki).expect("a link to the binary");
    (dir, kumiki)
}

fn run(program: &PathBuf, args: &[&str]) -> Output {
    let mut command = Command::new(program);
    command.args(args).output().expect("the binary runs")
}

#[test]
fn it_becomes_the_program_beside_it() {
    let (dir, kumiki) = installed();
    // A program that prints its arguments.
    std::os::unix::fs::symlink("/bin/echo", dir.path().join("kumiki-bench")).expect("a link");
    for (args, passed) in [
        (&["bench", "list"][..], "list"),
        (
            &["bench", "run", "x", "--quick", "-h", "--log-level", "off"],
            "run x --quick -h --log-level off",
        ),
        (&["bench", "-h"], "-h"),
        (&["bench", "-h", "--config", "f"], "-h --config f"),
        (&["bench", "run", "--", "x"], "run -- x"),
        (&["bench"], ""),
        (
            &["--log-level", "off", "bench", "run"],
            "--log-level off run",
        ),
    ] {
        let ended = run(&kumiki, args);
        assert!(ended.status.success(), "{args:?}: {ended:?}");
        let printed = String::from_utf8(ended.stdout).expect("text");
        assert_eq!(printed, format!("{passed}\n"), "{args:?}");
    }
    // The program's own help, which echo has as well.
    let ended = run(&kumiki, &["bench", "--help"]);
    let direct = run(&PathBuf::from("/bin/echo"), &["--help"]);
    assert!(ended.status.success(), "{ended:?}");
    let lines = |output: &Output| String::from_utf8_lossy(&output.stdout).lines().count();
    assert_eq!(lines(&ended), lines(&direct), "{ended:?}");
}

#[test]
fn without_that_program_it_says_how_to_build_it() {
    let (dir, kumiki) = installed();
    for args in [&["bench", "--help"][..], &["bench", "run", "silo-latency"]] {
        let ended = run(&kumiki, args);
        assert_eq!(ended.status.code(), Some(1), "{args:?}");
        let text = String::from_utf8(ended.stderr).expect("text");
        let missing = dir.path().join("kumiki-bench");
        for part in [
            "cargo build --release --package kumiki-bench",
            missing.to_str().expect("text"),
        ] {
            assert!(text.contains(part), "{args:?}: {text}");
        }
    }
}
