//! Every command that has keys, in two databases: another node redirects it, and in a block with other
//! nodes it answers as on a server without a cluster.

use std::collections::BTreeSet;

use crate::support::nodes::{Nodes, NodesOptions, slot_of};
use crate::support::{config, ephemeral, error, ok};
use testkit::Reply;

/// Commands in an order in which they have something to do; `K` is a key, and `A` to `C` are keys
/// of different nodes.
const LINES: &str = "
    SET K hello
    GET K
    STRLEN K
    APPEND K -world
    GETRANGE K 0 4
    SUBSTR K 1 2
    SETRANGE K 6 there
    GET K
    GETSET K 10
    INCR K
    INCRBY K 5
    DECR K
    DECRBY K 2
    INCRBYFLOAT K 0.5
    GET K
    INCR K
    SETNX K no
    EXISTS K
    TYPE K
    TOUCH K
    TTL K
    PTTL K
    EXPIRETIME K
    PEXPIRETIME K
    EXPIRE K 1000
    TTL K
    PERSIST K
    PEXPIRE K 100000
    PERSIST K
    EXPIREAT K 4000000000
    EXPIRETIME K
    PEXPIREAT K 4000000000000
    PEXPIRETIME K
    GETEX K PERSIST
    SETEX K 100 value
    TTL K
    PSETEX K 100000 value
    SET K other KEEPTTL GET
    SET K other NX
    SET K
    EXPIRE K x
    GETBIT K 2
    BITCOUNT K
    BITCOUNT K x y
    BITPOS K 1
    BITFIELD_RO K GET u8 0 GET i5 #1
    SETBIT K 70 1
    SETBIT K 70 x
    BITFIELD K GET u8 0 OVERFLOW SAT INCRBY i5 #3 9 SET u8 0 104
    DUMP K
    RESTORE K 0 x
    RESTORE K 0 x REPLACE
    LCS K A
    LCS A C IDX
    LCS K A NOSUCH
    GETDEL K
    GETDEL K
    GET K
    TYPE K
    TTL K
    SETEX K 0 value
    UNLINK K
    DEL K
    MSET A 1 B 2 C 3
    MGET A B C absent
    MSETNX A 4 B 5
    EXISTS A B C A
    TOUCH A B
    DEL A B
    MSETNX A 4 B 5
    MGET A B C
    UNLINK A B C absent
    SET A 1
    BITOP XOR C A B
    BITOP NOT A C
    BITOP NOT A B C
    DUMP C
    RENAME A B
    RENAME A B
    RENAMENX B C
    COPY C A
    COPY C A REPLACE
    COPY C A DB 1
    COPY C B DB 2 REPLACE
    MOVE A 3
    MOVE A 3
    MOVE A 16
    COPY C A
    EVAL return(redis.call('incr',KEYS[1])) 1 A
    EVAL return(redis.call('mget',unpack(ARGV))) 0 A B C
    EVALSHA 0123456789012345678901234567890123456789 1 A
    UNLINK A C
    UNLINK K
    HSET K f 1 g 2
    HMSET K h 3
    HSETNX K f no
    HGET K f
    HMGET K f nosuch
    HGETALL K
    HKEYS K
    HVALS K
    HLEN K
    HEXISTS K f
    HSTRLEN K f
    HINCRBY K f 5
    HINCRBYFLOAT K g 0.5
    HSCAN K 0
    HDEL K g h
    HRANDFIELD K
    HPEXPIREAT K 4000000000000 FIELDS 1 f
    HEXPIREAT K 4000000000 FIELDS 1 f
    HPEXPIRETIME K FIELDS 1 f
    HEXPIRETIME K FIELDS 1 f
    HPERSIST K FIELDS 1 f
    HTTL K FIELDS 1 f
    HPTTL K FIELDS 1 f
    HEXPIRE K 0 FIELDS 1 nosuch
    HPEXPIRE K 0 FIELDS 1 nosuch
    HSETEX K FIELDS 1 i 1
    HGETEX K FIELDS 1 i
    HGETDEL K FIELDS 1 i
    DUMP K
    LPUSH K no
    UNLINK K
    RPUSH K a b c b
    LPUSH K z
    RPUSHX K y
    LPUSHX K x
    LLEN K
    LRANGE K 0 -1
    LINDEX K 1
    LSET K 1 w
    LINSERT K BEFORE a v
    LPOS K b
    LREM K 1 b
    LTRIM K 0 4
    LPOP K
    RPOP K
    SORT K ALPHA
    SORT_RO K ALPHA
    BLPOP K 0
    BRPOP K 0
    UNLINK A B C
    RPUSH A 1 2 3 4
    LMOVE A B LEFT RIGHT
    RPOPLPUSH A B
    BLMOVE A B LEFT RIGHT 0
    BRPOPLPUSH A C 0
    LRANGE B 0 -1
    UNLINK A B C
    SADD A 1 2 3
    SADD B 2 3 4
    SINTER A B
    SUNION A B
    SDIFF A B
    SINTERSTORE C A B
    SUNIONSTORE C A B
    SDIFFSTORE C A B
    SMOVE A B 1
    SMEMBERS B
    UNLINK A B C
    SADD K m
    SISMEMBER K m
    SMISMEMBER K m n
    SCARD K
    SMEMBERS K
    SRANDMEMBER K
    SSCAN K 0
    SREM K n
    SPOP K
    ZADD K 1 a 2 b 3 c
    ZINCRBY K 2 a
    ZCARD K
    ZCOUNT K 1 2
    ZLEXCOUNT K - +
    ZSCORE K a
    ZMSCORE K a nosuch
    ZRANK K a
    ZREVRANK K a
    ZRANGE K 0 -1 WITHSCORES
    ZREVRANGE K 0 -1
    ZRANGEBYSCORE K 1 2
    ZREVRANGEBYSCORE K 2 1
    ZRANGEBYLEX K - +
    ZREVRANGEBYLEX K + -
    ZSCAN K 0
    ZREM K c
    ZREMRANGEBYRANK K 9 10
    ZREMRANGEBYSCORE K 9 10
    ZREMRANGEBYLEX K [x [y
    ZPOPMIN K
    ZRANDMEMBER K
    ZPOPMAX K
    ZADD K 1 a 2 b
    BZPOPMIN K 0
    BZPOPMAX K 0
    ZADD A 1 a 2 b
    ZADD B 2 b 3 c
    ZRANGESTORE C A 0 -1
    ZUNIONSTORE C 2 A B
    ZINTERSTORE C 2 A B
    ZDIFFSTORE C 2 A B
    UNLINK A B C
    GEOADD K 13.361389 38.115556 p 15.087269 37.502669 q
    GEODIST K p q
    GEOHASH K p
    GEOPOS K p
    GEOSEARCH K FROMMEMBER p BYRADIUS 200 km ASC
    GEORADIUS K 15 37 200 km ASC
    GEORADIUS_RO K 15 37 200 km ASC
    GEORADIUSBYMEMBER K p 200 km ASC
    GEORADIUSBYMEMBER_RO K p 200 km ASC
    UNLINK K
    GEOADD A 13.361389 38.115556 p
    GEOSEARCHSTORE B A FROMMEMBER p BYRADIUS 1 km
    UNLINK A B
    XADD K 1-1 f v
    XADD K 2-1 f w
    XLEN K
    XRANGE K - +
    XREVRANGE K + -
    XGROUP CREATE K g 0
    XREADGROUP GROUP g c COUNT 1 STREAMS K >
    XACK K g 1-1
    XPENDING K g
    XCLAIM K g c 0 1-1
    XAUTOCLAIM K g c 0 0
    XTRIM K MAXLEN 5
    XDEL K 1-1
    XSETID K 5-1
    UNLINK K
    PFADD K a b c
    PFCOUNT K
    PFDEBUG ENCODING K
    UNLINK K
    PFADD A a
    PFADD B b
    PFMERGE C A B
    PFCOUNT A B C
    UNLINK A B C
";

/// The commands whose keys are behind their number, an option or a word.
const MOVABLE: [&str; 18] = [
    "blmpop",
    "bzmpop",
    "georadius",
    "georadiusbymember",
    "lmpop",
    "sintercard",
    "sort",
    "sort_ro",
    "xread",
    "xreadgroup",
    "zdiff",
    "zdiffstore",
    "zinter",
    "zintercard",
    "zinterstore",
    "zmpop",
    "zunion",
    "zunionstore",
];

/// The databases in which the commands execute.
const DATABASES: [&str; 2] = ["0", "5"];

/// Returns the lines with keys in their place: `K` becomes that of each node in turn.
fn lines(keys: &[String; 3]) -> Vec<Vec<String>> {
    let mut lines = Vec::new();
    for key in keys {
        for line in LINES.lines().filter(|line| !line.trim().is_empty()) {
            let word = |word: &str| match word {
                "K" => key.clone(),
                "A" => keys[0].clone(),
                "B" => keys[1].clone(),
                "C" => keys[2].clone(),
                other => other.to_owned(),
            };
            lines.push(line.split_whitespace().map(word).collect());
        }
    }
    lines
}

fn words(line: &[String]) -> Vec<&str> {
    line.iter().map(String::as_str).collect()
}

fn cluster() -> (Nodes, [String; 3]) {
    let nodes = Nodes::start(NodesOptions {
        durable: false,
        ..NodesOptions::default()
    });
    let keys = [1, 2, 3].map(|node| nodes.key_of(node, "key"));
    (nodes, keys)
}

#[test]
fn the_list_has_every_command_that_has_keys() {
    let served = ephemeral(config());
    let Reply::Array(commands) = served.client().call(&["COMMAND"]) else {
        panic!("a list of commands")
    };
    let mut with_keys = BTreeSet::new();
    for command in &commands {
        let Reply::Array(fields) = command else {
            panic!("{command:?}")
        };
        if let (Reply::Bulk(name), Reply::Int(1..)) = (&fields[0], &fields[3]) {
            with_keys.insert(String::from_utf8(name.to_ascii_uppercase()).unwrap());
        }
    }
    // Tested elsewhere.
    let channels = ["SSUBSCRIBE", "SUNSUBSCRIBE", "SPUBLISH"];
    let watches = ["WATCH", "WATCH.AT", "WATCH.VERSION"];
    for name in [watches, channels].concat() {
        assert!(with_keys.remove(name), "{name}");
    }
    let words = LINES
        .lines()
        .filter_map(|line| line.split_whitespace().next());
    // Their keys stand behind their number, or a word.
    let words =
        words.filter(|word| !word.starts_with("EVAL") && !matches!(*word, "XREADGROUP" | "XGROUP"));
    assert_eq!(with_keys, words.map(str::to_owned).collect());
}

/// Clients that route commands rely on what `COMMAND` says of them.
#[test]
fn the_list_says_where_keys_are_and_who_writes() {
    let served = ephemeral(config());
    let Reply::Array(commands) = served.client().call(&["COMMAND"]) else {
        panic!("a list of commands")
    };
    for command in &commands {
        let Reply::Array(fields) = command else {
            panic!("{command:?}")
        };
        let [Reply::Bulk(name), Reply::Int(arity), flags] = &fields[..3] else {
            panic!("{fields:?}")
        };
        let name = std::str::from_utf8(name).unwrap();
        let Reply::Array(flags) = flags else {
            panic!("{name}: {flags:?}")
        };
        let has = |word: &str| flags.contains(&Reply::status(word));
        let numbers = |of: [i64; 3]| of.map(Reply::Int).to_vec();
        let expected = match name {
            "mset" | "msetnx" | "watch.at" => numbers([1, -1, 2]),
            "mget" | "del" | "unlink" | "exists" | "touch" | "watch" | "watch.version"
            | "ssubscribe" | "sunsubscribe" | "sinter" | "sunion" | "sdiff" | "sinterstore"
            | "sunionstore" | "sdiffstore" | "pfcount" | "pfmerge" => numbers([1, -1, 1]),
            "blpop" | "brpop" | "bzpopmin" | "bzpopmax" => numbers([1, -2, 1]),
            "bitop" => numbers([2, -1, 1]),
            "pfdebug" => numbers([2, 2, 1]),
            "lcs" | "rename" | "renamenx" | "copy" | "lmove" | "rpoplpush" | "blmove"
            | "brpoplpush" | "smove" | "zrangestore" | "geosearchstore" => numbers([1, 2, 1]),
            _ if fields[3] == Reply::Int(0) => numbers([0, 0, 0]),
            _ => numbers([1, 1, 1]),
        };
        assert_eq!(fields[3..6], expected, "{name}");
        // Names of channels have slots, and are no keys.
        let takes_keys = fields[3] != Reply::Int(0) && !has("pubsub");
        let watches = matches!(name, "watch" | "watch.at");
        assert!(
            !takes_keys || watches || has("write") != has("readonly"),
            "{name}"
        );
        let is_script = name.starts_with("eval") || name.starts_with("fcall");
        assert_eq!(
            has("movablekeys"),
            is_script || MOVABLE.contains(&name),
            "{name}: its keys are listed"
        );
        // A call with the fewest arguments has all keys at the listed places.
        if takes_keys && !has("movablekeys") {
            let count = arity.unsigned_abs() as usize;
            let mut args = vec!["COMMAND", "GETKEYS", name];
            args.resize(2 + count, "k");
            let Reply::Array(keys) = served.client().call(&args) else {
                panic!("{name}")
            };
            assert!(!keys.is_empty() && keys.len() < count, "{name}");
        }
        let same = served.client().call(&["COMMAND", "INFO", name]);
        assert_eq!(same, Reply::Array(vec![command.clone()]), "{name}");
        let docs = served.client().call(&["COMMAND", "DOCS", name]);
        assert!(
            matches!(&docs, Reply::Array(docs) if docs.len() == 2),
            "{name}: {docs:?}"
        );
    }
}

#[test]
fn each_command_answers_in_a_block_of_many_nodes_as_on_one() {
    let (nodes, keys) = cluster();
    let alone = ephemeral(config());
    let rounds = (1..=3).flat_map(|node| DATABASES.map(|database| (node, database)));
    for (node, database) in rounds {
        let (mut one, mut many) = (alone.client(), nodes.client(node));
        let all = (1..=3).map(|node| nodes.client(node));
        for mut client in all.chain([alone.client()]) {
            assert_eq!(client.call(&["FLUSHALL"]), ok());
        }
        for client in [&mut one, &mut many] {
            assert_eq!(client.call(&["SELECT", database]), ok());
        }
        for line in lines(&keys) {
            // The two keys of the frame are of different nodes, so that the block is coordinated.
            let mut answers = Vec::new();
            for client in [&mut one, &mut many] {
                assert_eq!(client.call(&["MULTI"]), ok());
                let framed = [
                    client.call(&["INCR", &format!("{{{}}}frame", keys[0])]),
                    client.call(&words(&line)),
                    client.call(&["INCR", &format!("{{{}}}frame", keys[1])]),
                ];
                answers.push((framed, client.call(&["EXEC"])));
            }
            assert_eq!(answers[0], answers[1], "{line:?}");
        }
    }
}

#[test]
fn a_command_alone_answers_as_on_one_node_or_says_where_to_go() {
    let (nodes, keys) = cluster();
    let alone = ephemeral(config());
    let mut one = alone.client();
    let mut clients = [1, 2, 3].map(|node| nodes.client(node));
    let lines = DATABASES.map(|database| {
        let select = vec!["SELECT".to_owned(), database.to_owned()];
        (select, lines(&keys))
    });
    let lines = lines
        .into_iter()
        .flat_map(|(select, lines)| std::iter::once(select).chain(lines));
    for line in lines {
        if line[0] == "SELECT" {
            let clients = clients.iter_mut().chain([&mut one]);
            clients.for_each(|client| assert_eq!(client.call(&words(&line)), ok()));
            continue;
        }
        let args = words(&line);
        let expected = one.call(&args);
        let here = args
            .iter()
            .filter_map(|word| keys.iter().position(|key| key == word));
        let owners: BTreeSet<usize> = here.collect();
        if let (1, false) = (owners.len(), args.contains(&"absent")) {
            let owner = *owners.first().unwrap();
            let other = &mut clients[(owner + 1) % 3];
            let said = other.call(&args);
            let to = nodes.address(owner as u16 + 1);
            let moved = format!("MOVED {} {to}", slot_of(&keys[owner]));
            // Any node that gets a command says what is wrong with it.
            let refused = matches!(expected, Reply::Error(_)) && said == expected;
            assert!(refused || error(&said) == moved, "{line:?}: {said:?}");
            assert_eq!(clients[owner].call(&args), expected, "{line:?}");
        } else {
            let any = args.len() % 3;
            assert_eq!(clients[any].call(&args), expected, "{line:?}");
        }
    }
}
