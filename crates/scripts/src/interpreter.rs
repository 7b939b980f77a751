//! The steps of a script's run.

use std::io;
use std::rc::Rc;

use hashbrown::HashMap;
use resp::{Args, Protocol, Writer};

use crate::failure::{CallStatus, FunctionFailure};
use crate::lua::{Kind, LuaStack, LuaState};
use crate::number::write_general;
use crate::protection::RegistryItem;
use crate::result_writer::write_result;
use crate::sandbox;
use crate::script::Script;
use crate::script_context::{CalledCommand, ErrorPlace, ScriptContext};
use crate::step::{Answer, Options, ScriptCall, ScriptOutcome, Step};
use crate::switch::{Fiber, Resumption, Suspension};

/// The most compiled scripts that are kept.
const MAX_COMPILED: usize = 1000;
/// The place of the error handler on the main stack.
const HANDLER: i32 = 1;
/// The place of the table with `KEYS` and `ARGV` on the main stack.
const GLOBALS: i32 = 2;
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

/// The script that runs.
struct CurrentRun {
    sha1: [u8; 40],
    protocol: Protocol,
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
                sha1: [0; 40],
                protocol: Protocol::Resp2,
            },
            command: CalledCommand::default(),
            compiled: HashMap::new(),
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
        let mut stack = state.stack();
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
        self.context.begin();
        self.current.protocol = call.protocol;
        self.current.sha1 = *call.script.sha1_bytes();
        let state = Rc::clone(&self.state);
        let mut stack = state.stack();
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
        let mut stack = self.state.stack();
        stack.stop_at_every_instruction();
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
        stack.push_registered(RegistryItem::Functions);
        if let Some(&item) = self.compiled.get(script.sha1_bytes()) {
            stack.raw_get_item(-1, item);
            stack.remove(-2);
            return Ok(());
        }
        if !stack.load(script.code(), c"@user_script") {
            let message = stack.bytes(-1).unwrap_or_default();
            let error = [b"ERR Error compiling script (new function): ", message].concat();
            stack.pop(2);
            return Err(error);
        }
        if self.compiled.len() >= MAX_COMPILED {
            self.compiled.clear();
            stack.push_table(MAX_COMPILED, 0);
            stack.push_value(-1);
            stack.register(RegistryItem::Functions);
            stack.replace(-3);
        }
        let item = self.compiled.len() as i32 + 1;
        self.compiled.insert(*script.sha1_bytes(), item);
        stack.push_value(-1);
        stack.raw_set_item(-3, item);
        stack.remove(-2);
        Ok(())
    }

    /// Makes the result of a run.
    fn finish(&mut self, status: CallStatus) -> Step {
        let state = Rc::clone(&self.state);
        let mut stack = state.stack();
        let mut reply = Vec::new();
        if self.context.is_killed() {
            stack.set_slices();
            let error = self.context.killed.borrow().clone().unwrap_or_default();
            self.write_error(&mut reply, error);
        } else if status == CallStatus::Returned {
            let protocol = self.current.protocol;
            let booleans = self.context.protocol.get() == Protocol::Resp3;
            write_result(&mut stack, &mut reply, protocol, booleans);
        } else {
            let error = error_text(&mut stack);
            self.write_error(&mut reply, error);
        }
        stack.set_top(GLOBALS);
        if status == CallStatus::OutOfMemory || self.context.heap.is_exceeded() {
            stack.collect_garbage();
        }
        Step::Done(ScriptOutcome {
            is_error: reply.first() == Some(&b'-'),
            reply,
            log: self.context.log.take(),
        })
    }

    /// Writes the error with which the script ended, and its place.
    fn write_error(&self, reply: &mut Vec<u8>, mut error: Vec<u8>) {
        error.extend_from_slice(b" script: ");
        error.extend_from_slice(&self.current.sha1);
        if let Some(place) = self.context.error_place.take() {
            error.extend_from_slice(b", on ");
            error.extend_from_slice(&place.source);
            error.extend_from_slice(format!(":{}.", place.line).as_bytes());
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

/// Keeps the place where an error is raised.
fn handle_error(stack: &mut LuaStack<'_>) -> Result<i32, FunctionFailure> {
    let mut frame = stack.frame(1);
    if frame.as_ref().is_some_and(|frame| frame.is_native) {
        frame = stack.frame(2);
    }
    let place = frame.map(|frame| ErrorPlace {
        source: frame.source,
        line: frame.line,
    });
    stack.context().error_place.replace(place);
    stack.set_top(1);
    Ok(1)
}

/// Returns the text of the error on the top.
fn error_text(stack: &mut LuaStack<'_>) -> Vec<u8> {
    let kind = stack.kind(-1);
    let mut text = b"ERR ".to_vec();
    match kind {
        Kind::Table => {
            stack.raw_get_field(-1, "err");
            if !stack.coerce_to_string(-1) {
                return b"ERR unknown error".to_vec();
            }
            return stack.bytes(-1).unwrap_or_default().to_vec();
        }
        Kind::String => text.extend_from_slice(stack.bytes(-1).unwrap_or_default()),
        Kind::Number => write_general(&mut text, stack.number(-1).unwrap_or_default(), 14),
        Kind::Boolean => text.extend_from_slice(stack.boolean(-1).to_string().as_bytes()),
        Kind::Nil => text.extend_from_slice(b"nil"),
        _ => {
            let address = stack.address(-1);
            text.extend_from_slice(format!("{}: {address:#x}", kind.name()).as_bytes());
        }
    }
    text
}
