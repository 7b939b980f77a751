//! The steps of a script's run.

mod cached_functions;
mod functions;

use std::ffi::CStr;
use std::io;
use std::rc::Rc;

use hashbrown::HashMap;
use resp::{Args, Protocol, Writer};

use self::cached_functions::{CachedFunctions, CachedPlace};
use crate::error_reply::{error_text, handle_error};
use crate::failure::CallStatus;
use crate::lua::{LuaStack, LuaState};
use crate::protection::RegistryItem;
use crate::result_writer::write_result;
use crate::sandbox;
use crate::script::Script;
use crate::script_context::{CalledCommand, ScriptContext};
use crate::step::{Answer, Options, ScriptCall, ScriptOutcome, Step};
use crate::switch::{Fiber, Resumption, Suspension};

/// The most compiled scripts that are kept.
const MAX_COMPILED: usize = 1000;
/// The place of the error handler on the main stack, above the spare thread.
const HANDLER: i32 = 2;
/// The place of the table with `KEYS` and `ARGV` on the main stack.
const GLOBALS: i32 = 3;
/// The most bytes of a heap: Lua's tables cannot become so large that it reports that.
const MAX_MEMORY: usize = 1 << 30;

/// The kinds of steps, which the answers must fit.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Waiting {
    /// No script runs.
    Idle,
    Reply,
    Permission,
    Slice,
}

/// What runs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Stage {
    /// A script or a function, whose result is the reply.
    Script,
    /// The code of a library, before a function of it.
    Library,
    /// The code of a library, which only registers functions.
    Loading,
}

/// The script that runs.
struct CurrentRun {
    /// The hash of a script, or the name of a function.
    name: Vec<u8>,
    protocol: Protocol,
    stage: Stage,
    /// The place of the function, if it was cached.
    cached: Option<CachedPlace>,
    /// The hash of the source of the function's library.
    library: [u8; 40],
}

/// An interpreter of scripts, which runs one at a time.
pub struct Interpreter {
    fiber: Fiber,
    state: Rc<LuaState>,
    context: Rc<ScriptContext>,
    waiting: Waiting,
    current: CurrentRun,
    /// The command of the last step.
    command: CalledCommand,
    /// For each compiled script its item in the table of functions.
    compiled: HashMap<[u8; 40], i32>,
    cached: CachedFunctions,
}

impl Interpreter {
    /// Creates an interpreter.
    ///
    /// # Errors
    /// There is no memory for its stack.
    pub fn new(options: Options) -> io::Result<Interpreter> {
        let context = Rc::new(ScriptContext::new(
            options.memory.min(MAX_MEMORY),
            options.slice,
        ));
        let state = Rc::new(LuaState::new(Rc::clone(&context)));
        let mut stack = state.stack();
        stack.push_function(handle_error);
        sandbox::open(&mut stack);
        stack.set_slices();
        assert_eq!(stack.top(), GLOBALS, "the bottom of the main stack");
        let inner = Rc::clone(&state);
        let run = move |arguments| inner.stack().protected_call(arguments, Some(1), HANDLER);
        Ok(Interpreter {
            fiber: Fiber::new(Rc::clone(&context.switch), run)?,
            state,
            context,
            waiting: Waiting::Idle,
            current: CurrentRun {
                name: Vec::new(),
                protocol: Protocol::Resp2,
                stage: Stage::Script,
                cached: None,
                library: [0; 40],
            },
            command: CalledCommand::default(),
            compiled: HashMap::new(),
            cached: CachedFunctions::default(),
        })
    }

    /// Returns `true` while a script runs.
    #[must_use]
    pub fn is_running(&self) -> bool {
        self.waiting != Waiting::Idle
    }

    /// Returns the size of the Lua heap in bytes.
    #[must_use]
    pub fn used_memory(&self) -> usize {
        self.context.heap.used()
    }

