//! Runs the examples.

#[path = "../examples/embedded.rs"]
#[allow(dead_code)] // The program's own beginning, which prints.
mod embedded;

#[test]
fn embedded_keeps_its_sum_over_a_restart() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    // The second run finds the first one's accounts.
    for _ in 0..2 {
        let outcome = embedded::run(directory.path()).expect("the example runs");
        assert!(outcome.transfers > 0);
        assert_eq!([outcome.sum, outcome.recovered], [embedded::TOTAL; 2]);
    }
}
