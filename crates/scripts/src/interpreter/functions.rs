//! Libraries of functions, and calls of their functions.
//!
//! Before a function is called, the code of its library runs anew and registers it again. So no
//! variable of a library has a value of an earlier call. Where nothing can tell, the function is called again
//! without that (module [`super::cached_functions`]).

use std::rc::Rc;
use std::time::{Duration, Instant};

use resp::Protocol;

use super::cached_functions::push_cached;
use super::{GLOBALS, Interpreter, Stage, push_list};
use crate::library::{Library, Registration};
use crate::lua::{Kind, LuaStack};
use crate::protection::RegistryItem;
use crate::step::{Answer, FunctionCall, Step};
use crate::switch::Resumption;

/// The time in which the code of a library must have run.
const LOAD_TIME: Duration = Duration::from_millis(500);

impl Interpreter {
    /// Runs the code of a library once, for 500 ms at most, and returns the library with the functions
    /// that it registers.
    ///
    /// # Errors
    /// The code is wrong: the text of the error reply, without its mark.
    ///
    /// # Panics
    /// Panics if a script runs.
    pub fn load_library(&mut self, library: Library) -> Result<Library, Vec<u8>> {
        assert!(!self.is_running(), "a script runs");
        self.begin_run(b"", Protocol::Resp2, Stage::Loading);
        let state = Rc::clone(&self.state);
        let mut stack = state.stack();
        self.push_library(&mut stack, &library, Registration::default())?;
        let start = Instant::now();
        let mut step = self.proceed(Resumption::Run { arguments: 0 });
        while self.is_running() {
            step = self.resume(if start.elapsed() < LOAD_TIME {
                Answer::Continue
            } else {
                Answer::Kill("ERR FUNCTION LOAD timeout")
            });
        }
        let Step::Done(outcome) = step else {
            unreachable!("a step after the end of the code");
        };
        if outcome.is_error {
            let text = outcome.reply[1..].trim_ascii_end();
            return Err([b"ERR Error registering functions: ", text].concat());
        }
        let registration = self.context.registration.take().unwrap_or_default();
        if registration.functions.is_empty() {
            return Err("ERR No functions registered".into());
        }
        Ok(library.with_functions(registration.functions))
    }

    /// Starts a function of a library.
    ///
    /// # Panics
    /// Panics if a script runs.
    pub fn start_function(&mut self, call: FunctionCall<'_>) -> Step {
        assert!(!self.is_running(), "a script runs");
        let place = self.cached.find(call.library.sha1_bytes(), call.function);
        let stage = if place.is_some() {
            Stage::Script
        } else {
            Stage::Library
        };
        self.begin_run(call.function.as_bytes(), call.protocol, stage);
        let state = Rc::clone(&self.state);
        let mut stack = state.stack();
        if let Some(place) = place {
            use_globals(&mut stack, RegistryItem::FunctionGlobals);
            push_cached(&mut stack, place);
            push_list(&mut stack, call.keys);
            push_list(&mut stack, call.arguments);
            self.current.cached = Some(place);
            return self.proceed(Resumption::Run { arguments: 2 });
        }
        self.current.library = *call.library.sha1_bytes();
        push_list(&mut stack, call.keys);
        push_list(&mut stack, call.arguments);
        let registration = Registration {
            wanted: Some(call.function.to_owned()),
            ..Registration::default()
        };
        match self.push_library(&mut stack, call.library, registration) {
            Ok(()) => self.proceed(Resumption::Run { arguments: 0 }),
            Err(error) => {
                stack.set_top(GLOBALS);
                self.failed(&error)
            }
        }
    }

    /// Pushes the code of a library, and lets it see what it may see while it registers functions.
    fn push_library(
        &mut self,
        stack: &mut LuaStack<'_>,
        library: &Library,
        registration: Registration,
    ) -> Result<(), Vec<u8>> {
        self.context.registration.replace(Some(registration));
        use_globals(stack, RegistryItem::LoadGlobals);
        stack.push_nil();
        stack.register(RegistryItem::Callback);
        let compiled = self.push_compiled(
            stack,
            library.sha1_bytes(),
            library.code(),
            c"@user_function",
        );
        compiled.map_err(|message| [b"ERR Error compiling function: ", &message[..]].concat())?;
        stack.push_registered(RegistryItem::FunctionEnvironment);
        stack.set_environment(-2);
        Ok(())
    }

    /// Calls the function that the code of the library has registered, and that has its keys and
    /// arguments above the globals.
    pub(super) fn call_registered(&mut self) -> Step {
        let state = Rc::clone(&self.state);
        let mut stack = state.stack();
        self.context.registration.take();
        use_globals(&mut stack, RegistryItem::FunctionGlobals);
        stack.set_top(GLOBALS + 2);
        stack.push_registered(RegistryItem::Callback);
        if stack.kind(-1) != Kind::Function {
            stack.set_top(GLOBALS);
            return self.failed(b"ERR Function not found");
        }
        if let Ok(name) = std::str::from_utf8(&self.current.name) {
            self.cached.add(&mut stack, &self.current.library, name);
            self.current.cached = self.cached.find(&self.current.library, name);
        }
        stack.insert(GLOBALS + 1);
        self.current.stage = Stage::Script;
        self.proceed(Resumption::Run { arguments: 2 })
    }
}

/// Lets functions of libraries see some global variables.
fn use_globals(stack: &mut LuaStack<'_>, globals: RegistryItem) {
    stack.push_registered(RegistryItem::FunctionMetatable);
    stack.push_registered(globals);
    stack.raw_set_field(-2, "__index");
    stack.pop(1);
    stack.push_registered(RegistryItem::FunctionEnvironment);
    stack.set_globals();
}
