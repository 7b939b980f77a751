//! The node authenticates clients, and through the proxy each user has only his own permissions.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use cql::Version;

use crate::proxy_cassandra::connection::Connection;
use crate::proxy_cassandra::{FIRST_USER, proxy};
use testkit::free_address;

pub(crate) fn what_one_may_others_may_not(node: SocketAddr) {
    let [name, password] = FIRST_USER;
    let own = ["--node-user", name, "--node-password", password];
    let proxy = proxy(free_address().expect("a free port"), node, &own);
    for (turn, version) in [Version::V4, Version::V5].into_iter().enumerate() {
        let of = |user: &str, password: &str| {
            Connection::of_user(proxy.address, version, user, password)
        };
        let mut first = of(name, password).expect("the right password");
        let (ann, bob) = (format!("ann{turn}"), format!("bob{turn}"));
        for text in [
            format!("CREATE ROLE {ann} WITH PASSWORD = 'a secret' AND LOGIN = true"),
            format!("CREATE ROLE {bob} WITH PASSWORD = 'a secret' AND LOGIN = true"),
            format!(
                "CREATE KEYSPACE users{turn} WITH replication = \
                 {{'class': 'SimpleStrategy', 'replication_factor': 1}}"
            ),
            format!("CREATE TABLE users{turn}.notes (k int PRIMARY KEY, v int)"),
            format!("GRANT SELECT ON KEYSPACE users{turn} TO {ann}"),
            format!("GRANT MODIFY ON KEYSPACE users{turn} TO {bob}"),
        ] {
            first.execute(&text).expect("the first user may");
        }
        refused_like_directly(node, proxy.address, version, &ann);
        let (select, insert) = (
            format!("SELECT * FROM users{turn}.notes"),
            format!("INSERT INTO users{turn}.notes (k, v) VALUES (1, 1)"),
        );
        let mut clients = [&ann, &bob].map(|user| of(user, "a secret").expect("its password"));
        for _ in 0..50 {
            first.execute(&select).expect("the first user may");
            first.execute(&insert).expect("the first user may");
            let [ann, bob] = &mut clients;
            ann.execute(&select).expect("it was granted");
            bob.execute(&insert).expect("it was granted");
            for (client, text) in [(ann, &insert), (bob, &select)] {
                let words = client.execute(text).expect_err("it was not granted");
                assert!(words.contains("permission"), "{words}");
            }
        }
        // A client with a wrong password gains nothing from connections that were accepted with the
        // old one.
        let alter = format!("ALTER ROLE {ann} WITH PASSWORD = 'another'");
        // Cassandra allows one change of a role's password in five seconds.
        let begun = Instant::now();
        while let Err(words) = first.execute(&alter) {
            assert!(words.contains("only be changed every"), "{words}");
            assert!(begun.elapsed() < Duration::from_secs(30), "{words}");
            std::thread::sleep(Duration::from_millis(200));
        }
        assert!(of(&ann, "a secret").is_err(), "the password is the old one");
        let mut ann = of(&ann, "another").expect("the new password");
        ann.execute(&select).expect("it was granted");
    }
    assert!(proxy.terminate().success());
}

/// Checks that a wrong password gets the same answer through the proxy as without it.
fn refused_like_directly(node: SocketAddr, proxy: SocketAddr, version: Version, user: &str) {
    for (user, password) in [(user, "wrong"), (user, ""), ("nobody", "a secret")] {
        let said = [node, proxy].map(|address| {
            let refused = Connection::of_user(address, version, user, password);
            refused.err().expect("it is refused")
        });
        assert_eq!(said[0], said[1]);
    }
}
