//! A script within a long transaction: its steps, and the commands that it calls.
//!
//! The script stops wherever it is when a command needs reads, and when its time slice is over. It continues
//! there once the reads have come, or in the runtime's next turn, after other connections have had theirs.
//! The interpreter is on this thread, and holds nothing of the store meanwhile.

use std::sync::Arc;
use std::time::{Duration, Instant};

use resp::{Args, Protocol, Writer};
use scripts::{Answer, ScriptLogLevel, ScriptOutcome, Step};
use smallvec::SmallVec;

use super::call::{Call, CallContext, Results, RunPause};
use super::script_code::ScriptCode;
use crate::command::{
    CommandDefinition, CommandFlags, CommandKind, KeyTurns, ScriptCommand, WaitFinding,
};
use crate::interpreter_pool::LentInterpreter;
use crate::refusal;
use crate::script_registry::{LongScript, RunningKind, RunningScript};
use crate::working_set::Need;

/// The error that ends a script on request.
const KILLED: &str = "ERR Script killed by user with SCRIPT KILL.";

/// The time for which a script runs before other connections have their turn.
const SLICE: Duration = Duration::from_micros(200);
/// The number of commands that a script calls between two looks at the clock.
const CALLS: u32 = 16;
/// After this time the log says that a script still runs.
const LOGGED: Duration = Duration::from_secs(5);

/// A script that runs.
pub(super) struct ActiveScript {
    interpreter: LentInterpreter,
    code: ScriptCode,
    /// The database that is selected before and after it.
    database: u16,
    /// The script only reads.
    reads_only: bool,
    /// Its commands may need memory when there is none left.
    may_exceed_memory: bool,
    /// The step that waits.
    step: WaitingStep,
    began: Duration,
    slice: TimeSlice,
    /// Among the scripts that run for long.
    long: Option<Arc<LongScript>>,
    /// The log says that it runs for long.
    is_logged: bool,
}

/// What a script waits for.
#[derive(Clone, Copy)]
enum WaitingStep {
    /// Reads for the command that it has called.
    Call { protocol: Protocol },
    /// Its next time slice, which begins with the reply to the command that it has called.
    Reply,
    /// Its next time slice.
    Slice,
}

/// The end of a script.
pub(super) enum ScriptEnd {
    /// Its reply is written.
    Ended,
    /// It was killed, with this error, as RESP: nothing of its transaction may take effect.
    Killed(Vec<u8>),
}

impl CallContext<'_> {
    /// Runs a script from its beginning, or from where it stopped, to its end.
    ///
    /// # Errors
    /// It has stopped before; `active` has it.
    pub(super) fn run_script(
        &mut self,
        call: &Call<'_>,
        to: &mut Results<'_, '_>,
        active: &mut Option<ActiveScript>,
    ) -> Result<ScriptEnd, RunPause> {
        let (mut script, mut step) = match active.take() {
            Some(script) => self.next_step(script, to),
            None => match self.start(call, to)? {
                Some(started) => started,
                None => return Ok(ScriptEnd::Ended),
            },
        };
        loop {
            let pause = match step {
                Step::Call { protocol } => match self.call(&script, protocol, to) {
                    Ok(()) => script
                        .slice
                        .is_over()
                        .then_some((WaitingStep::Reply, RunPause::Slice)),
                    Err(pause) => Some((WaitingStep::Call { protocol }, pause)),
                },
                Step::AclCheck => None,
                Step::Slice => Some((WaitingStep::Slice, RunPause::Slice)),
                Step::Done(outcome) => return Ok(self.end(&script, outcome, to)),
            };
            if let Some((waits_for, pause)) = pause {
                script.step = waits_for;
                if let RunPause::Slice = pause {
                    script.slice = TimeSlice::default();
                    self.note_long(&mut script, call.args);
                }
                *active = Some(script);
                return Err(pause);
            }
            let answer = match step {
                Step::AclCheck => {
                    let command = self.command_of(script.interpreter.arguments());
                    Answer::Allowed(command.is_some().then_some(true))
                }
                _ => Answer::Reply(to.reply),
            };
            step = script.interpreter.resume(answer);
        }
    }
}

/// The time slice of a script that calls commands, reads between them included.
#[derive(Default)]
struct TimeSlice {
    calls: u32,
    /// When the clock was first looked at.
    began: Option<Instant>,
}

