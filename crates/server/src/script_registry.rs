//! The scripts that clients have given the server, by their checksum, and those that run for long.
//!
//! A script that `SCRIPT LOAD` has brought stays until `SCRIPT FLUSH`. Of those that `EVAL` has brought,
//! the ones that were used last stay, so that programs which write values into scripts do not fill the
//! memory. None outlives the server, as in Redis: clients give a script again when it is missing.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use hashbrown::HashMap;
use parking_lot::{Mutex, RwLock};
use scripts::Script;

/// Scripts of `EVAL` that stay.
const EVALUATED: usize = 500;
/// Bytes of scripts of `SCRIPT LOAD`.
const LOADED_BYTES: usize = 64 << 20;

/// See the module's description.
#[derive(Default)]
pub(crate) struct ScriptRegistry {
    scripts: RwLock<ScriptTable>,
    /// Counts uses, so that the script that was not used for longest is known.
    clock: AtomicU64,
    /// Counts the times that scripts were forgotten.
    forgotten: AtomicU64,
    long: Mutex<Vec<Weak<LongScript>>>,
}

#[derive(Default)]
struct ScriptTable {
    by_sha1: HashMap<[u8; 40], RegisteredScript>,
    evaluated: usize,
    loaded_bytes: usize,
}

struct RegisteredScript {
    script: Arc<Script>,
    /// `SCRIPT LOAD` has brought it.
    is_loaded: bool,
    /// The time of its last use, by the registry's clock.
    used: AtomicU64,
}

/// A script that has not ended within its first slice.
pub(crate) struct LongScript {
    pub(crate) description: RunningScript,
    killed: AtomicBool,
}

/// The description of a script that runs.
pub(crate) struct RunningScript {
    pub(crate) kind: RunningKind,
    /// The hash of a script, or the name of a function.
    pub(crate) name: String,
    /// The command that has begun it, with its arguments.
    pub(crate) command: Vec<Vec<u8>>,
    /// The time since the server's start.
    pub(crate) began: Duration,
}

/// The kinds of what runs, which different commands end.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum RunningKind {
    /// A script: `SCRIPT KILL`.
    Script,
    /// A function of a library: `FUNCTION KILL`.
    Function,
}

/// Why nothing was ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum NothingKilled {
    /// Nothing runs for long.
    Idle,
    /// What runs is of this kind.
    Other(RunningKind),
}

/// The script that one runtime has evaluated last: its next `EVAL` is often that of the same script.
#[derive(Default)]
pub(crate) struct LastScript(Option<(Arc<Script>, u64)>);

/// There is no room for another script of `SCRIPT LOAD`.
pub(crate) struct RegistryFull;

impl ScriptRegistry {
    /// Returns the script with this source, which is then the last one.
    ///
    /// # Errors
    /// Its first line is malformed: the text of the error.
    pub(crate) fn evaluate(
        &self,
        body: &[u8],
        last: &mut LastScript,
    ) -> Result<Arc<Script>, Vec<u8>> {
        let forgotten = self.forgotten.load(Ordering::Acquire);
        if let LastScript(Some((script, at))) = last
            && *at == forgotten
            && script.body() == body
        {
            return Ok(Arc::clone(script));
        }
        let script = self.register(body)?;
        *last = LastScript(Some((Arc::clone(&script), forgotten)));
        Ok(script)
    }

    fn register(&self, body: &[u8]) -> Result<Arc<Script>, Vec<u8>> {
        let sha1 = scripts::sha1_hex(body);
        if let Some(script) = self.find(&sha1) {
            return Ok(script);
        }
        let script = Arc::new(Script::new(body)?);
        let mut table = self.scripts.write();
        if table.evaluated >= EVALUATED {
            table.forget_oldest();
            self.forgotten.fetch_add(1, Ordering::Release);
        }
        table.evaluated += 1;
        table.insert(sha1, &script, false, self.tick());
        Ok(script)
    }

    /// Returns the script with this checksum, in hexadecimal digits of any case.
    pub(crate) fn find(&self, sha1: &[u8]) -> Option<Arc<Script>> {
        let mut key: [u8; 40] = sha1.try_into().ok()?;
        key.make_ascii_lowercase();
        let table = self.scripts.read();
        let found = table.by_sha1.get(&key)?;
        found.used.store(self.tick(), Ordering::Relaxed);
        Some(Arc::clone(&found.script))
    }

    /// Keeps a script until the registry is cleared.
    ///
    /// # Errors
    /// There is no room for it.
    pub(crate) fn load(&self, script: &Arc<Script>) -> Result<(), RegistryFull> {
        let sha1 = scripts::sha1_hex(script.body());
        let bytes = script.body().len();
        let mut table = self.scripts.write();
        let (known, loaded) = match table.by_sha1.get(&sha1) {
            Some(own) => (true, own.is_loaded),
            None => (false, false),
        };
        if loaded {
            return Ok(());
        }
        if table.loaded_bytes + bytes > LOADED_BYTES {
            return Err(RegistryFull);
        }
        table.evaluated -= usize::from(known);
        table.loaded_bytes += bytes;
        table.insert(sha1, script, true, self.tick());
        Ok(())
    }

    /// Forgets all scripts.
    pub(crate) fn clear(&self) {
        *self.scripts.write() = ScriptTable::default();
        self.forgotten.fetch_add(1, Ordering::Release);
    }

    /// Returns the number of scripts, and the bytes of their sources.
    pub(crate) fn size(&self) -> (usize, usize) {
        let table = self.scripts.read();
        let bytes = table.by_sha1.values().map(|own| own.script.body().len());
        (table.by_sha1.len(), bytes.sum())
    }

