//! Builds that lint: what `cargo xtask ci` builds in order to run it is linted, and its documentation is read, as it is
//! compiled.
//!
//! Cargo starts this program in place of the compiler for the crates of the workspace. It starts clippy's compiler,
//! which also makes code, and then `rustdoc` with the same arguments; a warning of either is an error. `cargo clippy`
//! and `cargo doc` would look at the same crates after they had compiled every dependency once more without code, which
//! takes as long as DataFusion is large.

use std::env;
use std::ffi::{OsStr, OsString};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use anyhow::{Context, Result, bail};

use crate::process;

/// The environment variable by which cargo learns the program that it starts in place of the compiler.
const COMPILER: &str = "RUSTC_WORKSPACE_WRAPPER";
/// The directory of the programs of Rust's toolchain; only a process that is such a compiler has it.
const PROGRAMS: &str = "XTASK_TOOLCHAIN_PROGRAMS";
/// The directory of the documentation that is made in order to be read.
const PAGES: &str = "XTASK_PAGES";
/// With this variable the crates are compiled as usual.
const OFF: &str = "XTASK_NO_LINTS";
/// Clippy's options, in the form in which `cargo clippy -- -D warnings` passes them on. Cargo compiles a crate again
/// when they change.
const OPTIONS: (&str, &str) = (
    "CLIPPY_ARGS",
    "-D__CLIPPY_HACKERY__warnings__CLIPPY_HACKERY__",
);

/// The compiler that lints, and the environment that it needs.
#[derive(Debug)]
pub(crate) struct LintingCompiler {
    program: PathBuf,
    programs: PathBuf,
    pages: PathBuf,
}

impl LintingCompiler {
    /// Copies this program to a place of its own in the directory of what is built: a build replaces the one that runs.
    ///
    /// # Errors
    /// If it cannot be copied, or there is no clippy.
    pub(crate) fn install(built: &Path) -> Result<LintingCompiler> {
        let own = built.join("lints");
        let program = own.join("compiler");
        fs::create_dir_all(&own)?;
        let part = own.join("compiler.part");
        fs::copy(env::current_exe()?, &part).context("cannot copy this program")?;
        fs::rename(&part, &program)?;
        let sysroot = process::output("rustc", Command::new("rustc").args(["--print", "sysroot"]))?;
        let programs = Path::new(sysroot.trim()).join("bin");
        if !programs.join("clippy-driver").exists() {
            bail!("clippy is not installed: rustup component add clippy");
        }
        Ok(LintingCompiler {
            program,
            programs,
            pages: own.join("pages"),
        })
    }

    /// Has a command of cargo compile the workspace's crates with this compiler.
    pub(crate) fn apply(&self, command: &mut Command) {
        command.env(COMPILER, &self.program);
        command.env(PROGRAMS, &self.programs);
        command.env(PAGES, &self.pages);
        command.env(OPTIONS.0, OPTIONS.1);
    }
}

/// Has a command compile without lints, what it has in common with others included.
pub(crate) fn turn_off(command: &mut Command) {
    command.env(OFF, "1");
}

/// Compiles a crate if cargo has started this process in place of the compiler. The first argument is the compiler,
/// the others are its own. Returns `None` in any other process.
#[must_use]
pub fn compile() -> Option<ExitCode> {
    let programs = PathBuf::from(env::var_os(PROGRAMS)?);
    let own: Vec<OsString> = env::args_os().skip(1).collect();
    let (compiler, arguments) = own.split_first()?;
    if Path::new(compiler).file_stem() != Some(OsStr::new("rustc")) {
        return None;
    }
    Some(match lint(&programs, compiler, arguments) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("xtask: {error:#}");
            ExitCode::FAILURE
        }
    })
}

