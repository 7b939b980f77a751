//! The documentation contains the tables of the modules that define the formats.

use testkit::files::tables_are_in;

#[test]
fn the_tables_of_the_modules_are_in_the_documentation() {
    let modules = [
        "log/format.rs",
        "log/record.rs",
        "snapshot/format.rs",
        "wire/message.rs",
        "wire/payload.rs",
    ];
    tables_are_in(env!("CARGO_MANIFEST_DIR"), "replica-log.md", &modules);
}
