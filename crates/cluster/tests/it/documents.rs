//! The documents agree with the modules that own the formats.

use testkit::files::tables_are_in;

#[test]
fn messages_are_documented() {
    let modules = [
        "codec.rs",
        "codec/participant_list.rs",
        "../../base/src/codec.rs",
        "../../base/src/codec/ops.rs",
        "../../base/src/codec/replies.rs",
        "../../base/src/codec/versions.rs",
    ];
    tables_are_in(env!("CARGO_MANIFEST_DIR"), "cluster-messages.md", &modules);
}

#[test]
fn the_file_is_documented() {
    tables_are_in(
        env!("CARGO_MANIFEST_DIR"),
        "cluster-file.md",
        &["topology.rs"],
    );
}
