//! The stack of its own on which an interpreter runs scripts.
//!
//! A script is suspended in the middle of Lua's C code: the whole stack stays as it is, and control
//! returns to the host, which resumes it later.
//!
//! Safety contract: [`Switch`] keeps the address of the coroutine's yielder from the start of the
//! coroutine to its end. It is used only while the coroutine executes, which `inside` says: the
//! coroutine, the switch and all of their users belong to one thread.

#![allow(unsafe_code)]

use std::cell::Cell;
use std::ptr::NonNull;
use std::rc::Rc;

use corosensei::stack::DefaultStack;
use corosensei::{Coroutine, CoroutineResult, Yielder};

use crate::failure::CallStatus;

/// Bytes of the stack. Lua nests at most 200 C calls. The costliest of them, `string.gsub` with a
/// function, takes 5 to 10 KiB in unoptimised builds: the tests `attacks` pass with half of this.
const STACK_BYTES: usize = 4 * 1024 * 1024;

/// Why a script returned control to its host.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Suspension {
    /// It calls a command: `ScriptContext::request` has it.
    Call,
    /// It asks for the permission to call a command: `ScriptContext::request` has it.
    AclCheck,
    /// Its slice is over.
    Slice,
    /// It has ended. Its result, or its error, is the top of the main stack.
    Ended(CallStatus),
}

/// What a script gets when it continues.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Resumption {
    /// Calls the function under so many arguments on the main stack.
    Run { arguments: i32 },
    /// `ScriptContext::reply` has the command's reply.
    Reply,
    /// The answer to [`Suspension::AclCheck`]; `None` if there is no such command.
    Allowed(Option<bool>),
    /// The next slice begins.
    Continue,
    /// The script is killed: `ScriptContext::killed` says why.
    Kill,
    /// No script will run any more.
    Stop,
}

type ScriptYielder = Yielder<Resumption, Suspension>;

/// The way from a running script to its host.
#[derive(Debug, Default)]
pub(crate) struct Switch {
    yielder: Cell<Option<NonNull<ScriptYielder>>>,
    inside: Cell<bool>,
}

impl Switch {
    /// Returns control to the host until it resumes the script.
    ///
    /// # Panics
    /// Panics outside of a running script.
    pub(crate) fn suspend(&self, suspension: Suspension) -> Resumption {
        assert!(self.inside.get(), "a suspension outside of a script");
        let yielder = self.yielder.get().expect("the coroutine's yielder");
        // SAFETY: the coroutine executes, so that its yielder lives.
        unsafe { yielder.as_ref() }.suspend(suspension)
    }
}

/// The coroutine that runs scripts, one after the other.
pub(crate) struct Fiber {
    coroutine: Coroutine<Resumption, Suspension, ()>,
    switch: Rc<Switch>,
}

impl Fiber {
    /// Creates the coroutine. `run` calls the function under so many arguments.
    ///
    /// # Errors
    /// There is no memory for the stack.
    pub(crate) fn new(
        switch: Rc<Switch>,
        run: impl Fn(i32) -> CallStatus + 'static,
    ) -> std::io::Result<Fiber> {
        let stack = DefaultStack::new(STACK_BYTES)?;
        let inner = Rc::clone(&switch);
        let coroutine = Coroutine::with_stack(stack, move |yielder: &ScriptYielder, first| {
            inner.yielder.set(Some(NonNull::from(yielder)));
            let mut next = first;
            while let Resumption::Run { arguments } = next {
                next = yielder.suspend(Suspension::Ended(run(arguments)));
            }
            inner.yielder.set(None);
        });
        Ok(Fiber { coroutine, switch })
    }

    /// Resumes the coroutine. Returns `None` after [`Resumption::Stop`].
    pub(crate) fn resume(&mut self, resumption: Resumption) -> Option<Suspension> {
        self.switch.inside.set(true);
        let result = self.coroutine.resume(resumption);
        self.switch.inside.set(false);
        match result {
            CoroutineResult::Yield(suspension) => Some(suspension),
            CoroutineResult::Return(()) => None,
        }
    }
}