    /// Returns the arguments of the last [`Step::Call`] or [`Step::AclCheck`].
    #[must_use]
    pub fn arguments(&self) -> Args<'_> {
        Args::new(&self.command.bytes, &self.command.spans)
    }

    /// Compiles a script.
    ///
    /// # Errors
    /// It does not compile: the text of the error reply, without its mark.
    pub fn compile(&mut self, script: &Script) -> Result<(), Vec<u8>> {
        let (state, context) = (Rc::clone(&self.state), Rc::clone(&self.context));
        let _exemption = context.heap.exemption(true);
        let mut stack = state.spare_stack();
        stack.push_registered(RegistryItem::ScriptEnvironment);
        stack.set_globals();
        self.push_script(&mut stack, script)?;
        stack.pop(1);
        Ok(())
    }

    /// Starts a script.
    ///
    /// # Panics
    /// Panics if one runs.
    pub fn start(&mut self, call: ScriptCall<'_>) -> Step {
        assert!(!self.is_running(), "a script runs");
        self.begin_run(call.script.sha1_bytes(), call.protocol, Stage::Script);
        let state = Rc::clone(&self.state);
        let mut stack = state.stack();
        stack.push_registered(RegistryItem::ScriptEnvironment);
        stack.set_globals();
        if let Err(error) = self.push_script(&mut stack, call.script) {
            return self.failed(&error);
        }
        for (name, values) in [("KEYS", call.keys), ("ARGV", call.arguments)] {
            push_list(&mut stack, values);
            stack.raw_set_field(GLOBALS, name);
        }
        self.proceed(Resumption::Run { arguments: 0 })
    }

    /// Continues the script with the answer to the last step.
    ///
    /// # Panics
    /// Panics if no script runs, or if the answer does not fit the step.
    pub fn resume(&mut self, answer: Answer<'_>) -> Step {
        let resumption = match (self.waiting, answer) {
            (Waiting::Idle, _) => panic!("no script runs"),
            (_, Answer::Kill(error)) => {
                self.kill(error);
                Resumption::Kill
            }
            (Waiting::Reply, Answer::Reply(reply)) => {
                self.set_reply(reply);
                Resumption::Reply
            }
            (Waiting::Permission, Answer::Allowed(allowed)) => Resumption::Allowed(allowed),
            (Waiting::Slice, Answer::Continue) => Resumption::Continue,
            (waiting, answer) => {
                panic!("the answer {answer:?} to a script that waits for {waiting:?}")
            }
        };
        self.proceed(resumption)
    }

    fn begin_run(&mut self, name: &[u8], protocol: Protocol, stage: Stage) {
        self.context.begin();
        self.current.name.clear();
        self.current.name.extend_from_slice(name);
        self.current.protocol = protocol;
        self.current.stage = stage;
        self.current.cached = None;
    }

    fn set_reply(&self, reply: &[u8]) {
        const KEPT: usize = 64 * 1024;
        let mut buffer = self.context.reply.take();
        buffer.clear();
        buffer.shrink_to(KEPT);
        buffer.extend_from_slice(reply);
        self.context.reply.set(buffer);
    }

    /// Lets every thread of the script fail at its next instruction.
    fn kill(&self, error: &str) {
        self.context.kill(error.as_bytes());
        let _exemption = self.context.heap.exemption(true);
        self.state.stack().stop_at_every_instruction();
        let mut stack = self.state.spare_stack();
        stack.push_registered(RegistryItem::Threads);
        let threads = stack.top();
        stack.push_nil();
        while stack.next(threads) {
            stack.pop(1);
            if let Some(mut thread) = stack.thread(-1) {
                thread.stop_at_every_instruction();
            }
        }
        stack.pop(1);
    }

    fn proceed(&mut self, resumption: Resumption) -> Step {
        self.context.begin_slice();
        self.context.command.set(std::mem::take(&mut self.command));
        let suspension = self.fiber.resume(resumption);
        self.command = self.context.command.take();
        match suspension.expect("a coroutine that waits for scripts") {
            Suspension::Call => {
                self.waiting = Waiting::Reply;
                let protocol = self.context.protocol.get();
                Step::Call { protocol }
            }
            Suspension::AclCheck => {
                self.waiting = Waiting::Permission;
                Step::AclCheck
            }
            Suspension::Slice => {
                self.waiting = Waiting::Slice;
                Step::Slice
            }
            Suspension::Ended(status) => {
                self.waiting = Waiting::Idle;
                self.finish(status)
            }
        }
    }

    /// Pushes the function of a script.
    fn push_script(&mut self, stack: &mut LuaStack<'_>, script: &Script) -> Result<(), Vec<u8>> {
        let compiled =
            self.push_compiled(stack, script.sha1_bytes(), script.code(), c"@user_script");
        compiled.map_err(|message| {
            [b"ERR Error compiling script (new function): ", &message[..]].concat()
        })
    }

    /// Pushes the function of a source, which is compiled unless it was before.
    ///
    /// # Errors
    /// It does not compile: the message of Lua.
    fn push_compiled(
        &mut self,
        stack: &mut LuaStack<'_>,
        sha1: &[u8; 40],
        code: &[u8],
        name: &CStr,
    ) -> Result<(), Vec<u8>> {
        if let Some(&item) = self.compiled.get(sha1) {
            stack.push_registered(RegistryItem::Functions);
            stack.raw_get_item(-1, item);
            stack.remove(-2);
            return Ok(());
        }
        if !stack.load(code, name) {
            let message = stack.bytes(-1).unwrap_or_default().to_vec();
            stack.pop(1);
            return Err(message);
        }
        if self.compiled.len() >= MAX_COMPILED {
            self.forget_compiled(stack);
        }
        let item = self.compiled.len() as i32 + 1;
        self.compiled.insert(*sha1, item);
        stack.push_registered(RegistryItem::Functions);
        stack.push_value(-2);
        stack.raw_set_item(-2, item);
        stack.pop(1);
        Ok(())
    }

    fn forget_compiled(&mut self, stack: &mut LuaStack<'_>) {
        self.compiled.clear();
        stack.push_table(MAX_COMPILED, 0);
        stack.register(RegistryItem::Functions);
    }

    /// Makes the result of a run, or begins its next stage.
    fn finish(&mut self, status: CallStatus) -> Step {
        let state = Rc::clone(&self.state);
        let mut stack = state.stack();
        let error = if self.context.is_killed() {
            stack.set_slices();
            self.context.killed.take()
        } else {
            (status != CallStatus::Returned).then(|| error_text(&mut stack))
        };
        let mut reply = Vec::new();
        match (error, self.current.stage) {
            (Some(error), _) => self.write_error(&mut reply, error),
            (None, Stage::Library) => return self.call_registered(),
            (None, Stage::Loading) => {}
            (None, Stage::Script) => {
                let protocol = self.current.protocol;
                let booleans = self.context.protocol.get() == Protocol::Resp3;
                write_result(&mut stack, &mut reply, protocol, booleans);
            }
        }
        stack.set_top(GLOBALS);
        if let Some(place) = self.current.cached {
            self.cached.check(&mut stack, place);
        }
        stack.collect_lazily();
        if status == CallStatus::OutOfMemory || self.context.heap.is_exceeded() {
            self.free_memory(&mut stack);
        }
        Step::Done(ScriptOutcome {
            is_error: reply.first() == Some(&b'-'),
            reply,
            log: self.context.log.take(),
        })
    }

    /// Makes room in the heap after a script has filled it.
    fn free_memory(&mut self, stack: &mut LuaStack<'_>) {
        for name in ["KEYS", "ARGV"] {
            stack.push_nil();
            stack.raw_set_field(GLOBALS, name);
        }
        stack.collect_garbage();
        if self.context.heap.used() > self.context.heap.limit() / 2 {
            self.forget_compiled(stack);
            self.cached.clear(stack);
            stack.collect_garbage();
        }
    }

    /// Writes the error with which a run ended, and its place.
    fn write_error(&self, reply: &mut Vec<u8>, mut error: Vec<u8>) {
        if self.current.stage != Stage::Loading {
            error.extend_from_slice(b" script: ");
            error.extend_from_slice(&self.current.name);
            if let Some(place) = self.context.error_place.take() {
                error.extend_from_slice(b", on ");
                error.extend_from_slice(&place.source);
                error.extend_from_slice(format!(":{}.", place.line).as_bytes());
            }
        }
        Writer::new(reply, self.current.protocol).error_bytes(&error);
    }

    /// Returns the outcome of a script that did not start.
    fn failed(&self, error: &[u8]) -> Step {
        let mut reply = Vec::new();
        Writer::new(&mut reply, self.current.protocol).error_bytes(error);
        Step::Done(ScriptOutcome {
            reply,
            is_error: true,
            log: Vec::new(),
        })
    }
}

impl Drop for Interpreter {
    fn drop(&mut self) {
        while self.is_running() {
            self.resume(Answer::Kill("ERR The interpreter ends"));
        }
        self.fiber.resume(Resumption::Stop);
    }
}

/// Pushes a table of strings.
fn push_list(stack: &mut LuaStack<'_>, values: &[&[u8]]) {
    stack.push_table(values.len(), 0);
    for (value, item) in values.iter().zip(1..) {
        stack.push_bytes(value);
        stack.raw_set_item(-2, item);
    }
}
