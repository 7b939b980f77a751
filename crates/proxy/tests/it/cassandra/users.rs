//! Identities of clients: a user must not get the permissions of another user's connections.

use cql::Version;
use cql::request::Request;
use cql::response::{AUTHENTICATION_ERROR, PROTOCOL_ERROR};

use crate::cassandra::client::{Client, Proxy, Received};
use crate::cassandra::node::Nodes;

const USERS: [(&str, &str); 4] = [
    ("proxy", "p"),
    ("ann", "a secret"),
    ("bob", "a secret"),
    ("eve", "e"),
];

fn proxy(nodes: &Nodes) -> Proxy {
    Proxy::start(nodes, |config| {
        config.network_threads = 2;
        config.node_user = Some("proxy".to_owned());
        config.node_password = Some("p".to_owned());
    })
}

#[test]
fn requests_take_connections_of_their_own_user() {
    let nodes = Nodes::start(2, &USERS);
    let proxy = proxy(&nodes);
    let users = [("ann", "a secret"), ("bob", "a secret"), ("eve", "e")];
    std::thread::scope(|scope| {
        for round in 0..4 {
            for (user, password) in users {
                let version = [Version::V4, Version::V5][round % 2];
                let address = proxy.address;
                scope.spawn(move || {
                    let client = Client::of_user(address, version, user, password);
                    let mut client = client.expect("the right password");
                    let text = "SELECT * FROM app.echo WHERE k = ?";
                    client.prepare(text);
                    for turn in 0..50 {
                        let tag = format!("{user} {round} {turn}");
                        match turn % 3 {
                            0 => client.ask(turn, &tag),
                            1 => client.execute(turn, text, &tag),
                            _ => {
                                client.ask(turn, "USE app");
                                let used = Received::Other("Result".to_owned());
                                assert_eq!(client.receive(), (turn, used));
                                client.ask(turn, &tag);
                            }
                        }
                        let echo = Received::Echo(tag, user.to_owned());
                        assert_eq!(client.receive(), (turn, echo));
                    }
                });
            }
        }
    });
}

#[test]
fn who_is_not_known_gets_nothing() {
    let nodes = Nodes::start(1, &USERS);
    let proxy = proxy(&nodes);
    let mut ann = Client::of_user(proxy.address, Version::V4, "ann", "a secret")
        .unwrap_or_else(|told| panic!("{told:?}"));
    ann.prepare("SELECT * FROM app.echo WHERE k = ?");
    for (user, password) in [
        ("ann", "wrong"),
        ("ann", ""),
        ("nobody", "a secret"),
        ("", ""),
    ] {
        for version in [Version::V4, Version::V5] {
            let told = Client::of_user(proxy.address, version, user, password);
            let told = told.err().expect("it is refused");
            assert!(
                matches!(&told, Received::Error(AUTHENTICATION_ERROR, words)
                if words.contains("incorrect")),
                "{told:?}"
            );
        }
    }
    // A client gets nothing before it has authenticated, nor after it was refused.
    let select = |client: &mut Client| client.ask(2, "SELECT secret FROM app.echo");
    let local = |client: &mut Client| client.ask(2, "SELECT * FROM system.local");
    let execute =
        |client: &mut Client| client.execute(2, "SELECT * FROM app.echo WHERE k = ?", "secret");
    let prepare = |client: &mut Client| {
        let keyspace = None;
        let text = "SELECT secret FROM app.echo";
        client.send(
            2,
            Request::Prepare(cql::request::Prepare { text, keyspace }),
        );
    };
    let asks: [&dyn Fn(&mut Client); 4] = [&select, &local, &execute, &prepare];
    for ask in asks {
        for refused_before in [false, true] {
            for version in [Version::V4, Version::V5] {
                let mut eve = Client::connect(proxy.address, version);
                assert_eq!(eve.start(), Received::Other("Authenticate".to_owned()));
                if refused_before {
                    eve.send(1, Request::AuthResponse(Some(b"\0ann\0wrong")));
                    assert!(matches!(
                        eve.receive(),
                        (1, Received::Error(AUTHENTICATION_ERROR, _))
                    ));
                }
                ask(&mut eve);
                let (stream, told) = eve.receive();
                assert!(
                    stream == 2 && matches!(told, Received::Error(PROTOCOL_ERROR, _)),
                    "{told:?}"
                );
                assert!(eve.try_receive().is_err(), "the connection is closed");
            }
        }
    }
    assert_eq!(
        nodes.asked("SELECT secret FROM app.echo"),
        Vec::<usize>::new()
    );
    assert_eq!(nodes.asked("secret"), Vec::<usize>::new());
    // A request in the same packet after a wrong password is not executed, either.
    let mut eve = Client::connect(proxy.address, Version::V4);
    eve.start();
    let mut bytes = eve.packed(1, Request::AuthResponse(Some(b"\0ann\0wrong")));
    let none = cql::BoundValues::none(Version::V4);
    let parameters = cql::request::Parameters::new(cql::Consistency::One, none);
    let text = "SELECT secret FROM app.echo";
    bytes.extend(eve.packed(2, Request::Query(cql::request::Query { text, parameters })));
    std::io::Write::write_all(&mut eve.stream, &bytes).expect("the proxy reads");
    assert!(matches!(
        eve.receive(),
        (1, Received::Error(AUTHENTICATION_ERROR, _))
    ));
    assert!(matches!(
        eve.receive(),
        (2, Received::Error(PROTOCOL_ERROR, _))
    ));
    assert_eq!(nodes.asked(text), Vec::<usize>::new());
}

#[test]
fn a_login_leaves_no_connection_behind() {
    let nodes = Nodes::start(1, &USERS);
    let proxy = proxy(&nodes);
    for _ in 0..20 {
        let client = Client::of_user(proxy.address, Version::V4, "eve", "e");
        let mut client = client.unwrap_or_else(|told| panic!("{told:?}"));
        client.ask(3, "SELECT 1 FROM app.echo");
        assert!(matches!(client.receive(), (3, Received::Echo(_, user)) if user == "eve"));
    }
    // One for each login, a shared one on each thread, and the proxy's own.
    assert!(nodes.connections() <= 20 + 2 + 4, "{}", nodes.connections());
}
