//! Nodes of Cassandra, and processes that share one processor.

use cassandra::{CassandraNodes, Compiler, Options, Paxos};

use crate::error::RunError;
use crate::parameters::Effort;
use crate::run_context::RunContext;

/// Starts so many nodes of Cassandra, each with a copy of everything and so much heap for Java.
pub(crate) fn start_cassandra(
    context: &RunContext<'_>,
    count: u8,
    heap_mib: u64,
    paxos: Option<Paxos>,
) -> Result<CassandraNodes, RunError> {
    let installed = context.peers.cassandra()?;
    let options = Options::new(installed, count).anywhere();
    let options = Options {
        heap_mib,
        paxos: paxos.unwrap_or(options.paxos),
        compiler: match context.scale.effort {
            Effort::Tiny => Compiler::Quick,
            Effort::Quick | Effort::Full => Compiler::Full,
        },
        ..options
    };
    match CassandraNodes::start(&options) {
        // A machine that is too small for so many nodes is no failure of the measured system.
        Err(error @ cassandra::Error::Memory { .. }) => Err(RunError::Skipped(error.to_string())),
        other => other.map_err(|error| RunError::failed("starting Cassandra")(&error)),
    }
}

/// Calls `start` on a thread of the last processor, which the processes that it starts inherit.
pub(crate) fn on_last_processor<T: Send>(
    start: impl FnOnce() -> Result<T, RunError> + Send,
) -> Result<T, RunError> {
    let failed = |error: std::io::Error| RunError::failed("placing the nodes")(&error);
    let usable = base::cpus::usable().map_err(failed)?;
    let cpu = usable.last().copied().unwrap_or(0);
    let pinned = || {
        base::cpus::pin_current_thread(cpu).map_err(failed)?;
        start()
    };
    std::thread::scope(|scope| scope.spawn(pinned).join())
        .unwrap_or_else(|_| Err(RunError::Failed("starting the nodes panicked".to_owned())))
}
