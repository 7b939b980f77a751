//! The progress of a query: the pages that its scans have read, and the most that they have to read.

use std::io::{self, IsTerminal, Write};
use std::sync::Arc;
use std::time::{Duration, Instant};

use datafusion::common::tree_node::{TreeNode, TreeNodeRecursion};
use datafusion::physical_plan::ExecutionPlan;

use crate::meter::PageFigures;
use crate::scan::PagesScan;

/// The time before a query's progress is shown.
const PATIENCE: Duration = Duration::from_secs(1);
/// How often progress is shown on a terminal.
pub const ON_TERMINAL: Duration = Duration::from_millis(200);
/// How often progress is shown elsewhere, where lines stay.
pub const ELSEWHERE: Duration = Duration::from_secs(2);

/// When progress is shown.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Tell {
    /// On a terminal, in a line that is overwritten.
    #[default]
    OnTerminal,
    /// Always; line by line if the output is not a terminal.
    Always,
    /// Never.
    Never,
}

/// Shows a query's progress on standard error.
pub struct Progress {
    plan: Arc<dyn ExecutionPlan>,
    begun: Instant,
    terminal: bool,
    told: bool,
    allowed: bool,
}

impl Progress {
    /// Makes the progress of a plan that begins to run now.
    #[must_use]
    pub fn new(plan: Arc<dyn ExecutionPlan>, tell: Tell) -> Progress {
        let terminal = io::stderr().is_terminal();
        Progress {
            plan,
            begun: Instant::now(),
            terminal,
            told: false,
            allowed: tell == Tell::Always || (tell == Tell::OnTerminal && terminal),
        }
    }

    /// Returns how often to show progress.
    #[must_use]
    pub fn interval(&self) -> Duration {
        if self.terminal {
            ON_TERMINAL
        } else {
            ELSEWHERE
        }
    }

    /// Shows the progress of the plan.
    pub fn tell(&mut self) {
        if !self.allowed || self.begun.elapsed() < PATIENCE {
            return;
        }
        let (read, of) = pages(&self.plan);
        let seconds = self.begun.elapsed().as_secs_f64();
        let percent = (100 * read.min(of)).checked_div(of).unwrap_or(100);
        let line = format!("{seconds:.1} s: {read} of {of} pages read ({percent} %)");
        let mut err = io::stderr().lock();
        // It does not matter if this fails.
        let _ = if self.terminal {
            write!(err, "\r\x1b[K{line}")
        } else {
            writeln!(err, "{line}")
        };
        self.told = true;
    }

    /// Clears the line on the terminal.
    pub fn end(&mut self) {
        if self.told && self.terminal {
            let _ = write!(io::stderr(), "\r\x1b[K");
        }
        self.told = false;
    }
}

/// Returns the counts of the pages of a plan's scans, as far as they are counted here; `None` if no
/// scan is.
#[must_use]
pub fn figures(plan: &Arc<dyn ExecutionPlan>) -> Option<PageFigures> {
    let mut all: Option<PageFigures> = None;
    let counted = plan.apply(|node| {
        let scan = node.downcast_ref::<PagesScan>();
        if let Some(figures) = scan.and_then(PagesScan::figures) {
            all = Some(all.unwrap_or_default() + figures);
        }
        Ok(TreeNodeRecursion::Continue)
    });
    counted.ok().and(all)
}

/// Returns the number of pages that a plan's scans have taken, and the most that they have to take.
#[must_use]
pub fn pages(plan: &Arc<dyn ExecutionPlan>) -> (u64, u64) {
    let (mut read, mut of) = (0, 0);
    let counted = plan.apply(|node| {
        if let Some(scan) = node.downcast_ref::<PagesScan>() {
            read += scan.placement().map_or(0, |placed| placed.meter().pages());
            of += scan.pages();
        }
        Ok(TreeNodeRecursion::Continue)
    });
    counted.map_or((0, 0), |_| (read, of))
}
