//! Where a scan runs: near the pages, or at the server that reads them (paper 4, section 3.3).
//!
//! | placement | pages | operators |
//! |---|---|---|
//! | `local` | of this machine | here |
//! | `remote-local` | of a storage node, come over the link | here |
//! | `remote-remote` | of a storage node | there; what comes out comes over |
//!
//! The time of each is estimated. Pages are read ahead while others are worked on, so that the slower of the
//! two counts; if both are alike it takes a little more, as they wait for each other by turns.
//!
//! ```text
//! work          = (rows × operations + rows that pass × operations) × seconds × (1 + load) / threads
//! taking        = pages × a thread's time for a page × (1 + load) / threads
//! local         = together(pages × read here, work here + taking)
//! remote-local  = round trip + together(pages to come × read there, pages to come × link, work here + taking off the link)
//! remote-remote = round trip + together(pages × read there, work there + taking) + result × link
//! ```
//!
//! With remote-local, pages that are in a cache here do not come over the link. Where both sides share
//! processors, remote-local takes at least the time of all its work, the node's included, divided by the
//! processors: with the others only one side works.
//!
//! Nothing is measured here: the code that reads pages and runs fragments measures, and keeps [`PlacementCosts`]. A
//! caller that knows what pages cost the processors says so with [`PageWork`].

use std::fmt;
use std::str::FromStr;

use crate::estimate::Estimate;

/// Where a scan runs.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum Placement {
    /// Where it is cheapest, by an estimate.
    #[default]
    Auto,
    /// Here, over pages of this machine.
    Local,
    /// Here, over pages of a storage node.
    RemoteLocal,
    /// On the storage node.
    RemoteRemote,
}

/// All names, in the order of their placements.
const NAMES: [(Placement, &str); 4] = [
    (Placement::Auto, "auto"),
    (Placement::Local, "local"),
    (Placement::RemoteLocal, "remote-local"),
    (Placement::RemoteRemote, "remote-remote"),
];

/// A name that no placement has.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("there is no placement {0:?}: choose auto, local, remote-local or remote-remote")]
pub struct UnknownPlacement(pub String);

impl FromStr for Placement {
    type Err = UnknownPlacement;

    fn from_str(text: &str) -> Result<Placement, UnknownPlacement> {
        let found = NAMES.iter().find(|(_, name)| *name == text);
        found
            .map(|(placement, _)| *placement)
            .ok_or_else(|| UnknownPlacement(text.to_owned()))
    }
}

impl fmt::Display for Placement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let found = NAMES.iter().find(|(placement, _)| placement == self);
        f.pad(found.map_or("auto", |(_, name)| name))
    }
}

/// The measured costs of one side.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct SideCosts {
    /// Seconds for a page that is read by itself from its devices or its cache, with as many under way
    /// as usual.
    pub page_s: f64,
    /// Seconds for an operation on a row, by one thread.
    pub operation_s: f64,
    /// Threads of other work that want a processor, for each processor.
    pub load: f64,
    /// Threads that a scan has.
    pub threads: f64,
}

/// The costs of the link between the sides.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct LinkCosts {
    /// Seconds for a message and its answer.
    pub round_trip_s: f64,
    /// Seconds for a page, with as many under way as usual.
    pub page_s: f64,
    /// Seconds for a byte of a result.
    pub byte_s: f64,
}

/// The measured costs.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct PlacementCosts {
    /// The costs of this server. If it has no pages of its own, [`SideCosts::page_s`] has no meaning.
    pub server: SideCosts,
    /// The costs of the storage node, if one has the table.
    pub node: Option<(SideCosts, LinkCosts)>,
    /// `true` if this machine has the pages, too.
    pub has_pages: bool,
}

