//! Follows the stream of the source, and completes the import.
//!
//! | step of the completion | what happens |
//! |---|---|
//! | 1 | the target has nearly caught up |
//! | 2 | keys whose deadlines lie far ahead get their own ones, while the stream is applied |
//! | 3 | the source's writers wait, if that is wanted; the source says which offset it has |
//! | 4 | the stream is applied up to this offset |
//! | 5 | the other keys get their own deadlines, and the position is deleted |

use std::path::PathBuf;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use super::super::deadlines::now_ms;
use super::super::position::{ImportPhase, ImportPosition};
use super::super::target::TargetLimits;
use super::applier::BlockApplier;
use super::block::TargetBlock;
use super::lag::Lag;
use super::monitor::SourceMonitor;
use super::receiver::{LostSource, SourceAddress, SourceBeginning, StreamReceiver};
use super::settling::Settling;
use super::stream::CommandStream;
use crate::progress::StatusLine;
use crate::signals::StopRequest;

/// The longest wait for commands, and that for the last ones.
const WAIT: Duration = Duration::from_millis(50);
const SHORT_WAIT: Duration = Duration::from_millis(5);
/// The time between two questions to the source for its offset.
const ASKING: Duration = Duration::from_secs(1);
/// The pauses before the source is connected to again.
const FIRST_PAUSE: Duration = Duration::from_millis(100);
const LONGEST_PAUSE: Duration = Duration::from_secs(3);
/// The number of bytes that may be missing when the completion begins.
const NEARLY: u64 = 1 << 20;
/// The time for which the walk over the keys may go on before commands are applied again.
const SLICE: Duration = Duration::from_millis(50);
/// Deadlines that lie farther ahead than this are set before the completion: this time, and some for each key.
const HORIZON_MS: u64 = 600_000;
const HORIZON_OF_KEY_US: u64 = 100;
/// The time before the first of these deadlines at which the completion is given up.
pub(super) const MARGIN_MS: u64 = 60_000;

/// When an import is completed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CompletionMode {
    /// By another command.
    Never,
    /// When the target has caught up. The user has stopped the writers.
    CaughtUp,
    /// When the target has caught up, and the source's writers were made to wait, for this long at most.
    CutOver { pause: Duration },
}

/// How the stream is followed.
pub(super) struct FollowOptions {
    pub(super) patience: Duration,
    pub(super) completion: CompletionMode,
    pub(super) spool: PathBuf,
    /// The target's limits.
    pub(super) limits: TargetLimits,
}

/// See the module's description.
pub(super) struct StreamFollower {
    options: FollowOptions,
    source: Arc<SourceAddress>,
    stop: StopRequest,
    applier: BlockApplier,
    monitor: SourceMonitor,
    receiver: StreamReceiver,
    stream: CommandStream,
    position: ImportPosition,
    lag: Lag,
    /// When the source was last asked for its offset.
    asked: Option<Instant>,
    settling: Option<Settling>,
    drain: Option<Drain>,
    status: StatusLine,
}

/// The last part of the stream is applied.
struct Drain {
    since: Instant,
    /// The offset that the source has.
    offset: u64,
}

impl StreamFollower {
    /// Begins behind the position, with what `receiver` receives.
    pub(super) fn new(
        options: FollowOptions,
        source: &Arc<SourceAddress>,
        (applier, position): (BlockApplier, ImportPosition),
        receiver: StreamReceiver,
        stop: &StopRequest,
    ) -> StreamFollower {
        receiver.note_applied(position.offset);
        StreamFollower {
            stream: CommandStream::new(&position, options.limits),
            options,
            source: Arc::clone(source),
            stop: stop.clone(),
            applier,
            monitor: SourceMonitor::new(source),
            receiver,
            position,
            lag: Lag::default(),
            asked: None,
            settling: None,
            drain: None,
            status: StatusLine::new(),
        }
    }

    /// Follows the stream until the import is complete. Returns for how long the source's writers had to wait, if they
    /// had.
    ///
    /// # Errors
    /// The text says why it has ended before, and how it can go on.
    pub(super) fn run(mut self) -> Result<Option<Duration>, String> {
        let outcome = self.follow();
        if outcome.is_err() && self.pauses() && self.drain.is_some() {
            // The pause ends by itself if the source does not answer.
            let _ = self.monitor.resume_writers();
        }
        outcome
    }

