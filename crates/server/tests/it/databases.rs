//! `SELECT`, and commands of one database or of several.

use crate::support::{Served, bulk, config, ephemeral, error, int, ok, status};
use testkit::{Client, Reply};

/// Returns a client that has selected a database.
fn client_of(served: &Served, database: u16) -> Client {
    let mut client = served.client();
    assert_eq!(client.call(&["SELECT", &database.to_string()]), ok());
    client
}

fn keys(client: &mut Client) -> Reply {
    client.call(&["KEYS", "*"])
}

fn list(texts: &[&str]) -> Reply {
    Reply::Array(texts.iter().map(|text| bulk(text)).collect())
}

fn text(reply: Reply) -> String {
    match reply {
        Reply::Bulk(bytes) => String::from_utf8(bytes).unwrap(),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_number_that_is_no_database_is_refused() {
    let served = ephemeral(config());
    let mut client = client_of(&served, 15);
    client.call(&["SET", "a", "15"]);
    for (number, reason) in [
        ("16", "ERR DB index is out of range"),
        ("-1", "ERR DB index is out of range"),
        ("one", "ERR value is not an integer or out of range"),
        (
            "99999999999",
            "ERR value is out of range, value must between -2147483648 and 2147483647",
        ),
    ] {
        assert_eq!(error(&client.call(&["SELECT", number])), reason);
        assert_eq!(client.call(&["GET", "a"]), bulk("15"));
    }
}

#[test]
fn each_database_has_its_own_keys() {
    let served = ephemeral(config());
    let [mut zero, mut one, mut two] = [0, 1, 2].map(|of| client_of(&served, of));
    for client in [&mut zero, &mut one] {
        assert_eq!(client.call(&["INCR", "n"]), int(1));
    }
    one.call(&["MSET", "a", "1", "b", "2"]);
    assert_eq!(keys(&mut zero), list(&["n"]));
    assert_eq!(keys(&mut one), list(&["a", "b", "n"]));
    assert_eq!(one.call(&["KEYS", "a*"]), list(&["a"]));
    assert_eq!(keys(&mut two), list(&[]));
    let page = Reply::Array(vec![bulk("0"), list(&["a", "b", "n"])]);
    assert_eq!(one.call(&["SCAN", "0"]), page);
    assert_eq!(two.call(&["RANDOMKEY"]), Reply::Null);
    assert_eq!(zero.call(&["RANDOMKEY"]), bulk("n"));
    let sizes = [&mut zero, &mut one, &mut two].map(|client| client.call(&["DBSIZE"]));
    assert_eq!(sizes, [1, 3, 0].map(int));
    let info = text(zero.call(&["INFO", "keyspace"]));
    let expected =
        "# Keyspace\r\ndb0:keys=1,expires=0,avg_ttl=0\r\ndb1:keys=3,expires=0,avg_ttl=0\r\n";
    assert_eq!(info, expected);
    assert_eq!(one.call(&["FLUSHDB"]), ok());
    assert_eq!(
        [one.call(&["DBSIZE"]), zero.call(&["DBSIZE"])],
        [0, 1].map(int)
    );
    one.call(&["SET", "a", "1"]);
    assert_eq!(two.call(&["FLUSHALL"]), ok());
    assert_eq!(
        [one.call(&["DBSIZE"]), zero.call(&["DBSIZE"])],
        [0, 0].map(int)
    );
}

#[test]
fn a_scan_in_pages_stays_in_its_database() {
    let served = ephemeral(config());
    let [mut one, mut two] = [1, 2].map(|of| client_of(&served, of));
    for number in 0..25 {
        one.call(&["SET", &format!("k{number:02}"), "v"]);
        two.call(&["SET", &format!("other{number}"), "v"]);
    }
    let (mut cursor, mut found) = ("0".to_owned(), Vec::new());
    loop {
        let Reply::Array(mut page) = one.call(&["SCAN", &cursor, "COUNT", "7"]) else {
            panic!("no page")
        };
        let Some(Reply::Array(keys)) = page.pop() else {
            panic!("{page:?}")
        };
        found.extend(keys.into_iter().map(text));
        cursor = text(page.remove(0));
        if cursor == "0" {
            break;
        }
    }
    let expected: Vec<String> = (0..25).map(|number| format!("k{number:02}")).collect();
    assert_eq!(found, expected);
}

#[test]
fn no_client_names_a_key_of_another_database() {
    let served = ephemeral(config());
    let [mut zero, mut one] = [0, 1].map(|of| client_of(&served, of));
    one.call(&["SET", "secret", "1"]);
    let stored = base::database::qualified(1, b"secret");
    assert_eq!(zero.call::<&[u8]>(&[b"GET", &stored]), Reply::Null);
    assert_eq!(zero.call::<&[u8]>(&[b"EXISTS", &stored]), int(0));
    assert_eq!(zero.call::<&[u8]>(&[b"DEL", &stored]), int(0));
    assert_eq!(zero.call::<&[u8]>(&[b"RENAME", &stored, b"mine"]), {
        Reply::Error("ERR no such key".into())
    });
    let script = &b"return redis.call('get', KEYS[1])"[..];
    assert_eq!(
        zero.call::<&[u8]>(&[b"EVAL", script, b"1", &stored]),
        Reply::Null
    );
    let refused = zero.call::<&[u8]>(&[b"SET", &stored, b"2"]);
    assert!(error(&refused).starts_with("ERR"), "{refused:?}");
    let all = zero.call::<&[u8]>(&[b"KEYS", &[&stored[..17], b"*"].concat()]);
    assert_eq!(all, list(&[]));
    assert_eq!(one.call(&["GET", "secret"]), bulk("1"));
    // In another database the same bytes are a key like any other.
    assert_eq!(one.call::<&[u8]>(&[b"SET", &stored, b"2"]), ok());
    assert_eq!(one.call::<&[u8]>(&[b"GET", &stored]), bulk("2"));
}

#[test]
fn values_move_between_databases() {
    let served = ephemeral(config());
    let [mut zero, mut one] = [0, 1].map(|of| client_of(&served, of));
    zero.call(&["SET", "a", "1", "PX", "100000"]);
    assert_eq!(zero.call(&["MOVE", "a", "1"]), int(1));
    assert_eq!(zero.call(&["GET", "a"]), Reply::Null);
    assert_eq!(one.call(&["GET", "a"]), bulk("1"));
    assert!(matches!(one.call(&["PTTL", "a"]), Reply::Int(1..=100_000)));
    assert_eq!(zero.call(&["MOVE", "a", "1"]), int(0));
    zero.call(&["SET", "a", "0"]);
    assert_eq!(one.call(&["MOVE", "a", "0"]), int(0));
    let same = "ERR source and destination objects are the same";
    assert_eq!(error(&one.call(&["MOVE", "a", "1"])), same);
    assert_eq!(error(&one.call(&["COPY", "a", "a", "DB", "1"])), same);
    let range = "ERR DB index is out of range";
    assert_eq!(error(&one.call(&["MOVE", "a", "16"])), range);
    assert_eq!(error(&one.call(&["COPY", "a", "b", "DB", "16"])), range);
    assert_eq!(one.call(&["COPY", "a", "a", "DB", "0"]), int(0));
    assert_eq!(one.call(&["COPY", "a", "a", "DB", "0", "REPLACE"]), int(1));
    assert_eq!(zero.call(&["GET", "a"]), bulk("1"));
    assert_eq!(one.call(&["COPY", "a", "b"]), int(1));
    assert_eq!(one.call(&["RENAME", "b", "c"]), ok());
    assert_eq!(keys(&mut one), list(&["a", "c"]));
    assert_eq!(keys(&mut zero), list(&["a"]));
}

#[test]
fn databases_are_exchanged() {
    let served = ephemeral(config());
    let [mut zero, mut one, mut two] = [0, 1, 2].map(|of| client_of(&served, of));
    zero.call(&["MSET", "a", "zero", "b", "zero"]);
    one.call(&["SET", "a", "one"]);
    assert_eq!(two.call(&["SWAPDB", "0", "1"]), ok());
    assert_eq!(zero.call(&["GET", "a"]), bulk("one"));
    assert_eq!(keys(&mut zero), list(&["a"]));
    assert_eq!(keys(&mut one), list(&["a", "b"]));
    let page = Reply::Array(vec![bulk("0"), list(&["a", "b"])]);
    assert_eq!(one.call(&["SCAN", "0"]), page);
    assert_eq!(
        [zero.call(&["DBSIZE"]), one.call(&["DBSIZE"])],
        [1, 2].map(int)
    );
    let info = text(zero.call(&["INFO", "keyspace"]));
    assert!(
        info.contains("db0:keys=1,") && info.contains("db1:keys=2,"),
        "{info}"
    );
    assert_eq!(one.call(&["RENAME", "b", "c"]), ok());
    let script = "redis.call('set', 'd', 1); return redis.call('keys', '*')";
    assert_eq!(one.call(&["EVAL", script, "0"]), list(&["a", "c", "d"]));
    assert_eq!(one.call(&["MOVE", "d", "0"]), int(1));
    assert_eq!(one.call(&["FLUSHDB"]), ok());
    assert_eq!(keys(&mut zero), list(&["a", "d"]));
    one.call(&["SET", "x", "1"]);
    zero.call(&["WATCH", "a"]);
    zero.call(&["MULTI"]);
    zero.call(&["PING"]);
    assert_eq!(two.call(&["SWAPDB", "1", "0"]), ok());
    assert_eq!(zero.call(&["EXEC"]), Reply::NullArray);
    zero.call(&["MULTI"]);
    for command in [
        &["GET", "x"][..],
        &["SWAPDB", "0", "2"],
        &["GET", "x"],
        &["DBSIZE"],
    ] {
        zero.call(command);
    }
    let replies = vec![bulk("1"), ok(), Reply::Null, int(0)];
    assert_eq!(zero.call(&["EXEC"]), Reply::Array(replies));
    assert_eq!(keys(&mut two), list(&["x"]));
    for (numbers, reason) in [
        (["x", "0"], "ERR invalid first DB index"),
        (["0", "x"], "ERR invalid second DB index"),
        (["0", "16"], "ERR DB index is out of range"),
        (["-1", "0"], "ERR DB index is out of range"),
    ] {
        assert_eq!(
            error(&zero.call(&["SWAPDB", numbers[0], numbers[1]])),
            reason
        );
    }
    assert_eq!(zero.call(&["SWAPDB", "3", "3"]), ok());
}

#[test]
fn a_block_selects_databases_if_it_takes_effect() {
    let served = ephemeral(config());
    let mut client = client_of(&served, 1);
    for long in [false, true] {
        client.call(&["SELECT", "1"]);
        client.call(&["FLUSHALL"]);
        client.call(&["MULTI"]);
        client.call(&["SET", "a", "1"]);
        client.call(&["SELECT", "2"]);
        client.call(&["SET", "a", "2"]);
        if long {
            client.call(&["RENAME", "a", "b"]);
        }
        client.call(&["DBSIZE"]);
        client.call(&["KEYS", "*"]);
        client.call(&["SELECT", "99"]);
        let Reply::Array(replies) = client.call(&["EXEC"]) else {
            panic!("no list")
        };
        let key = if long { "b" } else { "a" };
        assert_eq!(replies[..3], [ok(), ok(), ok()]);
        let end = &replies[replies.len() - 3..];
        assert_eq!(end[..2], [int(1), list(&[key])]);
        assert_eq!(error(&end[2]), "ERR DB index is out of range");
        assert_eq!(keys(&mut client), list(&[key]));
        assert_eq!(client.call(&["SELECT", "1"]), ok());
        assert_eq!(client.call(&["GET", "a"]), bulk("1"));
    }
    let mut other = client_of(&served, 1);
    client.call(&["WATCH", "a"]);
    other.call(&["SET", "a", "changed"]);
    client.call(&["MULTI"]);
    client.call(&["SELECT", "3"]);
    assert_eq!(client.call(&["EXEC"]), Reply::NullArray);
    assert_eq!(client.call(&["GET", "a"]), bulk("changed"));
}

#[test]
fn a_block_flushes_the_databases_that_it_selects() {
    let served = ephemeral(config());
    let [mut zero, mut one, mut two] = [0, 1, 2].map(|of| client_of(&served, of));
    for client in [&mut zero, &mut one, &mut two] {
        client.call(&["SET", "a", "old"]);
    }
    zero.call(&["MULTI"]);
    zero.call(&["RENAME", "a", "b"]);
    for database in ["1", "2"] {
        zero.call(&["SELECT", database]);
        zero.call(&["FLUSHDB"]);
        zero.call(&["DBSIZE"]);
    }
    zero.call(&["SET", "new", "1"]);
    zero.call(&["SELECT", "0"]);
    zero.call(&["DBSIZE"]);
    let expected = [
        ok(),
        ok(),
        ok(),
        int(0),
        ok(),
        ok(),
        int(0),
        ok(),
        ok(),
        int(1),
    ];
    assert_eq!(zero.call(&["EXEC"]), Reply::Array(expected.into()));
    assert_eq!(keys(&mut zero), list(&["b"]));
    assert_eq!(keys(&mut one), list(&[]));
    assert_eq!(keys(&mut two), list(&["new"]));
}

#[test]
fn watched_keys_are_of_their_databases() {
    let served = ephemeral(config());
    let mut client = client_of(&served, 1);
    let [mut zero, mut one, mut two] = [0, 1, 2].map(|of| client_of(&served, of));
    let exec = |client: &mut Client, change: &mut dyn FnMut()| {
        client.call(&["SELECT", "1"]);
        client.call(&["WATCH", "a"]);
        client.call(&["SELECT", "2"]);
        client.call(&["WATCH", "a"]);
        change();
        client.call(&["MULTI"]);
        client.call(&["PING"]);
        client.call(&["EXEC"])
    };
    let done = Reply::Array(vec![status("PONG")]);
    one.call(&["SET", "a", "0"]);
    assert_eq!(
        exec(&mut client, &mut || drop(zero.call(&["SET", "a", "1"]))),
        done
    );
    assert_eq!(
        exec(&mut client, &mut || drop(zero.call(&["FLUSHDB"]))),
        done
    );
    let change = &mut || drop(one.call(&["SET", "a", "1"]));
    assert_eq!(exec(&mut client, change), Reply::NullArray);
    let change = &mut || drop(two.call(&["SET", "a", "1"]));
    assert_eq!(exec(&mut client, change), Reply::NullArray);
    let change = &mut || drop(two.call(&["FLUSHDB"]));
    assert_eq!(exec(&mut client, change), Reply::NullArray);
}

#[test]
fn a_script_selects_for_itself_alone() {
    let served = ephemeral(config());
    let mut client = client_of(&served, 3);
    let script = "redis.call('set', KEYS[1], 'three'); redis.call('select', 4); \
                  redis.call('set', KEYS[1], 'four'); redis.call('flushdb'); \
                  redis.call('set', 'b', redis.call('dbsize')); \
                  return redis.pcall('select', 16)['err']";
    let refused = client.call(&["EVAL", script, "1", "a"]);
    assert_eq!(text(refused), "ERR DB index is out of range");
    assert_eq!(client.call(&["GET", "a"]), bulk("three"));
    assert_eq!(keys(&mut client), list(&["a"]));
    client.call(&["MULTI"]);
    client.call(&["EVAL", script, "1", "a"]);
    client.call(&["DBSIZE"]);
    client.call(&["SELECT", "4"]);
    client.call(&["KEYS", "*"]);
    let Reply::Array(replies) = client.call(&["EXEC"]) else {
        panic!("no list")
    };
    assert_eq!(replies[1..], [int(1), ok(), list(&["b"])]);
    assert_eq!(client.call(&["GET", "b"]), bulk("0"));
}

#[test]
fn the_selected_database_is_shown_and_reset() {
    let served = ephemeral(config());
    let mut client = client_of(&served, 7);
    let mut monitor = served.client();
    assert_eq!(monitor.call(&["MONITOR"]), ok());
    let info = text(client.call(&["CLIENT", "INFO"]));
    assert!(info.contains(" db=7 "), "{info}");
    client.call(&["MULTI"]);
    client.call(&["SELECT", "8"]);
    client.call(&["GET", "a"]);
    client.call(&["EXEC"]);
    for (database, command) in [(7, "select"), (8, "GET"), (8, "EXEC")] {
        let mut line = format!("{:?}", monitor.reply());
        while !line
            .to_ascii_lowercase()
            .contains(&command.to_ascii_lowercase())
        {
            line = format!("{:?}", monitor.reply());
        }
        assert!(line.contains(&format!(" [{database} ")), "{line}");
    }
    assert_eq!(
        client.call(&["CONFIG", "GET", "databases"]),
        list(&["databases", "16"])
    );
    assert_eq!(client.call(&["RESET"]), status("RESET"));
    let info = text(client.call(&["CLIENT", "INFO"]));
    assert!(info.contains(" db=0 "), "{info}");
}

#[test]
fn the_number_of_databases_is_an_option() {
    let served = ephemeral(kumiki_server::Config {
        databases: 3,
        ..config()
    });
    let mut client = client_of(&served, 2);
    client.call(&["SET", "a", "1"]);
    assert_eq!(
        error(&client.call(&["SELECT", "3"])),
        "ERR DB index is out of range"
    );
    assert_eq!(
        error(&client.call(&["MOVE", "a", "3"])),
        "ERR DB index is out of range"
    );
}

/// Accounts of each of two databases.
const ACCOUNTS: [&str; 4] = ["a", "b", "c", "d"];
const BALANCE: i64 = 1_000;

/// Moves an amount from an account of database 0 to one of database 1.
fn transfer(client: &mut Client, random: &mut fastrand::Rng) {
    let amount = random.i64(-50..50).to_string();
    let [from, to] = [0, 1].map(|_| ACCOUNTS[random.usize(..ACCOUNTS.len())]);
    let script = "redis.call('select', 0); redis.call('decrby', KEYS[1], ARGV[1]); \
                  redis.call('select', 1); redis.call('incrby', KEYS[2], ARGV[1])";
    if random.u8(..4) == 0 {
        let done = client.call(&["EVAL", script, "2", from, to, &amount]);
        assert_eq!(done, Reply::Null);
        return;
    }
    for command in [
        &["MULTI"][..],
        &["SELECT", "0"],
        &["DECRBY", from, &amount],
        &["SELECT", "1"],
        &["INCRBY", to, &amount],
    ] {
        client.call(command);
    }
    assert!(matches!(client.call(&["EXEC"]), Reply::Array(_)));
}

/// Returns the sum of all accounts.
fn audit(client: &mut Client) -> i64 {
    let all = [&["MGET"][..], &ACCOUNTS].concat();
    for command in [
        &["MULTI"][..],
        &["SELECT", "0"],
        &all,
        &["SELECT", "1"],
        &all,
    ] {
        client.call(command);
    }
    let Reply::Array(replies) = client.call(&["EXEC"]) else {
        panic!("no list")
    };
    let balances = [&replies[1], &replies[3]]
        .into_iter()
        .flat_map(|reply| match reply {
            Reply::Array(balances) => balances.clone(),
            other => panic!("{other:?}"),
        });
    balances
        .map(|balance| text(balance).parse::<i64>().unwrap())
        .sum()
}

#[test]
fn transfers_keep_the_sum_while_databases_are_exchanged_and_others_flushed() {
    let served = ephemeral(kumiki_server::Config {
        threads: 3,
        ..config()
    });
    for database in [0, 1] {
        for account in ACCOUNTS {
            let balance = BALANCE.to_string();
            client_of(&served, database).call(&["SET", account, &balance]);
        }
    }
    let sum = BALANCE * 2 * ACCOUNTS.len() as i64;
    std::thread::scope(|scope| {
        let tellers = [1, 2, 3].map(|seed| {
            let mut client = served.client();
            scope.spawn(move || {
                let mut random = fastrand::Rng::with_seed(seed);
                for number in 0..200 {
                    transfer(&mut client, &mut random);
                    if number % 10 == 0 {
                        assert_eq!(audit(&mut client), sum);
                    }
                }
            })
        });
        let mut client = client_of(&served, 2);
        while !tellers.iter().all(|teller| teller.is_finished()) {
            assert_eq!(client.call(&["SET", "other", "1"]), ok());
            assert_eq!(client.call(&["FLUSHDB"]), ok());
            assert_eq!(client.call(&["SWAPDB", "0", "1"]), ok());
        }
    });
    assert_eq!(audit(&mut served.client()), sum);
}
