//! Simulations of protocols: whole clusters in one thread and in virtual time, from one seed each.
//!
//! The simulation is a program of the crate that has the protocol. It is built with optimisation,
//! and with a planted bug in a directory of its own.

use std::ffi::OsStr;

use anyhow::{Result, ensure};

use crate::build::{self, cargo};
use crate::process;

/// What is simulated.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Protocol {
    /// Transactions over several partitions.
    #[value(name = "2pc")]
    TwoPhaseCommit,
    /// The same, with read-atomic keys.
    Ramp,
    /// A partition that several nodes hold.
    Replica,
    /// A table of locks that several proxies share, or that one has in its memory.
    Locks,
}

impl Protocol {
    fn name(self) -> &'static str {
        match self {
            Protocol::TwoPhaseCommit => "2pc",
            Protocol::Ramp => "ramp",
            Protocol::Replica => "replica",
            Protocol::Locks => "locks",
        }
    }

    fn package(self) -> &'static str {
        match self {
            Protocol::TwoPhaseCommit | Protocol::Ramp => "kumiki-cluster",
            Protocol::Replica => "kumiki-replica",
            Protocol::Locks => "kumiki-locks",
        }
    }
}

/// A bug that the simulation must find.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Bug {
    /// Transactions of one partition do not see what two-phase locking holds.
    IgnoredHolds,
    /// Participants vote before their part is durable.
    EarlyDecision,
    /// Read-atomic reads leave out the second round.
    OneRound,
    /// A leader believes its lease without a look at the clock.
    StaleLease,
    /// What was executed and not committed outlives the leadership.
    KeptOverlay,
    /// A lock is taken over when its lease has ended by the wall clock.
    TrustedWallClock,
    /// A token is drawn without regard to the last one of the key.
    ForgottenToken,
    /// A table that has lost its memory grants at once.
    ForgottenGrace,
}

impl Bug {
    /// All of them.
    pub const ALL: &[Bug] = &[
        Bug::IgnoredHolds,
        Bug::EarlyDecision,
        Bug::OneRound,
        Bug::StaleLease,
        Bug::KeptOverlay,
        Bug::TrustedWallClock,
        Bug::ForgottenToken,
        Bug::ForgottenGrace,
    ];

    /// Where it can be planted.
    #[must_use]
    pub fn protocol(self) -> Protocol {
        match self {
            Bug::IgnoredHolds | Bug::EarlyDecision => Protocol::TwoPhaseCommit,
            Bug::OneRound => Protocol::Ramp,
            Bug::StaleLease | Bug::KeptOverlay => Protocol::Replica,
            Bug::TrustedWallClock | Bug::ForgottenToken | Bug::ForgottenGrace => Protocol::Locks,
        }
    }

    fn feature(self) -> &'static str {
        match self {
            Bug::IgnoredHolds => "planted-ignored-holds",
            Bug::EarlyDecision => "planted-early-decision",
            Bug::OneRound => "planted-one-round",
            Bug::StaleLease => "planted-stale-lease",
            Bug::KeptOverlay => "planted-kept-overlay",
            Bug::TrustedWallClock => "planted-trusted-wall-clock",
            Bug::ForgottenToken => "planted-forgotten-token",
            Bug::ForgottenGrace => "planted-forgotten-grace",
        }
    }
}

/// Runs `seeds` simulations, or with `seed` that one, with everything that happens in it.
///
/// # Errors
/// If a seed breaks a promise, or, with a planted bug, if none does.
pub fn run(protocol: Protocol, seeds: u64, seed: Option<u64>, planted: Option<Bug>) -> Result<()> {
    if let Some(bug) = planted {
        ensure!(
            bug.protocol() == protocol,
            "this bug is not of this protocol"
        );
    }
    let mut command = cargo();
    command
        .current_dir(build::root())
        .args([
            "run",
            "--release",
            "--quiet",
            "--package",
            protocol.package(),
        ])
        .args(["--example", "sim", "--features", "simulation"]);
    if let Some(bug) = planted {
        build::planted(&mut command, bug.feature())?;
    }
    command.args(["--", protocol.name()]);
    match seed {
        None => command.args(["--seeds", &seeds.to_string()]),
        Some(seed) => command.args(["--seed", &seed.to_string(), "--trace"]),
    };
    if planted.is_some() {
        command.arg(OsStr::new("--expect-failure"));
    }
    process::run("the simulation", &mut command)
}
