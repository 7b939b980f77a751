//! Client-side caching: which news a client gets, and when.

use super::*;

impl Stage {
    /// Returns a client of RESP3 whose nodes send news, after this `CLIENT TRACKING`.
    fn caching(kind: NodeKind, options: &[&str]) -> Stage {
        let mut stage = Stage::new(kind);
        stage.client.protocol = resp::Protocol::Resp3;
        let tracking = Arc::clone(&stage.protocol.state.tracking);
        for node in [0, 1] {
            tracking.note_sending(NodeIndex(node));
        }
        tracking.note_begun(Ok(()));
        stage.deliver(Duration::ZERO);
        let mut words = vec![&b"CLIENT"[..], b"TRACKING", b"ON"];
        words.extend(options.iter().map(|option| option.as_bytes()));
        stage.send(&words);
        assert_eq!(stage.written(), "+OK ");
        stage
    }

    fn say(&mut self, line: &str) {
        let words: Vec<&[u8]> = line.split(' ').map(str::as_bytes).collect();
        self.send(&words);
    }

    /// Answers all queries with nil.
    fn answer_all(&mut self) {
        for query in self.take() {
            self.answer(query, plain(b"_\r\n"));
        }
    }

    /// A node tells that these keys have changed.
    fn change(&mut self, names: &str) {
        let keys = names.split_whitespace();
        let keys = keys.map(|key| key.as_bytes().into());
        self.protocol.state.tracking.changed(keys.collect());
        self.deliver(Duration::ZERO);
    }

    /// Takes what the client has got: its lines without lengths.
    fn written(&mut self) -> String {
        let text = std::mem::take(&mut self.out).text();
        let lines = text
            .split("\r\n")
            .filter(|line| !line.starts_with(['*', '$']));
        lines.collect::<Vec<_>>().join(" ")
    }
}

#[test]
fn a_client_waits_until_the_nodes_have_been_asked() {
    for result in [Ok(()), Err(Bytes::from_static(b"-NOPERM no\r\n"))] {
        let mut stage = Stage::new(NodeKind::Kumiki);
        stage.client.protocol = resp::Protocol::Resp3;
        stage.say("CLIENT TRACKING ON");
        stage.input.extend_from_slice(b"GET foo\r\n");
        assert_eq!(stage.read(), InputProgress::AwaitsReply);
        let tracking = Arc::clone(&stage.protocol.state.tracking);
        assert!(tracking.is_wanted());
        tracking.note_begun(result.clone());
        assert_eq!(stage.deliver(Duration::ZERO), 1);
        stage.read();
        stage.answer_all();
        match result {
            // No node sends news: the value is not kept.
            Ok(()) => assert_eq!(stage.written(), "+OK _ >2 invalidate foo "),
            Err(_) => assert_eq!(stage.written(), "-NOPERM no _ "),
        }
        assert_eq!(tracking.is_wanted(), stage.client.tracking.is_some());
        stage.say("CLIENT TRACKING OFF");
        assert!(!tracking.is_wanted() && stage.client.tracking.is_none());
    }
}

#[test]
fn news_come_behind_the_reply_that_they_are_about() {
    let mut stage = Stage::caching(NodeKind::RedisCluster, &[]);
    stage.say("GET foo");
    stage.say("GET bar");
    stage.change("foo other");
    assert_eq!(stage.written(), "");
    let [foo, bar] = <[BackendQuery; 2]>::try_from(stage.take()).expect("two reads");
    stage.answer(bar, plain(b"+b\r\n"));
    // Its reply has not left, but was read before: it waits for the other one.
    stage.change("bar");
    assert_eq!(stage.written(), "");
    stage.answer(foo, plain(b"+f\r\n"));
    assert_eq!(stage.written(), "+f +b >2 invalidate foo bar ");
    // Once told, the client does not keep them.
    stage.change("foo bar");
    assert_eq!(stage.written(), "");
    // The client gets the news at once of a key that it is not reading.
    stage.say("GET foo");
    stage.answer_all();
    stage.say("GET bar");
    stage.change("foo");
    assert_eq!(stage.written(), "_ >2 invalidate foo ");
    stage.protocol.state.tracking.changed_all();
    stage.deliver(Duration::ZERO);
    assert_eq!(stage.written(), ">2 invalidate _ ");
    stage.answer_all();
    assert_eq!(stage.written(), "_ >2 invalidate bar ");
}

