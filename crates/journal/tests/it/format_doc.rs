//! Checks that `docs/format.md` agrees with the modules that own the formats.

use testkit::files::tables_are_in;

#[test]
fn the_tables_of_the_modules_are_in_the_documentation() {
    let modules = [
        "format.rs",
        "newest_segment.rs",
        "entry.rs",
        "checkpoint/manifest.rs",
        "checkpoint/part.rs",
        "../../engine/src/system_record.rs",
        "../../engine/src/database_table.rs",
        "../../values/src/stream/change.rs",
        "../../values/src/stream/packed_stream.rs",
        "../../values/src/stream/packed_group.rs",
        "../../values/src/stream/packed_nodes.rs",
    ];
    tables_are_in(env!("CARGO_MANIFEST_DIR"), "format.md", &modules);
}
