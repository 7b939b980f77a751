//! Packages of others that keep locks, counters, limits, sessions, messages and queues of jobs on a server. Each
//! does its documented job. The programs that use them are in `clients/`; docs/frameworks.md lists the packages.
//!
//! `cargo xtask peers python node go queues` installs them. Without them a test says so and passes; with
//! `KUMIKI_REQUIRE_PEERS=1` it fails.

use std::process::Command;
use std::time::Duration;

use testkit::peers::{self, Group};
use testkit::process::Server;
use testkit::{Client, eventually};

use crate::support::clients::{run, script};
use crate::support::cluster::{Cluster, Keeping};
use crate::support::process::{proxy, serve, start_server};
use crate::support::replicas::Replicas;

const NODES: usize = 2;

/// Runs a test of `frameworks.py` with a server.
fn python(name: &str) {
    let (Some(python), Some(library)) = (
        peers::program(Group::Python, "python3"),
        peers::installed(Group::Python, "python-frameworks/django_redis"),
    ) else {
        return;
    };
    let server = start_server(&["--ephemeral"]);
    let mut command = Command::new(&python);
    command.arg(script("frameworks.py")).arg(name);
    command.arg(server.address.port().to_string());
    let folder = library.parent().expect("it lies in a folder");
    assert_eq!(run(command.env("PYTHONPATH", folder), ""), "done\n");
}

/// Returns the command that runs a test of `frameworks.js`, but for the port, if its packages are installed.
fn node(name: &str) -> Option<Command> {
    let node = peers::program(Group::Node, "node")?;
    let library = peers::installed(Group::Node, "node-frameworks/node_modules/redlock")?;
    let mut command = Command::new(&node);
    command.arg(script("frameworks.js")).arg(name);
    command.env("NODE_PATH", library.parent().expect("it lies in a folder"));
    Some(command)
}

/// Runs a test of `frameworks.js` with a server.
fn node_with_server(name: &str) {
    if let Some(mut command) = node(name) {
        let server = start_server(&["--ephemeral"]);
        command.arg(server.address.port().to_string());
        assert_eq!(run(&command, ""), "done\n");
    }
}

/// Returns the command that runs a program of `queues/` in Python, but for the port, if its packages are
/// installed, which lie beside `package`.
fn python_queue(group: Group, package: &str, program: &str) -> Option<Command> {
    let python = peers::program(group, "python3")?;
    let package = peers::installed(group, package)?;
    let mut command = Command::new(&python);
    command.arg(script("queues/run.py")).arg(program);
    command.env("PYTHONPATH", package.parent().expect("it lies in a folder"));
    Some(command)
}

/// Runs a program of `queues/` in Python with a server.
fn python_queue_with_server(group: Group, package: &str, program: &str) {
    if let Some(mut command) = python_queue(group, package, program) {
        let server = start_server(&["--ephemeral"]);
        command.env("PORT", server.address.port().to_string());
        assert_eq!(run(&command, ""), "done\n");
    }
}

/// Returns the command that runs a part of a program of `queues/` in Node, but for the port, if its packages are
/// installed.
fn node_queue(program: &str, part: &str) -> Option<Command> {
    let node = peers::program(Group::Node, "node")?;
    let package = peers::installed(Group::Node, "node-queues/node_modules/bullmq")?;
    let mut command = Command::new(&node);
    command.arg(script("queues").join(program)).arg(part);
    command.env("NODE_PATH", package.parent().expect("it lies in a folder"));
    Some(command)
}

/// Runs a part of a program of `queues/` in Node with a server.
fn node_queue_with_server(program: &str, part: &str) {
    if let Some(mut command) = node_queue(program, part) {
        let server = start_server(&["--ephemeral"]);
        command.arg(server.address.port().to_string());
        assert_eq!(run(&command, ""), "done\n");
    }
}

/// Runs a program of `queues/`, `pass` tells it the port, through a proxy before three replicas. Once a job has been
/// executed, the leader is killed three times.
fn although_leaders_are_killed(mut command: Command, pass: impl Fn(&mut Command, &str)) {
    let mut replicas = Replicas::start(1, 3);
    let proxy = proxy(&["--cluster", &replicas.file()]);
    pass(&mut command, &proxy.address.port().to_string());
    let is_answered = |words: &[&str], expected: &str| {
        let mut client = Client::connect(proxy.address);
        client.send(words);
        client
            .try_reply()
            .is_ok_and(|reply| reply.shown() == expected)
    };
    std::thread::scope(|scope| {
        let client = scope.spawn(|| run(&command, ""));
        eventually("jobs are executed", || {
            client.is_finished() || is_answered(&["EXISTS", "done"], "1")
        });
        assert!(!client.is_finished(), "it ends before a leader is killed");
        for _ in 0..3 {
            let leader = replicas.leader(1);
            replicas.kill_node(leader);
            std::thread::sleep(Duration::from_millis(500));
            replicas.start_node(leader);
        }
        eventually("the client sees that no more are killed", || {
            is_answered(&["SET", "over", "yes"], "+OK")
        });
        assert_eq!(client.join().expect("it ends well"), "done\n");
    });
}

