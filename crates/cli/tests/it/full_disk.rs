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
