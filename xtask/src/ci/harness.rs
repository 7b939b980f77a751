//! The steps that start harnesses.

use std::cell::OnceCell;
use std::ffi::OsString;
use std::fs;
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use crate::build::{self, JudgedBuild, Programs};
use crate::{peers, process, redis_suite};

/// How much is judged.
#[derive(Clone, Copy, Debug)]
pub struct Amount {
    /// Seconds for which each parser is fuzzed.
    fuzz_seconds: u64,
    /// Kills of one server.
    crash_rounds: u64,
    /// Kills of one server that makes checkpoints, on each disk. One in twelve to twenty-five meets a
    /// checkpoint, and some must.
    checkpoint_rounds: u64,
    /// Kills in a cluster of three nodes, without checkpoints and with them.
    node_rounds: u64,
    /// Leaders of a replicated partition that are killed.
    kills: u64,
    /// Leaders that are stopped.
    stops: u64,
    /// Minutes for which a replicated partition is hurt.
    chaos_minutes: f64,
    /// Seeds of each simulation.
    seeds: u64,
    /// The longest time of a round with checkpoints, where nothing else runs on the machine.
    checkpoint_round: Option<Duration>,
    build: JudgedBuild,
}

impl Amount {
    /// In CI and on a developer's machine.
    pub const CI: Amount = Amount {
        fuzz_seconds: 2,
        crash_rounds: 100,
        checkpoint_rounds: 200,
        node_rounds: 12,
        kills: 2,
        stops: 1,
        chaos_minutes: 0.4,
        seeds: 500,
        checkpoint_round: None,
        build: JudgedBuild::LikeTests,
    };
    /// In a nightly run.
    pub const NIGHTLY: Amount = Amount {
        fuzz_seconds: 20,
        crash_rounds: 100,
        checkpoint_rounds: 400,
        node_rounds: 50,
        kills: 20,
        stops: 5,
        chaos_minutes: 10.0,
        seeds: 5000,
        checkpoint_round: Some(Duration::from_millis(900)),
        build: JudgedBuild::Optimised,
    };
}

/// Seeds of which one must show a planted bug; the first that does ends them. Of 25 trials the longest took
/// 769.
const PLANTED_SEEDS: u64 = 4000;
/// Rounds in which a planted bug must show; the first complaint ends them. Of thirty trials the longest took 57.
const PLANTED_ROUNDS: u64 = 300;

/// The protocols that are simulated, and the bugs that their simulations must find.
const SIMULATIONS: &[(&str, &[&str])] = &[
    ("2pc", &["ignored-holds", "early-decision"]),
    ("ramp", &["one-round", "early-commit"]),
    ("replica", &["stale-lease", "kept-overlay", "kept-chain"]),
    (
        "locks",
        &["trusted-wall-clock", "forgotten-token", "forgotten-grace"],
    ),
];

/// The harnesses and what they judge, built when the first step needs them.
pub(crate) struct Harness {
    amount: Amount,
    honest: OnceCell<Programs>,
    planted: OnceCell<Programs>,
}

impl Harness {
    pub(crate) fn new(amount: Amount) -> Harness {
        Harness {
            amount,
            honest: OnceCell::new(),
            planted: OnceCell::new(),
        }
    }

    /// Returns the programs without bugs, and builds them if no step has done that before.
    pub(super) fn honest(&self) -> Result<&Programs> {
        self.built(&self.honest, false)
    }

    /// Returns the programs that can have planted bugs, and builds them if no step has done that before.
    fn planted(&self) -> Result<&Programs> {
        match self.amount.build {
            JudgedBuild::LikeTests => self.honest(),
            JudgedBuild::Optimised => self.built(&self.planted, true),
        }
    }