/// Tells a program in Python the port of its server.
fn by_environment(command: &mut Command, port: &str) {
    command.env("PORT", port);
}

/// Tells a program in Node the port of its server.
fn by_argument(command: &mut Command, port: &str) {
    command.arg(port);
}

/// Runs a program of `java-frameworks/` from its source with a server.
fn java(jars: &str, program: &str) {
    let (Some(jars), Some(java)) = (
        peers::installed(Group::Queues, jars),
        peers::find(Group::Queues, "Java 17", || cassandra::java().ok()),
    ) else {
        return;
    };
    let server = start_server(&["--ephemeral"]);
    let mut command = Command::new(&java);
    // It ends before it would pay to compile much of it.
    command.args(["-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC"]);
    command.arg("-cp").arg(jars.join("*"));
    command.arg(script("java-frameworks").join(program));
    command.arg(server.address.port().to_string());
    assert_eq!(run(&command, ""), "done\n");
}

#[test]
fn locks_of_redis_py_exclude_each_other() {
    python("locks_of_redis_py");
}

#[test]
fn scripts_of_redis_py_are_loaded_and_run() {
    python("scripts_of_redis_py");
}

#[test]
fn django_redis_counts_and_locks() {
    python("cache_of_django_redis");
}

#[test]
fn limits_allows_as_many_hits_as_it_says() {
    python("limits_of_limits");
}

#[test]
fn redlock_excludes_others() {
    node_with_server("redlock");
}

#[test]
fn express_rate_limit_serves_as_many_requests_as_it_says() {
    node_with_server("expressRateLimit");
}

#[test]
fn commands_that_ioredis_defines_are_scripts() {
    node_with_server("defineCommand");
}

#[test]
fn scripts_of_node_redis_are_loaded_and_run() {
    node_with_server("scriptsOfNodeRedis");
}

#[test]
fn redis_py_gets_each_expiry_once() {
    python("expiries_with_redis_py");
}

#[test]
fn node_redis_keeps_values_that_do_not_change() {
    node_with_server("cacheOfNodeRedis");
}

#[test]
fn node_redis_keeps_values_through_a_proxy() {
    if let Some(mut command) = node("cacheOfNodeRedis") {
        let server = start_server(&["--ephemeral"]);
        let proxy = proxy(&["--redis", &server.address.to_string()]);
        command.arg(proxy.address.port().to_string());
        command.arg(server.address.port().to_string());
        assert_eq!(run(&command, ""), "done\n");
    }
}

#[test]
fn ioredis_and_redlock_run_scripts_on_a_cluster() {
    if let Some(mut command) = node("ofCluster") {
        let cluster = Cluster::start(NODES, Keeping::Nothing);
        command.arg(cluster.address(1).port().to_string());
        assert_eq!(run(&command, ""), "done\n");
    }
}

#[test]
fn redsync_go_redis_and_rueidis_work() {
    if let Some(program) = peers::installed(Group::Go, "go-frameworks/client") {
        let server = start_server(&["--ephemeral"]);
        let mut command = Command::new(&program);
        command.arg(server.address.to_string());
        assert_eq!(run(&command, ""), "done\n");
    }
}

#[test]
fn redsync_go_redis_and_rueidis_work_with_a_cluster() {
    if let Some(program) = peers::installed(Group::Go, "go-frameworks/client") {
        let cluster = Cluster::start(NODES, Keeping::Nothing);
        let mut command = Command::new(&program);
        command.arg("cluster").arg(cluster.address(0).to_string());
        assert_eq!(run(&command, ""), "done\n");
    }
}

#[test]
fn rq_does_each_job_also_those_of_killed_workers() {
    python_queue_with_server(Group::Python, "python-frameworks/rq", "rq_jobs");
}

#[test]
fn rq_does_each_job_although_leaders_are_killed() {
    if let Some(command) = python_queue(Group::Python, "python-frameworks/rq", "rq_leaders") {
        although_leaders_are_killed(command, by_environment);
    }
}

