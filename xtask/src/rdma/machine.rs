//! A run of the machine: a job goes in, its output and its exit status come out.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use super::archive::Archive;
use crate::process::Guarded;
use crate::{build, interrupt, process};

/// The machine's first process.
pub(crate) const INIT: &str = include_str!("init.sh");
/// The emulator.
const QEMU: &str = "qemu-system-x86_64";
/// Without the instructions that copy memory fast on real processors: emulated, they copy byte by
/// byte, and the kernel would read words in parts, which no device does.
const PROCESSOR: &str = "max,-erms,-fsrm";
/// Where programs lie in the machine.
const FOLDER: &str = "job";

/// What is to be run in the machine.
#[derive(Clone, Debug)]
pub struct Job {
    /// A program of this machine.
    pub program: PathBuf,
    /// Its arguments.
    pub arguments: Vec<String>,
    /// Further programs and files that lie beside it there.
    pub beside: Vec<PathBuf>,
    /// Of those, what is also found there where it lies here: the program knows it by its path.
    pub placed: Vec<PathBuf>,
    /// Variables of its environment.
    pub environment: Vec<(String, String)>,
    /// How long all of it may take.
    pub patience: Duration,
    /// Megabytes of memory, in which all that is carried lies as well.
    pub memory: u32,
}

impl Job {
    /// Returns a job without arguments, of two minutes at most, in 1 GiB.
    #[must_use]
    pub fn new(program: &Path) -> Job {
        Job {
            program: program.to_owned(),
            arguments: Vec::new(),
            beside: Vec::new(),
            placed: Vec::new(),
            environment: Vec::new(),
            patience: Duration::from_secs(120),
            memory: 1024,
        }
    }

    /// Returns the command line for the machine's shell.
    fn command(&self) -> String {
        let mut text = String::new();
        for (name, value) in &self.environment {
            text += &format!("export {name}={}\n", quoted(value));
        }
        for file in &self.placed {
            // When the machine has mounted what it mounts.
            let folder = file.parent().unwrap_or(Path::new("/"));
            let [folder, path] = [folder, file].map(|path| quoted(&path.to_string_lossy()));
            let there = quoted(&format!("/{FOLDER}/{}", name_of(file)));
            text += &format!("mkdir -p {folder} && ln -s {there} {path}\n");
        }
        text += &quoted(&format!("/{FOLDER}/{}", name_of(&self.program)));
        for argument in &self.arguments {
            text += &format!(" {}", quoted(argument));
        }
        text + "\n"
    }

    /// Returns the archive that is unpacked over the machine's own files.
    fn archive(&self) -> Result<Vec<u8>> {
        let mut archive = Archive::default();
        let mut needed = BTreeSet::new();
        for file in std::iter::once(&self.program).chain(&self.beside) {
            archive.copy(&format!("{FOLDER}/{}", name_of(file)), file)?;
            needed.extend(libraries(file)?);
        }
        for library in needed {
            archive.copy(library.to_string_lossy().trim_start_matches('/'), &library)?;
        }
        archive.file(&format!("{FOLDER}/command"), self.command().as_bytes());
        Ok(archive.finish())
    }
}

/// How a job has ended.
#[derive(Clone, Debug)]
pub struct MachineJobResult {
    /// Its exit status, as the shell tells it.
    pub status: i32,
    /// What it has printed.
    pub output: String,
}

/// Returns the directory of the machine's files.
pub(crate) fn place() -> PathBuf {
    build::root().join("target/peers/rdma")
}

/// Returns `true` if there is an emulator and something to start in it.
#[must_use]
pub fn has_machine() -> bool {
    let files = ["vmlinuz", "base.cpio"].map(|name| place().join(name).exists());
    let emulator = process::output(QEMU, Command::new(QEMU).arg("--version"));
    files == [true; 2] && emulator.is_ok()
}