/// Returns `true` if there was no error.
fn lint(programs: &Path, compiler: &OsStr, arguments: &[OsString]) -> Result<bool> {
    let run = |command: &mut Command| -> Result<bool> {
        let status = command.status();
        let status = status.with_context(|| format!("cannot start {command:?}"))?;
        Ok(status.success())
    };
    if env::var_os(OFF).is_some() {
        return run(Command::new(compiler).args(arguments));
    }
    let mut clippy = Command::new(programs.join("clippy-driver"));
    if !run(clippy.arg(compiler).args(arguments))? {
        return Ok(false);
    }
    let Some(arguments) = documentation(arguments) else {
        return Ok(true);
    };
    let pages = env::var_os(PAGES).context("no directory for the documentation")?;
    let mut rustdoc = Command::new(programs.join("rustdoc"));
    rustdoc.args(arguments).args(["-D", "warnings", "-o"]);
    run(rustdoc.arg(pages))
}

/// Returns the arguments of `rustdoc` for a crate that is compiled with these ones; `None` if it has no documentation:
/// the compiler was asked a question, or compiles tests or the build script of a package.
fn documentation(arguments: &[OsString]) -> Option<Vec<OsString>> {
    let mut chosen = Vec::new();
    let mut has_documentation = false;
    let mut all = arguments.iter();
    while let Some(argument) = all.next() {
        let text = argument.to_string_lossy();
        match &*text {
            "--test" => return None,
            // About the code that is made, and its place.
            "-C" | "--out-dir" => {
                all.next();
            }
            "--crate-name" => {
                let name = all.next()?;
                if name == "build_script_build" {
                    return None;
                }
                chosen.extend([argument.clone(), name.clone()]);
            }
            "--crate-type" => {
                let kind = all.next()?;
                // The documentation of a program is for those who change it.
                if kind == "bin" {
                    chosen.push("--document-private-items".into());
                }
                chosen.extend([argument.clone(), kind.clone()]);
            }
            _ if text.starts_with("--emit=") => has_documentation = true,
            _ if IGNORED.iter().any(|ignored| text.starts_with(ignored)) => {}
            _ => chosen.push(argument.clone()),
        }
    }
    has_documentation.then_some(chosen)
}

/// The beginnings of arguments that `rustdoc` does not have, or that are not about documentation.
const IGNORED: &[&str] = &[
    "--error-format",
    "--json",
    "--diagnostic-width",
    "--warn=",
    "--allow=",
    "--deny=",
    "--forbid=",
];

#[cfg(test)]
mod tests {
    use super::*;

    fn documented(line: &str) -> Option<String> {
        let words: Vec<OsString> = line.split(' ').map(OsString::from).collect();
        let chosen = documentation(&words)?;
        let chosen: Vec<_> = chosen.iter().map(|word| word.to_string_lossy()).collect();
        Some(chosen.join(" "))
    }

    #[test]
    fn the_documentation_of_libraries_and_programs_is_read() {
        let library = "--crate-name base --edition=2024 src/lib.rs --error-format=json --json=artifacts \
                       --crate-type lib --emit=dep-info,metadata,link -C opt-level=1 --warn=missing_docs --cfg loom \
                       --check-cfg cfg(docsrs,test) -C metadata=1 --out-dir deps -L dependency=deps --extern a=a.rmeta";
        assert_eq!(
            documented(library).as_deref(),
            Some(
                "--crate-name base --edition=2024 src/lib.rs --crate-type lib --cfg loom \
                 --check-cfg cfg(docsrs,test) -L dependency=deps --extern a=a.rmeta"
            )
        );
        let program = "--crate-name kumiki src/main.rs --crate-type bin --emit=dep-info,link";
        assert_eq!(
            documented(program).as_deref(),
            Some("--crate-name kumiki src/main.rs --document-private-items --crate-type bin")
        );
    }

    #[test]
    fn tests_and_questions_have_no_documentation() {
        for line in [
            "-vV",
            "- --crate-name ___ --print=file-names --crate-type bin",
            "--crate-name base src/lib.rs --emit=dep-info,link --test",
            "--crate-name build_script_build build.rs --crate-type bin --emit=dep-info,link",
        ] {
            assert_eq!(documented(line), None, "{line}");
        }
    }
}
