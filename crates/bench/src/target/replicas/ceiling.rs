//! The throughput that no way to execute requests can surpass with a given delay of links, rate of
//! ports and processor time: the asymptotic bounds of a closed queueing network.
//!
//! A request takes at least four delays: to the leader, to a majority and back, and to the client.
//! Its processor time is measured, and could at best be spread over all processors. So with *t* the
//! processor time of a request by the number of processors, *d* the delay, *N* clients and *s* the
//! time in which the busiest port sends what a request needs, there are at most
//!
//! | requests a second | because |
//! |---|---|
//! | *N* / (4 *d* + *t*) | each client has one request under way |
//! | 1 / *t* | there are no more processors |
//! | 1 / *s* | the port sends no faster |
//! | 1 / (2 *d* + *t*) | plain Raft alone: one request at a time is sent to the followers and answered |

/// What requests need.
#[derive(Clone, Copy, Debug)]
pub(super) struct RequestDemand {
    /// Clients, each with one request under way.
    pub(super) clients: usize,
    /// Requests go through consensus one after the other.
    pub(super) one_at_a_time: bool,
    /// The delay of a link, in seconds.
    pub(super) delay: f64,
    /// Processor time of a request, in seconds.
    pub(super) cpu: f64,
    /// Processors.
    pub(super) cores: usize,
    /// The time in which the busiest port sends what a request needs, in seconds.
    pub(super) sending: f64,
}

impl RequestDemand {
    /// Returns the greatest number of requests a second.
    pub(super) fn ceiling(&self) -> f64 {
        let work = self.cpu / self.cores as f64;
        let consensus = match self.one_at_a_time {
            true => 1.0 / (2.0 * self.delay + work),
            false => f64::INFINITY,
        };
        (self.clients as f64 / (4.0 * self.delay + work))
            .min(1.0 / work)
            .min(1.0 / self.sending)
            .min(consensus)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_of_the_bounds_holds() {
        let long = RequestDemand {
            clients: 64,
            one_at_a_time: false,
            delay: 1e-3,
            cpu: 20e-6,
            cores: 2,
            sending: 0.0,
        };
        let near = |demand: RequestDemand, wanted: f64| {
            let ceiling = demand.ceiling();
            assert!(
                (ceiling / wanted - 1.0).abs() < 1e-9,
                "{ceiling}, not {wanted}"
            );
        };
        near(long, 64.0 / 4.01e-3);
        let naive = RequestDemand {
            one_at_a_time: true,
            ..long
        };
        near(naive, 1.0 / 2.01e-3);
        let one = RequestDemand {
            clients: 1,
            ..naive
        };
        near(one, 1.0 / 4.01e-3);
        let without = RequestDemand {
            delay: 0.0,
            ..naive
        };
        near(without, 1.0 / 10e-6);
        let slow = RequestDemand {
            sending: 1e-3,
            ..long
        };
        near(slow, 1000.0);
    }
}
