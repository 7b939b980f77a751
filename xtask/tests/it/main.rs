//! `ARCHITECTURE.md` says what the code does.

#[test]
fn the_page_and_the_crates_agree() {
    xtask::arch::check().unwrap();
}
