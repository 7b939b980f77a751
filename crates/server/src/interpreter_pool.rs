//! The interpreters of one runtime. A script has one for itself until it ends; an idle one is kept for the
//! next script, with the functions that it has compiled.

use std::cell::RefCell;
use std::io;
use std::ops::{Deref, DerefMut};
use std::rc::Rc;

use scripts::{Interpreter, Options};

/// Idle interpreters that are kept.
const IDLE: usize = 4;
/// Interpreters in use at once.
const MOST: usize = 256;

/// See the module's description.
#[derive(Clone, Default)]
pub(crate) struct InterpreterPool(Rc<RefCell<Pooled>>);

#[derive(Default)]
#[allow(clippy::vec_box)] // They move between the pool and the transactions.
struct Pooled {
    idle: Vec<Box<Interpreter>>,
    /// The number of those in use.
    lent: usize,
}

/// An interpreter in use. Dropped, it ends its script, and is in the pool again if it had none.
pub(crate) struct LentInterpreter {
    /// `None` only while it is dropped.
    interpreter: Option<Box<Interpreter>>,
    pool: InterpreterPool,
}

impl InterpreterPool {
    /// Lends an interpreter.
    ///
    /// # Errors
    /// There is no memory for one more, or as many as may be are in use.
    pub(crate) fn take(&self, options: Options) -> io::Result<LentInterpreter> {
        let mut pooled = self.0.borrow_mut();
        if pooled.lent >= MOST {
            return Err(io::Error::other("too many scripts run at the same time"));
        }
        let interpreter = match pooled.idle.pop() {
            Some(interpreter) => interpreter,
            None => Box::new(Interpreter::new(options)?),
        };
        pooled.lent += 1;
        Ok(LentInterpreter {
            interpreter: Some(interpreter),
            pool: self.clone(),
        })
    }
}

impl Drop for LentInterpreter {
    fn drop(&mut self) {
        let mut pooled = self.pool.0.borrow_mut();
        pooled.lent -= 1;
        let idle = self.interpreter.take().filter(|own| !own.is_running());
        if pooled.idle.len() < IDLE {
            pooled.idle.extend(idle);
        }
    }
}

impl Deref for LentInterpreter {
    type Target = Interpreter;

    fn deref(&self) -> &Interpreter {
        self.interpreter.as_ref().expect("it is not dropped")
    }
}

impl DerefMut for LentInterpreter {
    fn deref_mut(&mut self) -> &mut Interpreter {
        self.interpreter.as_mut().expect("it is not dropped")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn interpreters_are_kept_for_the_next_script_up_to_a_number() {
        let pool = InterpreterPool::default();
        let take = || pool.take(Options::default());
        let lent: Vec<_> = (0..IDLE + 2).map(|_| take().unwrap()).collect();
        drop(lent);
        assert_eq!(
            (pool.0.borrow().idle.len(), pool.0.borrow().lent),
            (IDLE, 0)
        );
        let _one = take().unwrap();
        assert_eq!(
            (pool.0.borrow().idle.len(), pool.0.borrow().lent),
            (IDLE - 1, 1)
        );
        pool.0.borrow_mut().lent = MOST;
        assert!(take().is_err());
    }
}
