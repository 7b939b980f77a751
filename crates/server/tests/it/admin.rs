//! The admin endpoint, as monitoring uses it, and as an attacker uses it.

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::SocketAddr;
use std::path::Path;
use std::time::{Duration, Instant};

use crate::support::{Served, config, durable_with, ephemeral, error, ok};
use kumiki_server::{Admin, Build, Config};
use testkit::exposition::{Families, parse};
use testkit::http::{connect, get, request, send};
use testkit::{Client, Reply};

fn with_admin() -> Config {
    Config {
        admin: Some("127.0.0.1:0".parse().unwrap()),
        ..config()
    }
}

#[track_caller]
fn metrics(address: SocketAddr) -> Families {
    let answer = get(address, "/metrics");
    assert_eq!(answer.status, 200);
    parse(&answer.body).unwrap_or_else(|what| panic!("{what}\n{}", answer.body))
}

/// Returns one sample, by its name with labels.
#[track_caller]
fn sample(families: &Families, name: &str) -> f64 {
    let samples = families.values().flat_map(|family| &family.samples);
    let found = samples.filter(|(own, _)| *own == name).map(|(_, v)| *v);
    let found: Vec<f64> = found.collect();
    assert_eq!(found.len(), 1, "{name}");
    found[0]
}

/// Returns the numbers of `INFO`.
fn info(client: &mut Client) -> BTreeMap<String, f64> {
    let Reply::Bulk(text) = client.call(&["INFO"]) else {
        panic!("no bulk")
    };
    let text = String::from_utf8(text).unwrap();
    let fields = text.lines().filter_map(|line| line.split_once(':'));
    let numbers = fields.filter_map(|(name, value)| Some((name.to_owned(), value.parse().ok()?)));
    numbers.collect()
}

#[test]
fn pages_are_those_of_the_documentation() {
    let served = ephemeral(with_admin());
    let admin = served.admin();
    for (path, kind, word) in [
        ("/metrics", "text/plain; version=0.0.4", "kumiki_keys "),
        ("/health", "text/plain", "ok\n"),
        ("/health/ready", "text/plain", "ok\n"),
        ("/health/live", "text/plain", "ok\n"),
        ("/build", "application/json", "\"version\":\"0."),
        ("/", "text/html", "href=\"/metrics\""),
        ("/metrics?x=y", "text/plain; version=0.0.4", "kumiki_keys "),
    ] {
        let answer = get(admin, path);
        assert_eq!(answer.status, 200, "{path}");
        assert!(answer.body.contains(word), "{path}: {}", answer.body);
        let own = answer.header("content-type").unwrap_or_default();
        assert!(own.starts_with(kind), "{path}: {own}");
        assert_eq!(answer.header("cache-control"), Some("no-store"));
        let head = request(admin, "HEAD", path);
        assert_eq!((head.status, head.body.as_str()), (200, ""), "{path}");
    }
    for path in ["/x", "/metrics/", "//", "/health/dead", "*"] {
        assert_eq!(get(admin, path).status, 404, "{path}");
    }
    for method in ["POST", "DELETE", "OPTIONS", "BREW"] {
        let refused = request(admin, method, "/metrics");
        assert_eq!(refused.status, 405, "{method}");
        assert_eq!(refused.header("allow"), Some("GET, HEAD"));
    }
}

#[test]
fn no_endpoint_unless_it_is_asked_for() {
    let served = ephemeral(config());
    assert_eq!(served.server.as_ref().unwrap().admin_address(), None);
}

#[test]
fn an_address_in_use_is_said() {
    let first = ephemeral(with_admin());
    let taken = Config {
        admin: Some(first.admin()),
        ..config()
    };
    let refused = kumiki_server::serve(first.db.clone(), taken).err().unwrap();
    let text = refused.to_string();
    assert!(text.contains("--admin"), "{text}");
}

#[test]
fn the_endpoint_ends_with_the_server() {
    let mut served = ephemeral(with_admin());
    let admin = served.admin();
    let server = served.server.take().unwrap();
    server.stopper().stop();
    server.wait().unwrap();
    assert!(std::net::TcpStream::connect(admin).is_err());
}

