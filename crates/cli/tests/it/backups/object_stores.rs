//! Backups in a store that speaks the protocol of S3: s3rver.
//!
//! It knows keys, and does not check the signatures of version 4: the unit tests of crate `backup` compare these with the
//! examples of their documentation.

use std::net::SocketAddr;
use std::process::{Child, Command, Stdio};

use testkit::peers::{self, Group};
use testkit::process::finished;
use testkit::{Client, eventually};

use super::Place;
use crate::support::process::{kumiki, start_server};

/// The key that s3rver knows, and its secret; and the bucket that it has.
const KEY: &str = "S3RVER";
const BUCKET: &str = "backups";

/// A running store. It ends when this is dropped.
struct ObjectStore {
    process: Child,
    address: SocketAddr,
}

impl ObjectStore {
    /// Starts one; `None` after printing why the test does not run.
    fn start(place: &Place) -> Option<ObjectStore> {
        let node = peers::program(Group::Node, "node")?;
        let library = peers::installed(Group::Node, "node-s3/node_modules/s3rver")?;
        let address = testkit::free_address().expect("an address");
        let (host, port) = (address.ip().to_string(), address.port().to_string());
        let process = Command::new(node)
            .arg(library.join("bin/s3rver.js"))
            .args(["--directory", &place.text("objects"), "--silent"])
            .args([
                "--address",
                &host,
                "--port",
                &port,
                "--configure-bucket",
                BUCKET,
            ])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .spawn()
            .expect("the store starts");
        eventually("the store listens", || {
            std::net::TcpStream::connect(address).is_ok()
        });
        Some(ObjectStore { process, address })
    }

    /// Runs a command of ours with the store's URL and a key. Returns its exit code and what it has printed.
    fn run(&self, args: &[&str], key: &str) -> (Option<i32>, String) {
        let mut command = kumiki();
        command
            .args(args)
            .env("AWS_ENDPOINT_URL", format!("http://{}", self.address))
            .env("AWS_ACCESS_KEY_ID", key)
            .env("AWS_SECRET_ACCESS_KEY", KEY)
            .env_remove("AWS_SESSION_TOKEN");
        let (code, out, errors) = finished(&mut command);
        (code, out + &errors)
    }

    #[track_caller]
    fn done(&self, args: &[&str]) -> String {
        let (code, said) = self.run(args, KEY);
        assert_eq!(code, Some(0), "{args:?}: {said}");
        said
    }
}

impl Drop for ObjectStore {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

#[test]
fn backups_lie_in_a_store_of_objects() {
    let place = Place::new();
    let Some(store) = ObjectStore::start(&place) else {
        return;
    };
    let node = start_server(&["--data", &place.text("data")]);
    let mut client = Client::connect(node.address);
    let from = node.address.to_string();
    let to = format!("s3://{BUCKET}/shop/nightly");
    let create = ["backup", "create", "--from", &from, "--to", &to];
    for number in 0..3 {
        assert_eq!(client.told(&format!("SET key:{number} {number}")), "+OK");
        let said = store.done(&create);
        let kind = if number == 0 { "full" } else { "incremental" };
        assert!(said.contains(kind), "{said}");
    }
    let listed = store.done(&["backup", "list", &to]);
    assert_eq!(
        listed.lines().filter(|line| line.contains("Z.")).count(),
        3,
        "{listed}"
    );
    assert!(store.done(&["backup", "verify", &to]).contains("3 backups"));
    let restored = place.text("restored");
    store.done(&["backup", "restore", "--backup", &to, "--to", &restored]);
    let node = start_server(&["--data", &restored]);
    assert_eq!(Client::connect(node.address).told("DBSIZE"), "3");
    // Mistakes: another key, another bucket, a prefix without backups.
    let (code, said) = store.run(&["backup", "list", &to], "another");
    assert!(
        code == Some(1) && said.contains("InvalidAccessKeyId"),
        "{said}"
    );
    let (code, said) = store.run(&["backup", "list", "s3://other/shop"], KEY);
    assert!(code == Some(1) && said.contains("NoSuchBucket"), "{said}");
    let (code, said) = store.run(&["backup", "list", &format!("s3://{BUCKET}/other")], KEY);
    assert!(
        code == Some(1) && said.contains("holds no backups"),
        "{said}"
    );
}
