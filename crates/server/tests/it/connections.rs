//! Connections: order, pieces, limits, fairness, the end.

use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use crate::support::{bulk, config, connect, ephemeral, error, int, ok, status};
use kumiki_server::{Config, Limits};
use resp::command::write_command;
use testkit::client::Answer;
use testkit::wait::PATIENCE;
use testkit::{Client, Reply, eventually_some};

fn limited(change: impl FnOnce(&mut Limits)) -> Config {
    let mut config = config();
    change(&mut config.limits);
    config
}

#[test]
fn replies_have_the_order_of_commands() {
    let served = ephemeral(config());
    let mut client = served.client();
    let mut bytes = Vec::new();
    for number in 0..5000 {
        let text = number.to_string();
        write_command(&mut bytes, &[b"SET", b"a", text.as_bytes()]);
        match number % 3 {
            0 => write_command(&mut bytes, &[b"GET", b"a"]),
            1 => bytes.extend_from_slice(b"GET \"a\"\r\n"),
            _ => write_command(&mut bytes, &[b"ECHO", text.as_bytes()]),
        }
    }
    client.send_raw(&bytes);
    for number in 0..5000 {
        assert_eq!(client.reply(), ok());
        assert_eq!(client.reply(), bulk(&number.to_string()));
    }
}

#[test]
fn pieces_make_no_difference() {
    let served = ephemeral(config());
    let mut client = served.client();
    let mut bytes = Vec::new();
    write_command(&mut bytes, &[b"SET", b"key", b"some\r\nvalue"]);
    bytes.extend_from_slice(b"GET key\r\n");
    for byte in bytes {
        client.send_raw(&[byte]);
    }
    assert_eq!(client.reply(), ok());
    assert_eq!(client.reply(), bulk("some\r\nvalue"));
}

#[test]
fn a_large_value_comes_and_goes_while_others_are_served() {
    let served = ephemeral(config());
    let value = "0123456789abcdef".repeat(3 << 20);
    let address = served.server.as_ref().unwrap().address();
    let (mut other, expected) = (served.client(), value.clone());
    let large = std::thread::spawn(move || {
        let mut client = connect(address);
        assert_eq!(client.call(&["SET", "large", &value]), ok());
        client.send(&["GET", "large"]);
        client.send(&["STRLEN", "large"]);
        // The client does not read for a while, which fills the socket; no other client must
        // notice.
        std::thread::sleep(Duration::from_millis(100));
        (client.reply(), client.reply())
    });
    while !large.is_finished() {
        let start = Instant::now();
        assert_eq!(other.call(&["PING"]), status("PONG"));
        assert!(start.elapsed() < Duration::from_secs(2));
    }
    let (got, len) = large.join().unwrap();
    assert_eq!(len, int(expected.len() as i64));
    assert!(got == bulk(&expected), "the value has changed on its way");
}

/// As pipelines of many clients do: everything is written before anything is read.
#[test]
fn a_client_may_write_everything_before_it_reads() {
    const COUNT: usize = 400_000;
    let served = ephemeral(config());
    let mut client = served.client();
    let value = "x".repeat(100);
    assert_eq!(client.call(&["SET", "a", &value]), ok());
    let mut command = Vec::new();
    write_command(&mut command, &[b"GET", b"a"]);
    let commands = command.repeat(COUNT);
    // A busy machine takes its time.
    let longest = Some(Duration::from_secs(300));
    client.stream().set_write_timeout(longest).unwrap();
    client.stream().write_all(&commands).unwrap();
    // Others are served in the meantime.
    assert_eq!(served.client().call(&["PING"]), status("PONG"));
    let expected = bulk(&value);
    for number in 0..COUNT {
        assert!(client.reply() == expected, "reply {number}");
    }
}

