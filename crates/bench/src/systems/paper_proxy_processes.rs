//! The processes of a proxy of paper 3.

use std::net::SocketAddr;
use std::os::unix::net::UnixStream;
use std::path::Path;

use super::listening_process::ListeningProcess;
use crate::error::RunError;
use crate::paper_proxy::{NetworkProcessConfig, PaperProxyConfig, ProxyDesign, clients_socket};
use crate::run_context::RunContext;

/// The processes. They are killed when this is dropped, the proxy before its network.
pub(crate) struct PaperProxyProcesses {
    proxy: ListeningProcess,
    /// The network process of an earlier proxy.
    network: Option<ListeningProcess>,
}

impl PaperProxyProcesses {
    /// Starts them, with an address that is chosen here instead of that of `config`.
    pub(crate) fn start(
        config: &PaperProxyConfig,
        context: &RunContext<'_>,
        dir: &Path,
    ) -> Result<PaperProxyProcesses, RunError> {
        let program = context.laboratory("paper proxy")?;
        let failed = |error: serde_json::Error| RunError::failed("naming the nodes")(&error);
        let proxy_of = |listen| {
            let config = PaperProxyConfig {
                listen,
                ..config.clone()
            };
            let config = serde_json::to_string(&config).map_err(failed)?;
            Ok(["paper-proxy", &config].map(str::to_owned).to_vec())
        };
        if config.design == ProxyDesign::Improved {
            let arguments = |at: SocketAddr, _| proxy_of(at);
            return Ok(PaperProxyProcesses {
                proxy: ListeningProcess::start(program, dir, "proxy", arguments)?,
                network: None,
            });
        }
        let arguments = |listen: SocketAddr, _| {
            let config = NetworkProcessConfig {
                listen,
                nodes: config.nodes.clone(),
            };
            let config = serde_json::to_string(&config).map_err(failed)?;
            Ok(["paper-proxy-network", &config].map(str::to_owned).to_vec())
        };
        let network = ListeningProcess::start(program, dir, "network", arguments)?;
        let listen = network.address();
        let takes_clients = |_| {
            let clients = clients_socket(listen);
            clients.is_ok_and(|at| UnixStream::connect_addr(&at).is_ok())
        };
        let arguments = |_, _| proxy_of(listen);
        let proxy = ListeningProcess::start_when(program, dir, "proxy", arguments, takes_clients)?;
        Ok(PaperProxyProcesses {
            proxy,
            network: Some(network),
        })
    }

    /// Returns the address to which clients connect.
    pub(crate) fn address(&self) -> SocketAddr {
        self.network.as_ref().unwrap_or(&self.proxy).address()
    }

    /// Returns the processor time that they have used, in seconds.
    pub(crate) fn cpu(&self) -> f64 {
        self.proxy.cpu() + self.network.as_ref().map_or(0.0, ListeningProcess::cpu)
    }

    /// Checks that they still run.
    ///
    /// # Errors
    /// One of them has ended; the text says which, and why.
    pub(crate) fn check_alive(&self) -> Result<(), RunError> {
        // A proxy that has lost its network ends, too: the network is the cause.
        let network = self.network.as_ref();
        network.map_or(Ok(()), ListeningProcess::check_alive)?;
        self.proxy.check_alive()
    }
}
