//! Ctrl-C and SIGTERM end a command in good order: its children are stopped, not left behind.
//!
//! The first signal sets a flag that every long loop asks; the loop returns an error, and the
//! guards of the children run. A second signal ends the process at once.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use anyhow::{Result, bail};
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::flag;

static STOP: OnceLock<Arc<AtomicBool>> = OnceLock::new();

/// Installs the handlers. Call it once, first.
///
/// # Errors
/// If the system refuses a handler.
pub fn install() -> Result<()> {
    let stop = STOP.get_or_init(|| Arc::new(AtomicBool::new(false)));
    for signal in [SIGINT, SIGTERM] {
        // In this order: the flag is still unset when the first signal asks it.
        flag::register_conditional_shutdown(signal, 130, Arc::clone(stop))?;
        flag::register(signal, Arc::clone(stop))?;
    }
    Ok(())
}

/// Returns an error once the user asked to stop.
///
/// # Errors
/// Exactly then.
pub fn check() -> Result<()> {
    if STOP.get().is_some_and(|stop| stop.load(Ordering::Relaxed)) {
        bail!("interrupted");
    }
    Ok(())
}
