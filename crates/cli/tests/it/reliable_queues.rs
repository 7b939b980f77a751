//! Queues that lose no job: a worker moves a job into a list of its own, executes it, and then removes it from
//! that list. Its successor puts back the jobs of a worker that was killed. Workers and leaders are killed; each
//! job is done, and done once, because a script counts it together with its removal.

use crate::support::process::start_server;
use crate::support::replicas::{Follower, Outcome, Replicas};

const JOBS: usize = 300;
const WORKERS: usize = 3;
/// How often a worker may find no job before all are done. It waits for a tenth of a second each time.
const IDLE: usize = 1000;
/// The keys have a tag in common, as a cluster demands it of those of a script.
const QUEUE: &str = "{jobs}:queue";
const PUSHED: &str = "{jobs}:pushed";
const DONE: &str = "{jobs}:done";

/// Appends a job to the queue. A repetition of the call has no effect.
const PUSH: &str = "if redis.call('HSETNX', KEYS[1], ARGV[1], 1) == 1 then \
                      redis.call('RPUSH', KEYS[2], ARGV[1]) \
                    end";
/// Removes a job from a worker's list, and counts its execution. A repetition of the call has no effect.
const FINISH: &str = "if redis.call('LREM', KEYS[1], 1, ARGV[1]) == 1 then \
                        redis.call('HINCRBY', KEYS[2], ARGV[1], 1) \
                      end";

/// Calls a command until its outcome is known, which must not be an error.
fn insist(client: &mut Follower, args: &[&str]) -> Option<String> {
    let frame = client.insist(args);
    let text = frame
        .bytes()
        .map(|text| String::from_utf8_lossy(text).into_owned());
    assert!(!frame.is_error(), "{args:?}: {text:?}");
    text
}

fn number(client: &mut Follower, args: &[&str]) -> usize {
    let number = client.insist(args).int().expect("a number");
    number.try_into().expect("it is not negative")
}

/// Puts the jobs of a list back into the queue.
fn put_back(client: &mut Follower, list: &str) {
    while insist(client, &["LMOVE", list, QUEUE, "RIGHT", "LEFT"]).is_some() {}
}

/// Executes jobs until all are done, as one worker after the other. Returns how many of them were killed.
fn work(mut client: Follower, list: &str) -> usize {
    let (mut killed, mut idle) = (0, 0);
    for step in 0.. {
        let take = ["BLMOVE", QUEUE, list, "LEFT", "RIGHT", "0.1"];
        if step % 7 == 1 {
            client.die_after(&take);
            killed += 1;
        } else if let Outcome::Reply(frame) = client.call(&take) {
            let job = frame
                .bytes()
                .map(|job| String::from_utf8_lossy(job).into_owned());
            assert!(!frame.is_error(), "{job:?}");
            if let Some(job) = job {
                let finish = ["EVAL", FINISH, "2", list, DONE, &job];
                match step % 7 {
                    3 => client.leave(),
                    5 => client.die_after(&finish),
                    _ => {
                        insist(&mut client, &finish);
                        continue;
                    }
                }
                killed += 1;
            } else if number(&mut client, &["HLEN", DONE]) == JOBS {
                return killed;
            } else {
                idle += 1;
                assert!(idle < IDLE, "jobs are lost");
            }
        }
        // A command of a worker that was killed may still arrive after this; then it is put back later.
        put_back(&mut client, list);
    }
    unreachable!("the loop has no end")
}

/// Pushes jobs that workers execute, with `disturb` before each job. Checks that each job is done once.
fn each_job_is_done_once(connect: impl Fn() -> Follower, mut disturb: impl FnMut(usize)) {
    let lists: Vec<String> = (0..WORKERS)
        .map(|n| format!("{{jobs}}:worker{n}"))
        .collect();
    std::thread::scope(|scope| {
        let workers: Vec<_> = lists
            .iter()
            .map(|list| {
                let client = connect();
                scope.spawn(move || work(client, list))
            })
            .collect();
        let mut client = connect();
        for job in 0..JOBS {
            disturb(job);
            insist(
                &mut client,
                &["EVAL", PUSH, "2", PUSHED, QUEUE, &job.to_string()],
            );
        }
        let killed = workers
            .into_iter()
            .map(|worker| worker.join().expect("all jobs are done"));
        assert!(killed.sum::<usize>() > 0, "no worker was killed");
    });
    let mut client = connect();
    // The last command of a worker that was killed can be executed after all others, and finds no job.
    for list in lists.iter().map(String::as_str).chain([QUEUE]) {
        assert_eq!(number(&mut client, &["LLEN", list]), 0, "{list}");
    }
    for job in 0..JOBS {
        let count = insist(&mut client, &["HGET", DONE, &job.to_string()]);
        assert_eq!(count.as_deref(), Some("1"), "job {job}");
    }
}

#[test]
fn workers_are_killed() {
    let server = start_server(&["--ephemeral"]);
    each_job_is_done_once(|| Follower::of(vec![server.address]), |_| ());
}

#[test]
fn workers_and_leaders_are_killed() {
    let mut replicas = Replicas::start(1, 3);
    let addresses: Vec<_> = (1..=3).map(|node| replicas.address(node)).collect();
    let connect = || Follower::of(addresses.clone());
    each_job_is_done_once(connect, |job| {
        if job % 100 == 50 {
            let leader = replicas.leader(1);
            replicas.kill_node(leader);
            replicas.start_node(leader);
        }
    });
}
