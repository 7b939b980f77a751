//! The costs of clients that do the wrong thing: their own time, and few lines of the log.

use std::io::{self, Write};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use crate::support::{config, ephemeral, error, ok, status};
use kumiki_server::Config;
use testkit::own_process::run_alone;
use testkit::{Reply, eventually};

fn with_password() -> Config {
    Config {
        threads: 1,
        password: Some("secret".to_owned()),
        ..config()
    }
}

#[test]
fn wrong_passwords_are_counted_and_answered_late() {
    let served = ephemeral(with_password());
    let (mut wrong, mut right) = (served.client(), served.client());
    assert_eq!(right.call(&["AUTH", "secret"]), ok());
    let begin = Instant::now();
    for attempt in [
        &["AUTH", "x"][..],
        &["HELLO", "3", "AUTH", "default", "x"],
        &["AUTH", "nobody", "secret"],
    ] {
        wrong.send(attempt);
    }
    wrong.send(&["AUTH", "secret"]);
    wrong.send(&["PING"]);
    // The thread serves others in the meantime.
    for _ in 0..10 {
        assert_eq!(right.call(&["PING"]), status("PONG"));
    }
    // 50, 100 and 200 ms.
    for least in [50, 150, 350] {
        assert!(error(&wrong.reply()).starts_with("WRONGPASS "));
        assert!(
            begin.elapsed() >= Duration::from_millis(least),
            "{least} ms"
        );
    }
    assert_eq!((wrong.reply(), wrong.reply()), (ok(), status("PONG")));
    let Reply::Bulk(text) = right.call(&["INFO", "everything"]) else {
        panic!("no bulk")
    };
    let text = String::from_utf8(text).expect("text");
    assert!(text.contains("acl_access_denied_auth:3\r\n"), "{text}");
    let failed = |command: &str, count: u32| {
        let begin = format!("cmdstat_{command}:");
        let line = text.lines().find(|line| line.starts_with(&begin));
        let end = format!("failed_calls={count}");
        assert!(line.is_some_and(|line| line.ends_with(&end)), "{line:?}");
    };
    failed("auth", 2);
    failed("hello", 1);
    // A client that leaves before its answer does not matter.
    wrong.send(&["AUTH", "x"]);
    drop(wrong);
    assert_eq!(right.call(&["PING"]), status("PONG"));
}

/// The log of the process.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl Write for Log {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0
            .lock()
            .expect("not poisoned")
            .extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Log {
    /// Makes everything in this process log here.
    fn of_process() -> Log {
        let log = Log::default();
        let writer = log.clone();
        tracing_subscriber::fmt()
            .with_writer(move || writer.clone())
            .with_ansi(false)
            .init();
        log
    }

    /// Returns the lines that have a text.
    fn lines(&self, text: &str) -> Vec<String> {
        let bytes = self.0.lock().expect("not poisoned");
        let all = String::from_utf8_lossy(&bytes);
        let lines = all.lines().filter(|line| line.contains(text));
        lines.map(str::to_owned).collect()
    }
}

#[test]
fn strangers_cannot_fill_the_log() {
    run_alone("strangers::strangers_cannot_fill_the_log", fill_the_log);
}

fn fill_the_log() {
    let log = Log::of_process();
    let config = Config {
        failure_summary: Duration::from_millis(500),
        ..with_password()
    };
    let served = ephemeral(config);
    let begin = Instant::now();
    for _ in 0..200 {
        let mut client = served.client();
        client.send_raw(b"POST / HTTP/1.1\r\nHost: x\r\n\r\n");
        assert!(client.is_closed());
    }
    // One in ten seconds.
    let most = 1 + begin.elapsed().as_secs() as usize / 10;
    let lines = log.lines("it speaks HTTP").len();
    assert!((1..=most).contains(&lines), "{lines} lines");
    let mut client = served.client();
    assert_eq!(client.call(&["AUTH", "secret"]), ok());
    let mut fail = |args: &[&str]| {
        (0..300).for_each(|_| client.send(args));
        (0..300).for_each(|_| assert!(error(&client.reply()).starts_with("ERR ")));
    };
    fail(&["NOSUCH", "x"]);
    let told = |text: &str| -> u64 {
        let lines = log.lines(text).into_iter();
        let counts = lines.map(|line| {
            assert!(line.contains("from 127.0.0.1"), "{line}");
            let behind = line.split_once(text).expect("the text").1;
            let count = behind.trim_start_matches(", ").split(' ').next();
            count
                .and_then(|count| count.parse::<u64>().ok())
                .expect("a number")
        });
        counts.sum()
    };
    // All of them, in few lines, also when nothing more comes from any client.
    eventually("the failures are summed up", || {
        told("unknown command NOSUCH") == 300
    });
    let most = 1 + begin.elapsed().as_millis() as usize / 500;
    assert!(log.lines("unknown command NOSUCH").len() <= most);
    // Of known commands when there are many in an interval.
    eventually("the failures of INCR are summed up", || {
        fail(&["INCR"]);
        told("INCR failed with ERR") >= 100
    });
}
