//! One suite that every kind of memory passes, see `suite`; further cases for memory shared by
//! processes, see `shm`; and windows, see `windows`.

mod shm;
pub(crate) mod suite;
mod windows;

/// Makes a test of each case, for each kind.
macro_rules! conform {
    ($($case:ident)*) => {
        mod over_shm {
            $(#[test]
            fn $case() {
                let place = crate::one_sided::shm::SharedDirectory::new();
                crate::one_sided::suite::$case(&place.memory());
                assert_eq!(place.files(), 0, "files stay");
            })*
        }
    };
}

conform! {
    both_sides_see_what_the_other_has_written
    reads_are_appended_in_the_order_in_which_they_were_begun
    nothing_beyond_the_end_is_read_or_written
    what_was_not_granted_is_refused
    a_grant_travels_in_a_message
    a_withdrawn_grant_does_not_hold
    words_are_whole_and_torn_rows_are_noticed
    many_regions_do_not_meet
}
