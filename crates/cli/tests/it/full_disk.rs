//! A disk that fills up under a running server, and has room again.

use std::path::{Path, PathBuf};
use std::process::Command;

use tempfile::TempDir;
use testkit::http::get;
use testkit::process::Server;
use testkit::{Client, eventually, free_address};

use crate::support::process::serve;
use crate::support::replicas::Replicas;

/// A file system of its own, of a size that can be changed.
struct SmallDisk {
    at: PathBuf,
    /// Its directory, unless it is mounted below a directory of another owner.
    _dir: Option<TempDir>,
}

impl SmallDisk {
    /// Mounts it; `None`: this process may not mount file systems.
    fn mount(size: &str) -> Option<SmallDisk> {
        let dir = tempfile::tempdir().expect("a temporary directory");
        SmallDisk::mount_at(dir.path().to_owned(), Some(dir), size)
    }

    fn mount_at(at: PathBuf, dir: Option<TempDir>, size: &str) -> Option<SmallDisk> {
        let disk = SmallDisk { at, _dir: dir };
        let options = format!("size={size},mode=700");
        let is_mounted = disk.run("mount", &["-t", "tmpfs", "-o", &options, "tmpfs"]);
        if !is_mounted {
            eprintln!("skipped: a file system of its own cannot be mounted, as only root can");
        }
        is_mounted.then_some(disk)
    }

    fn resize(&self, size: &str) {
        let options = format!("remount,size={size}");
        assert!(self.run("mount", &["-o", &options]), "it is resized");
    }

    fn run(&self, program: &str, args: &[&str]) -> bool {
        let command = Command::new(program).args(args).arg(&self.at).output();
        command.is_ok_and(|output| output.status.success())
    }

    fn data(&self) -> PathBuf {
        self.at.join("data")
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        self.run("umount", &["--lazy"]);
    }
}

fn start(data: &Path, admin: &str) -> Server {
    Server::start(|address, dir| {
        let mut command = serve(address);
        command.current_dir(dir).arg("--data").arg(data);
        command.args(["--log-segment-size", "8mb", "--admin", admin]);
        command
    })
}

/// Writes values of 64 KiB under `key0`, `key1`, … from `first` on until one is refused. Returns
/// the number of written keys, and the refusal.
fn fill(client: &mut Client, first: usize) -> (usize, String) {
    let value = "x".repeat(64 * 1024);
    for number in first..first + 100_000 {
        let said = client.told(&format!("SET key{number} {value}"));
        if said != "+OK" {
            return (number, said);
        }
    }
    panic!("the disk does not fill up");
}

#[test]
fn writes_go_on_when_a_full_disk_has_room_again() {
    let Some(disk) = SmallDisk::mount("24m") else {
        return;
    };
    let admin = free_address().expect("a free port");
    let server = start(&disk.data(), &admin.to_string());
    let mut client = Client::connect(server.address);
    let mut count = 0;
    for (round, size) in ["48m", "72m"].into_iter().enumerate() {
        let (filled, refusal) = fill(&mut client, count);
        assert!(filled > count, "round {round}: {refusal}");
        count = filled;
        // The outcome of the write that found the disk full is unknown; later writes are refused at once.
        assert!(refusal.starts_with("-MISCONF"), "{refusal}");
        let refusal = client.told("SET other value");
        assert!(refusal.contains("No space left on device"), "{refusal}");
        assert!(refusal.contains("until there is room"), "{refusal}");
        assert_eq!(client.told("PING"), "+PONG", "the connection stays");
        assert_eq!(client.told("STRLEN key0"), "65536", "reads go on");
        let health = get(admin, "/health");
        assert_eq!(health.status, 503);
        assert!(health.body.contains("No space left"), "{}", health.body);
        let info = client.told("INFO persistence");
        assert!(info.contains("aof_last_write_status:err"), "{info}");
        disk.resize(size);
        eventually("writes are accepted", || {
            client.told("SET other value") == "+OK"
        });
        assert_eq!(get(admin, "/health").status, 200);
        assert!(
            client
                .told("INFO persistence")
                .contains("aof_last_write_status:ok")
        );
    }
    drop(server);
    let server = start(&disk.data(), &admin.to_string());
    let mut client = Client::connect(server.address);
    for number in 0..count {
        assert_eq!(
            client.told(&format!("STRLEN key{number}")),
            "65536",
            "{number}"
        );
    }
    assert_eq!(client.told("GET other"), "value");
}

/// Returns a cluster of three members of which the last has a disk of its own; `None`: this process may
/// not mount file systems.
fn with_small_disk(size: &str, options: &[&str]) -> Option<(Replicas, SmallDisk)> {
    let mut disk = None;
    let replicas = Replicas::start_prepared(1, 3, options, |data| {
        if data.ends_with("node3") {
            std::fs::create_dir(data).expect("a directory");
            disk = SmallDisk::mount_at(data.to_owned(), None, size);
        }
    });
    Some((replicas, disk?))
}

