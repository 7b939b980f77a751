//! The thread that has the proxy's subscriptions, and the news of keys: the [hub](super::subscription_hub) of the
//! subscriptions, the [hub](super::tracking_hub) of the news, and their connections.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use reactor::Network;

use super::shared_state::RedisState;
use super::subscription_hub::{HUB, SubscriptionHub};
use super::subscription_service::SubscriptionService;
use super::subscription_wire::{NodePush, SubscriptionOptions, SubscriptionWire, news_key};
use super::tracking_hub::TrackingHub;
use super::wire::Options;
use crate::config::Config;
use crate::figures::BackendFigures;
use crate::queue::{Consumer, Producer, queue};
use crate::runtime::arena::ReadArena;
use crate::runtime::backend::{Backend, FrontendQueues};
use crate::runtime::link::LinkLimits;
use crate::runtime::query::{BackendCommand, BackendReply};
use crate::runtime::thread_waker::ThreadWaker;

/// Capacity of the queues between the hub and its connections.
const QUEUE: usize = 8192;
/// How long the thread waits for threads with clients that have too many messages.
const FULL: Duration = Duration::from_micros(200);

/// See the module documentation.
pub(crate) struct SubscriptionThread<N: Network> {
    network: N,
    connections: Backend<N, SubscriptionWire>,
    orders: Producer<BackendCommand>,
    replies: Consumer<BackendReply>,
    pushes: Arc<Mutex<Vec<NodePush>>>,
    hub: SubscriptionHub,
    tracking: TrackingHub,
    waker: Arc<ThreadWaker>,
    state: Arc<RedisState>,
    /// The version of the knowledge that the hub has.
    version: u64,
    started: Instant,
}

impl<N: Network> SubscriptionThread<N> {
    /// Creates the thread's state. `network` is its own.
    ///
    /// # Errors
    /// Returns the system's error if the network cannot be used.
    pub(crate) fn new(
        mut network: N,
        config: &Config,
        options: &Arc<Options>,
        state: Arc<RedisState>,
    ) -> std::io::Result<SubscriptionThread<N>> {
        let waker = Arc::new(ThreadWaker::new(network.waker()?));
        state.subscriptions.set_hub_waker(&waker);
        let (orders, taken_orders) = queue(QUEUE);
        let (replies, taken_replies) = queue(QUEUE);
        let pushes = Arc::new(Mutex::default());
        let options = SubscriptionOptions {
            node: Arc::clone(options),
            pushes: Arc::clone(&pushes),
        };
        let limits = LinkLimits {
            packs: usize::MAX,
            pack_count: config.pack_count,
            pack_bytes: config.pack_bytes,
            window: config.queue,
            timeout: config.timeout,
            health: config.health,
        };
        let queues = FrontendQueues {
            front: HUB.thread,
            orders: taken_orders,
            replies,
            waker: Arc::clone(&waker),
        };
        let nodes = Arc::clone(&state.nodes);
        let threads = config.network_threads + config.aggregation_threads;
        let figures = BackendFigures::new(threads, Arc::clone(&nodes));
        let version = state.version.load(Ordering::Acquire);
        let hub = SubscriptionHub::new(
            state.kind,
            state.known().map,
            Arc::clone(&nodes),
            Arc::clone(&state.subscriptions),
            state.patience,
        );
        let service = Arc::clone(&state.tracking);
        let tracking = TrackingHub::new(state.known().map, Arc::clone(&nodes), service);
        Ok(SubscriptionThread {
            network,
            connections: Backend::new(
                Arc::new(options),
                limits,
                nodes,
                vec![queues],
                Arc::new(figures),
            ),
            orders,
            replies: taken_replies,
            pushes,
            hub,
            tracking,
            waker,
            started: state.started,
            state,
            version,
        })
    }

    fn service(&self) -> &SubscriptionService {
        &self.state.subscriptions
    }

    /// Runs until the service is stopped.
    pub(crate) fn run(mut self) {
        let mut happened = Vec::new();
        let mut arena = ReadArena::default();
        let mut more = false;
        while !self.service().is_stopping() {
            let timeout = self.before_waiting(more);
            if let Err(error) = self.network.wait(&mut happened, Some(timeout)) {
                tracing::error!(%error, "cannot wait for messages of channels");
                return;
            }
            self.waker.is_awake();
            let now = self.started.elapsed();
            for event in happened.drain(..) {
                let link = event.token / 2;
                self.connections
                    .note(link, event, &mut self.network, &mut arena, now);
            }
            more = self.turn(&mut arena, now);
            self.wait_for_clients();
        }
        let now = self.started.elapsed();
        self.connections.stop(&mut self.network, &mut arena, now);
    }

    fn turn(&mut self, arena: &mut ReadArena, now: Duration) -> bool {
        let version = self.state.version.load(Ordering::Acquire);
        if std::mem::replace(&mut self.version, version) != version {
            let map = self.state.known().map;
            self.hub.set_map(Arc::clone(&map), now);
            self.tracking.set_map(map, now);
        }
        for request in self.state.subscriptions.take_requests() {
            self.hub.handle(request, now);
        }
        self.hub.tick(now);
        self.tracking.tick(now);
        self.hand_orders_over();
        let more = self.connections.turn(&mut self.network, arena, now);
        let mut is_old = false;
        while let Some(reply) = self.replies.take() {
            let state = &self.state;
            let known = |address| state.knows(address).then(|| state.nodes.place(address));
            is_old |= match reply.query.connection_key == news_key(reply.query.node) {
                true => self.tracking.answered(reply, now),
                false => self.hub.answered(reply, known, now),
            };
        }
        if is_old {
            self.state.request_refresh();
        }
        for push in std::mem::take(&mut *self.pushes.lock()) {
            if let Some(push) = self.tracking.pushed(push, now) {
                self.hub.pushed(push, now);
            }
        }
        self.hub.tick(now);
        self.tracking.tick(now);
        more | self.hand_orders_over()
    }

    /// Gives the connections the hubs' commands, as far as there is room. Returns `true` if there were any.
    fn hand_orders_over(&mut self) -> bool {
        let mut any = false;
        for orders in [&mut self.hub.orders, &mut self.tracking.orders] {
            while let Some(order) = orders.pop_front() {
                any = true;
                if let Err(order) = self.orders.put(order) {
                    orders.push_front(order);
                    break;
                }
            }
        }
        any
    }

    /// Waits until all threads with clients have taken most of their messages: a node keeps messages that
    /// are not read, up to a limit of its own.
    fn wait_for_clients(&self) {
        while self.service().is_full() && !self.service().is_stopping() {
            std::thread::sleep(FULL);
        }
    }

    /// Returns how long to wait for events. Marks the thread as asleep if it will sleep.
    fn before_waiting(&self, more: bool) -> Duration {
        if more {
            return Duration::ZERO;
        }
        self.waker.falls_asleep();
        let service = self.service();
        let has_work = self.tracking.is_outdated() || self.connections.has_work();
        if service.has_requests() || service.is_stopping() || has_work {
            self.waker.is_awake();
            return Duration::ZERO;
        }
        let now = self.started.elapsed();
        let timeout = self.connections.timeout();
        let due = [self.hub.timeout(now), self.tracking.timeout(now)];
        due.into_iter().flatten().fold(timeout, Duration::min)
    }
}
