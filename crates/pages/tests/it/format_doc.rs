//! `docs/pages-format.md` contains the tables of the modules that define the formats.

use testkit::files::tables_are_in;

#[test]
fn the_tables_of_the_modules_are_in_the_documentation() {
    let modules = [
        "block.rs",
        "segment_directory.rs",
        "entry.rs",
        "kind.rs",
        "manifest.rs",
        "page.rs",
        "row.rs",
        "tables/files.rs",
    ];
    tables_are_in(env!("CARGO_MANIFEST_DIR"), "pages-format.md", &modules);
}
