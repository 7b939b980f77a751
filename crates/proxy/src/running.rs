//! A proxy that is serving: its addresses and its threads.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread::JoinHandle;

use admin::Admin;

use crate::config::{Config, StartError};
use crate::info::ProxyInfo;
use crate::node_kind::NodeKind;
use crate::nodes::NodeRoles;
use crate::runtime::protocol::ClientProtocol;
use crate::runtime::thread_waker::ThreadWaker;
use crate::runtime::wire::Wire;
use crate::stopper::{Stopper, ThreadWatch};
use crate::threads::{ListeningProxy, Observers};

/// A proxy that is serving.
pub struct Running {
    pub(crate) address: SocketAddr,
    pub(crate) kind: NodeKind,
    pub(crate) stopper: Stopper,
    pub(crate) threads: Vec<JoinHandle<()>>,
    /// Threads that keep the proxy's knowledge of the nodes up to date; `release` ends them.
    pub(crate) refreshers: Vec<JoinHandle<()>>,
    pub(crate) release: Box<dyn Fn() + Send + Sync>,
    pub(crate) about: Arc<ProxyInfo>,
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
    /// Starts the threads of a proxy whose clients and nodes speak one protocol. `on_waker` gets the waker of
    /// each thread with clients before the thread starts.
    ///
    /// # Errors
    /// Returns [`StartError::Thread`] if a thread cannot start, [`StartError::Xdp`] if the interface cannot be used.
    pub(crate) fn start<F: ClientProtocol, W: Wire>(
        ground: ListeningProxy,
        config: &Config,
        about: Arc<ProxyInfo>,
        protocol: impl Fn() -> F,
        options: &Arc<W::Options>,
        duties: Arc<dyn NodeRoles>,
        on_waker: &dyn Fn(usize, &Arc<ThreadWaker>),
    ) -> Result<Running, StartError> {
        let address = ground.address;
        let observers = Observers {
            fronts: &about.fronts,
            on_waker: &|thread: usize, waker: &Arc<ThreadWaker>| {
                if let Some(locks) = &about.locks {
                    locks.set_waker(thread, waker);
                }
                on_waker(thread, waker);
            },
        };
        let started = ground.start_threads::<F, W>(config, &observers, protocol, options);
        let (threads, stopper) = started?;
        Ok(Running {
            address,
            kind: about.kind,
            stopper,
            threads,
            refreshers: Vec::new(),
            release: Box::new(|| {}),
            about,
            duties,
            admin: None,
        })
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
    pub fn kind(&self) -> NodeKind {
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
        let watch = ThreadWatch {
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

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::net::TcpStream;
    use std::sync::mpsc;
    use std::time::Duration;

    use bytes::BytesMut;

    use super::*;
    use crate::cassandra::wire::CqlWire;
    use crate::nodes::NeededNodes;
    use crate::runtime::protocol::{InputProgress, RequestContext};
    use crate::runtime::query::{BackendReply, ClientId, NodeIndex};
    use reactor::tls::TlsSettings;

    /// A protocol that panics at the first client's input.
    struct Fragile;

    impl ClientProtocol for Fragile {
        type Client = ();
        type Outcome = ();

        fn admit(&mut self, _: ClientId, _: SocketAddr) {}

        fn read(
            &mut self,
            (): &mut (),
            input: &mut BytesMut,
            _: &mut RequestContext<'_>,
        ) -> InputProgress {
            assert!(input.is_empty(), "by the test");
            InputProgress::Done
        }

        fn reply(&mut self, (): &mut (), _: BackendReply, _: &mut RequestContext<'_>) {}

        fn gone(&mut self, (): &mut (), _: &mut RequestContext<'_>) {}

        fn refresh(&mut self, _: Duration) {}

        fn refusal(&self) -> &'static [u8] {
            b""
        }
    }

    struct Idle;

    impl NodeRoles for Idle {
        fn slots(&self, _: NodeIndex) -> usize {
            0
        }

        fn needed(&self) -> NeededNodes {
            NeededNodes::Any(Vec::new())
        }
    }

    #[test]
    fn a_proxy_that_has_lost_a_thread_stops_and_says_so() {
        let mut config = Config::new(crate::config::Nodes::Cassandra(Vec::new()));
        config.listen = SocketAddr::from(([127, 0, 0, 1], 0));
        (config.network_threads, config.aggregation_threads) = (3, 1);
        config.drain = Duration::from_millis(100);
        let tls = TlsSettings::default();
        let ground = ListeningProxy::new(&config, Arc::default(), tls).expect("it listens");
        let about = ProxyInfo::new(&config, NodeKind::Cassandra, &ground, None);
        let (options, duties) = (Arc::default(), Arc::new(Idle));
        let started = Running::start::<Fragile, CqlWire>(
            ground,
            &config,
            about,
            || Fragile,
            &options,
            duties,
            &|_, _| {},
        );
        let running = started.expect("it starts");
        let mut client = TcpStream::connect(running.address()).expect("it accepts");
        client.write_all(b"anything").expect("it reads");
        let (sender, ended) = mpsc::channel();
        std::thread::spawn(move || sender.send(running.wait()));
        let ended = ended.recv_timeout(Duration::from_secs(30));
        assert_eq!(ended, Ok(Err(ThreadLost)));
    }
}