/// Starts the machine, runs the job in it, and prints its output as it comes.
///
/// # Errors
/// If the machine cannot be started, or the job did not end in time. How the job ended is for the
/// caller to judge.
pub fn run_job(job: &Job) -> Result<MachineJobResult> {
    let dir = tempfile::tempdir().context("cannot make a folder for the machine")?;
    let start = dir.path().join("start.cpio");
    let mut bytes = fs::read(place().join("base.cpio")).context("cannot read base.cpio")?;
    bytes.extend(job.archive()?);
    fs::write(&start, bytes)?;
    let status = dir.path().join("status");
    let output = watch(qemu(job, &start, &status), job.patience)?;
    let told = fs::read_to_string(&status).unwrap_or_default();
    let told = told.trim().strip_prefix("status ").map(str::parse);
    let Some(Ok(status)) = told else {
        bail!(
            "the machine ended without a word about {}",
            job.program.display()
        );
    };
    Ok(MachineJobResult { status, output })
}

fn qemu(job: &Job, start: &Path, status: &Path) -> Command {
    let mut command = Command::new(QEMU);
    command.args(["-accel", "tcg,thread=multi", "-cpu", PROCESSOR, "-smp", "2"]);
    command.args(["-m", &format!("{}M", job.memory)]);
    command.args([
        "-nodefaults",
        "-no-user-config",
        "-display",
        "none",
        "-no-reboot",
    ]);
    command.arg("-kernel").arg(place().join("vmlinuz"));
    command.arg("-initrd").arg(start);
    // A panic ends the emulator instead of starting anew.
    command.args(["-append", "console=ttyS0 loglevel=3 panic=-1"]);
    command.args(["-serial", "stdio", "-serial"]);
    let mut file = OsString::from("file:");
    file.push(status);
    command.arg(file);
    command.args(["-device", "isa-debug-exit,iobase=0xf4,iosize=1"]);
    command
}

/// Runs the emulator to its end, and returns what came through the first serial line.
fn watch(mut command: Command, patience: Duration) -> Result<String> {
    let (writer, lines) = mpsc::channel();
    let (reader, pipe) = std::io::pipe().context("cannot make a pipe")?;
    command.stdout(Stdio::from(pipe));
    let mut guard = Guarded::spawn(QEMU, &mut command)?;
    // The command keeps the other end of the pipe open.
    drop(command);
    thread::spawn(move || {
        for line in BufReader::new(reader).split(b'\n').map_while(Result::ok) {
            let line = String::from_utf8_lossy(&line).into_owned();
            if writer.send(line).is_err() {
                break;
            }
        }
    });
    let deadline = Instant::now() + patience;
    let mut output = String::new();
    loop {
        match lines.recv_timeout(Duration::from_millis(200)) {
            Ok(line) => {
                println!("  | {line}");
                output += &line;
                output.push('\n');
            }
            Err(mpsc::RecvTimeoutError::Timeout) => {}
            Err(mpsc::RecvTimeoutError::Disconnected) => break,
        }
        interrupt::check()?;
        if Instant::now() > deadline {
            guard.kill()?;
            bail!("the machine did not end within {patience:?}");
        }
    }
    // The status says only that the machine was ended from within.
    guard.wait()?;
    Ok(output)
}

/// Returns the libraries that a program or library needs, and the loader: all that `ldd` names. None for
/// what is no program, or needs none.
pub(crate) fn libraries(program: &Path) -> Result<Vec<PathBuf>> {
    let output = Command::new("ldd")
        .arg(program)
        .stdin(Stdio::null())
        .output();
    let output = output.context("cannot start ldd")?;
    let text = String::from_utf8_lossy(&output.stdout);
    if let Some(line) = text.lines().find(|line| line.ends_with("not found")) {
        bail!("{} needs a library: {}", program.display(), line.trim());
    }
    let words = text.split_whitespace().filter(|word| word.starts_with('/'));
    let words = words.filter(|word| !word.ends_with(':'));
    Ok(words.map(PathBuf::from).collect())
}

fn name_of(file: &Path) -> String {
    let name = file.file_name().unwrap_or_default();
    name.to_string_lossy().into_owned()
}

/// Returns a word as the shell takes it whole.
fn quoted(word: &str) -> String {
    format!("'{}'", word.replace('\'', r"'\''"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_shell_is_told_whole_words() {
        let mut job = Job::new(Path::new("/somewhere/program"));
        job.arguments = vec!["two words".into(), "it's".into()];
        job.environment = vec![("A".into(), "b c".into())];
        job.placed = vec!["/a b/other".into()];
        assert_eq!(
            job.command(),
            "export A='b c'\nmkdir -p '/a b' && ln -s '/job/other' '/a b/other'\n\
             '/job/program' 'two words' 'it'\\''s'\n"
        );
    }
}
