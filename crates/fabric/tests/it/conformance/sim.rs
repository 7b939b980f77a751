//! The suite's network, simulated.

use std::time::Duration;

use base::NodeId;
use kumiki_fabric as fabric;

use fabric::Inbox;
use fabric::sim::{Endpoint, Network, Options};

use crate::conformance::net::{End, Net};

pub(crate) struct Simulated(Network);

impl Simulated {
    pub(crate) fn new(seed: u64) -> Simulated {
        let options = Options {
            // Every other network loses whole machines.
            silent_crashes: (seed % 2) as f64,
            slow_share: 0.05,
            queue: Self::QUEUE,
            message: Self::LIMIT,
            ..Options::default()
        };
        Simulated(Network::new(seed, options))
    }
}

impl Net for Simulated {
    type End = Endpoint;
    const LARGE: usize = 1 << 20;
    const QUEUE: usize = 128 << 10;
    const LIMIT: usize = 2 << 20;

    fn node(&mut self, id: u16) -> Endpoint {
        self.0.endpoint(NodeId(id))
    }

    fn client(&mut self) -> Endpoint {
        self.0.client()
    }

    fn kill(&mut self, end: Endpoint) {
        self.0.crash(end.host());
    }

    fn pass(&mut self) -> bool {
        self.0.step() && self.0.now() < Duration::from_secs(600)
    }
}

impl End for Endpoint {
    fn flush(&mut self) {
        Endpoint::flush(self);
    }

    fn receive(&mut self, inbox: &mut Inbox) {
        Endpoint::receive(self, inbox);
    }
}