#[test]
fn metrics_tell_what_clients_do() {
    let served = durable_with(with_admin());
    let before = metrics(served.admin());
    let mut client = served.client();
    for key in ["a", "b", "c"] {
        assert_eq!(client.call(&["SET", key, "1"]), ok());
    }
    client.call(&["GET", "a"]);
    client.call(&["PING"]);
    assert!(error(&client.call(&["INCR"])).starts_with("ERR wrong"));
    assert!(error(&client.call(&["NONSENSE"])).starts_with("ERR unknown"));
    assert!(error(&client.call(&["LPUSHALL"])).starts_with("ERR unknown"));
    assert!(error(&client.call(&["AUTH", "pw"])).starts_with("ERR AUTH"));
    client.call(&["MULTI"]);
    client.call(&["SET", "d", "1"]);
    client.call(&["EXEC"]);
    // Counters are brought up to date at the end of a turn, which the last reply may precede.
    let deadline = Instant::now() + Duration::from_secs(10);
    let after = loop {
        let after = metrics(served.admin());
        let grown = |name: &str| sample(&after, name) - sample(&before, name);
        let other = grown("kumiki_commands_total{kind=\"other\"}");
        if other >= 7.0 || Instant::now() > deadline {
            break after;
        }
    };
    let grown = |name: &str| sample(&after, name) - sample(&before, name);
    for (name, by) in [
        ("kumiki_commands_total{kind=\"read\"}", 1.0),
        ("kumiki_commands_total{kind=\"write\"}", 4.0),
        ("kumiki_commands_total{kind=\"other\"}", 7.0),
        ("kumiki_command_errors_total", 4.0),
        ("kumiki_connections_accepted_total", 1.0),
        ("kumiki_keys", 4.0),
        ("kumiki_transactions_committed_total", 4.0),
    ] {
        assert_eq!(grown(name), by, "{name}");
    }
    for name in [
        "kumiki_log_bytes_total",
        "kumiki_log_sync_seconds_count",
        "kumiki_log_sync_seconds_sum",
        "kumiki_log_cycles_total{thread=\"logger\"}",
        "kumiki_durable_epoch",
        "kumiki_received_bytes_total",
        "kumiki_sent_bytes_total",
    ] {
        assert!(grown(name) > 0.0, "{name}");
    }
    assert_eq!(sample(&after, "kumiki_connections"), 1.0);
    assert_eq!(sample(&after, "kumiki_log_failed"), 0.0);
    let bytes = sample(&after, "process_resident_memory_bytes");
    assert!(bytes > 1e6, "{bytes}");
}

#[test]
fn without_a_log_its_figures_are_absent() {
    let served = ephemeral(with_admin());
    let families = metrics(served.admin());
    let ephemeral = "kumiki_durability_info{durability=\"ephemeral\"}";
    assert_eq!(sample(&families, ephemeral), 1.0);
    for word in ["log", "durable", "checkpoint", "recovery", "latency"] {
        let named: Vec<_> = families.keys().filter(|n| n.contains(word)).collect();
        assert!(named.is_empty(), "{named:?}");
    }
}

/// A row of the table in `docs/metrics.md`.
struct Documented {
    /// The metric's name, with labels if it has several samples.
    name: String,
    kind: String,
    /// Fields of `INFO`, each added (1) or subtracted (-1).
    info: Vec<(f64, String)>,
}

fn documented() -> Vec<Documented> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/metrics.md");
    let text = std::fs::read_to_string(path).expect("the page");
    let mut rows = Vec::new();
    for line in text.lines() {
        let cells: Vec<&str> = line.split('|').map(str::trim).collect();
        let [_, name, kind, info, meaning, _] = cells[..] else {
            continue;
        };
        if !["counter", "gauge", "histogram"].contains(&kind) {
            continue;
        }
        assert!(!meaning.is_empty(), "{line}");
        let mut sign = 1.0;
        let mut fields = Vec::new();
        for word in info.trim_matches('`').split(' ').filter(|w| *w != "–") {
            match word {
                "+" => sign = 1.0,
                "-" => sign = -1.0,
                field => fields.push((sign, field.to_owned())),
            }
        }
        rows.push(Documented {
            name: name.trim_matches('`').to_owned(),
            kind: kind.to_owned(),
            info: fields,
        });
    }
    rows
}