/// Its data is more than its disk holds, so that no snapshot makes room.
#[test]
fn a_replica_with_a_full_disk_names_it_wherever_it_is_asked() {
    const NODE: usize = 3;
    const FULL: &str = "No space left";
    let options = ["--log-segment-size", "4mb", "--admin", "127.0.0.1:0"];
    let Some((replicas, disk)) = with_small_disk("20m", &options) else {
        return;
    };
    let mut client = replicas.client();
    let value = "x".repeat(64 * 1024);
    for number in 0..400 {
        let key = format!("key{number}");
        eventually("the other members accept the write", || {
            !client.insist(&["SET", &key, &value]).is_error()
        });
    }
    let admin = replicas.admin(NODE);
    let mut at = Client::connect(replicas.address(NODE));
    eventually("it says that its disk is full", || {
        let health = get(admin, "/health");
        health.status == 503 && health.body.contains(FULL)
    });
    let metrics = get(admin, "/metrics").body;
    assert!(metrics.contains("\nkumiki_log_failed 1\n"), "{metrics}");
    let info = at.told("INFO persistence");
    assert!(info.contains("aof_last_write_status:err"), "{info}");
    assert!(info.contains(FULL), "{info}");
    let (code, table, said) = replicas.command(&["status"]);
    assert_eq!(code, Some(1), "{table}{said}");
    let node = said
        .lines()
        .find(|line| line.contains(&format!("node {NODE}")));
    let node = node.expect("a line about it");
    assert!(node.contains(FULL) && !node.contains("network"), "{said}");
    // There is no room for a snapshot, either.
    let said = at.told("SAVE");
    assert!(said.starts_with("-ERR no checkpoint was made: "), "{said}");
    assert!(said.contains(FULL), "{said}");
    let said = at.told("BGSAVE");
    assert!(
        said == "+Background saving started" || said.contains(FULL),
        "{said}"
    );
    eventually("the save has failed", || {
        let info = at.told("INFO persistence");
        info.contains("rdb_bgsave_in_progress:0") && info.contains("rdb_last_bgsave_status:err")
    });

    disk.resize("200m");
    eventually("it has caught up", || {
        get(admin, "/health").status == 200 && replicas.command(&["status"]).0 == Some(0)
    });
    let metrics = get(admin, "/metrics").body;
    assert!(metrics.contains("\nkumiki_log_failed 0\n"), "{metrics}");
    let info = at.told("INFO persistence");
    assert!(info.contains("aof_last_write_status:ok"), "{info}");
    eventually("a save succeeds", || at.told("SAVE") == "+OK");
    at.told("READONLY");
    eventually("it has everything", || at.told("STRLEN key399") == "65536");
    // The directory can be removed once nothing is mounted there.
    drop(disk);
}

/// A member without its data gets a snapshot, for which its disk is too small.
#[test]
fn a_snapshot_that_does_not_fit_is_named() {
    const NODE: usize = 3;
    let options = ["--log-segment-size", "1mb"];
    let Some((mut replicas, disk)) = with_small_disk("200m", &options) else {
        return;
    };
    let mut client = replicas.client();
    let value = "x".repeat(64 * 1024);
    for number in 0..400 {
        client.insist(&["SET", &format!("key{number}"), &value]);
    }
    replicas.kill_node(NODE);
    for entry in std::fs::read_dir(replicas.data(NODE)).expect("its directory") {
        let path = entry.expect("an entry").path();
        match path.is_dir() {
            true => std::fs::remove_dir_all(path).expect("removed"),
            false => std::fs::remove_file(path).expect("removed"),
        }
    }
    disk.resize("8m");
    replicas.start_node(NODE);
    let number = NODE.to_string();
    let (code, _, said) = replicas.command(&["add", "--node", &number, "--timeout", "5"]);
    assert_eq!(code, Some(1), "{said}");
    eventually("status names the cause", || {
        let (code, _, said) = replicas.command(&["status"]);
        let cause = said.contains("cannot be received") && said.contains("No space left");
        code == Some(1) && cause && said.contains(&format!("node {NODE}: "))
    });
    let offers = replicas.log(NODE).matches("cannot be received").count();
    assert!(offers < 50, "{}", replicas.log(NODE));
    disk.resize("200m");
    eventually("it is added", || {
        replicas.command(&["add", "--node", &number]).0 == Some(0)
    });
    // The directory can be removed once nothing is mounted there.
    drop(disk);
}

/// The log of each member fills its disk long before a snapshot is due: a snapshot is made in space that is
/// set aside for it, and the log cut behind it.
#[test]
fn replicas_whose_logs_fill_their_disks_go_on() {
    const KEYS: usize = 16;
    const WRITES: usize = 2400;
    let mut disks = Vec::new();
    let options = ["--log-segment-size", "8mb", "--checkpoint-log-size", "1gb"];
    let replicas = Replicas::start_prepared(1, 3, &options, |data| {
        std::fs::create_dir(data).expect("a directory");
        disks.push(SmallDisk::mount_at(data.to_owned(), None, "34m"));
    });
    if disks.iter().any(Option::is_none) {
        return;
    }
    // 150 MiB in all.
    let mut client = replicas.client();
    let value = |number: usize| format!("{number} {}", "x".repeat(64 * 1024));
    for number in 0..WRITES {
        let (key, value) = (format!("key{}", number % KEYS), value(number));
        eventually("the write is accepted", || {
            !client.insist(&["SET", &key, &value]).is_error()
        });
    }
    for number in WRITES - KEYS..WRITES {
        let key = format!("key{}", number % KEYS);
        let read = client.insist(&["GET", &key]);
        assert_eq!(read.bytes(), Some(value(number).as_bytes()));
    }
    for node in 1..=3 {
        let log = replicas.log(node);
        assert!(log.contains("No space left on device"), "{node}: {log}");
        let said = Client::connect(replicas.address(node)).told("SAVE");
        assert_eq!(said, "+OK", "node {node}");
    }
    // The directories can be removed once nothing is mounted there.
    drop(disks);
}
