//! `SCRIPT KILL` and `FUNCTION KILL`.

use crate::runtime_context::RuntimeContext;
use crate::script_registry::{NothingKilled, RunningKind};
use crate::session::ClientSession;

/// Ends what runs and is of this kind.
pub(super) fn kill(context: &RuntimeContext, session: &mut ClientSession, kind: RunningKind) {
    let mut writer = session.writer();
    match context.shared.scripts.kill(kind) {
        Ok(()) => writer.ok(),
        Err(NothingKilled::Idle) => {
            writer.error("NOTBUSY No scripts in execution right now.");
        }
        Err(NothingKilled::Other(RunningKind::Script)) => {
            writer.error("BUSY Redis is busy running a script. You can only call SCRIPT KILL or SHUTDOWN NOSAVE.");
        }
        Err(NothingKilled::Other(RunningKind::Function)) => {
            writer.error("BUSY Redis is busy running a script. You can only call FUNCTION KILL or SHUTDOWN NOSAVE.");
        }
    }
}
