//! The surroundings of a run, and the figures that its clients have.

use std::net::SocketAddr;

use super::client_script::ClientScript;
use super::job::QueriesJob;
use super::nodes::{ProxyProcess, QueryNodes};
use crate::driver::DriveResult;
use crate::error::RunError;
use crate::machine;
use crate::run_context::RunContext;
use crate::sample::RunSample;

/// The surroundings of a run.
pub(super) struct QueryRun<'r> {
    pub(super) job: &'r QueriesJob,
    pub(super) context: &'r RunContext<'r>,
    pub(super) nodes: &'r QueryNodes,
    pub(super) proxy: Option<&'r ProxyProcess>,
}

impl QueryRun<'_> {
    /// Returns the addresses to which each client connects.
    pub(super) fn targets(&self) -> Vec<SocketAddr> {
        match self.proxy {
            Some(proxy) => vec![proxy.address()],
            None => self.nodes.addresses().to_vec(),
        }
    }

    /// Returns the error of a client, and the process whose end explains it, if one has ended.
    pub(super) fn explain(&self, wrong: String) -> RunError {
        let proxy = self.proxy.map_or(Ok(()), ProxyProcess::check_alive);
        match proxy.and_then(|()| self.nodes.check_alive()) {
            Ok(()) => RunError::Failed(wrong),
            Err(ended) => RunError::Failed(format!("{ended} ({wrong})")),
        }
    }

    /// Returns the script of a client's queries. Clients of one run have different numbers.
    pub(super) fn script(&self, number: usize) -> ClientScript {
        let planted = self.context.plant && number == 0;
        ClientScript::new(
            number as u64,
            self.nodes.addresses().len(),
            self.job.mix,
            planted,
        )
    }

    /// Returns the processor time in seconds: of the clients, the nodes, the proxy.
    pub(super) fn used(&self) -> [f64; 3] {
        let proxy = self.proxy.map_or(0.0, ProxyProcess::cpu);
        [machine::own_cpu(), self.nodes.cpu(), proxy]
    }

    /// Adds the figures of these clients, and the processor time in seconds before and after them.
    pub(super) fn add_figures(
        &self,
        driven: &DriveResult,
        used: [[f64; 3]; 2],
        sample: &mut RunSample,
    ) {
        let values = &mut sample.values;
        driven.add_figures(values);
        values.set("latency-min", driven.latency.quantile_ms(0.0));
        let each = |who: usize| (used[1][who] - used[0][who]) * 1e6 / driven.transactions as f64;
        let [client, nodes, proxy] = [0, 1, 2].map(each);
        values.set("cpu", client + nodes + proxy);
        values.set("server-cpu", nodes);
        if self.proxy.is_some() {
            values.set("proxy-cpu", proxy);
            values.set("per-core", 1e6 / proxy);
        }
    }
}