    fn built<'a>(&self, programs: &'a OnceCell<Programs>, with_bugs: bool) -> Result<&'a Programs> {
        if programs.get().is_none() {
            let _ = programs.set(build::programs(self.amount.build, with_bugs)?);
        }
        Ok(programs.get().expect("it has been set"))
    }

    /// Starts a harness with the honest binary, and these words of its command line.
    fn judge(&self, line: &str) -> Result<()> {
        start(self.honest()?, line)
    }

    /// Starts a harness with the binary that can have planted bugs; the harness must find one.
    fn find(&self, line: &str) -> Result<()> {
        start(self.planted()?, line)
    }

    pub(crate) fn fuzz(&self) -> Result<()> {
        self.judge(&format!("fuzz --seconds {}", self.amount.fuzz_seconds))
    }

    pub(crate) fn smoke(&self) -> Result<()> {
        self.judge("smoke")
    }

    pub(crate) fn crash_on_the_real_disk(&self) -> Result<()> {
        self.judge(&format!(
            "crash --rounds {} --disk real --checkpoints",
            self.amount.checkpoint_rounds
        ))
    }

    pub(crate) fn crash_on_the_forgetful_disk(&self) -> Result<()> {
        self.judge(&format!("crash --rounds {}", self.amount.crash_rounds))
    }

    pub(crate) fn crash_during_checkpoints(&self) -> Result<()> {
        self.honest()?;
        let rounds = self.amount.checkpoint_rounds;
        let begun = Instant::now();
        self.judge(&format!("crash --rounds {rounds} --checkpoints"))?;
        let took = begun.elapsed();
        let longest = self.amount.checkpoint_round;
        let longest = longest.map(|longest| longest.mul_f64(rounds as f64));
        if let Some(longest) = longest.filter(|longest| took > *longest) {
            bail!("{rounds} rounds took {took:?}, longer than {longest:?}");
        }
        Ok(())
    }

    pub(crate) fn crash_of_cluster_nodes(&self) -> Result<()> {
        let rounds = self.amount.node_rounds;
        self.judge(&format!("crash --cluster 3 --rounds {rounds}"))?;
        self.judge(&format!(
            "crash --cluster 3 --rounds {rounds} --checkpoints"
        ))
    }

    /// Its times are not judged, because the machine may be busy. Nothing may be missing, and every node
    /// must come back.
    pub(crate) fn fail_over(&self) -> Result<()> {
        let Amount { kills, stops, .. } = self.amount;
        self.judge(&format!(
            "failover --kills {kills} --stops {stops} --out target/failover"
        ))
    }

    pub(crate) fn chaos(&self) -> Result<()> {
        self.judge(&format!("chaos --minutes {}", self.amount.chaos_minutes))
    }

    pub(crate) fn simulation(&self) -> Result<()> {
        let seeds = self.amount.seeds;
        SIMULATIONS
            .iter()
            .try_for_each(|(protocol, _)| self.judge(&format!("sim {protocol} --seeds {seeds}")))
    }

    pub(crate) fn planted_in_simulations(&self) -> Result<()> {
        for (protocol, bugs) in SIMULATIONS {
            for bug in *bugs {
                self.find(&format!(
                    "sim {protocol} --seeds {PLANTED_SEEDS} --planted {bug}"
                ))?;
            }
        }
        Ok(())
    }

    /// Runs Redis's own test suite. Where it is not installed, it is left out or missed, as other peers are.
    pub(crate) fn redis_suite(&self) -> Result<()> {
        if !redis_suite::is_installed() && !peers::are_required() {
            println!("left out, because the suite is not installed: cargo xtask peers redis");
            return Ok(());
        }
        redis_suite::run(&redis_suite::Options {
            units: Vec::new(),
            binary: Some(self.honest()?.kumiki.clone()),
        })
    }

    pub(crate) fn trace(&self) -> Result<()> {
        self.judge("trace")
    }

    pub(crate) fn planted_in_crashes(&self) -> Result<()> {
        [
            "early-reply",
            "doubled-pop",
            "early-move",
            "repeated-elements",
        ]
        .into_iter()
        .try_for_each(|bug| self.find(&format!("crash --rounds {PLANTED_ROUNDS} --planted {bug}")))
    }

    pub(crate) fn planted_in_cluster_crashes(&self) -> Result<()> {
        self.find(&format!(
            "crash --cluster 3 --rounds {PLANTED_ROUNDS} --planted"
        ))
    }

    pub(crate) fn planted_in_chaos(&self) -> Result<()> {
        self.find("chaos --planted stale-lease")?;
        self.find("chaos --planted kept-overlay")
    }

    /// Checks that what cargo builds by default contains no planted code: it has crate base without the feature, which
    /// the build of the harnesses has. Where the programs without bugs are built, the binary is checked as well: it
    /// lacks the name of the variable that chooses a bug.
    pub(crate) fn planted_nowhere_by_default(&self) -> Result<()> {
        let is_planted =
            |package| -> Result<bool> { Ok(build::features_of_base(package)?.contains("planted")) };
        for package in [
            None,
            Some("kumiki-cli"),
            Some("kumiki"),
            Some("kumiki-bench"),
        ] {
            if is_planted(package)? {
                bail!(
                    "planted bugs are compiled for {}",
                    package.unwrap_or("the default packages")
                );
            }
        }
        if !is_planted(Some("kumiki-torture"))? {
            bail!("the feature of planted bugs cannot be recognised: the harnesses lack it");
        }
        let has_bugs = |programs: &Programs| -> Result<bool> {
            let binary = fs::read(&programs.kumiki)?;
            let name = build::PLANTED.as_bytes();
            Ok(binary.windows(name.len()).any(|bytes| bytes == name))
        };
        if !has_bugs(self.planted()?)? {
            bail!(
                "planted bugs cannot be recognised: the binary that has them lacks {}",
                build::PLANTED
            );
        }
        let is_built = matches!(self.amount.build, JudgedBuild::Optimised);
        if is_built && has_bugs(self.honest()?)? {
            bail!("the default binary contains planted bugs");
        }
        Ok(())
    }

    pub(crate) fn planted_in_traces(&self) -> Result<()> {
        self.find("trace --planted")
    }
}

