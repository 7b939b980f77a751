//! The import from a running server, as a replica of it.
//!
//! | phase | what happens |
//! |---|---|
//! | copying | the source sends a copy of all keys, and its stream of commands behind it; the keys are sent to the target |
//! | following | the commands of the stream are applied, in their order, in transactions that write the position, too |
//! | settling, finishing | keys get their own deadlines; see `following` |
//!
//! An import that ended early goes on at the position that the target has, unless that was in the copy.
//!
//! From the lowest layer up; a module uses those of the rows above its own:
//!
//! | modules | what |
//! |---|---|
//! | `spool`, `block`, `stream_command`, `lag` | values |
//! | `receiver`, `monitor`, `applier`, `settling` | what is exchanged with the source, and with the target |
//! | `stream` | from received bytes to blocks |
//! | `following` | the loop over all of it |

mod applier;
mod block;
mod following;
mod lag;
mod monitor;
mod receiver;
mod settling;
mod spool;
mod stream;
mod stream_command;

use std::collections::BTreeSet;
use std::io::BufReader;
use std::path::PathBuf;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use values::dump::{RdbError, RdbReader};

use super::copying::{self, CopyPlan, Counts, DeadlineTreatment};
use super::deadlines::now_ms;
use super::options::ImportOptions;
use super::position::{ImportPhase, ImportPosition};
use super::sending::Sender;
use super::source::{LONGEST, READ};
use super::source_url::SourceUrl;
use super::target::{Target, TargetLimits};
use crate::node_connection::{Credentials, NodeConnection};
use crate::output::say_line;
use crate::passwords;
use crate::progress::ProgressLine;
use crate::signals::StopRequest;
use crate::table_location::resolve_as;
use applier::BlockApplier;
use block::TargetBlock;
use following::{CompletionMode, FollowOptions, StreamFollower, await_beginning, continued};
use monitor::SourceMonitor;
use receiver::{LostSource, SourceAddress, SourceBeginning, StreamReceiver};
use settling::Settling;

/// The pause before the source is asked again.
const PAUSE: Duration = Duration::from_millis(500);

/// Imports, and follows the source until the import is completed.
///
/// # Errors
/// The text says why it has ended early, and how it can go on.
pub(super) fn run(options: &ImportOptions, url: &SourceUrl) -> Result<(), String> {
    if url.database.is_some() {
        return Err(
            "a running server is followed with all its databases: leave out the number behind /, or add --by-scan"
                .to_owned(),
        );
    }
    if options.continue_at.is_some() {
        return Err(
            "--continue-at is for files and for --by-scan: an import that follows a server finds its position in the target"
                .to_owned(),
        );
    }
    let stop = StopRequest::on_signal()?;
    let target = Target::connect(&options.to, options.credentials.open()?)?;
    let limits = target.limits()?;
    if limits.evicts {
        return Err(
            "the target evicts keys, which the source still has: set its maxmemory-policy to noeviction until the \
             import is complete"
                .to_owned(),
        );
    }
    let mut import = Import {
        options,
        limits,
        spool: options
            .live
            .spool
            .clone()
            .unwrap_or_else(std::env::temp_dir),
        applier: BlockApplier::connect(target, options.patience, &stop)?,
        stop,
    };
    import.prepare()?;
    let position = import.applier.position().cloned();
    if options.live.finish
        || matches!(&position, Some(position) if position.phase == ImportPhase::Finishing)
    {
        return import.finish(position);
    }
    let source = Arc::new(source_of(options, url)?);
    refuse_cluster(&source)?;
    let (receiver, position) = match position {
        None => match import.copy(&source)? {
            Some(copied) => copied,
            None => return Err("stopped; nothing was written".to_owned()),
        },
        Some(position) => import.go_on(&source, position)?,
    };
    let follow = FollowOptions {
        patience: options.patience,
        completion: match (options.live.cut_over, options.live.until_caught_up) {
            (true, _) => CompletionMode::CutOver {
                pause: options.live.pause,
            },
            (_, true) => CompletionMode::CaughtUp,
            _ => CompletionMode::Never,
        },
        spool: import.spool,
        limits,
    };
    let follower = StreamFollower::new(
        follow,
        &source,
        (import.applier, position),
        receiver,
        &import.stop,
    );
    match follower.run()? {
        Some(waited) => say_line!(
            "the import is complete; the source's writers have waited for {:.3} s, and go on when {} s have passed: let \
             the clients connect to the target before",
            waited.as_secs_f64(),
            options.live.pause.as_secs_f64()
        ),
        None => say_line!("the import is complete"),
    }
    Ok(())
}