    /// Records a script that runs for long. It is forgotten with the last reference to the result.
    pub(crate) fn note_long(&self, description: RunningScript) -> Arc<LongScript> {
        let script = Arc::new(LongScript {
            description,
            killed: AtomicBool::new(false),
        });
        let mut long = self.long.lock();
        long.retain(|own| own.strong_count() > 0);
        long.push(Arc::downgrade(&script));
        script
    }

    /// Ends what runs for long and is of this kind.
    ///
    /// # Errors
    /// There is nothing to end.
    pub(crate) fn kill(&self, kind: RunningKind) -> Result<(), NothingKilled> {
        let mut result = Err(NothingKilled::Idle);
        for script in self.running() {
            let own = script.description.kind;
            if own == kind {
                script.killed.store(true, Ordering::Relaxed);
                result = Ok(());
            } else if result.is_err() {
                result = Err(NothingKilled::Other(own));
            }
        }
        result
    }

    /// Returns the function that runs for long, and longest.
    pub(crate) fn running_function(&self) -> Option<Arc<LongScript>> {
        let is_function =
            |script: &Arc<LongScript>| script.description.kind == RunningKind::Function;
        self.running().into_iter().find(is_function)
    }

    /// Returns the scripts that run for long, in the order in which they were recorded.
    fn running(&self) -> Vec<Arc<LongScript>> {
        let long = self.long.lock();
        long.iter().filter_map(Weak::upgrade).collect()
    }

    fn tick(&self) -> u64 {
        self.clock.fetch_add(1, Ordering::Relaxed)
    }
}

impl ScriptTable {
    fn insert(&mut self, sha1: [u8; 40], script: &Arc<Script>, is_loaded: bool, now: u64) {
        let script = RegisteredScript {
            script: Arc::clone(script),
            is_loaded,
            used: AtomicU64::new(now),
        };
        self.by_sha1.insert(sha1, script);
    }

    /// Forgets the script of `EVAL` that was not used for longest.
    fn forget_oldest(&mut self) {
        let evaluated = self.by_sha1.iter().filter(|(_, own)| !own.is_loaded);
        let oldest = evaluated.min_by_key(|(_, own)| own.used.load(Ordering::Relaxed));
        if let Some(sha1) = oldest.map(|(sha1, _)| *sha1) {
            self.by_sha1.remove(&sha1);
            self.evaluated -= 1;
        }
    }
}

impl LongScript {
    /// Returns `true` if it is to end.
    pub(crate) fn is_killed(&self) -> bool {
        self.killed.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::RunningKind::{Function, Script};
    use super::*;

    #[test]
    fn scripts_of_eval_leave_when_others_come_and_those_of_load_stay() {
        let registry = ScriptRegistry::default();
        let body = |number: usize| format!("return {number}").into_bytes();
        let loaded = registry.register(&body(0)).ok().unwrap();
        assert!(registry.load(&loaded).is_ok() && registry.load(&loaded).is_ok());
        for number in 1..=EVALUATED {
            registry.register(&body(number)).ok().unwrap();
        }
        assert!(
            registry.find(&scripts::sha1_hex(&body(1))).is_some(),
            "used again"
        );
        registry.register(&body(EVALUATED + 1)).ok().unwrap();
        assert_eq!(registry.size().0, EVALUATED + 1);
        let has = |number| {
            let upper = scripts::sha1_hex(&body(number)).to_ascii_uppercase();
            registry.find(&upper).is_some()
        };
        assert_eq!([0, 1, 2, 3].map(has), [true, true, false, true]);
        registry.clear();
        assert_eq!((registry.size(), has(0)), ((0, 0), false));
    }

    #[test]
    fn the_last_script_is_that_of_the_registry() {
        let registry = ScriptRegistry::default();
        let mut last = LastScript::default();
        let mut evaluate = || registry.evaluate(b"return 1", &mut last).ok().unwrap();
        let first = evaluate();
        assert!(Arc::ptr_eq(&first, &evaluate()));
        registry.clear();
        assert!(!Arc::ptr_eq(&first, &evaluate()));
        assert_eq!(
            registry.size().0,
            1,
            "it can be called by its checksum again"
        );
    }

    #[test]
    fn scripts_of_load_have_a_bound() {
        let registry = ScriptRegistry::default();
        let body = |letter: u8| vec![letter; LOADED_BYTES / 2];
        let script = |letter| Arc::new(scripts::Script::new(&body(letter)).ok().unwrap());
        assert!(registry.load(&script(b'a')).is_ok() && registry.load(&script(b'b')).is_ok());
        assert!(registry.load(&script(b'c')).is_err());
        registry.clear();
        assert!(registry.load(&script(b'c')).is_ok());
    }

    #[test]
    fn a_script_can_be_killed_while_it_runs() {
        let registry = ScriptRegistry::default();
        let note = |kind| {
            registry.note_long(RunningScript {
                kind,
                name: "f".to_owned(),
                command: Vec::new(),
                began: Duration::ZERO,
            })
        };
        assert_eq!(registry.kill(Script), Err(NothingKilled::Idle));
        let [one, two] = [(); 2].map(|()| note(Script));
        assert_eq!(registry.kill(Function), Err(NothingKilled::Other(Script)));
        assert!(!one.is_killed() && registry.kill(Script).is_ok());
        assert!(one.is_killed() && two.is_killed() && registry.running_function().is_none());
        drop((one, two));
        let function = note(Function);
        assert_eq!(registry.kill(Script), Err(NothingKilled::Other(Function)));
        assert!(registry.running_function().is_some() && !function.is_killed());
        assert!(registry.kill(Function).is_ok() && function.is_killed());
        drop(function);
        assert_eq!(registry.kill(Function), Err(NothingKilled::Idle));
    }
}
