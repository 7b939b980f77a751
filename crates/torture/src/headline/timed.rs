//! Figures that are the time a command takes, over files that each binary has written itself.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Instant;

use anyhow::{Context, Result, ensure};
use xtask::process::{self, Guarded};

use super::comparison::{Observation, Side, Sides, turns};
use super::load::Request;
use super::preload::preload;
use super::subject::{Setting, Subject};
use testkit::Reply;

/// Keys of the log that is recovered, and how often each is written.
const RECOVERED: (u32, u32) = (100_000, 4);
/// The scale factor of the table that is checked.
const SCALE: &str = "0.2";

/// The task that is timed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Task {
    /// From the start of a server over a log until it answers.
    Recovery,
    /// `kumiki pages check`, from its start to its end.
    PagesCheck,
}

impl Task {
    fn name(self) -> &'static str {
        match self {
            Task::Recovery => "recovery",
            Task::PagesCheck => "pages-check",
        }
    }

    /// Returns the files that it needs, which are made on the first call.
    pub(super) fn files(self, subject: &Subject) -> Result<PathBuf> {
        let files = subject.dir().join(self.name());
        if !files.exists() {
            self.prepare(subject, &files)?;
        }
        Ok(files)
    }

    fn prepare(self, subject: &Subject, files: &Path) -> Result<()> {
        match self {
            Task::Recovery => {
                let made = files.with_extension("made");
                let running = subject.start(Setting::Group, &made)?;
                let (keys, times) = RECOVERED;
                for _ in 0..times {
                    preload(running.addresses()[0], Request::Get { pipeline: 1 }, keys)?;
                }
                running.kill()?;
                fs::rename(made.join("data"), files)?;
            }
            Task::PagesCheck => {
                let mut command = subject.command();
                command.args([
                    "pages", "load", "tpch", "--tables", "lineitem", "--sf", SCALE,
                ]);
                command.arg("--dir").arg(files).stderr(Stdio::null());
                process::output("kumiki pages load", &mut command)?;
            }
        }
        Ok(())
    }

    /// Returns the seconds that it takes over these files.
    pub(super) fn time(self, subject: &Subject, files: &Path, dir: &Path) -> Result<f64> {
        match self {
            Task::Recovery => {
                let dir = tempfile::tempdir_in(dir)?;
                let data = dir.path().join("data");
                copy(files, &data)?;
                let begun = Instant::now();
                let program = subject.program(&["--durability", "group"]);
                let mut server = program.start(&data, &vec![])?;
                server.wait_ready()?;
                let took = begun.elapsed().as_secs_f64();
                let count = server.connect()?.expect(&["DBSIZE"])?;
                ensure!(
                    count == Reply::Int(RECOVERED.0.into()),
                    "{count:?} keys were recovered instead of {}",
                    RECOVERED.0
                );
                server.stop()?;
                Ok(took)
            }
            Task::PagesCheck => {
                let mut command = subject.command();
                command.args(["pages", "check", "--dir"]).arg(files);
                command.stdout(Stdio::null()).stderr(Stdio::null());
                let begun = Instant::now();
                let status = Guarded::spawn("kumiki pages check", &mut command)?.wait()?;
                let took = begun.elapsed().as_secs_f64();
                ensure!(status.success(), "kumiki pages check failed ({status})");
                Ok(took)
            }
        }
    }

    /// Runs it four times for each side, by turns.
    pub(super) fn observe(
        self,
        round: u32,
        subjects: &Sides<Subject>,
        dir: &Path,
    ) -> Result<Observation> {
        let mut seconds = Sides::<f64>::default();
        let mut logs = Sides::<f64>::default();
        for side in [turns(round), turns(round + 1)].concat() {
            let subject = match side {
                Side::Old => &subjects.old,
                Side::New => &subjects.new,
            };
            let files = self.files(subject)?;
            let took = self
                .time(subject, &files, dir)
                .with_context(|| format!("{side:?}"))?;
            *seconds.of(side) += took / 4.0;
            *logs.of(side) += took.ln() / 4.0;
        }
        let value = Sides {
            old: seconds.old * 1e3,
            new: seconds.new * 1e3,
        };
        Ok(Observation {
            value,
            ratio: (logs.new - logs.old).exp(),
            cpu_us: None,
        })
    }
}

fn copy(from: &Path, to: &Path) -> Result<()> {
    fs::create_dir_all(to)?;
    for entry in fs::read_dir(from).with_context(|| format!("cannot read {}", from.display()))? {
        let entry = entry?;
        let target = to.join(entry.file_name());
        if entry.file_type()?.is_dir() {
            copy(&entry.path(), &target)?;
        } else {
            fs::copy(entry.path(), &target)?;
        }
    }
    Ok(())
}
