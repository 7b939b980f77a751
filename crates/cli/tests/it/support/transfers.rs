//! Transfers between accounts ([`testkit::workload`]) at servers that fail meanwhile.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use testkit::workload::transfers::{Options, Teller};
use testkit::workload::{
    Client as _, Ended, Plan, Step, Subject, Times, Transfers, Workload, read, resp,
};
use testkit::{Client, Reply, eventually_some};

use crate::support::replicas::Follower;

/// Returns accounts whose keys lie in many slots. One of `audit_every` transactions reads all of them.
pub(crate) fn accounts(audit_every: usize) -> Transfers {
    Transfers::new(Options {
        audit_every,
        scans: false,
        ..Options::default()
    })
}

/// Runs a client's transactions until it is stopped. Counts those that took effect.
pub(crate) fn until_stopped(
    client: &mut Teller,
    subject: &mut impl Subject,
    stop: &AtomicBool,
    committed: &AtomicU64,
) {
    while !stop.load(Ordering::SeqCst) {
        let plan = client.plan();
        let ended = subject.run(&plan);
        let is_committed = matches!(ended, Ended::Committed(_));
        committed.fetch_add(u64::from(is_committed), Ordering::SeqCst);
        let seen = client.end(&plan, &ended, Times::default());
        seen.expect("what was seen is right");
    }
}

/// Checks the balances, once all nodes are there again, against what the clients have seen.
pub(crate) fn check(mut workload: Transfers, clients: Vec<Teller>, subject: &mut impl Subject) {
    let found = eventually_some("all accounts are read", || read(subject, &workload.reads()));
    let complaints = workload.check(clients, Some(&found));
    assert!(complaints.is_empty(), "{complaints:?}");
}

/// A proxy, which answers every request: with `UNKNOWN` if the outcome is not known.
pub(crate) struct AtProxy(pub(crate) Client);

impl Subject for AtProxy {
    fn run(&mut self, plan: &Plan) -> Ended {
        // Of two transfers about one is a script.
        let is_even = |step: &Step| matches!(step, Step::Add { delta, .. } if delta % 2 == 0);
        let requests = match plan.steps.first().is_some_and(is_even) {
            true => vec![resp::script(plan)],
            false => resp::requests(plan),
        };
        for words in &requests {
            self.0.send(words);
        }
        let replies: Vec<Reply> = requests.iter().map(|_| self.0.reply()).collect();
        match replies.last() {
            Some(Reply::Error(text)) if text.starts_with("UNKNOWN") => Ended::Unknown,
            Some(Reply::Error(_)) => Ended::Aborted,
            _ => resp::ended(plan, &replies).expect("replies to the plan"),
        }
    }
}

/// Nodes of which one leads: a block that fails may have taken effect.
impl Subject for Follower {
    fn run(&mut self, plan: &Plan) -> Ended {
        let requests = resp::requests(plan);
        let commands: Vec<Vec<&str>> = requests[1..requests.len() - 1]
            .iter()
            .map(|words| words.iter().map(String::as_str).collect())
            .collect();
        let commands: Vec<&[&str]> = commands.iter().map(Vec::as_slice).collect();
        let Some(frame) = self.block(&commands) else {
            return Ended::Unknown;
        };
        let reply = frame.into_reply().expect("a reply of RESP2");
        resp::ended(plan, &[reply]).expect("replies to the plan")
    }
}