    fn follow(&mut self) -> Result<Option<Duration>, String> {
        loop {
            let wait = match (&self.settling, &self.drain) {
                (None, _) => WAIT,
                (Some(_), None) => Duration::ZERO,
                (Some(_), Some(_)) => SHORT_WAIT,
            };
            let filled = self.stream.fill(&self.receiver, &mut self.settling, wait);
            self.apply()?;
            match filled {
                Ok(()) => {}
                Err(LostSource::Cut(why)) => self.reconnect(why)?,
                Err(LostSource::Refused(why)) => return Err(why),
            }
            if self.stop.is_wanted() {
                return Err(format!(
                    "stopped at offset {} of the source's stream; the same command goes on there",
                    self.position.offset
                ));
            }
            self.ask_source()?;
            if self.settling.is_none() {
                self.begin_settling()?;
            } else if self.settle()? {
                return self.finish();
            }
        }
    }

    /// Applies the block.
    fn apply(&mut self) -> Result<(), String> {
        let (offset, database) = self.stream.end();
        if !self.stream.block().is_empty() {
            let next = ImportPosition {
                offset,
                database,
                ..self.position.clone()
            };
            self.applier.apply(self.stream.block(), Some(&next))?;
            self.stream.clear();
            self.position = next;
        }
        // Commands without effects are no reason to write.
        (self.position.offset, self.position.database) = (offset, database);
        self.receiver.note_applied(offset);
        self.lag.note_applied(offset);
        if self.stream.take_report_wanted() {
            self.receiver.report();
        }
        Ok(())
    }

    /// Connects to the source again, and goes on behind what is applied.
    fn reconnect(&mut self, mut why: String) -> Result<(), String> {
        let since = Instant::now();
        let mut pause = FIRST_PAUSE;
        loop {
            if since.elapsed() > self.options.patience {
                let seconds = self.options.patience.as_secs_f64();
                return Err(format!(
                    "{why}; the source could not be reached for {seconds} s. The same command goes on at offset {}",
                    self.position.offset
                ));
            }
            if self.stop.is_wanted() {
                return Ok(());
            }
            self.status.note(&format!("{why}; connecting again"));
            thread::sleep(pause);
            pause = (pause * 2).min(LONGEST_PAUSE);
            let from = (self.position.replication_id.clone(), self.position.offset);
            self.receiver = StreamReceiver::start(&self.source, Some(from), &self.options.spool)?;
            match await_beginning(&self.receiver, &self.stop) {
                Ok(Some(beginning)) => {
                    self.position = continued(&beginning, &self.position)?;
                    self.stream = CommandStream::new(&self.position, self.options.limits);
                    return Ok(());
                }
                Ok(None) => return Ok(()),
                Err(LostSource::Cut(text)) => why = text,
                Err(LostSource::Refused(text)) => return Err(text),
            }
        }
    }

    /// Asks the source for its offset now and then, and shows how far the target is behind.
    fn ask_source(&mut self) -> Result<(), String> {
        if self.asked.is_some_and(|asked| asked.elapsed() < ASKING) {
            return Ok(());
        }
        self.asked = Some(Instant::now());
        match self.monitor.state() {
            Ok(state) => {
                self.lag.note_source(state.offset);
                self.lag.note_applied(self.position.offset);
            }
            Err(_) if self.options.completion == CompletionMode::Never => {}
            Err(error) if error.contains("NOPERM") => {
                return Err(format!(
                    "the source does not tell its offset: {error}; its user needs +info, and +client for --cut-over"
                ));
            }
            // A connection that was cut is noticed elsewhere.
            Err(error) => self
                .status
                .note(&format!("the source does not tell its offset: {error}")),
        }
        let offset = self.position.offset;
        let behind = match self.lag.bytes(offset) {
            None => String::new(),
            Some(bytes) => format!(
                ", {bytes} bytes and {:.1} s behind",
                self.lag.time().as_secs_f64()
            ),
        };
        let phase = match (&self.settling, &self.drain) {
            (None, _) => "following",
            (Some(_), None) => "setting deadlines",
            (Some(_), Some(_)) => "the last commands",
        };
        self.status
            .show(&format!("{phase}: offset {offset}{behind}"));
        Ok(())
    }

