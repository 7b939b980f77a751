//! What a run knows of its surroundings: how much is measured, where files lie, which programs there
//! are, and what runs share.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use base::affinity::Affinity;
use serde::{Deserialize, Serialize};

use crate::error::RunError;
use crate::parameters::Scale;
use crate::peers::Peers;
use crate::shared_state::SharedState;

/// The place of files.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum StorageMedium {
    /// On the disk.
    Disk,
    /// In a file system in memory, whose syncs cost nothing.
    Memory,
}

impl StorageMedium {
    /// Returns its name among the parameters.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            StorageMedium::Disk => "disk",
            StorageMedium::Memory => "memory",
        }
    }
}

/// The surroundings of a run.
pub struct RunContext<'c> {
    /// The scale.
    pub scale: &'c Scale,
    /// The directory on the disk.
    pub disk: PathBuf,
    /// The directory in memory.
    pub memory: PathBuf,
    /// Set when the user wants to stop.
    pub stop: &'c AtomicBool,
    /// The recorder of transactions, if they are recorded.
    pub recorder: Option<&'c history::Recorder>,
    /// Distinguishes runs of one history.
    pub number: usize,
    /// The seed of the random choices.
    pub seed: u64,
    /// `true` if a store is opened again after the run, to see that everything is there.
    pub reopen: bool,
    /// The processors that loggers and workers run on, if they are given.
    pub affinity: Option<&'c Affinity>,
    /// Writes wrong values on purpose: a test of the checks.
    pub plant: bool,
    /// The program whose `serve` starts a server, if there is one.
    pub server: Option<&'c Path>,
    /// The program whose `storage-node`, `paper-proxy` and `replica-clients` are the processes that
    /// only experiments need, if there is one.
    pub laboratory: Option<&'c Path>,
    /// What targets share among the runs of this round.
    pub round_state: &'c SharedState,
    /// What targets share among all runs of this experiment.
    pub experiment_state: &'c SharedState,
    /// Programs of others.
    pub peers: &'c Peers,
}

impl<'c> RunContext<'c> {
    /// Skips points whose transactions cannot be recorded, and whose threads cannot be placed: those
    /// of servers in processes of their own, for example.
    pub(crate) fn forbid_recording(&self, what: &str) -> Result<(), RunError> {
        if self.recorder.is_some() || self.affinity.is_some() {
            let why = format!("{what} are neither recorded nor placed");
            return Err(RunError::Skipped(why));
        }
        Ok(())
    }

    /// Returns the program whose processes are measured, for targets that cannot be recorded.
    pub(crate) fn unrecorded_server(&self) -> Result<&'c Path, RunError> {
        self.forbid_recording("servers in processes of their own")?;
        self.server()
    }

    /// Returns the program whose `storage-node`, `paper-proxy` and `replica-clients` are started;
    /// `what` is the process that is needed.
    pub(crate) fn laboratory(&self, what: &str) -> Result<&'c Path, RunError> {
        let none =
            || RunError::Skipped(format!("there is no program whose {what} could be started"));
        self.laboratory.ok_or_else(none)
    }

    /// Fails if the user wants to stop.
    pub(crate) fn check_stop(&self) -> Result<(), RunError> {
        match self.stop.load(Ordering::Relaxed) {
            true => Err(RunError::Interrupted),
            false => Ok(()),
        }
    }

    /// Returns the program whose `serve` starts a server. Points are skipped if there is none; they
    /// fail if the program that was named does not exist.
    pub(crate) fn server(&self) -> Result<&'c Path, RunError> {
        let none = || RunError::Skipped("there is no program to start servers with".to_owned());
        let program = self.server.ok_or_else(none)?;
        if !program.is_file() {
            let what = format!(
                "there is no program {}, whose servers are measured: `cargo build --release \
                 --package kumiki-cli` builds kumiki beside kumiki-bench, and --server names another",
                program.display()
            );
            return Err(RunError::Failed(what));
        }
        Ok(program)
    }

    /// Returns a new directory in a place; removed when it is dropped.
    pub(crate) fn directory(&self, place: StorageMedium) -> Result<tempfile::TempDir, RunError> {
        let above = match place {
            StorageMedium::Disk => &self.disk,
            StorageMedium::Memory => &self.memory,
        };
        if place == StorageMedium::Memory && !above.is_dir() {
            let reason = format!("{} is no directory", above.display());
            return Err(RunError::Skipped(reason));
        }
        let what = format!("cannot make a directory in {}", above.display());
        let failed = |error: std::io::Error| RunError::failed(&what)(&error);
        std::fs::create_dir_all(above).map_err(failed)?;
        let made = tempfile::Builder::new()
            .prefix(".kumiki-bench-")
            .tempdir_in(above);
        made.map_err(failed)
    }
}