#[test]
fn a_client_is_told_of_its_own_changes_behind_their_replies() {
    let mut stage = Stage::caching(NodeKind::RedisCluster, &[]);
    stage.say("GET foo");
    stage.say("SET foo 1");
    stage.answer_all();
    assert_eq!(stage.written(), "_ _ >2 invalidate foo ");
    stage.change("foo");
    stage.say("SET foo 1");
    stage.answer_all();
    assert_eq!(stage.written(), "_ ");
}

#[test]
fn reads_of_nodes_without_news_are_not_kept() {
    let mut stage = Stage::caching(NodeKind::RedisCluster, &[]);
    // The first node has `bar`, the second one `foo`.
    stage.protocol.state.tracking.note_silent(NodeIndex(1));
    stage.deliver(Duration::ZERO);
    assert_eq!(stage.written(), ">2 invalidate _ ");
    for key in ["foo", "bar"] {
        stage.say(&format!("GET {key}"));
        stage.answer_all();
    }
    assert_eq!(stage.written(), "_ >2 invalidate foo _ ");
    // A node answers that has lost the slot meanwhile.
    let tracking = Arc::clone(&stage.protocol.state.tracking);
    tracking.note_sending(NodeIndex(1));
    stage.deliver(Duration::ZERO);
    assert_eq!(stage.written(), ">2 invalidate _ ");
    stage.say("GET bar");
    stage.protocol.learn(5061, NodeIndex(1));
    stage.answer_all();
    assert_eq!(stage.written(), "_ >2 invalidate bar ");
}

#[test]
fn a_client_chooses_what_it_keeps() {
    let mut stage = Stage::caching(NodeKind::Kumiki, &["OPTIN"]);
    stage.say("GET foo");
    stage.answer_all();
    stage.change("foo");
    assert_eq!(stage.written(), "_ ");
    for line in [
        "CLIENT CACHING YES",
        "MULTI",
        "GET foo",
        "GET {foo}b",
        "EXEC",
        "GET {foo}c",
    ] {
        stage.say(line);
    }
    stage.change("foo");
    stage.answer_all();
    stage.change("{foo}b {foo}c");
    assert_eq!(
        stage.written(),
        "+OK +OK +QUEUED +QUEUED _ >2 invalidate foo _ >2 invalidate {foo}b "
    );
    let mut stage = Stage::caching(NodeKind::Kumiki, &["OPTOUT"]);
    for line in ["CLIENT CACHING NO", "GET foo", "GET bar"] {
        stage.say(line);
    }
    stage.answer_all();
    stage.change("foo bar");
    assert_eq!(stage.written(), "+OK _ _ >2 invalidate bar ");
    let mut stage = Stage::caching(NodeKind::Kumiki, &["BCAST", "PREFIX", "f", "PREFIX", "b"]);
    stage.say("GET foo");
    stage.change("foo x bar");
    assert_eq!(stage.written(), ">2 invalidate bar ");
    stage.answer_all();
    stage.change("foo");
    assert_eq!(stage.written(), "_ >2 invalidate foo >2 invalidate foo ");
    stage.say("RESET");
    stage.change("foo");
    assert_eq!(stage.written(), "+RESET ");
}

#[test]
fn news_wait_for_no_command_that_waits() {
    let mut stage = Stage::caching(NodeKind::RedisCluster, &[]);
    stage.say("GET foo");
    stage.answer_all();
    stage.say("XREAD BLOCK 0 STREAMS foo 0");
    stage.change("foo");
    assert_eq!(stage.written(), "_ >2 invalidate foo ");
    stage.answer_all();
    assert_eq!(stage.written(), "_ >2 invalidate foo ");
}
