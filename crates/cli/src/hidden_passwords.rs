//! Hides passwords of the command line from other users of the machine.
//!
//! Every user can read the arguments of every process. So a program that was given a password as an
//! argument restarts itself, in the same process, with a pipe in place of the password: as by
//! hand with `--requirepass-file <(…)`.

use std::ffi::OsString;
use std::io::{self, PipeReader, Write};
use std::os::fd::AsRawFd;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::process::CommandExt;
use std::process::Command;

use rustix::io::{FdFlags, fcntl_setfd};

/// Options with a password, and those that take it from a file.
const OPTIONS: &[(&str, &str)] = &[
    ("--requirepass", "--requirepass-file"),
    ("--node-password", "--node-password-file"),
    ("--password", "--password-file"),
];
/// The longest password that is hidden, in bytes: a pipe holds that much before it is read.
const LONGEST: usize = 4096;

/// Restarts this program if its arguments, which must be valid, have a password. Returns if they
/// have none, or after a warning if they stay visible.
pub(crate) fn hide() {
    let args: Vec<OsString> = std::env::args_os().collect();
    // Options of a file might contradict those that would replace the ones of the command line.
    if args
        .iter()
        .any(|arg| arg.as_bytes().starts_with(b"--config"))
    {
        return;
    }
    let found = take(args);
    if found.passwords.is_empty() {
        return;
    }
    let error = start_anew(found);
    tracing::warn!(%error, "other users of this machine can see the password in this process's arguments");
}

/// Arguments without passwords.
#[derive(PartialEq, Eq, Debug)]
struct HiddenPasswords {
    args: Vec<OsString>,
    /// The passwords, each with the index of the argument for the name of its file.
    passwords: Vec<(usize, OsString)>,
}

/// Replaces options with passwords by those that take them from files, whose names must be put
/// behind them.
fn take(args: Vec<OsString>) -> HiddenPasswords {
    let mut found = HiddenPasswords {
        args: Vec::new(),
        passwords: Vec::new(),
    };
    let mut rest = args.into_iter();
    while let Some(arg) = rest.next() {
        let option = OPTIONS.iter().find_map(|&(with_password, of_file)| {
            match arg.as_bytes().strip_prefix(with_password.as_bytes())? {
                b"" => Some((of_file, None)),
                [b'=', password @ ..] => Some((of_file, Some(password.to_vec()))),
                _ => None,
            }
        });
        let Some((of_file, password)) = option else {
            found.args.push(arg);
            continue;
        };
        let Some(password) = password.map(OsString::from_vec).or_else(|| rest.next()) else {
            found.args.push(arg);
            continue;
        };
        found.passwords.push((found.args.len(), password));
        found.args.push(format!("{of_file}=").into());
    }
    found
}

/// Executes this program with these arguments. Returns only if that fails.
fn start_anew(mut found: HiddenPasswords) -> io::Error {
    let mut pipes: Vec<PipeReader> = Vec::new();
    for (at, password) in &found.passwords {
        match pipe_with(password) {
            Ok(pipe) => {
                found.args[*at].push(format!("/proc/self/fd/{}", pipe.as_raw_fd()));
                pipes.push(pipe);
            }
            Err(error) => return error,
        }
    }
    let mut args = found.args.into_iter();
    let mut command = Command::new("/proc/self/exe");
    if let Some(name) = args.next() {
        command.arg0(name);
    }
    command.args(args).exec()
}

/// Returns a pipe that yields the password, and that stays open in the program that is executed.
fn pipe_with(password: &OsString) -> io::Result<PipeReader> {
    // The end of the line of a file does not count.
    let ends_a_line = matches!(password.as_bytes().last(), Some(b'\n' | b'\r'));
    if password.len() > LONGEST || ends_a_line {
        return Err(io::Error::other(
            "it is too long, or ends with the end of a line",
        ));
    }
    let (reader, mut writer) = io::pipe()?;
    writer.write_all(password.as_bytes())?;
    fcntl_setfd(&reader, FdFlags::empty())?;
    Ok(reader)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn taken(line: &str) -> (String, Vec<String>) {
        let found = take(line.split(' ').map(OsString::from).collect());
        let text = |text: &OsString| text.to_string_lossy().into_owned();
        let args: Vec<String> = found.args.iter().map(text).collect();
        for (at, _) in &found.passwords {
            assert!(args[*at].ends_with("-file="), "{args:?}");
        }
        let passwords = found.passwords.iter().map(|(_, one)| text(one));
        (args.join(" "), passwords.collect())
    }

    #[test]
    fn passwords_are_taken_out_of_arguments() {
        for (line, args, passwords) in [
            (
                "kumiki serve --ephemeral",
                "kumiki serve --ephemeral",
                vec![],
            ),
            (
                "kumiki serve --requirepass one --threads 2",
                "kumiki serve --requirepass-file= --threads 2",
                vec!["one"],
            ),
            (
                "kumiki proxy --node-password=a=b --requirepass --two",
                "kumiki proxy --node-password-file= --requirepass-file=",
                vec!["a=b", "--two"],
            ),
            (
                "kumiki cluster c.toml --password one status",
                "kumiki cluster c.toml --password-file= status",
                vec!["one"],
            ),
            (
                "kumiki serve --requirepass-file f",
                "kumiki serve --requirepass-file f",
                vec![],
            ),
            (
                "kumiki serve --requirepass",
                "kumiki serve --requirepass",
                vec![],
            ),
        ] {
            let expected = passwords.into_iter().map(str::to_owned).collect();
            assert_eq!(taken(line), (args.to_owned(), expected), "{line}");
        }
    }

    #[test]
    fn a_pipe_gives_the_password() {
        let pipe = pipe_with(&"secret".into()).expect("a pipe");
        assert_eq!(io::read_to_string(pipe).expect("its end"), "secret");
        for wrong in ["x".repeat(LONGEST + 1), "x\n".to_owned(), "x\r".to_owned()] {
            assert!(pipe_with(&wrong.into()).is_err());
        }
    }
}