/// The measured costs of pages for the processors; zero if unknown.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct PageWork {
    /// Seconds of a thread that works on pages of its own machine's disks, for each: to wait for it,
    /// unless it is read ahead, and to verify it.
    pub local_page_s: f64,
    /// The same for a thread of the node, where that is known to differ.
    pub node_page_s: Option<f64>,
    /// The part of a storage node's pages that is in a cache here, from 0 to 1.
    pub cached: f64,
    /// Seconds of a thread that works on pages of a storage node, for each: to take it off the link,
    /// and to verify it.
    pub fetched_page_s: f64,
    /// Seconds of the node's processors for a page that it gives away.
    pub served_page_s: f64,
    /// Processors that the node and this server share, if they run on one machine.
    pub shared: Option<f64>,
}

/// A placement, and its cost.
#[derive(Clone, PartialEq, Debug)]
pub struct PlacementCandidate {
    /// The placement.
    pub placement: Placement,
    /// The estimated seconds; `None` if the placement is not possible.
    pub seconds: Option<f64>,
    /// The reason, for a person.
    pub why: String,
}

/// The placements that there are, and the one that was chosen.
#[derive(Clone, PartialEq, Debug)]
pub struct Choice {
    /// The cheapest placement, or the requested one; `None` if that is not possible.
    pub chosen: Option<Placement>,
    /// All of them.
    pub candidates: Vec<PlacementCandidate>,
}

/// Chooses where a scan runs, as if pages cost the processors nothing.
#[must_use]
pub fn choose(wanted: Placement, estimate: &Estimate, costs: &PlacementCosts) -> Choice {
    choose_with(wanted, estimate, costs, &PageWork::default())
}

/// Chooses where a scan runs.
#[must_use]
pub fn choose_with(
    wanted: Placement,
    estimate: &Estimate,
    costs: &PlacementCosts,
    page: &PageWork,
) -> Choice {
    let candidates = vec![
        local(estimate, costs, page),
        remote_local(estimate, costs, page),
        remote_remote(estimate, costs, page),
    ];
    let possible = candidates
        .iter()
        .filter(|candidate| candidate.seconds.is_some());
    let by_time = |a: &&PlacementCandidate, b: &&PlacementCandidate| {
        let time = |candidate: &PlacementCandidate| candidate.seconds.unwrap_or(f64::INFINITY);
        time(a).total_cmp(&time(b))
    };
    let chosen = match wanted {
        Placement::Auto => possible.min_by(by_time),
        wanted => possible
            .into_iter()
            .find(|candidate| candidate.placement == wanted),
    };
    Choice {
        chosen: chosen.map(|candidate| candidate.placement),
        candidates,
    }
}

/// Returns the seconds of a side's work.
fn work(estimate: &Estimate, side: &SideCosts) -> f64 {
    estimate.all_operations() * side.operation_s * (1.0 + side.load) / side.threads.max(1.0)
}

/// Returns the seconds of a side's work, if a page costs a thread so many seconds.
fn work_with(estimate: &Estimate, side: &SideCosts, page_s: f64) -> f64 {
    let taking = estimate.pages as f64 * page_s * (1.0 + side.load) / side.threads.max(1.0);
    work(estimate, side) + taking
}

/// Returns the time of steps that run at once, each of which needs the output of the one before it. It is
/// that of the longest where the others are far shorter, and more where some are as long, as then they wait
/// for each other by turns. For two equal steps it is 1.19 times the time of one.
fn together<const N: usize>(times: [f64; N]) -> f64 {
    let longest = times.iter().copied().fold(0.0, f64::max);
    if longest == 0.0 {
        return 0.0;
    }
    let shares = times.iter().map(|time| (time / longest).powi(4));
    longest * shares.sum::<f64>().sqrt().sqrt()
}

fn local(estimate: &Estimate, costs: &PlacementCosts, page: &PageWork) -> PlacementCandidate {
    let placement = Placement::Local;
    if !costs.has_pages {
        let why = "this machine does not have the pages".to_owned();
        return PlacementCandidate {
            placement,
            seconds: None,
            why,
        };
    }
    let read = estimate.pages as f64 * costs.server.page_s;
    let work = work_with(estimate, &costs.server, page.local_page_s);
    let why = format!(
        "{}, {}",
        reading(estimate, read, "here"),
        working(estimate, work, "here", &costs.server)
    );
    PlacementCandidate {
        placement,
        seconds: Some(together([read, work])),
        why,
    }
}

