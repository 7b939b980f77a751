//! Messages that violate the protocol's format: the server answers with errors, and continues to serve.

use std::num::NonZeroUsize;
use std::sync::Once;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::serve::Served;
use crate::support::wire::{Client, Message};

/// The number of panics in the libraries that read messages.
static PANICS: AtomicUsize = AtomicUsize::new(0);

fn count_panics() {
    static HOOK: Once = Once::new();
    HOOK.call_once(|| {
        let before = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |panic| {
            let file = panic.location().map_or("", |location| location.file());
            let reads = ["pgwire", "bytes-", "tokio-util", "sql/src/serve"];
            if reads.iter().any(|part| file.contains(part)) {
                PANICS.fetch_add(1, Ordering::Relaxed);
            }
            before(panic);
        }));
    });
}

fn server(password: Option<&str>) -> Served {
    count_panics();
    let password = password.map(str::to_owned);
    Served::start(|options| {
        options.password = password;
        options.connections = NonZeroUsize::new(256).unwrap();
    })
}

/// Returns a message with its length.
fn framed(kind: &[u8], body: &[u8]) -> Vec<u8> {
    let length = u32::try_from(body.len() + 4).unwrap();
    [kind, &length.to_be_bytes(), body].concat()
}

/// Sends bytes, ends the stream, and returns the server's answers until it closes the connection.
fn answers(mut client: Client, bytes: &[u8]) -> Vec<Message> {
    client.send_raw(bytes);
    client.end();
    std::iter::from_fn(|| client.receive()).collect()
}

#[track_caller]
fn assert_refused(answers: &[Message], sent: &[u8]) {
    let error = answers.iter().find(|message| message.0 == b'E');
    let error = error.unwrap_or_else(|| panic!("{sent:?} is answered by {answers:?}"));
    assert_eq!(
        error.field(b'C'),
        "08P01",
        "{sent:?}: {}",
        error.field(b'M')
    );
    assert_eq!(error.field(b'S'), "FATAL", "{sent:?}");
}

/// Returns valid messages of all kinds.
fn messages() -> Vec<(u8, Vec<u8>)> {
    let bind = b"\0\0\0\x01\0\x01\0\x01\0\0\0\x01x\0\x01\0\0";
    vec![
        (b'Q', b"select 1\0".to_vec()),
        (b'P', b"\0select $1\0\0\x01\0\0\0\x19".to_vec()),
        (b'B', bind.to_vec()),
        (b'D', b"P\0".to_vec()),
        (b'C', b"S\0".to_vec()),
        (b'E', b"\0\0\0\0\0".to_vec()),
        (b'H', Vec::new()),
        (b'S', Vec::new()),
        (b'f', b"why\0".to_vec()),
        (b'c', Vec::new()),
        (b'X', Vec::new()),
    ]
}

#[test]
fn malformed_messages_are_answered_by_errors() {
    let served = server(None);
    let mut malformed = Vec::new();
    for (kind, body) in messages() {
        for end in 0..body.len() {
            malformed.push(framed(&[kind], &body[..end]));
        }
        malformed.push(framed(&[kind], &[&body[..], b"x"].concat()));
        for length in [0u32, 1, 3, 0x7fff_ffff, 0x8000_0000, u32::MAX] {
            malformed.push([&[kind][..], &length.to_be_bytes(), &body].concat());
        }
    }
    for count in [1u16, 0x7fff, 0xffff] {
        let count = count.to_be_bytes();
        malformed.push(framed(b"P", &[b"\0\0", &count[..]].concat()));
        malformed.push(framed(b"B", &[b"\0\0", &count[..]].concat()));
        malformed.push(framed(b"B", &[b"\0\0\0\0", &count[..]].concat()));
        malformed.push(framed(b"B", &[b"\0\0\0\0\0\0", &count[..]].concat()));
    }
    malformed.push(framed(b"B", b"\0\0\0\0\0\x01\x7f\xff\xff\xff\0\0"));
    malformed.push(framed(b"B", b"\0\0\0\0\0\x01\x80\0\0\0\0\0"));
    malformed.push(framed(b"D", b"x\0"));
    malformed.push(framed(b"~", b""));
    malformed.push(framed(b"\0", b""));
    for sent in &malformed {
        let client = Client::connect(served.address);
        assert_refused(&answers(client, sent), sent);
    }
    // Earlier messages are answered.
    let sent = [framed(b"Q", b"select 1\0"), framed(b"Q", b"select 2")].concat();
    let answers = answers(Client::connect(served.address), &sent);
    assert_eq!(
        answers.iter().filter(|message| message.0 == b'D').count(),
        1
    );
    assert_refused(&answers, &sent);
    assert_eq!(
        Client::connect(served.address).ask("select 1").rows(),
        [["1"]]
    );
    assert_eq!(PANICS.load(Ordering::Relaxed), 0);
}