#[test]
fn channels_carry_messages_between_processes() {
    let package = "python-frameworks/channels_redis";
    python_queue_with_server(Group::Python, package, "channels_layers");
}

#[test]
fn celery_does_each_task_also_those_of_killed_workers() {
    python_queue_with_server(Group::Queues, "python-queues/celery", "celery_jobs");
}

#[test]
fn celery_does_each_task_through_the_proxy() {
    if let Some(mut command) = python_queue(Group::Queues, "python-queues/celery", "celery_jobs") {
        let cluster = Cluster::start(3, Keeping::Nothing);
        let proxy = proxy(&["--cluster", &cluster.file()]);
        command.env("PORT", proxy.address.port().to_string());
        assert_eq!(run(&command, ""), "done\n");
    }
}

#[test]
fn dramatiq_does_each_job_also_those_of_killed_workers() {
    python_queue_with_server(Group::Queues, "python-queues/dramatiq", "dramatiq_jobs");
}

#[test]
fn huey_does_each_task_once() {
    python_queue_with_server(Group::Queues, "python-queues/huey", "huey_jobs");
}

#[test]
fn huey_does_each_task_although_leaders_are_killed() {
    if let Some(command) = python_queue(Group::Queues, "python-queues/huey", "huey_leaders") {
        although_leaders_are_killed(command, by_environment);
    }
}

#[test]
fn arq_does_each_job_once() {
    python_queue_with_server(Group::Queues, "python-arq/arq", "arq_jobs");
}

#[test]
fn bullmq_does_each_job_once() {
    node_queue_with_server("bullmq.js", "all");
}

#[test]
fn bullmq_reports_each_event_once() {
    node_queue_with_server("bullmq.js", "events");
}

#[test]
fn bullmq_does_the_jobs_of_a_killed_worker() {
    node_queue_with_server("bullmq.js", "kills");
}

#[test]
fn bullmq_does_each_job_although_the_server_is_killed() {
    let Some(mut command) = node_queue("bullmq.js", "kills") else {
        return;
    };
    let dir = tempfile::tempdir().expect("a temporary directory");
    let start = |address| {
        let mut command = serve(address);
        command.arg("--data").arg(dir.path());
        command
    };
    let mut server = Server::start(|address, _| start(address));
    let address = server.address;
    command.arg(address.port().to_string());
    std::thread::scope(|scope| {
        let client = scope.spawn(|| run(&command, ""));
        // The jobs have been added: a repetition of that would add them twice.
        eventually("jobs are executed", || {
            client.is_finished() || Client::connect(address).told("EXISTS done") == "1"
        });
        assert!(!client.is_finished(), "it ends before the server is killed");
        for _ in 0..3 {
            server.kill();
            server = Server::insist_at(address, |address, _| start(address)).expect("it restarts");
            std::thread::sleep(Duration::from_millis(500));
        }
        assert_eq!(client.join().expect("it ends well"), "done\n");
    });
}

#[test]
fn bullmq_does_each_job_although_leaders_are_killed() {
    if let Some(command) = node_queue("bullmq.js", "kills") {
        although_leaders_are_killed(command, by_argument);
    }
}

#[test]
fn connect_redis_keeps_sessions() {
    node_queue_with_server("web.js", "sessions");
}

#[test]
fn socket_io_carries_messages_by_channels() {
    node_queue_with_server("web.js", "messagesByChannels");
}

#[test]
fn socket_io_carries_messages_by_sharded_channels() {
    node_queue_with_server("web.js", "messagesByShardedChannels");
}

#[test]
fn socket_io_carries_messages_by_streams() {
    node_queue_with_server("web.js", "messagesByStreams");
}

#[test]
fn sidekiq_does_each_job() {
    let (Some(_), Some(ruby)) = (
        peers::program(Group::Queues, "sidekiq"),
        peers::program(Group::Queues, "ruby"),
    ) else {
        return;
    };
    let server = start_server(&["--ephemeral"]);
    let mut command = Command::new(&ruby);
    command.arg(script("queues/sidekiq_jobs.rb"));
    command.env("REDIS_URL", format!("redis://{}/0", server.address));
    assert_eq!(run(&command, ""), "done\n");
}

#[test]
fn objects_of_redisson_work() {
    java("redisson/lib", "RedissonObjects.java");
}

#[test]
fn spring_session_keeps_finds_and_announces_sessions() {
    java("spring-session/lib", "SpringSessions.java");
}
