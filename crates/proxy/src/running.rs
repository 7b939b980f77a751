//! A proxy that is serving: its addresses and its threads.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread::JoinHandle;

use admin::Admin;
use reactor::tls::ServerTls;

use crate::config::StartError;
use crate::info::About;
use crate::node_kind::Kind;
use crate::nodes::NodeRoles;
use crate::stopper::{Stopper, Watch};

/// A proxy that is serving.
pub struct Running {
    pub(crate) address: SocketAddr,
    pub(crate) kind: Kind,
    pub(crate) stopper: Stopper,
    pub(crate) threads: Vec<JoinHandle<()>>,
    pub(crate) certificate: Option<Arc<ServerTls>>,
    /// Threads that keep the proxy's knowledge of the nodes up to date; `release` ends them.
    pub(crate) refreshers: Vec<JoinHandle<()>>,
    pub(crate) release: Box<dyn Fn() + Send + Sync>,
    pub(crate) about: Arc<About>,
    pub(crate) duties: Arc<dyn NodeRoles>,
    /// Runs until everything else has ended, to report that the proxy is stopping.
    pub(crate) admin: Option<Admin>,
}

/// A proxy has lost a thread, and has stopped because of that. Its log names the thread. Start the
/// proxy again, and report its log.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error(
    "the proxy has lost a thread, and has stopped: start it again, and report what its log says"
)]
pub struct ThreadLost;

impl Running {
    /// Returns the certificate that clients are shown, if they speak TLS.
    #[must_use]
    pub fn certificate(&self) -> Option<Arc<ServerTls>> {
        self.certificate.clone()
    }

    /// Returns the address on which the proxy listens.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Returns the address on which figures and health are served, if they are.
    #[must_use]
    pub fn admin_address(&self) -> Option<SocketAddr> {
        self.admin.as_ref().map(Admin::address)
    }

    /// Returns the kind of the nodes, as the proxy found it.
    #[must_use]
    pub fn kind(&self) -> Kind {
        self.kind
    }

    /// Returns a handle that stops the proxy.
    #[must_use]
    pub fn stopper(&self) -> Stopper {
        self.stopper.clone()
    }

    /// Waits until the proxy has stopped.
    ///
    /// # Errors
    /// Returns an error if the proxy has stopped by itself because it had lost a thread.
    pub fn wait(self) -> Result<(), ThreadLost> {
        for thread in self.threads {
            if thread.join().is_err() {
                tracing::error!("a thread of the proxy has panicked");
            }
        }
        (self.release)();
        if let Some(locks) = &self.about.locks {
            locks.stop();
        }
        for refresher in self.refreshers {
            if refresher.join().is_err() {
                tracing::error!("a thread that refreshes the topology has panicked");
            }
        }
        match self.stopper.stopping.lost.load(Ordering::SeqCst) {
            true => Err(ThreadLost),
            false => Ok(()),
        }
    }

    /// Starts a thread that keeps knowledge of the nodes up to date.
    pub(crate) fn keep(
        &mut self,
        name: &str,
        work: impl FnOnce() + Send + 'static,
    ) -> Result<(), StartError> {
        let builder = std::thread::Builder::new().name(name.to_owned());
        let watch = Watch {
            name: name.to_owned(),
            stopper: self.stopper(),
            front: false,
            stays: false,
        };
        let refresher = builder.spawn(move || {
            let _watch = watch;
            work();
        });
        let refresher = refresher.map_err(|error| StartError::Thread { error })?;
        self.refreshers.push(refresher);
        Ok(())
    }
}