/// Starts a harness with the binary that it is to judge.
fn start(programs: &Programs, line: &str) -> Result<()> {
    let words: Vec<OsString> = line.split(' ').map(OsString::from).collect();
    let mut command = command(programs, &words);
    process::run(line, command.current_dir(build::root()))
}

/// Builds the harnesses and becomes one with this command line, so that signals reach it alone and it stops
/// what it has started.
///
/// # Errors
/// If they cannot be built, or the harness cannot be started.
pub fn run(line: &[OsString]) -> Result<()> {
    let with_bugs = line.iter().any(|word| word == BUG);
    let programs = build::programs(JudgedBuild::Optimised, with_bugs)?;
    let error = command(&programs, line).exec();
    Err(error).with_context(|| format!("cannot start {}", programs.torture.display()))
}

/// The option that asks for a planted bug.
const BUG: &str = "--planted";

/// Harnesses that judge the binary which was built with them, unless their command line names another.
const JUDGES: &[&str] = &["crash", "chaos", "failover", "trace", "smoke", "cluster"];

/// Returns a harness's command. A simulation runs in the process of the harness, so that this process must have
/// the bug.
fn command(programs: &Programs, line: &[OsString]) -> Command {
    let mut command = Command::new(&programs.torture);
    let Some((name, rest)) = line.split_first() else {
        return command;
    };
    command.arg(name);
    let names_another = |word: &OsString| {
        let word = word.to_string_lossy();
        word.starts_with("--binary") || word == "--redis"
    };
    let is_judge = JUDGES.iter().any(|judge| name == judge);
    if is_judge && !rest.iter().any(names_another) {
        command.arg("--binary").arg(&programs.kumiki);
    }
    command.args(rest);
    let at = rest.iter().position(|word| word == BUG);
    if let (Some(at), true) = (at, name == "sim")
        && let Some(bug) = rest.get(at + 1)
    {
        command.env(build::PLANTED, bug);
    }
    command
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(text: &str) -> String {
        let programs = Programs {
            kumiki: "kumiki".into(),
            torture: "torture".into(),
        };
        let words: Vec<OsString> = text.split(' ').map(OsString::from).collect();
        let command = command(&programs, &words);
        let words = command.get_args().map(|word| word.to_string_lossy());
        words.collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn a_harness_judges_the_binary_that_was_built_unless_told_another() {
        let built = "crash --binary kumiki --rounds 3 -- --loggers 2";
        assert_eq!(line("crash --rounds 3 -- --loggers 2"), built);
        for given in ["trace --redis", "smoke --binary other", "fuzz --seconds 1"] {
            assert_eq!(line(given), given);
        }
    }

    #[test]
    fn only_the_process_of_a_simulation_has_the_bug() {
        let bug = |text: &str| {
            let programs = Programs::default();
            let words: Vec<OsString> = text.split(' ').map(OsString::from).collect();
            let command = command(&programs, &words);
            let mut variables = command.get_envs();
            let value = variables.find(|(name, _)| *name == build::PLANTED);
            value.and_then(|(_, value)| value.map(OsString::from))
        };
        assert_eq!(
            bug("sim 2pc --planted early-decision"),
            Some("early-decision".into())
        );
        assert_eq!(bug("chaos --planted stale-lease"), None);
    }
}
