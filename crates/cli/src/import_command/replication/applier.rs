//! Applies blocks to the target, each of them once.
//!
//! The connection watches the key with the position, so that a block takes effect only if no other import has written
//! since. Whether a block whose outcome is unknown has taken effect shows the position.

use std::net::SocketAddr;
use std::thread;
use std::time::{Duration, Instant};

use resp::Value;
use resp::command::write_command;

use super::super::position::{ImportPhase, ImportPosition, KEY};
use super::super::sending::is_passing;
use super::super::target::Target;
use super::block::TargetBlock;
use crate::node_connection::NodeConnection;
use crate::signals::StopRequest;

/// The pauses before the target is asked again.
const PAUSE: Duration = Duration::from_millis(50);

/// See the module's description.
pub(super) struct BlockApplier {
    target: Target,
    patience: Duration,
    stop: StopRequest,
    /// A connection that watches the position.
    watching: Option<NodeConnection>,
    /// The position that the target has.
    position: Option<ImportPosition>,
}

/// What has become of a block.
enum Outcome {
    Done,
    /// It is not known, or it has not taken effect; the text says why.
    Again(String),
}

impl BlockApplier {
    /// Connects to the target, and reads the position of an earlier import.
    ///
    /// # Errors
    /// The text says why the target cannot be used.
    pub(super) fn connect(
        target: Target,
        patience: Duration,
        stop: &StopRequest,
    ) -> Result<BlockApplier, String> {
        let mut applier = BlockApplier {
            target,
            patience,
            stop: stop.clone(),
            watching: None,
            position: None,
        };
        applier.position = applier.look()?;
        Ok(applier)
    }

    pub(super) fn target(&self) -> &Target {
        &self.target
    }

    /// Returns the position that the target has; `None`: there is no import.
    pub(super) fn position(&self) -> Option<&ImportPosition> {
        self.position.as_ref()
    }

    /// Connects anew, and reads and watches the position.
    fn look(&mut self) -> Result<Option<ImportPosition>, String> {
        let node: SocketAddr = self.target.first_node();
        self.watching = None;
        let mut connection = self.target.open(node)?;
        let mut commands = Vec::new();
        write_command(&mut commands, &[b"WATCH", KEY]);
        write_command(&mut commands, &[b"GET", KEY]);
        let replies = connection.pipeline(&commands, 2, self.patience)?;
        let position = position_of(&replies)?;
        self.watching = Some(connection);
        Ok(position)
    }

    /// Executes a block, and the change to the position `next` (`None`: the import is complete) with it.
    ///
    /// # Errors
    /// The text says which command the target has refused, or why it has not answered for so long.
    pub(super) fn apply(
        &mut self,
        block: &TargetBlock,
        next: Option<&ImportPosition>,
    ) -> Result<(), String> {
        let begun = Instant::now();
        loop {
            let why = match self.try_apply(block, next)? {
                Outcome::Done => {
                    self.position = next.cloned();
                    return Ok(());
                }
                Outcome::Again(why) => why,
            };
            if begun.elapsed() > self.patience {
                let seconds = self.patience.as_secs_f64();
                return Err(format!(
                    "the target has accepted nothing for {seconds} s: {why}"
                ));
            }
            if self.stop.is_wanted() {
                return Err("stopped".to_owned());
            }
            thread::sleep(PAUSE);
        }
    }

    fn try_apply(
        &mut self,
        block: &TargetBlock,
        next: Option<&ImportPosition>,
    ) -> Result<Outcome, String> {
        if self.watching.is_none() {
            match self.look() {
                Ok(found) if found.as_ref() == next => return Ok(Outcome::Done),
                Ok(found) if found == self.position => {}
                Ok(_) => return Err("another import writes to the target".to_owned()),
                Err(error) => return Ok(Outcome::Again(error)),
            }
        }
        let Some(mut connection) = self.watching.take() else {
            return Ok(Outcome::Again("there is no connection".to_owned()));
        };
        let (mut commands, count) = block.transaction(next);
        write_command(&mut commands, &[b"WATCH", KEY]);
        write_command(&mut commands, &[b"GET", KEY]);
        // MULTI, the commands, EXEC, WATCH and GET.
        let replies = match connection.pipeline(&commands, count + 4, self.patience) {
            Ok(replies) => replies,
            Err(error) => return Ok(Outcome::Again(error)),
        };
        let (executed, watched) = replies.split_at(count + 2);
        let (queued, end) = executed.split_at(count + 1);
        for (command, reply) in queued.iter().enumerate() {
            if let Value::Error(error) = reply {
                // The number 0 is MULTI.
                return refused(block, command.checked_sub(1), error);
            }
        }
        match end {
            [Value::Array(replies)] => {
                for (command, reply) in replies.iter().enumerate() {
                    if let Value::Error(error) = reply {
                        let error = String::from_utf8_lossy(error);
                        let reason =
                            format!("the target refuses {}: {error}", block.described(command));
                        self.position = next.cloned();
                        return Err(self.failed(reason));
                    }
                }
            }
            [Value::Error(error)] => return refused(block, None, error),
            // The position has changed: it is looked at.
            [_] => return Ok(Outcome::Again("the position has changed".to_owned())),
            _ => unreachable!("EXEC has one reply"),
        }
        if let Ok(position) = position_of(watched) {
            if position.as_ref() != next {
                return Err("another import writes to the target".to_owned());
            }
            self.watching = Some(connection);
        }
        Ok(Outcome::Done)
    }

    /// Notes in the target that it differs from the source from now on: a block with a command that was refused has
    /// taken effect. Returns the text of the error.
    fn failed(&mut self, reason: String) -> String {
        if let Some(position) = self.position.clone() {
            let next = ImportPosition {
                phase: ImportPhase::Failed {
                    reason: reason.replace(['\r', '\n'], " "),
                },
                ..position
            };
            if let Err(error) = self.apply(&TargetBlock::default(), Some(&next)) {
                return format!("{reason}; and the target cannot note this: {error}");
            }
        }
        format!("{reason}\nThe target differs from the source. Begin again with --restart")
    }
}

/// Returns what the refusal of a whole block means.
fn refused(block: &TargetBlock, command: Option<usize>, error: &[u8]) -> Result<Outcome, String> {
    let error = String::from_utf8_lossy(error).into_owned();
    if is_passing(&error) || error.starts_with("MOVED") {
        return Ok(Outcome::Again(error));
    }
    Err(match command {
        Some(command) => format!("the target refuses {}: {error}", block.described(command)),
        None => format!("the target refuses to execute commands: {error}"),
    })
}

/// Returns the position of the replies to `WATCH` and `GET`.
fn position_of(replies: &[Value]) -> Result<Option<ImportPosition>, String> {
    match replies {
        [Value::Status(_), Value::Null] => Ok(None),
        [Value::Status(_), Value::Bulk(text)] => ImportPosition::parse(text).map(Some),
        [Value::Error(error), _] | [_, Value::Error(error)] => {
            Err(String::from_utf8_lossy(error).into_owned())
        }
        other => Err(format!("the target's answer to WATCH and GET: {other:?}")),
    }
}
