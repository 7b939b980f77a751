//! What a script's run executes: a script, or a function of a library.

use std::sync::Arc;

use base::number::parse_int;
use resp::{Args, Protocol};
use scripts::{
    FunctionCall, Interpreter, Library, LibraryFunction, Script, ScriptCall, ScriptFlags, Step,
};

use super::call::{CallContext, Results};
use super::libraries::UsedLibraries;
use crate::command::{ScriptCommand, ScriptSource};
use crate::refusal;
use crate::script_registry::RunningKind;
use crate::working_set::Need;

/// The answer to a call of a script that the registry does not have.
const NO_SCRIPT: &str = "NOSCRIPT No matching script. Please use EVAL.";
/// The answer to a script that needs memory when there is none left.
const OUT_OF_MEMORY: &str = "OOM allow-oom flag is not set on the script, can not run it when used memory > \
    'maxmemory'";

/// See the module's description.
pub(super) enum ScriptCode {
    Script(Arc<Script>),
    /// A function, by its place in its library.
    Function(Arc<Library>, usize),
}

/// The text of an error.
type ErrorText = Vec<u8>;

impl ScriptCode {
    fn function(&self) -> Option<&LibraryFunction> {
        match self {
            ScriptCode::Script(_) => None,
            ScriptCode::Function(library, at) => library.functions().get(*at),
        }
    }

    pub(super) fn flags(&self) -> ScriptFlags {
        match self {
            ScriptCode::Script(script) => script.flags(),
            ScriptCode::Function(..) => self.function().map(|own| own.flags).unwrap_or_default(),
        }
    }

    /// Returns `true` if its flags say what it does. Otherwise the first command that it calls does.
    pub(super) fn declares(&self) -> bool {
        match self {
            ScriptCode::Script(script) => script.flags().has_shebang,
            ScriptCode::Function(..) => true,
        }
    }

    /// Returns the error when there is no memory left for what it may write.
    pub(super) fn out_of_memory(&self) -> &'static str {
        match self {
            ScriptCode::Script(_) => OUT_OF_MEMORY,
            ScriptCode::Function(..) => refusal::OUT_OF_MEMORY,
        }
    }

    pub(super) fn kind(&self) -> RunningKind {
        match self {
            ScriptCode::Script(_) => RunningKind::Script,
            ScriptCode::Function(..) => RunningKind::Function,
        }
    }

    /// Returns the hash of a script, or the name of a function.
    pub(super) fn name(&self) -> &str {
        match self {
            ScriptCode::Script(script) => script.sha1(),
            ScriptCode::Function(..) => self.function().map_or("", |own| &own.name),
        }
    }

    /// Starts it.
    pub(super) fn start(
        &self,
        interpreter: &mut Interpreter,
        (keys, arguments): (&[&[u8]], &[&[u8]]),
        protocol: Protocol,
    ) -> Step {
        match self {
            ScriptCode::Script(script) => interpreter.start(ScriptCall {
                script,
                keys,
                arguments,
                protocol,
            }),
            ScriptCode::Function(library, _) => interpreter.start_function(FunctionCall {
                library,
                function: self.name(),
                keys,
                arguments,
                protocol,
            }),
        }
    }
}

impl CallContext<'_> {
    /// Returns the code of a call, and the number of its keys; or the error of the call.
    ///
    /// # Errors
    /// The libraries must be read first.
    pub(super) fn code_of(
        &mut self,
        kind: ScriptCommand,
        args: Args<'_>,
        to: &mut Results<'_, '_>,
    ) -> Result<Result<(ScriptCode, usize), ErrorText>, Need> {
        match kind.source {
            ScriptSource::Function => Ok(function_of(self.libraries(to)?, args)),
            source => Ok(self.script_of(source, args)),
        }
    }

    fn script_of(
        &mut self,
        source: ScriptSource,
        args: Args<'_>,
    ) -> Result<(ScriptCode, usize), ErrorText> {
        let registry = &self.context.shared.scripts;
        let is_body = matches!(source, ScriptSource::Body);
        if !is_body && args.at(1).len() != 40 {
            return Err(NO_SCRIPT.into());
        }
        let not_number = "ERR value is not an integer or out of range";
        let count = number_of_keys(args, not_number)?;
        let script = match is_body {
            true => registry.evaluate(args.at(1), &mut self.context.last_script)?,
            false => registry.find(args.at(1)).ok_or(NO_SCRIPT)?,
        };
        Ok((ScriptCode::Script(script), count))
    }
}

fn function_of(libraries: UsedLibraries, args: Args<'_>) -> Result<(ScriptCode, usize), ErrorText> {
    let (library, at) = libraries?
        .function(args.at(1))
        .ok_or("ERR Function not found")?;
    let count = number_of_keys(args, "ERR Bad number of keys provided")?;
    Ok((ScriptCode::Function(library, at), count))
}

/// Returns the number of keys that a call gives.
fn number_of_keys(args: Args<'_>, not_number: &str) -> Result<usize, ErrorText> {
    let count = parse_int(args.at(2)).ok_or(not_number)?;
    if count > args.len() as i64 - 3 {
        return Err("ERR Number of keys can't be greater than number of args".into());
    }
    usize::try_from(count).map_err(|_| "ERR Number of keys can't be negative".into())
}