/// The replies that clients do not take are bounded for all clients together.
#[test]
fn clients_that_take_no_replies_are_closed_before_they_take_all_memory() {
    let served = ephemeral(limited(|limits| limits.in_flight = 64 << 20));
    let mut other = served.client();
    assert_eq!(other.call(&["SET", "a", &"x".repeat(8 << 20)]), ok());
    let mut clients: Vec<Client> = (0..20).map(|_| served.client()).collect();
    for client in &mut clients {
        client.send(&["GET", "a"]);
    }
    testkit::eventually("some are closed", || {
        let count = other.told("INFO clients");
        let line = count
            .lines()
            .find_map(|line| line.strip_prefix("connected_clients:"));
        line.is_some_and(|count| count.trim().parse::<usize>().is_ok_and(|count| count < 20))
    });
    let memory = other.told("INFO memory");
    let used = memory
        .lines()
        .find_map(|line| line.strip_prefix("mem_clients_normal:"));
    let used: u64 = used.expect("a figure").trim().parse().expect("a number");
    assert!(used <= 64 << 20, "{used}");
    // Those that have their place get what they asked for, and then there is room again.
    let served_whole = |client: &mut Client| client.try_reply().is_ok();
    let whole = clients
        .iter_mut()
        .filter_map(|client| served_whole(client).then_some(()));
    assert!(whole.count() >= 4);
    drop(clients);
    testkit::eventually("what they held is given back", || {
        other.told("INFO memory").contains("mem_clients_normal:0")
    });
    assert_eq!(other.call(&["PING"]), status("PONG"));
}

#[test]
fn a_client_whose_replies_exceed_its_limit_is_closed() {
    let served = ephemeral(limited(|limits| limits.output = 100_000));
    let mut client = served.client();
    assert_eq!(client.call(&["SET", "a", &"x".repeat(1 << 20)]), ok());
    let gets = ["a"; 64];
    let command: Vec<&str> = std::iter::once("MGET").chain(gets).collect();
    client.send(&command);
    assert!(client.is_closed());
    assert_eq!(served.client().call(&["PING"]), status("PONG"));
}

/// One that was made would be longer than this machine's memory.
#[test]
fn a_reply_of_more_than_there_is_room_for_is_not_made() {
    let served = ephemeral(limited(|limits| limits.in_flight = 64 << 20));
    let mut client = served.client();
    assert_eq!(client.call(&["SET", "a", &"x".repeat(16 << 20)]), ok());
    let mut names = vec!["MGET"];
    names.resize(1 + 8000, "a");
    let mut two = served.client();
    assert!(matches!(two.call(&["MGET", "a", "a"]), Reply::Array(_)));
    two.send(&names);
    assert!(two.is_closed());
    let mut block = served.client();
    for command in [&["MULTI"][..], &["SET", "b", "1"], &names, &["EXEC"]] {
        block.send(command);
    }
    for _ in 0..3 {
        assert!(matches!(block.reply(), Reply::Status(_)));
    }
    assert!(block.is_closed());
    assert_eq!(
        client.call(&["GET", "b"]),
        bulk("1"),
        "the block took effect"
    );
}

#[test]
fn watched_keys_count_as_memory_of_clients() {
    let served = ephemeral(limited(|limits| limits.in_flight = 4 << 20));
    let key = "k".repeat(60 << 10);
    let mut client = served.client();
    for _ in 0..3 {
        for number in 0..32 {
            assert_eq!(client.call(&["WATCH", &format!("{key}{number}")]), ok());
            assert_eq!(client.call(&["WATCH", &format!("{key}{number}")]), ok());
        }
        assert_eq!(client.call(&["UNWATCH"]), ok());
    }
    let watches = (0..1000).take_while(|number| {
        let watched = client.try_call(&["WATCH", &format!("{key}{number}")]);
        watched.is_ok()
    });
    let count = watches.count();
    assert!((32..100).contains(&count), "{count}");
}

#[test]
fn no_more_clients_than_allowed() {
    let served = ephemeral(limited(|limits| limits.clients = 2));
    let (mut first, mut second) = (served.client(), served.client());
    assert_eq!(first.call(&["PING"]), status("PONG"));
    assert_eq!(second.call(&["PING"]), status("PONG"));
    let mut third = served.client();
    assert_eq!(error(&third.reply()), "ERR max number of clients reached");
    assert!(third.is_closed());
    drop(second);
    let deadline = Instant::now() + Duration::from_secs(10);
    loop {
        let mut again = served.client();
        again.send_raw(b"PING\r\n");
        if again.next() == Some(status("PONG")) {
            break;
        }
        assert!(Instant::now() < deadline, "a place never became free");
    }
}