/// Returns where the source is, and as whom the import connects.
fn source_of(options: &ImportOptions, url: &SourceUrl) -> Result<SourceAddress, String> {
    let given = passwords::given(
        url.password.as_ref(),
        options.live.source_password_file.as_deref(),
    )?;
    let addresses = resolve_as("the source", "redis://127.0.0.1:6379", &url.address)?;
    let credentials = Credentials::of_user(url.user.clone(), given);
    // If none accepts, the first attempt to follow the source says why.
    let accepting = NodeConnection::connect_first(&addresses, &credentials).ok();
    Ok(SourceAddress {
        address: accepting.map_or(addresses[0], |(address, _)| address),
        credentials,
    })
}

/// Checks that the source is not a node of a cluster, whose slots could move. A source that does not say so is no node.
fn refuse_cluster(source: &Arc<SourceAddress>) -> Result<(), String> {
    match SourceMonitor::new(source).state() {
        Ok(state) if state.in_cluster => Err(
            "the source is a node of a Redis Cluster: import the file of each master ('redis-cli --rdb'), with --replace \
             from the second one on, or each master by --by-scan"
                .to_owned(),
        ),
        _ => Ok(()),
    }
}

struct Import<'a> {
    options: &'a ImportOptions,
    limits: TargetLimits,
    spool: PathBuf,
    stop: StopRequest,
    applier: BlockApplier,
}

