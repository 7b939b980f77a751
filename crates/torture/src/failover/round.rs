//! The results of one change of leaders, and of all of them together.

use std::fmt;
use std::time::Duration;

use serde::Serialize;

use super::writer::Ack;
use crate::percentiles::Percentiles;

/// A new leader must serve within so many election time-outs.
pub const AIM: f64 = 3.0;

/// How a leader ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum End {
    /// SIGKILL.
    Killed,
    /// SIGTERM: it hands its leadership over.
    Stopped,
}

impl fmt::Display for End {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            End::Killed => "killed",
            End::Stopped => "stopped",
        })
    }
}

/// A change of leaders. Nodes count from 1.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct FailoverRound {
    /// How the leader ended.
    pub end: End,
    /// The leader that ended.
    pub node: usize,
    /// The node that served next.
    pub next: usize,
    /// Terms that it took: 1 if the first election succeeded.
    pub terms: u64,
    /// From the signal to the first write that another node acknowledged.
    #[serde(rename = "serving_ms", serialize_with = "in_ms")]
    pub serving: Duration,
    /// The longest time without an acknowledged write, until the node was level again.
    #[serde(rename = "pause_ms", serialize_with = "in_ms")]
    pub pause: Duration,
    /// From the node's start until it had all entries.
    #[serde(rename = "level_ms", serialize_with = "in_ms")]
    pub level: Duration,
}

fn in_ms<S: serde::Serializer>(time: &Duration, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_f64(time.as_secs_f64() * 1e3)
}

/// Returns the first write that another node than `node` has acknowledged since `at`.
#[must_use]
pub fn first_of_another(acks: &[Ack], node: usize, at: u64) -> Option<Ack> {
    let others = acks.iter().filter(|ack| ack.node != node && ack.at > at);
    others.min_by_key(|ack| ack.at).copied()
}

/// Returns the longest time without an acknowledgement between the first and the last of them.
#[must_use]
pub fn longest_pause(acks: &[Ack]) -> Duration {
    let mut times: Vec<u64> = acks.iter().map(|ack| ack.at).collect();
    times.sort_unstable();
    let pauses = times.windows(2).map(|pair| pair[1] - pair[0]);
    Duration::from_nanos(pauses.max().unwrap_or(0))
}

/// Returns `true` if 99 of 100 killed leaders were replaced in time.
#[must_use]
pub fn is_met(rounds: &[FailoverRound], election: Duration) -> bool {
    let killed = rounds.iter().filter(|round| round.end == End::Killed);
    Percentiles::of(killed.map(|round| round.serving)).p99 <= election.mul_f64(AIM)
}

/// Returns the table over all rounds that ended leaders in this way; nothing if there are none.
#[must_use]
pub fn table(rounds: &[FailoverRound], end: End, election: Duration) -> String {
    let of = |field: fn(&FailoverRound) -> Duration| {
        let these = rounds.iter().filter(|round| round.end == end);
        Percentiles::of(these.map(field))
    };
    let these = || rounds.iter().filter(|round| round.end == end);
    let count = these().count();
    if count == 0 {
        return String::new();
    }
    let mut text = format!(
        "{:<44} {:>16} {:>16} {:>16}\n",
        format!("leaders {end}: {count}; ms (election time-outs)"),
        "median",
        "p99",
        "max"
    );
    for (name, spread) in [
        ("to the first write by another node", of(|r| r.serving)),
        ("longest pause between two writes", of(|r| r.pause)),
        ("from its start until it was level", of(|r| r.level)),
    ] {
        let [median, p99, max] = [spread.median, spread.p99, spread.max].map(|time| {
            let timeouts = time.as_secs_f64() / election.as_secs_f64();
            format!("{} ({timeouts:.2})", time.as_millis())
        });
        text += &format!("  {name:<42} {median:>16} {p99:>16} {max:>16}\n");
    }
    let again = these().filter(|round| round.terms > 1).count();
    text + &format!("  took more than one election: {again} of {count}\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ack(at: u64, node: usize) -> Ack {
        Ack { at, node }
    }

    fn killed(serving_ms: u64) -> FailoverRound {
        FailoverRound {
            end: End::Killed,
            node: 1,
            next: 2,
            terms: 1,
            serving: Duration::from_millis(serving_ms),
            pause: Duration::from_millis(serving_ms + 1),
            level: Duration::ZERO,
        }
    }

    #[test]
    fn a_late_answer_of_the_old_leader_is_not_one_of_the_new_one() {
        let acks = [ack(10, 0), ack(25, 0), ack(90, 2), ack(80, 2), ack(95, 0)];
        assert_eq!(first_of_another(&acks, 0, 20), Some(ack(80, 2)));
        assert_eq!(first_of_another(&acks, 0, 90), None);
        assert_eq!(first_of_another(&acks, 2, 20), Some(ack(25, 0)));
    }

    #[test]
    fn the_longest_pause_is_found_in_any_order() {
        let acks = [ack(10, 0), ack(90, 2), ack(25, 0), ack(91, 2)];
        assert_eq!(longest_pause(&acks), Duration::from_nanos(65));
        assert_eq!(longest_pause(&acks[..1]), Duration::ZERO);
    }

    #[test]
    fn the_aim_is_about_leaders_that_were_killed() {
        let second = Duration::from_secs(1);
        let mut rounds = vec![killed(3000); 50];
        assert!(is_met(&rounds, second));
        rounds.push(killed(3001));
        assert!(!is_met(&rounds, second));
        rounds[50].end = End::Stopped;
        assert!(is_met(&rounds, second));
    }

    #[test]
    fn the_table_tells_times_in_both_units() {
        let rounds = [killed(1500), killed(2500), killed(750)];
        let text = table(&rounds, End::Killed, Duration::from_millis(500));
        let line = text.lines().nth(1).unwrap();
        let words: Vec<&str> = line.split_whitespace().rev().take(6).collect();
        assert_eq!(
            words,
            ["(5.00)", "2500", "(5.00)", "2500", "(3.00)", "1500"]
        );
        assert!(text.contains("killed: 3"), "{text}");
        assert_eq!(table(&rounds, End::Stopped, Duration::from_secs(1)), "");
    }
}