#[test]
fn input_without_end_is_cut_off() {
    let served = ephemeral(limited(|limits| limits.query_buffer = 300_000));
    let mut client = served.client();
    client.send_raw(b"*2\r\n$4\r\nECHO\r\n$500000000\r\n");
    let piece = [b'x'; 64 * 1024];
    let mut closed = false;
    for _ in 0..1000 {
        if client.stream().write_all(&piece).is_err() {
            closed = true;
            break;
        }
    }
    assert!(closed || client.is_closed());
}

#[test]
fn what_is_not_resp_is_answered_and_closed() {
    let served = ephemeral(config());
    for (bytes, text) in [
        (
            &b"*1\r\n!3\r\n"[..],
            "ERR Protocol error: expected '$', got '!'",
        ),
        (b"*x\r\n", "ERR Protocol error: invalid multibulk length"),
        (
            b"get \"a\r\n",
            "ERR Protocol error: unbalanced quotes in request",
        ),
    ] {
        let mut client = served.client();
        client.send_raw(b"PING\r\n");
        client.send_raw(bytes);
        assert_eq!(client.reply(), status("PONG"));
        assert_eq!(error(&client.reply()), text);
        assert!(client.is_closed());
    }
}

#[test]
fn a_client_that_has_ended_gets_its_replies() {
    let served = ephemeral(config());
    let mut client = served.client();
    let mut bytes = Vec::new();
    for _ in 0..1000 {
        write_command(&mut bytes, &[b"INCR", b"n"]);
    }
    client.send_raw(&bytes);
    client.end();
    for number in 1..=1000 {
        assert_eq!(client.reply(), int(number));
    }
    assert!(client.is_closed());
}

#[test]
fn keys_runs_in_slices_and_in_its_turn() {
    let served = ephemeral(config());
    let mut client = served.client();
    let mut bytes = Vec::new();
    for number in 0..20_000 {
        write_command(
            &mut bytes,
            &[b"SET", format!("k:{number}").as_bytes(), b"1"],
        );
    }
    write_command(&mut bytes, &[b"KEYS", b"k:1999*"]);
    write_command(&mut bytes, &[b"KEYS", b"*"]);
    write_command(&mut bytes, &[b"DBSIZE"]);
    client.send_raw(&bytes);
    for _ in 0..20_000 {
        assert_eq!(client.reply(), ok());
    }
    let Reply::Array(some) = client.reply() else {
        panic!("no list")
    };
    assert_eq!(some.len(), 11);
    let Reply::Array(all) = client.reply() else {
        panic!("no list")
    };
    assert_eq!(all.len(), 20_000);
    assert_eq!(client.reply(), int(20_000));
}

#[test]
fn scan_visits_every_key_once() {
    let served = ephemeral(config());
    let mut client = served.client();
    for number in 0..997 {
        assert_eq!(client.call(&["SET", &format!("k{number}"), "1"]), ok());
    }
    let mut seen = Vec::new();
    let mut cursor = "0".to_owned();
    loop {
        // Cursors hold for all connections, whichever thread serves them.
        let mut client = served.client();
        let Reply::Array(page) = client.call(&["SCAN", &cursor, "COUNT", "50"]) else {
            panic!("no list")
        };
        let [Reply::Bulk(next), Reply::Array(keys)] = &page[..] else {
            panic!("no page")
        };
        seen.extend(keys.iter().map(|key| format!("{key:?}")));
        cursor = String::from_utf8(next.clone()).unwrap();
        if cursor == "0" {
            break;
        }
    }
    let visited = seen.len();
    seen.sort();
    seen.dedup();
    assert_eq!((visited, seen.len()), (997, 997));
    assert!(error(&client.call(&["SCAN", "1234567"])).starts_with("ERR unknown cursor"));
}

fn with_password(change: impl FnOnce(&mut Limits)) -> Config {
    Config {
        password: Some("secret".to_owned()),
        ..limited(change)
    }
}

/// Waits until the server closes a connection that says nothing.
fn wait_for_the_end(mut stream: &TcpStream) {
    stream
        .set_read_timeout(Some(PATIENCE))
        .expect("a limit of time");
    let ended = stream.read(&mut [0]);
    let is_over = ended.as_ref().map_or_else(
        |error| error.kind() == ErrorKind::ConnectionReset,
        |read| *read == 0,
    );
    assert!(is_over, "{ended:?}");
}