    /// Begins to complete the import if it is time.
    fn begin_settling(&mut self) -> Result<(), String> {
        let allowed = match self.options.completion {
            CompletionMode::Never => return Ok(()),
            CompletionMode::CaughtUp => 0,
            CompletionMode::CutOver { .. } => NEARLY,
        };
        let offset = self.position.offset;
        if self.lag.bytes(offset).is_none_or(|bytes| bytes > allowed) {
            return Ok(());
        }
        if self.pauses() && self.monitor.state()?.is_replica {
            return Err(
                "the source is a replica, where writers cannot be made to wait: stop them at its master, and add \
                 --until-caught-up in the place of --cut-over"
                    .to_owned(),
            );
        }
        let target = self.applier.target();
        let databases = target.databases_with_keys(self.options.patience)?;
        let keys: u64 = databases.iter().map(|database| database.keys).sum();
        let until_ms = now_ms() + HORIZON_MS + keys * HORIZON_OF_KEY_US / 1000;
        let settling = Settling::new(target, until_ms, self.options.patience, &self.stop);
        self.enter(ImportPhase::Settling { until_ms })?;
        self.settling = Some(settling);
        Ok(())
    }

    fn enter(&mut self, phase: ImportPhase) -> Result<(), String> {
        self.position.phase = phase;
        self.applier
            .apply(&TargetBlock::default(), Some(&self.position))
    }

    fn pauses(&self) -> bool {
        matches!(self.options.completion, CompletionMode::CutOver { .. })
    }

    /// Goes on to complete the import. Returns `true` if all commands are applied.
    fn settle(&mut self) -> Result<bool, String> {
        let Some(settling) = &mut self.settling else {
            return Ok(false);
        };
        if now_ms() + MARGIN_MS > settling.until_ms() {
            return Err(
                "the target did not catch up in time: keys would expire that the source may still have. Begin again \
                 with --restart"
                    .to_owned(),
            );
        }
        let begun = Instant::now();
        let mut is_walked = false;
        while !is_walked && begun.elapsed() < SLICE {
            is_walked = settling.step()?;
        }
        match &self.drain {
            Some(drain) => {
                if let CompletionMode::CutOver { pause } = self.options.completion
                    && drain.since.elapsed() > pause / 2
                {
                    return Err(format!(
                        "the target did not catch up within half of the pause ({} s); the source's writers go on. The \
                         same command tries again",
                        pause.as_secs_f64() / 2.0
                    ));
                }
                Ok(is_walked && self.position.offset >= drain.offset)
            }
            None if is_walked => self.begin_drain().map(|()| false),
            None => Ok(false),
        }
    }

    /// Has the writers wait, and asks for the offset that is the last one.
    fn begin_drain(&mut self) -> Result<(), String> {
        let since = Instant::now();
        if let CompletionMode::CutOver { pause } = self.options.completion {
            self.monitor.pause_writers(pause).map_err(|error| {
                format!(
                    "the source does not let its writers wait: {error}; stop them yourself, and add --until-caught-up \
                     in the place of --cut-over"
                )
            })?;
        }
        // From here on an error ends the pause.
        self.drain = Some(Drain {
            since,
            offset: u64::MAX,
        });
        let offset = self.monitor.state()?.offset;
        self.drain = Some(Drain { since, offset });
        Ok(())
    }

    /// Completes the import: the whole stream is applied.
    fn finish(&mut self) -> Result<Option<Duration>, String> {
        self.enter(ImportPhase::Finishing)?;
        if let Some(settling) = self.settling.take() {
            settling.finish()?;
        }
        self.applier.apply(&TargetBlock::default(), None)?;
        let pause = self.drain.as_ref().map(|drain| drain.since.elapsed());
        Ok(pause.filter(|_| self.pauses()))
    }
}

/// Returns the position at which the stream goes on.
///
/// # Errors
/// The text says that the source no longer has the stream from there on.
pub(super) fn continued(
    beginning: &SourceBeginning,
    position: &ImportPosition,
) -> Result<ImportPosition, String> {
    match beginning {
        SourceBeginning::Stream { id } => Ok(ImportPosition {
            replication_id: id
                .clone()
                .unwrap_or_else(|| position.replication_id.clone()),
            ..position.clone()
        }),
        SourceBeginning::Copy { .. } => Err(format!(
            "the source no longer has its stream from offset {} on, because it was restarted, or more than its \
             repl-backlog-size was written meanwhile. Set that to a greater size, and begin again with --restart, which \
             deletes all keys of the target",
            position.offset
        )),
    }
}

/// Waits until the source says what it sends; `None`: the import is to stop.
///
/// # Errors
/// The connection has ended.
pub(super) fn await_beginning(
    receiver: &StreamReceiver,
    stop: &StopRequest,
) -> Result<Option<SourceBeginning>, LostSource> {
    loop {
        if let Some(beginning) = receiver.beginning()? {
            return Ok(Some(beginning));
        }
        if stop.is_wanted() {
            return Ok(None);
        }
    }
}