/// Returns a server on which something has happened, so that every figure is there.
fn experienced() -> Served {
    // The only node of a cluster, so that the figures of clusters are there.
    let config = Config {
        cluster: Some(crate::support::nodes::membership_alone()),
        ..with_admin()
    };
    let served = durable_with(config);
    let mut client = served.client();
    for number in 0..100 {
        let key = format!("key{number}");
        assert_eq!(client.call(&["SET", &key, "value"]), ok());
    }
    client.call(&["NONSENSE"]);
    client.call(&["GET", "key1"]);
    assert_eq!(client.call(&["SAVE"]), ok());
    served
}

#[test]
fn the_documentation_lists_every_metric() {
    let served = experienced();
    let mut families = metrics(served.admin());
    let replica = crate::support::replica::alone();
    let of_replicas = metrics(replica.admin()).into_iter();
    families.extend(of_replicas.filter(|(name, _)| name.starts_with("kumiki_replica_")));
    let documented = documented();
    let family = |name: &str| {
        let name = name.split('{').next().unwrap_or(name);
        let parts = ["_bucket", "_sum", "_count"];
        let histogram = parts.iter().find_map(|part| {
            let family = name.strip_suffix(part)?;
            families.contains_key(family).then_some(family)
        });
        histogram.unwrap_or(name).to_owned()
    };
    for row in &documented {
        let own = families.get(&family(&row.name));
        let own = own.unwrap_or_else(|| panic!("{} is not exported", row.name));
        assert_eq!(own.kind, row.kind, "{}", row.name);
    }
    for (name, own) in &families {
        let rows = documented.iter().filter(|row| family(&row.name) == *name);
        let rows: Vec<_> = rows.map(|row| &row.name).collect();
        assert!(!rows.is_empty(), "{name} is not documented");
        // With several samples each has a row of its own.
        if own.kind != "histogram" && own.samples.len() > 1 {
            let samples: Vec<_> = own.samples.keys().collect();
            assert_eq!(rows.len(), samples.len(), "{rows:?} {samples:?}");
            assert!(samples.iter().all(|sample| rows.contains(sample)));
        }
    }
}

#[test]
fn info_shows_the_same() {
    let served = experienced();
    let replica = crate::support::replica::alone();
    let is_of_replicas = |name: &str| name.starts_with("kumiki_replica_");
    let compared = compare_with_info(served.client(), served.admin(), |name| {
        !is_of_replicas(name)
    });
    assert!(compared > 40, "only {compared} figures were compared");
    let compared = compare_with_info(replica.client(), replica.admin(), is_of_replicas);
    assert!(compared > 15, "only {compared} figures were compared");
}

/// Compares documented figures with those fields. Returns their number.
fn compare_with_info(
    mut client: testkit::Client,
    admin: SocketAddr,
    wanted: impl Fn(&str) -> bool,
) -> usize {
    // Writes of the last figure's own cleanup should be over.
    client.call(&["PING"]);
    let first = info(&mut client);
    let families = metrics(admin);
    let second = info(&mut client);
    let mut compared = 0;
    for Documented { name, info, .. } in documented() {
        if info.is_empty() || !wanted(&name) {
            continue;
        }
        let shown = |fields: &BTreeMap<String, f64>| -> f64 {
            let field = |field: &String| {
                let value = fields.get(field).copied();
                value.unwrap_or_else(|| panic!("INFO has no {field}"))
            };
            info.iter().map(|(sign, name)| sign * field(name)).sum()
        };
        let (a, b) = (shown(&first), shown(&second));
        let value = sample(&families, &name);
        // Between the two, but for rounding: INFO shows whole seconds of uptime, micro- and
        // milliseconds elsewhere. Clocks of the processor tick, and memory comes in pages.
        let slack = match name.as_str() {
            "kumiki_uptime_seconds" => 1.0,
            "process_resident_memory_bytes" => 8e6,
            "process_cpu_seconds_total" => 0.1,
            _ => 1e-3,
        };
        let range = a.min(b) - slack..=a.max(b) + slack;
        assert!(
            range.contains(&value),
            "{name} is {value}, INFO has {range:?}"
        );
        compared += 1;
    }
    compared
}