#[test]
fn clients_without_the_password_keep_no_client_out() {
    let served = ephemeral(with_password(|limits| limits.clients = 64));
    let mut earlier = served.client();
    assert_eq!(earlier.call(&["AUTH", "secret"]), ok());
    let address = served.server.as_ref().expect("it runs").address();
    let connect = |_| TcpStream::connect(address).expect("a connection");
    let quiet: Vec<TcpStream> = (0..200).map(connect).collect();
    let mut later = served.client();
    assert_eq!(later.call(&["AUTH", "secret"]), ok());
    let _more: Vec<TcpStream> = (0..200).map(connect).collect();
    wait_for_the_end(&quiet[0]);
    for client in [&mut earlier, &mut later] {
        assert_eq!(client.call(&["PING"]), status("PONG"));
    }
}

#[test]
fn an_idle_client_is_closed_where_that_is_asked_for() {
    let served = ephemeral(limited(|limits| limits.idle = Some(Duration::from_secs(3))));
    let mut client = served.client();
    assert_eq!(
        client.call(&["CONFIG", "GET", "timeout"]),
        Reply::Array(vec![bulk("timeout"), bulk("3")])
    );
    assert!(client.is_closed(), "it is idle, and still there");
    // By default no client is.
    assert_eq!(Limits::default().idle, None);
}

#[test]
fn a_client_that_does_not_give_the_password_in_time_is_closed() {
    let time = Duration::from_millis(200);
    let served = ephemeral(with_password(|limits| limits.authentication = time));
    let address = served.server.as_ref().expect("it runs").address();
    // On a busy machine it may be late itself.
    let mut client = eventually_some("a client in time", || {
        let mut client = Client::try_connect(address).ok()?;
        match client.answer(&["AUTH", "secret"]) {
            Answer::Reply(frame) if frame.raw == b"+OK\r\n" => Some(client),
            _ => None,
        }
    });
    for _ in 0..3 {
        wait_for_the_end(&TcpStream::connect(address).expect("a connection"));
    }
    assert_eq!(client.call(&["PING"]), status("PONG"));
}

#[test]
fn a_password_is_needed_where_one_is_set() {
    let served = ephemeral(Config {
        password: Some("secret".to_owned()),
        ..config()
    });
    let mut client = served.client();
    assert_eq!(
        error(&client.call(&["GET", "a"])),
        "NOAUTH Authentication required."
    );
    assert!(error(&client.call(&["AUTH", "wrong"])).starts_with("WRONGPASS"));
    // In one piece: the commands behind AUTH are judged by its outcome.
    let mut bytes = Vec::new();
    write_command(&mut bytes, &[b"AUTH", b"secret"]);
    let long = vec![b'x'; 100_000];
    write_command(&mut bytes, &[b"SET", b"a", &long]);
    client.send_raw(&bytes);
    assert_eq!((client.reply(), client.reply()), (ok(), ok()));
    let mut stranger = served.client();
    stranger.send_raw(b"*2\r\n$3\r\nGET\r\n$20000\r\n");
    assert!(error(&stranger.reply()).ends_with("unauthenticated bulk length"));
    assert!(stranger.is_closed());
}

#[test]
fn clients_are_listed_and_killed() {
    let served = ephemeral(config());
    let (mut first, mut second) = (served.client(), served.client());
    assert_eq!(first.call(&["CLIENT", "SETNAME", "first"]), ok());
    let Reply::Int(id) = second.call(&["CLIENT", "ID"]) else {
        panic!("no number")
    };
    let Reply::Bulk(list) = first.call(&["CLIENT", "LIST"]) else {
        panic!("no bulk")
    };
    let list = String::from_utf8(list).unwrap();
    assert_eq!(list.lines().count(), 2);
    assert!(
        list.contains("name=first ") && list.contains(&format!("id={id} ")),
        "{list}"
    );
    assert_eq!(
        first.call(&["CLIENT", "KILL", "ID", &id.to_string()]),
        int(1)
    );
    assert!(second.is_closed());
    assert_eq!(
        first.call(&["CLIENT", "KILL", "ID", &id.to_string()]),
        int(0)
    );
}

