//! What a running script and its host share.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::{Duration, Instant};

use resp::{Protocol, Span};

use crate::failure::FunctionFailure;
use crate::heap::Heap;
use crate::json_settings::JsonSettings;
use crate::library::Registration;
use crate::random::Random;
use crate::switch::{Resumption, Suspension, Switch};

/// The level of a line that a script logs, from the least to the most important.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
#[allow(missing_docs)] // The names are those of the scripts.
pub enum ScriptLogLevel {
    Debug,
    Verbose,
    Notice,
    Warning,
}

/// A command that a script calls.
#[derive(Debug, Default)]
pub(crate) struct CalledCommand {
    pub(crate) bytes: Vec<u8>,
    pub(crate) spans: Vec<Span>,
}

impl CalledCommand {
    /// Forgets the arguments. Memory of a usual size is kept.
    pub(crate) fn clear(&mut self) {
        const KEPT: usize = 64 * 1024;
        self.bytes.clear();
        self.bytes.shrink_to(KEPT);
        self.spans.clear();
        self.spans.shrink_to(KEPT / size_of::<Span>());
    }

    /// Adds an argument that `write` appends.
    pub(crate) fn push(&mut self, write: impl FnOnce(&mut Vec<u8>)) {
        let start = self.bytes.len();
        write(&mut self.bytes);
        self.spans.push(Span::new(start, self.bytes.len() - start));
    }
}

/// Where an error was raised.
#[derive(Debug)]
pub(crate) struct ErrorPlace {
    pub(crate) source: Vec<u8>,
    pub(crate) line: i32,
}

/// Lets functions that take long give way now and then.
#[derive(Default)]
pub(crate) struct Pace(u32);

impl Pace {
    /// Counts a step. `bytes` is the size of what the function has made outside of Lua's heap.
    ///
    /// # Errors
    /// The script was killed, or has no more memory.
    #[inline]
    pub(crate) fn step(
        &mut self,
        context: &ScriptContext,
        bytes: usize,
    ) -> Result<(), FunctionFailure> {
        const STEPS: u32 = 1000;
        self.0 += 1;
        if !self.0.is_multiple_of(STEPS) {
            return Ok(());
        }
        context.check_memory(bytes)?;
        context.tick()
    }
}

/// What a running script and its host share.
pub(crate) struct ScriptContext {
    pub(crate) heap: Heap,
    pub(crate) switch: Rc<Switch>,
    slice: Duration,
    /// When the slice ends; `None` until the clock is looked at for the first time.
    deadline: Cell<Option<Instant>>,
    /// The error with which the script was killed.
    pub(crate) killed: RefCell<Option<Vec<u8>>>,
    is_killed: Cell<bool>,
    pub(crate) command: Cell<CalledCommand>,
    pub(crate) reply: Cell<Vec<u8>>,
    /// The protocol of replies to the script, which `redis.setresp` sets.
    pub(crate) protocol: Cell<Protocol>,
    pub(crate) log: RefCell<Vec<(ScriptLogLevel, Vec<u8>)>>,
    /// The memory of the lines.
    log_bytes: Cell<usize>,
    pub(crate) random: Cell<Random>,
    pub(crate) json: Cell<JsonSettings>,
    /// What a library registers, while its code runs.
    pub(crate) registration: RefCell<Option<Registration>>,
    /// The place of the last error, which ended the script if one did.
    pub(crate) error_place: RefCell<Option<ErrorPlace>>,
}

impl ScriptContext {
    /// Creates the shared part of an interpreter.
    pub(crate) fn new(memory: usize, slice: Duration) -> ScriptContext {
        ScriptContext {
            heap: Heap::new(memory),
            switch: Rc::default(),
            slice,
            deadline: Cell::default(),
            killed: RefCell::default(),
            is_killed: Cell::default(),
            command: Cell::default(),
            reply: Cell::default(),
            protocol: Cell::default(),
            log: RefCell::default(),
            log_bytes: Cell::default(),
            random: Cell::new(Random::drawn()),
            json: Cell::default(),
            registration: RefCell::default(),
            error_place: RefCell::default(),
        }
    }

    /// Begins a run.
    pub(crate) fn begin(&self) {
        self.begin_slice();
        self.killed.take();
        self.is_killed.set(false);
        self.protocol.take();
        self.log.take();
        self.log_bytes.set(0);
        self.random.set(Random::drawn());
        self.json.take();
        self.registration.take();
        self.error_place.take();
    }

    /// Begins a slice.
    pub(crate) fn begin_slice(&self) {
        self.deadline.set(None);
    }

    /// Marks the script as killed, with the error that it ends with.
    pub(crate) fn kill(&self, error: &[u8]) {
        self.killed.replace(Some(error.to_vec()));
        self.is_killed.set(true);
    }

    /// Returns `true` if the script was killed.
    pub(crate) fn is_killed(&self) -> bool {
        self.is_killed.get()
    }

    /// Keeps a line for the host's log.
    ///
    /// # Errors
    /// The lines exceed the memory limit.
    pub(crate) fn log(&self, level: ScriptLogLevel, line: Vec<u8>) -> Result<(), FunctionFailure> {
        let bytes = self.log_bytes.get() + line.len() + size_of::<(ScriptLogLevel, Vec<u8>)>();
        self.check_memory(bytes)?;
        self.log_bytes.set(bytes);
        self.log.borrow_mut().push((level, line));
        Ok(())
    }

    /// Suspends the script.
    ///
    /// # Errors
    /// The script was killed meanwhile.
    pub(crate) fn suspend(&self, suspension: Suspension) -> Result<Resumption, FunctionFailure> {
        match self.switch.suspend(suspension) {
            Resumption::Kill => Err(FunctionFailure::Killed),
            resumption => Ok(resumption),
        }
    }

    /// Checks the memory limit. `bytes` is the size of what a function has made outside of the heap.
    ///
    /// # Errors
    /// The limit is exceeded.
    pub(crate) fn check_memory(&self, bytes: usize) -> Result<(), FunctionFailure> {
        if self.heap.used().saturating_add(bytes) > self.heap.limit() {
            return Err(FunctionFailure::OutOfMemory);
        }
        Ok(())
    }

    /// Suspends the script if its slice is over. Functions that take long call it regularly.
    ///
    /// # Errors
    /// The script was killed.
    pub(crate) fn tick(&self) -> Result<(), FunctionFailure> {
        if self.is_killed() {
            return Err(FunctionFailure::Killed);
        }
        let now = Instant::now();
        match self.deadline.get() {
            None => self.deadline.set(Some(now + self.slice)),
            Some(deadline) if now >= deadline => {
                self.suspend(Suspension::Slice)?;
            }
            Some(_) => {}
        }
        Ok(())
    }
}