#[test]
fn health_tells_of_a_failed_log() {
    let served = durable_with(with_admin());
    let mut client = served.client();
    assert_eq!(client.call(&["SET", "a", "1"]), ok());
    assert_eq!(get(served.admin(), "/health").status, 200);
    served.gate.break_down();
    assert!(error(&client.call(&["SET", "a", "2"])).starts_with("MISCONF "));
    for path in ["/health", "/health/ready"] {
        let answer = get(served.admin(), path);
        assert_eq!(answer.status, 503);
        assert!(
            answer.body.contains("the gate is broken"),
            "{}",
            answer.body
        );
        assert_eq!(answer.body.lines().count(), 1);
    }
    assert_eq!(get(served.admin(), "/health/live").status, 200);
    let families = metrics(served.admin());
    assert_eq!(sample(&families, "kumiki_log_failed"), 1.0);
}

#[test]
fn health_tells_how_the_start_goes() {
    let admin = Admin::start("127.0.0.1:0".parse().unwrap(), None, Build::default()).unwrap();
    let address = admin.address();
    let starting = admin.starting();
    let health = |path: &str| {
        let answer = get(address, path);
        (answer.status, answer.body)
    };
    assert_eq!(health("/health"), (503, "starting\n".to_owned()));
    starting.tell("recovering: 3 of 5");
    let told = "starting: recovering: 3 of 5\n".to_owned();
    assert_eq!(health("/health/ready"), (503, told.clone()));
    assert_eq!(health("/metrics"), (503, told));
    assert_eq!(health("/health/live").0, 200);
    assert_eq!(health("/build").0, 200);
    let options = store::Options {
        workers: crate::support::THREADS,
        ..store::Options::default()
    };
    let db = store::Db::open(options).unwrap();
    let server = kumiki_server::serve_with(db, config(), Some(admin)).unwrap();
    assert_eq!(server.admin_address(), Some(address));
    assert_eq!(health("/health"), (200, "ok\n".to_owned()));
    assert_eq!(sample(&metrics(address), "kumiki_keys"), 0.0);
}

#[test]
fn health_tells_of_stopping() {
    let mut served = durable_with(with_admin());
    let admin = served.admin();
    let mut client = served.client();
    assert_eq!(client.call(&["SET", "a", "1"]), ok());
    served.gate.close();
    client.send(&["SET", "a", "2"]);
    assert!(client.is_silent(Duration::from_millis(100)));
    let server = served.server.take().unwrap();
    server.stopper().stop();
    let answer = get(admin, "/health");
    assert_eq!((answer.status, answer.body.as_str()), (503, "stopping\n"));
    assert_eq!(get(admin, "/health/live").status, 200);
    served.gate.open();
    assert_eq!(client.reply(), ok());
    server.wait().unwrap();
}

#[test]
fn garbage_is_refused_and_does_no_harm() {
    let served = ephemeral(with_admin());
    let admin = served.admin();
    let mut client = served.client();
    let long = |text: &str, count: usize| text.repeat(count).into_bytes();
    let mut random = fastrand::Rng::with_seed(7);
    let mut cases: Vec<Vec<u8>> = vec![
        b"\r\n\r\n\r\n".to_vec(),
        b"GET\r\n\r\n".to_vec(),
        b"*1\r\n$4\r\nPING\r\n\r\n".to_vec(),
        b"GET /metrics HTTP/9.9\r\n\r\n".to_vec(),
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec(),
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03".to_vec(),
        b"GET /\0 HTTP/1.1\r\nHost: x\r\n\r\n".to_vec(),
        [b"GET /".to_vec(), long("x", 100_000)].concat(),
        [b"GET / HTTP/1.1\r\n".to_vec(), long("A: b\r\n", 10_000)].concat(),
        [b"GET / HTTP/1.1\r\nA: ".to_vec(), long("b", 1 << 20)].concat(),
        [
            b"POST / HTTP/1.1\r\nContent-Length: 99999999\r\n\r\n".to_vec(),
            long("body", 100_000),
        ]
        .concat(),
    ];
    cases.extend((0..50).map(|_| {
        let len = random.usize(1..2000);
        let mut bytes: Vec<u8> = (0..len).map(|_| random.u8(..)).collect();
        // Without the end of the head the server would wait for more of it.
        bytes.extend_from_slice(b"\r\n\r\n");
        bytes
    }));
    for bytes in cases {
        let start = Instant::now();
        let mut stream = connect(admin);
        let _ = stream.write_all(&bytes);
        let _ = stream.shutdown(std::net::Shutdown::Write);
        let mut said = Vec::new();
        let _ = stream.read_to_end(&mut said);
        let said = String::from_utf8_lossy(&said);
        assert!(!said.contains(" 200 "), "{bytes:?}: {said}");
        assert!(start.elapsed() < Duration::from_secs(4), "{bytes:?}");
    }
    assert_eq!(get(admin, "/health").status, 200);
    assert_eq!(client.call(&["SET", "a", "1"]), ok());
}