#[test]
fn stopping_answers_what_was_received() {
    let mut served = ephemeral(config());
    let mut clients: Vec<Client> = (0..8).map(|_| served.client()).collect();
    for client in &mut clients {
        assert_eq!(client.call(&["PING"]), status("PONG"));
        let mut bytes = Vec::new();
        for _ in 0..500 {
            write_command(&mut bytes, &[b"INCR", b"n"]);
        }
        client.send_raw(&bytes);
    }
    let server = served.server.take().unwrap();
    server.stopper().stop();
    for client in &mut clients {
        for _ in 0..500 {
            assert!(matches!(client.reply(), Reply::Int(_)));
        }
        assert!(client.is_closed());
    }
    let address = server.address();
    server.wait().unwrap();
    assert!(std::net::TcpStream::connect(address).is_err());
}

#[test]
fn a_client_can_stop_the_server() {
    let mut served = ephemeral(config());
    let mut client = served.client();
    assert!(error(&client.call(&["SHUTDOWN", "WHAT"])).starts_with("ERR syntax"));
    client.send(&["SHUTDOWN"]);
    assert!(client.is_closed());
    served.server.take().unwrap().wait().unwrap();
}

#[test]
fn an_address_is_not_shared_with_another_server() {
    let served = ephemeral(config());
    let listen = served.server.as_ref().unwrap().address();
    for threads in [1, 2] {
        let config = Config {
            listen,
            threads,
            ..config()
        };
        let refused = kumiki_server::serve(served.db.clone(), config);
        assert!(
            matches!(refused, Err(kumiki_server::StartError::Listen { .. })),
            "{threads}"
        );
    }
    let open = Config {
        listen: "0.0.0.0:0".parse().unwrap(),
        ..config()
    };
    let refused = kumiki_server::serve(served.db.clone(), open);
    assert!(matches!(
        refused,
        Err(kumiki_server::StartError::Open { .. })
    ));
}

#[test]
fn values_that_would_exceed_maxmemory_are_refused_by_their_resulting_size() {
    let mut config = config();
    config.maxmemory = 200 << 20;
    let served = ephemeral(config);
    let mut client = served.client();
    for key in 0..64 {
        client.push(&["SETRANGE", &format!("k{key}"), "536870000", "x"]);
    }
    client.flush().expect("sent");
    for _ in 0..64 {
        let reply = client.try_reply().expect("a reply");
        assert!(error(&reply).starts_with("OOM "), "{reply:?}");
    }
    assert_eq!(client.call(&["MULTI"]), ok());
    for key in ["a", "b"] {
        let queued = client.call(&["SETRANGE", key, "150000000", "x"]);
        assert_eq!(queued, status("QUEUED"));
    }
    let refused = client.call(&["EXEC"]);
    assert!(error(&refused).starts_with("EXECABORT "), "{refused:?}");
    assert_eq!(client.call(&["DBSIZE"]), int(0));
    assert_eq!(
        client.call(&["SETRANGE", "a", "1000000", "x"]),
        int(1_000_001)
    );
}

#[test]
fn a_pattern_of_many_steps_leaves_other_clients_their_turns() {
    let mut config = config();
    config.threads = 1;
    let served = ephemeral(config);
    let (mut slow, mut other) = (served.client(), served.client());
    for key in 0..100 {
        let key = format!("{}{key}", "a".repeat(60_000));
        assert_eq!(slow.call(&["SET", &key, "1"]), ok());
    }
    let pattern = format!("*{}b*", "a".repeat(30_000));
    slow.send(&["KEYS", &pattern]);
    for _ in 0..3 {
        assert_eq!(other.call(&["PING"]), status("PONG"));
    }
    assert!(slow.is_silent(std::time::Duration::from_millis(1)));
}

#[test]
fn clients_are_listed_by_their_user() {
    let served = ephemeral(config());
    let mut client = served.client();
    let Reply::Bulk(all) = client.call(&["CLIENT", "LIST", "USER", "default"]) else {
        panic!("no list")
    };
    assert!(String::from_utf8(all).unwrap().contains("user=default"));
    let refused = client.call(&["CLIENT", "LIST", "USER", "alice"]);
    assert_eq!(error(&refused), "ERR No such user 'alice'");
}