impl TimeSlice {
    /// Counts a command. Returns `true` if the slice is over.
    fn is_over(&mut self) -> bool {
        self.calls += 1;
        self.calls.is_multiple_of(CALLS)
            && self.began.get_or_insert_with(Instant::now).elapsed() >= SLICE
    }
}

impl ActiveScript {
    fn is_killed(&self) -> bool {
        self.long.as_ref().is_some_and(|long| long.is_killed())
    }
}

impl CallContext<'_> {
    /// Returns the next step of a script that has stopped.
    fn next_step(&self, mut script: ActiveScript, to: &Results<'_, '_>) -> (ActiveScript, Step) {
        let step = match script.step {
            _ if script.is_killed() => script.interpreter.resume(Answer::Kill(KILLED)),
            WaitingStep::Call { protocol } => Step::Call { protocol },
            WaitingStep::Reply => script.interpreter.resume(Answer::Reply(to.reply)),
            WaitingStep::Slice => script.interpreter.resume(Answer::Continue),
        };
        (script, step)
    }

    /// Starts a script. `None`: it is refused, and the reason is written.
    ///
    /// # Errors
    /// It needs reads first.
    fn start(
        &mut self,
        call: &Call<'_>,
        to: &mut Results<'_, '_>,
    ) -> Result<Option<(ActiveScript, Step)>, Need> {
        let CommandKind::Script(kind) = call.command.kind else {
            unreachable!("{} is no script", call.command.name)
        };
        let started = self
            .code_of(kind, call.args, to)?
            .and_then(|(code, count)| Ok((self.lend(kind, code)?, count)));
        let (mut active, count) = match started {
            Ok(started) => started,
            Err(text) => {
                Writer::new(to.output, call.protocol).error_bytes(&text);
                return Ok(None);
            }
        };
        let values: SmallVec<[&[u8]; 8]> = call.args.from(3).iter().collect();
        let values = values.split_at(count);
        active.database = *to.database;
        let step = active
            .code
            .start(&mut active.interpreter, values, call.protocol);
        Ok(Some((active, step)))
    }

    /// Records that a script has not ended within its slice.
    fn note_long(&mut self, script: &mut ActiveScript, args: Args<'_>) {
        let registry = &self.context.shared.scripts;
        let (kind, name) = (script.code.kind(), script.code.name());
        script.long.get_or_insert_with(|| {
            registry.note_long(RunningScript {
                kind,
                name: name.to_owned(),
                command: args.iter().map(<[u8]>::to_vec).collect(),
                began: script.began,
            })
        });
        let since = self.context.now.saturating_sub(script.began);
        if since > LOGGED && !std::mem::replace(&mut script.is_logged, true) {
            let client = self.session.client.address;
            let (what, ends) = match kind {
                RunningKind::Script => ("a script", "SCRIPT KILL"),
                RunningKind::Function => ("a function", "FUNCTION KILL"),
            };
            tracing::warn!(%client, "{what} runs for {} s already; {ends} ends it", since.as_secs());
        }
    }

    /// Lends an interpreter to a script that may run now.
    ///
    /// # Errors
    /// Returns the text of the error.
    fn lend(&mut self, kind: ScriptCommand, code: ScriptCode) -> Result<ActiveScript, Vec<u8>> {
        let shared = &self.context.shared;
        let flags = code.flags();
        if code.declares() && kind.reads_only && !flags.no_writes {
            return Err("ERR Can not execute a script with write flag using *_ro command.".into());
        }
        if flags.no_cluster && shared.routes.is_some() {
            return Err("ERR Can not run script on cluster, 'no-cluster' flag is set.".into());
        }
        let may_exceed_memory = flags.allow_oom || flags.no_writes;
        if code.declares() && !may_exceed_memory && self.is_full(0) {
            return Err(code.out_of_memory().into());
        }
        let options = scripts::Options {
            memory: shared.config.limits.script_memory,
            slice: SLICE,
        };
        let lent = self.context.interpreters.take(options);
        let interpreter = lent.map_err(|error| format!("ERR the script cannot run: {error}"))?;
        Ok(ActiveScript {
            interpreter,
            code,
            database: 0,
            reads_only: kind.reads_only || flags.no_writes,
            may_exceed_memory,
            step: WaitingStep::Slice,
            began: self.context.now,
            slice: TimeSlice::default(),
            long: None,
            is_logged: false,
        })
    }

    /// Executes the command that a script calls, and puts its reply into the script's buffer.
    fn call(
        &mut self,
        script: &ActiveScript,
        protocol: Protocol,
        to: &mut Results<'_, '_>,
    ) -> Result<(), RunPause> {
        to.reply.clear();
        let args = script.interpreter.arguments();
        let command = match self.admit(script, args) {
            Ok(command) => command,
            Err(text) => {
                Writer::new(to.reply, protocol).error(text);
                return Ok(());
            }
        };
        let call = Call {
            command,
            args,
            protocol,
        };
        // Only scripts use the memory for replies, and it calls none.
        let mut results = Results {
            database: to.database,
            set: to.set,
            output: to.reply,
            reply: &mut Vec::new(),
            messages: to.messages,
            log: to.log,
            conflicts: to.conflicts,
            turns: &KeyTurns::ALL,
            finding: &mut WaitFinding::Found,
            in_place: to.in_place.as_deref_mut(),
        };
        self.execute(&call, &mut results)?;
        self.context.recorder.count(command.number);
        Ok(())
    }

    /// Returns the command that a script calls.
    ///
    /// # Errors
    /// The script may not call it: the text of the error.
    fn admit(
        &self,
        script: &ActiveScript,
        args: Args<'_>,
    ) -> Result<&'static CommandDefinition, &'static str> {
        let command = self.command_of(args);
        let command = command.ok_or("ERR Unknown Redis command called from script")?;
        let flags = command.flags;
        if !command.takes(args.len()) {
            return Err("ERR Wrong number of args calling Redis command from script");
        }
        let is_allowed = matches!(
            command.kind,
            CommandKind::Store(_)
                | CommandKind::AllOrNothing(_)
                | CommandKind::Compound(_)
                | CommandKind::Sequence(_)
                | CommandKind::Blocking(_)
                | CommandKind::Scan(_)
                | CommandKind::Keys(_)
                | CommandKind::Local(_)
                | CommandKind::Introspection(_)
        );
        if !is_allowed || flags.has(CommandFlags::NO_SCRIPT) {
            return Err("ERR This Redis command is not allowed from script");
        }
        if script.reads_only && flags.may_write() {
            return Err("ERR Write commands are not allowed from read-only scripts.");
        }
        let needs_memory = flags.has(CommandFlags::NEEDS_MEMORY);
        if needs_memory && !script.may_exceed_memory && self.is_full(args.total_bytes()) {
            return Err(refusal::OUT_OF_MEMORY);
        }
        Ok(command)
    }

    /// Returns the command that these arguments call, if there is one.
    fn command_of(&self, args: Args<'_>) -> Option<&'static CommandDefinition> {
        let command = self.commands.find(args.get(0)?)?;
        match args.get(1) {
            Some(word) if !command.subcommands.is_empty() => command.subcommand(word),
            _ => Some(command),
        }
    }

    fn is_full(&self, bytes: usize) -> bool {
        let shared = &self.context.shared;
        shared
            .memory
            .is_full(&shared.partition, self.context.now, bytes)
    }

    /// Writes the reply of a script that has ended.
    fn end(
        &self,
        script: &ActiveScript,
        outcome: ScriptOutcome,
        to: &mut Results<'_, '_>,
    ) -> ScriptEnd {
        *to.database = script.database;
        to.log.extend(outcome.log);
        if outcome.is_error && script.is_killed() {
            return ScriptEnd::Killed(outcome.reply);
        }
        to.output.extend_from_slice(&outcome.reply);
        ScriptEnd::Ended
    }
}

/// Logs the lines of scripts.
pub(super) fn write_log(lines: Vec<(ScriptLogLevel, Vec<u8>)>) {
    for (level, text) in lines {
        let text = String::from_utf8_lossy(&text);
        match level {
            ScriptLogLevel::Debug | ScriptLogLevel::Verbose => tracing::debug!("script: {text}"),
            ScriptLogLevel::Notice => tracing::info!("script: {text}"),
            ScriptLogLevel::Warning => tracing::warn!("script: {text}"),
        }
    }
}
