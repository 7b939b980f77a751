//! `ACL` of a server with one user.

use crate::support::{bulk, config, ephemeral, error, int, ok};
use kumiki_server::Config;
use testkit::{Client, Reply};

/// The SHA-256 digest of `secret`.
const DIGEST: &str = "2bb80d537b1da3e38bd30361aa855686bde0eacd7162fef6a25fe97bf527a25b";

/// Returns the fields of the entries of `ACL LOG` that do not depend on time.
fn denied(client: &mut Client) -> Vec<(i64, String, String, String)> {
    let Reply::Array(entries) = client.call(&["ACL", "LOG"]) else {
        panic!("no array");
    };
    let fields = entries.into_iter().map(|entry| {
        let Reply::Array(fields) = entry else {
            panic!("no array");
        };
        let text = |at: usize| match &fields[at] {
            Reply::Bulk(text) => String::from_utf8(text.clone()).expect("text"),
            other => panic!("{other:?}"),
        };
        assert_eq!((&*text(2), &*text(3)), ("reason", "auth"));
        assert!(text(13).contains(" addr=127.0.0.1:"), "{}", text(13));
        let Reply::Int(count) = fields[1] else {
            panic!("{fields:?}");
        };
        (count, text(5), text(7), text(9))
    });
    fields.collect()
}

#[test]
fn the_user_has_the_password_of_the_server() {
    let served = ephemeral(Config {
        password: Some("secret".to_owned()),
        ..config()
    });
    let mut client = served.client();
    assert_eq!(client.call(&["AUTH", "secret"]), ok());
    let line = format!("user default on #{DIGEST} ~* &* +@all");
    assert_eq!(
        client.call(&["ACL", "LIST"]),
        Reply::Array(vec![bulk(&line)])
    );
    let Reply::Array(user) = client.call(&["ACL", "GETUSER", "default"]) else {
        panic!("no array");
    };
    let passwords = Reply::Array(vec![bulk(DIGEST)]);
    let flags = Reply::Array(vec![bulk("on")]);
    assert_eq!(
        user[..4],
        [bulk("flags"), flags, bulk("passwords"), passwords]
    );
}

#[test]
fn refused_attempts_are_logged() {
    let served = ephemeral(Config {
        password: Some("secret".to_owned()),
        ..config()
    });
    let mut client = served.client();
    for wrong in [
        &["AUTH", "wrong"][..],
        &["AUTH", "wronger"],
        &["HELLO", "3", "SETNAME", "auth", "AUTH", "me", "secret"],
    ] {
        assert!(error(&client.call(wrong)).starts_with("WRONGPASS"));
    }
    assert_eq!(client.call(&["AUTH", "secret"]), ok());
    client.call(&["MULTI"]);
    client.call(&["AUTH", "me", "wrong"]);
    client.call(&["EXEC"]);
    let entry = |count, context: &str, object: &str, user: &str| {
        (
            count,
            context.to_owned(),
            object.to_owned(),
            user.to_owned(),
        )
    };
    let expected = [
        entry(1, "multi", "AUTH", "me"),
        entry(1, "toplevel", "HELLO", "me"),
        entry(2, "toplevel", "AUTH", "default"),
    ];
    assert_eq!(denied(&mut client), expected);
    assert_eq!(client.call(&["ACL", "LOG", "RESET"]), ok());
    assert!(denied(&mut client).is_empty());
}

#[test]
fn passwords_are_random_digits_of_the_wanted_length() {
    let served = ephemeral(config());
    let mut client = served.client();
    let mut password = |bits: Option<&str>| {
        let call: Vec<&str> = ["ACL", "GENPASS"].into_iter().chain(bits).collect();
        let Reply::Bulk(digits) = client.call(&call) else {
            panic!("no bulk");
        };
        String::from_utf8(digits).expect("text")
    };
    let (one, other) = (password(None), password(None));
    assert_ne!(one, other);
    assert_eq!((one.len(), other.len()), (64, 64));
    assert!(one.bytes().all(|digit| digit.is_ascii_hexdigit()), "{one}");
    for (bits, digits) in [("1", 1), ("4", 1), ("5", 2), ("4096", 1024)] {
        assert_eq!(password(Some(bits)).len(), digits, "{bits}");
    }
}

#[test]
fn users_cannot_be_changed() {
    let served = ephemeral(config());
    let mut client = served.client();
    for call in [
        &["ACL", "SETUSER", "me"][..],
        &["ACL", "LOAD"],
        &["ACL", "SAVE"],
    ] {
        let refused = client.call(call);
        assert!(error(&refused).contains("there is one user"), "{refused:?}");
    }
    assert_eq!(client.call(&["ACL", "DELUSER", "me"]), int(0));
}

#[test]
fn a_category_has_commands_and_second_words() {
    let served = ephemeral(config());
    let mut client = served.client();
    let Reply::Array(names) = client.call(&["ACL", "CAT", "Dangerous"]) else {
        panic!("no array");
    };
    for name in ["keys", "config|set", "acl|log"] {
        assert!(names.contains(&bulk(name)), "{name}");
    }
    assert!(!names.contains(&bulk("acl|whoami")));
}