fn remote_local(
    estimate: &Estimate,
    costs: &PlacementCosts,
    page: &PageWork,
) -> PlacementCandidate {
    let placement = Placement::RemoteLocal;
    let Some((node, link)) = &costs.node else {
        return unavailable(placement);
    };
    let to_come = (estimate.pages as f64 * (1.0 - page.cached)).round();
    let read = to_come * node.page_s;
    let travel = to_come * link.page_s;
    let work = work_with(estimate, &costs.server, page.fetched_page_s);
    let cached = estimate.pages - (to_come as u64).min(estimate.pages);
    let cached = match cached {
        0 => String::new(),
        pages => format!("{pages} pages in the cache, "),
    };
    let why = format!(
        "{cached}{} pages read there in {}, {} over the link in {}, {}",
        to_come as u64,
        Seconds(read),
        Bytes((estimate.page_bytes as f64 * (1.0 - page.cached)) as u64),
        Seconds(travel),
        working(estimate, work, "here", &costs.server),
    );
    let crowded = page.shared.map_or(0.0, |processors| {
        let given = to_come * page.served_page_s;
        (work * costs.server.threads.max(1.0) + given) / processors.max(1.0)
    });
    let seconds = link.round_trip_s + together([read, travel, work]).max(crowded);
    PlacementCandidate {
        placement,
        seconds: Some(seconds),
        why,
    }
}

fn remote_remote(
    estimate: &Estimate,
    costs: &PlacementCosts,
    page: &PageWork,
) -> PlacementCandidate {
    let placement = Placement::RemoteRemote;
    let Some((node, link)) = &costs.node else {
        return unavailable(placement);
    };
    let read = estimate.pages as f64 * node.page_s;
    let work = work_with(
        estimate,
        node,
        page.node_page_s.unwrap_or(page.local_page_s),
    );
    let travel = estimate.result_bytes as f64 * link.byte_s;
    let why = format!(
        "{}, {}, {} rows of {} over the link in {}",
        reading(estimate, read, "there"),
        working(estimate, work, "there", node),
        estimate.result_rows,
        Bytes(estimate.result_bytes),
        Seconds(travel),
    );
    let seconds = link.round_trip_s + together([read, work]) + travel;
    PlacementCandidate {
        placement,
        seconds: Some(seconds),
        why,
    }
}

fn unavailable(placement: Placement) -> PlacementCandidate {
    let why = "no storage node has the table".to_owned();
    PlacementCandidate {
        placement,
        seconds: None,
        why,
    }
}

fn reading(estimate: &Estimate, seconds: f64, place: &str) -> String {
    format!(
        "{} pages read {place} in {}",
        estimate.pages,
        Seconds(seconds)
    )
}

fn working(estimate: &Estimate, seconds: f64, place: &str, side: &SideCosts) -> String {
    format!(
        "{} rows ({:.1} % pass) worked on {place} in {} (load {:.1})",
        estimate.rows,
        estimate.selectivity * 100.0,
        Seconds(seconds),
        side.load,
    )
}

impl fmt::Display for PlacementCandidate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.seconds {
            Some(seconds) => write!(f, "{}: {}: {}", self.placement, Seconds(seconds), self.why),
            None => write!(f, "{}: not possible: {}", self.placement, self.why),
        }
    }
}

/// A time for a person.
struct Seconds(f64);

impl fmt::Display for Seconds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            seconds if seconds >= 1.0 => write!(f, "{seconds:.2} s"),
            seconds if seconds >= 1e-3 => write!(f, "{:.1} ms", seconds * 1e3),
            seconds => write!(f, "{:.0} µs", seconds * 1e6),
        }
    }
}

/// A size for a person.
struct Bytes(u64);

impl fmt::Display for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 as f64 {
            bytes if bytes >= 1048576.0 => write!(f, "{:.1} MiB", bytes / 1048576.0),
            bytes if bytes >= 1024.0 => write!(f, "{:.1} KiB", bytes / 1024.0),
            bytes => write!(f, "{bytes} bytes"),
        }
    }
}

#[cfg(test)]
mod tests;
