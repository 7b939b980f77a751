//! Mistakes of a user: each is refused with the reason, and changes nothing.

use testkit::Client;

use super::{Place, back_up, done};
use crate::support::cluster::{Cluster, Keeping};
use crate::support::process::{run, start_server};

/// Runs a command that is refused, with these words.
#[track_caller]
fn refused(args: &[&str], words: &[&str]) {
    let (code, out, errors) = run(args);
    assert_eq!(code, Some(1), "{args:?}: {out}{errors}");
    for word in words {
        assert!(
            errors.contains(word),
            "{args:?}: {word:?} is missing: {errors}"
        );
    }
}

#[test]
fn servers_that_cannot_be_backed_up_are_named() {
    let place = Place::new();
    let to = place.text("backups");
    let create = |from: &str, words: &[&str]| {
        refused(&["backup", "create", "--from", from, "--to", &to], words);
        assert!(!place.path("backups").exists());
    };
    create("127.0.0.1:1", &["127.0.0.1:1", "does not answer"]);
    create("no-such-host.invalid:1", &["--from no-such-host.invalid:1"]);
    let ephemeral = start_server(&["--ephemeral"]);
    create(&ephemeral.address.to_string(), &["in memory only"]);
    let guarded = start_server(&["--data", &place.text("guarded"), "--requirepass", "secret"]);
    let from = guarded.address.to_string();
    create(&from, &["--password"]);
    let (code, _, errors) = run(&[
        "backup",
        "create",
        "--from",
        &from,
        "--to",
        &to,
        "--password",
        "wrong",
    ]);
    assert!(
        code == Some(1) && errors.contains("refuses the password"),
        "{errors}"
    );
    done(&[
        "backup",
        "create",
        "--from",
        &from,
        "--to",
        &to,
        "--password",
        "secret",
    ]);
}

#[test]
fn backups_of_other_data_are_not_mixed_with_these() {
    let place = Place::new();
    let to = place.text("backups");
    let one = start_server(&["--data", &place.text("one")]);
    back_up(one.address, &to);
    let other = start_server(&["--data", &place.text("other")]);
    let from = other.address.to_string();
    refused(
        &["backup", "create", "--from", &from, "--to", &to],
        &["other data", "Name another place"],
    );
    let cluster = Cluster::start(2, Keeping::Data);
    let from = cluster.address(0).to_string();
    refused(
        &["backup", "create", "--from", &from, "--to", &to],
        &["other data"],
    );
    // What was restored is other data, too.
    let restored = place.text("restored");
    done(&["backup", "restore", "--backup", &to, "--to", &restored]);
    let node = start_server(&["--data", &restored]);
    let from = node.address.to_string();
    refused(
        &["backup", "create", "--from", &from, "--to", &to],
        &["other data"],
    );
}

#[test]
fn a_restore_says_what_is_wrong() {
    let place = Place::new();
    let (to, data) = (place.text("backups"), place.text("data"));
    let restore = |more: &[&str], words: &[&str]| {
        refused(
            &[&["backup", "restore", "--backup", &to], more].concat(),
            words,
        );
    };
    let new = place.text("new");
    restore(&["--to", &new], &["holds no backups"]);
    refused(&["backup", "list", &to], &["holds no backups"]);
    refused(&["backup", "verify", &to], &["holds no backups"]);
    let node = start_server(&["--data", &data]);
    back_up(node.address, &to);
    restore(
        &["--to", &data],
        &["exists", "name a directory that does not"],
    );
    restore(
        &["--to", &new, "--at", "yesterday"],
        &["--at", "2026-11-30T17:15:37Z"],
    );
    restore(
        &["--to", &new, "--at", "2100-01-01T00:00:00Z"],
        &["2100", "up to"],
    );
    restore(
        &["--to", &new, "--at", "20200101T000000000Z.0"],
        &["backup list"],
    );
    restore(&["--to", &new, "--node", "7"], &["no node 7"]);
    assert!(!place.path("new").exists());
    refused(&["backup", "create", "--to", ""], &["name a directory"]);
    refused(
        &[
            "backup", "create", "--to", &to, "--follow", "--every", "1000s",
        ],
        &["300s at most"],
    );
}

#[test]
fn a_key_is_needed_for_encrypted_backups_alone() {
    let place = Place::new();
    let to = place.text("backups");
    let node = start_server(&["--data", &place.text("data")]);
    Client::connect(node.address).told("SET secret hidden-value");
    let from = node.address.to_string();
    let create = ["backup", "create", "--from", &from, "--to", &to];
    let key = |name: &str, text: &str| {
        testkit::files::write_private(&place.path(name), text);
        place.text(name)
    };
    let right = key("right", &"5a".repeat(32));
    let wrong = key("wrong", &"5b".repeat(32));
    let short = key("short", "5b5b");
    let with = |args: &[&str], file: &str| -> Vec<String> {
        let all = [args, &["--encryption-key-file", file]].concat();
        all.iter().map(|arg| (*arg).to_owned()).collect()
    };
    fn texts(args: &[String]) -> Vec<&str> {
        args.iter().map(String::as_str).collect()
    }
    refused(&texts(&with(&create, &short)), &["64 hexadecimal digits"]);
    done(&texts(&with(&create, &right)));
    refused(&create, &["are encrypted", "--encryption-key-file"]);
    refused(&texts(&with(&create, &wrong)), &["another key"]);
    let restored = place.text("restored");
    let restore = ["backup", "restore", "--backup", &to, "--to", &restored];
    refused(&restore, &["are encrypted"]);
    refused(&texts(&with(&restore, &wrong)), &["another key"]);
    refused(
        &texts(&with(&["backup", "verify", &to], &wrong)),
        &["another key"],
    );
    done(&texts(&with(&["backup", "verify", &to], &right)));
    done(&texts(&with(&["backup", "list", &to], &right)));
    done(&texts(&with(&restore, &right)));
    let restored = start_server(&["--data", &restored]);
    assert_eq!(
        Client::connect(restored.address).told("GET secret"),
        "hidden-value"
    );
}
