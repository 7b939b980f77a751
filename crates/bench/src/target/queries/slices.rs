//! Latencies at a rate: the way that is measured, the direct way, and a bare round trip over
//! loopback, by turns in short slices, so that the drift of a machine's speed affects all three.

use std::net::SocketAddr;

use super::Setting;
use super::book::Book;
use super::clients::Scheduled;
use crate::driver::{Client, Completions, Driven, Pace, Plan, drive};
use crate::sample::{RunError, Sample};
use crate::target::bare::Bare;

/// Slices of each kind in one run.
const SLICES: u32 = 8;
/// Bytes of a request and of a reply on the bare connection: as long as a small `SET` and its reply.
const REQUEST: usize = 33;
const REPLY: usize = 5;

pub(super) fn measure(
    setting: &Setting<'_>,
    rate: f64,
    sample: &mut Sample,
) -> Result<Vec<Book>, RunError> {
    let failed = |what: &'static str| move |error: String| RunError::failed(what)(&error);
    let scale = setting.context.scale;
    let plan = Plan {
        pace: Pace::Open { rate },
        warm_up: scale.warm_up / SLICES,
        time: scale.time / SLICES,
    };
    let clients = setting.job.clients;
    let connect = |first: usize, targets: &[SocketAddr]| {
        let books = (first..first + clients).map(|number| setting.book(number));
        Scheduled::connect(books, targets).map_err(failed("connecting"))
    };
    let mut bare =
        Bare::new(REQUEST, REPLY).map_err(|error| failed("echoing")(error.to_string()))?;
    let mut own = connect(0, &setting.targets())?;
    let mut direct = connect(clients, setting.nodes.addresses())?;
    let [mut bare_driven, mut own_driven, mut direct_driven] = [(); 3].map(|()| Driven::default());
    let mut used = [0.0; 3];
    for _ in 0..SLICES {
        let stop = setting.context.stop;
        bare = slice(bare, plan, stop, &mut bare_driven)?;
        direct = slice(direct, plan, stop, &mut direct_driven)?;
        let before = setting.used();
        own = slice(own, plan, stop, &mut own_driven)?;
        let after = setting.used();
        for ((sum, before), after) in used.iter_mut().zip(before).zip(after) {
            *sum += after - before;
        }
    }
    setting.tell(&own_driven, [[0.0; 3], used], sample);
    let values = &mut sample.values;
    let p50 = |driven: &Driven| driven.latency.quantile_ms(0.5);
    let (ours, theirs, trip) = (p50(&own_driven), p50(&direct_driven), p50(&bare_driven));
    values.set("round-trip", trip);
    values.set("beside-direct", ours / theirs);
    values.set("above", (ours - theirs - trip) * 1e3);
    values.set("mean-by-median", own_driven.latency.mean_ms() / ours);
    let books = own.into_books().into_iter().chain(direct.into_books());
    Ok(books.collect())
}

/// Runs a slice of one kind, and adds it to the results of its slices.
pub(in crate::target) fn slice<C: Client>(
    client: C,
    plan: Plan,
    stop: &std::sync::atomic::AtomicBool,
    sum: &mut Driven,
) -> Result<C, RunError> {
    let (driven, clients) = drive(vec![client], &Completions::default(), plan, stop, |_| {})?;
    sum.window += driven.window;
    sum.transactions += driven.transactions;
    sum.unserved += driven.unserved;
    sum.latency.merge(&driven.latency);
    sum.service.merge(&driven.service);
    sum.late.merge(&driven.late);
    clients
        .into_iter()
        .next()
        .ok_or_else(|| RunError::Failed("the client is gone".to_owned()))
}