#[test]
fn malformed_messages_before_the_client_is_known_are_answered_by_errors() {
    let served = server(Some("secret"));
    let greeting = framed(b"", b"\0\x03\0\0user\0me\0\0");
    let mut malformed = vec![
        framed(b"", b"\0\x03\0\0"),
        framed(b"", b"\0\x03\0\0user\0me\0"),
        framed(b"", b"\0\x03\0\0user"),
        framed(b"", b"\0\x03\0\0user\0me\0\0x"),
        framed(b"", b"\0\x02\0\0user\0me\0\0"),
        framed(b"", &[&80_877_102u32.to_be_bytes()[..], b"\0\0\0"].concat()),
        [0u32.to_be_bytes(), [0, 3, 0, 0]].concat(),
        [7u32.to_be_bytes(), [0, 3, 0, 0]].concat(),
        [u32::MAX.to_be_bytes(), [0, 3, 0, 0]].concat(),
        [20_000u32.to_be_bytes(), [0, 3, 0, 0]].concat(),
        b"GET / HTTP/1.1\r\n\r\n".to_vec(),
    ];
    for password in [
        &b""[..],
        b"secret",
        b"secret\0",
        b"SCRAM-SHA-256\0",
        b"SCRAM-SHA-256\0\0\0",
        b"SCRAM-SHA-256\0\0\0\0\x09n",
        b"SCRAM-SHA-256\0\x80\0\0\0",
        b"SCRAM-SHA-256\0\0\0\0\x01nn",
    ] {
        malformed.push([&greeting[..], &framed(b"p", password)].concat());
    }
    malformed.push([&greeting[..], &framed(b"~", b"")].concat());
    malformed.push([&greeting[..], b"p\0\0\0\0"].concat());
    for sent in &malformed {
        let client = Client::open(served.address);
        assert_refused(&answers(client, sent), sent);
    }
    // Well-formed messages of the wrong kind do not authenticate the client.
    for (kind, body) in [
        (b'p', &b"SCRAM-SHA-256\0\0\0\0\x01n"[..]),
        (b'p', b"SCRAM-SHA-256\0\xff\xff\xff\xff"),
        (b'p', b"NOTHING\0\xff\xff\xff\xff"),
        (b'Q', b"select 1\0"),
    ] {
        let query = framed(b"Q", b"select 1\0");
        let sent = [greeting.clone(), framed(&[kind], body), query].concat();
        let answers = answers(Client::open(served.address), &sent);
        assert!(
            answers.iter().any(|message| message.0 == b'E'),
            "{answers:?}"
        );
        assert!(
            !answers.iter().any(|message| message.0 == b'D'),
            "{answers:?}"
        );
    }
    assert_eq!(PANICS.load(Ordering::Relaxed), 0);
}

#[test]
fn random_messages_end_nothing_but_their_connection() {
    let served = server(None);
    let mut random = fastrand::Rng::with_seed(34);
    for _ in 0..400 {
        let mut sent = Vec::new();
        for _ in 0..random.usize(1..4) {
            let all = messages();
            let (kind, body) = &all[random.usize(..all.len())];
            let mut message = framed(&[*kind], body);
            for _ in 0..random.usize(0..4) {
                let place = random.usize(..message.len());
                match random.u8(..4) {
                    0 => message[place] = random.u8(..),
                    1 => message.insert(place, random.u8(..)),
                    2 => message.truncate(place + 1),
                    _ => message[place] ^= 1 << random.u8(..8),
                }
            }
            sent.extend(message);
        }
        // The server answers, or closes the connection; its messages are well-formed.
        answers(Client::connect(served.address), &sent);
        if random.u8(..8) == 0 {
            let greeting: Vec<u8> = std::iter::repeat_with(|| random.u8(..)).take(64).collect();
            answers(Client::open(served.address), &greeting);
        }
    }
    assert_eq!(
        Client::connect(served.address).ask("select 1").rows(),
        [["1"]]
    );
    assert_eq!(PANICS.load(Ordering::Relaxed), 0);
}