impl Import<'_> {
    /// Decides whether the import goes on with an earlier one; deletes that if this is wanted.
    fn prepare(&mut self) -> Result<(), String> {
        let live = &self.options.live;
        let Some(position) = self.applier.position().cloned() else {
            return match live.restart || live.finish {
                true => Err("the target has no position of an earlier import".to_owned()),
                false if self.options.replace => Ok(()),
                false => {
                    let all: BTreeSet<u64> = (0..self.limits.databases).collect();
                    self.applier.target().check_empty(&all)
                }
            };
        };
        if live.restart {
            if position.is_shared {
                return Err(
                    "the target had other keys before the earlier import, which --restart would delete: delete what is \
                     to be imported again, and the key kumiki:import, yourself"
                        .to_owned(),
                );
            }
            let target = self.applier.target().clone();
            target.delete_all(self.options.patience)?;
            self.applier = BlockApplier::connect(target, self.options.patience, &self.stop)?;
            return Ok(());
        }
        match position.phase {
            ImportPhase::Copying => Err(
                "an earlier import ended before all keys were copied. To begin again, add --restart: it deletes all keys \
                 of the target"
                    .to_owned(),
            ),
            ImportPhase::Failed { reason } => Err(format!(
                "an earlier import failed: {reason}. To begin again, add --restart: it deletes all keys of the target"
            )),
            _ => Ok(()),
        }
    }

    /// Completes an earlier import without the source.
    fn finish(mut self, position: Option<ImportPosition>) -> Result<(), String> {
        let Some(mut position) = position else {
            return Err("the target has no position of an earlier import".to_owned());
        };
        position.phase = ImportPhase::Finishing;
        self.applier
            .apply(&TargetBlock::default(), Some(&position))?;
        let target = self.applier.target();
        Settling::new(target, 0, self.options.patience, &self.stop).finish()?;
        self.applier.apply(&TargetBlock::default(), None)?;
        say_line!("the import is complete");
        Ok(())
    }

    /// Receives a copy of the source, and sends it to the target. Returns what goes on with the stream behind it; `None`:
    /// it was stopped before it began.
    fn copy(
        &mut self,
        source: &Arc<SourceAddress>,
    ) -> Result<Option<(StreamReceiver, ImportPosition)>, String> {
        let begun = Instant::now();
        let Some((receiver, beginning)) = self.receive(source, None)? else {
            return Ok(None);
        };
        let SourceBeginning::Copy { id, offset } = beginning else {
            return Err("the source sends its stream, and no copy".to_owned());
        };
        let position = ImportPosition::copying(self.options.replace);
        self.applier
            .apply(&TargetBlock::default(), Some(&position))?;
        let failed = |error: String| {
            format!(
                "{error}\nThe copy is not complete. To begin again, add --restart: it deletes all keys of the target"
            )
        };
        let told = |error: &RdbError| format!("the copy of the source: {error}");
        let input = BufReader::with_capacity(READ, receiver.copy());
        let mut reader = RdbReader::new(input, LONGEST).map_err(|error| failed(told(&error)))?;
        let sender = Sender::start(
            self.applier.target().clone(),
            self.options.connections,
            self.options.patience,
        );
        let plan = CopyPlan {
            deadlines: DeadlineTreatment::Shifted,
            continue_at: 0,
            keys: None,
        };
        let (mut counts, mut unsent) = (Counts::default(), 0);
        let mut progress = ProgressLine::new("copying: keys".to_owned());
        let around = (&self.stop, &mut progress);
        let sent = copying::copy(
            &mut reader,
            &plan,
            &sender,
            around,
            &mut counts,
            &mut unsent,
            told,
        );
        drop(progress);
        let (pending, refused) = sender.finish();
        if let Some(failure) = refused.or(sent.err()) {
            return Err(failed(failure));
        }
        if pending.is_some() {
            return Err(failed("a thread that sends has panicked".to_owned()));
        }
        drop(reader);
        let position = ImportPosition {
            phase: ImportPhase::Following,
            replication_id: id,
            offset,
            ..position
        };
        self.applier
            .apply(&TargetBlock::default(), Some(&position))?;
        counts.tell("copied", begun);
        Ok(Some((receiver, position)))
    }

    /// Goes on with an earlier import.
    fn go_on(
        &mut self,
        source: &Arc<SourceAddress>,
        mut position: ImportPosition,
    ) -> Result<(StreamReceiver, ImportPosition), String> {
        if let ImportPhase::Settling { until_ms } = position.phase {
            if now_ms() + following::MARGIN_MS > until_ms {
                return Err(
                    "an earlier import ended while it set deadlines, too long ago: keys may have expired that the source \
                     still has. To begin again, add --restart: it deletes all keys of the target; or complete it without \
                     the source by --finish"
                        .to_owned(),
                );
            }
            let target = self.applier.target();
            Settling::new(target, until_ms, self.options.patience, &self.stop).revert()?;
            position.phase = ImportPhase::Following;
            self.applier
                .apply(&TargetBlock::default(), Some(&position))?;
        }
        let from = (position.replication_id.clone(), position.offset);
        match self.receive(source, Some(from))? {
            Some((receiver, beginning)) => Ok((receiver, continued(&beginning, &position)?)),
            None => Err("stopped".to_owned()),
        }
    }

    /// Connects to the source, and asks for a copy or for the stream from an offset on. `None`: it was stopped.
    fn receive(
        &self,
        source: &Arc<SourceAddress>,
        from: Option<(String, u64)>,
    ) -> Result<Option<(StreamReceiver, SourceBeginning)>, String> {
        let begun = Instant::now();
        loop {
            let receiver = StreamReceiver::start(source, from.clone(), &self.spool)?;
            match await_beginning(&receiver, &self.stop) {
                Ok(beginning) => return Ok(beginning.map(|beginning| (receiver, beginning))),
                Err(LostSource::Refused(why)) => return Err(why),
                Err(LostSource::Cut(why)) if begun.elapsed() > self.options.patience => {
                    return Err(why);
                }
                Err(LostSource::Cut(_)) => thread::sleep(PAUSE),
            }
            if self.stop.is_wanted() {
                return Ok(None);
            }
        }
    }
}