#[test]
fn slow_connections_keep_no_other_client_out() {
    let served = ephemeral(with_admin());
    let admin = served.admin();
    let begin = Instant::now();
    let mut slow: Vec<_> = (0..200)
        .map(|number| {
            let mut stream = connect(admin);
            // Some never send anything, the others never end.
            if number % 2 == 0 {
                let _ = stream.write_all(b"GET /metrics HTTP/1.1\r\nX: ");
            }
            stream
        })
        .collect();
    let start = Instant::now();
    for _ in 0..10 {
        assert_eq!(get(admin, "/metrics").status, 200);
    }
    // They would have had to wait until the slow ones have used up their time.
    let (waited, all) = (start.elapsed(), begin.elapsed());
    assert!(waited < Duration::from_secs(4), "{waited:?} of {all:?}");
    // Connections beyond the limit were closed, the last ones are closed when their time is over.
    let mut byte = [0];
    for stream in &mut slow {
        assert!(matches!(stream.read(&mut byte), Ok(0) | Err(_)));
    }
    let ended = begin.elapsed();
    assert!(ended < Duration::from_secs(19), "{ended:?}");
    let mut client = served.client();
    assert_eq!(client.call(&["SET", "a", "1"]), ok());
}

#[test]
fn answers_that_no_client_takes_do_no_harm() {
    let served = ephemeral(with_admin());
    let admin = served.admin();
    let streams: Vec<_> = (0..50)
        .map(|_| {
            let mut stream = connect(admin);
            // Pipelined requests, none of which is read.
            let request = b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n".repeat(50);
            let _ = stream.write_all(&request);
            stream
        })
        .collect();
    assert_eq!(get(admin, "/health").status, 200);
    drop(streams);
    let said = send(admin, &b"GET /health HTTP/1.1\r\nHost: x\r\n\r\n".repeat(3));
    let said = String::from_utf8_lossy(&said);
    let answers = said.matches("HTTP/1.1 200").count();
    assert_eq!(answers, 1, "a connection serves one request: {said}");
}

/// The checker of the format finds what it should.
#[test]
fn the_format_is_checked_strictly() {
    let good = "# HELP a_total Things.\n# TYPE a_total counter\na_total{k=\"v\\\"\"} 1\n";
    assert!(parse(good).is_ok());
    let histogram =
        |body: &str| format!("# HELP h H.\n# TYPE h histogram\n{body}h_sum 1\nh_count 2\n");
    let whole = "h_bucket{le=\"0.5\"} 1\nh_bucket{le=\"+Inf\"} 2\n";
    assert!(parse(&histogram(whole)).is_ok());
    for (what, bad) in [
        ("no end of the line", good.trim_end().to_owned()),
        ("no HELP", "# TYPE a gauge\na 1\n".to_owned()),
        ("no TYPE", "# HELP a A.\na 1\n".to_owned()),
        ("no sample", "# HELP a A.\n# TYPE a gauge\n".to_owned()),
        ("twice", format!("{good}{good}")),
        ("twice", format!("{good}a_total{{k=\"v\\\"\"}} 1\n")),
        ("an empty line", format!("{good}\n")),
        ("no counter", good.replace("a_total", "a")),
        ("a counter", good.replace("counter", "gauge")),
        ("negative", good.replace(" 1\n", " -1\n")),
        ("no number", good.replace(" 1\n", " one\n")),
        ("no number", good.replace(" 1\n", " NaN\n")),
        ("a bad escape", good.replace("\\\"", "\\x")),
        ("labels do not end", good.replace('}', "")),
        ("a unit", good.replace("a_total", "a_ms_total")),
        ("another family", good.replace("\na_total", "\nb_total")),
        ("other labels", format!("{good}a_total 1\n")),
        ("no +Inf", histogram("h_bucket{le=\"0.5\"} 2\n")),
        ("falls", histogram(&whole.replace("} 1", "} 3"))),
        ("bounds", histogram(&whole.replace("0.5", "x"))),
        ("count", histogram(&whole.replace("} 2", "} 1"))),
    ] {
        assert!(parse(&bad).is_err(), "{what}: {bad}");
    }
}
