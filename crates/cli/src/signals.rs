//! Signals: the first one stops a process in good order, the second one ends it; SIGHUP makes it
//! read its configuration file, its certificate and the secrets of its links again.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use admin::LogLevel;
use reactor::tls::ServerTls;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

use crate::config_file;
use crate::logging::LogControl;

/// Receives signals from now on. Called before anything is opened, so that no signal finds the
/// process without a handler. With nothing to read again, SIGHUP ends the process, as it does by
/// default.
pub(crate) fn take(rereads: bool) -> Result<Signals, String> {
    let stops = [SIGTERM, SIGINT];
    let all = stops.into_iter().chain(rereads.then_some(SIGHUP));
    Signals::new(all).map_err(|error| format!("cannot receive signals: {error}"))
}

/// A flag that is set when the process should stop.
#[derive(Clone)]
pub(crate) struct StopRequest(Arc<AtomicBool>);

impl StopRequest {
    /// Creates a `StopRequest` that the first signal sets; a second signal ends the process at once.
    pub(crate) fn on_signal() -> Result<StopRequest, String> {
        let stop = StopRequest(Arc::new(AtomicBool::new(false)));
        let set = Arc::clone(&stop.0);
        interrupt_on(take(false)?, move || set.store(true, Ordering::Relaxed));
        Ok(stop)
    }

    pub(crate) fn is_wanted(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

/// The settings that SIGHUP reads again.
pub(crate) struct ConfigReload {
    config: Option<std::path::PathBuf>,
    certificate: Option<Arc<ServerTls>>,
    secrets: Option<SecretReload>,
    log: Arc<LogControl>,
}

/// The secrets of links, and how they are read again.
pub(crate) struct SecretReload {
    /// Reads the secrets and takes them; returns what is wrong otherwise.
    pub(crate) read: Box<dyn Fn() -> Result<(), String> + Send>,
}

impl ConfigReload {
    pub(crate) fn new(config: Option<&Path>, log: &Arc<LogControl>) -> ConfigReload {
        ConfigReload {
            config: config.map(Path::to_owned),
            certificate: None,
            secrets: None,
            log: Arc::clone(log),
        }
    }

    /// Reads a certificate and its key, too.
    pub(crate) fn with_certificate(self, certificate: Option<Arc<ServerTls>>) -> ConfigReload {
        ConfigReload {
            certificate,
            ..self
        }
    }

    /// Reads the secrets of links, too.
    pub(crate) fn with_secrets(self, secrets: Option<SecretReload>) -> ConfigReload {
        ConfigReload { secrets, ..self }
    }

    /// Reads the settings. What cannot be read stays as it is.
    fn now(&self) {
        if let Some(certificate) = &self.certificate {
            match certificate.reload() {
                Ok(()) => tracing::info!(
                    "clients that connect from now on get the certificate that was read again"
                ),
                Err(error) => tracing::error!("the certificate stays as it was: {error}"),
            }
        }
        if let Some(secrets) = &self.secrets {
            match (secrets.read)() {
                Ok(()) => tracing::info!(
                    "links that are made from now on prove the secret that was read again"
                ),
                Err(error) => tracing::error!("the secret of links stays as it was: {error}"),
            }
        }
        self.read_log_level();
    }

    /// Takes the log's level from the file.
    fn read_log_level(&self) {
        let Some(config) = &self.config else {
            return;
        };
        match config_file::log_level(config) {
            Ok(None) => tracing::info!("the configuration file says nothing of log-level"),
            Ok(Some(level)) => {
                if let Err(error) = self.log.set(&level) {
                    tracing::error!("log-level of {}: {error}", config.display());
                }
            }
            Err(error) => tracing::error!("{error}"),
        }
    }
}

/// Calls `stop` on the first signal, and ends the process on the second: for commands that have no
/// configuration to read again.
pub(crate) fn interrupt_on(mut signals: Signals, stop: impl Fn() + Send + 'static) {
    let listen = move || {
        let mut all = signals.forever();
        if all.next().is_some() {
            stop();
        }
        if all.next().is_some() {
            eprintln!("kumiki: a second signal: exiting at once");
            std::process::exit(130);
        }
    };
    let thread = std::thread::Builder::new().name("signals".to_owned());
    // It ends with the process.
    drop(thread.spawn(listen));
}

/// Calls `stop` on the first signal, and ends the process on the second.
pub(crate) fn stop_on(
    mut signals: Signals,
    reread: ConfigReload,
    stop: impl Fn() + Send + 'static,
) {
    let listen = move || {
        let mut stopping = false;
        for signal in signals.forever() {
            if signal == SIGHUP {
                reread.now();
                continue;
            }
            if stopping {
                eprintln!("kumiki: a second signal: exiting at once");
                std::process::exit(130);
            }
            stopping = true;
            tracing::info!(signal, "stopping: answering what was received");
            stop();
        }
    };
    // The thread ends with the process.
    drop(
        std::thread::Builder::new()
            .name("signals".to_owned())
            .spawn(listen),
    );
}
