//! The commands of each type.

pub mod hash_deadlines;
pub mod hashes;
mod place_replies;
mod place_search;
pub mod places;
mod search_arguments;
mod sorted_additions;
mod sorted_combinations;
mod sorted_ranges;
mod sorted_replies;
pub mod sorted_sets;

pub use place_search::PlaceSearch;
pub use places::check_geoadd;
pub use search_arguments::{SearchForm, SearchRefusal};
pub use sorted_combinations::{
    Combination, CombinationKind, ScoreAggregate, check_sources, intersection_size,
};
pub use sorted_ranges::stored_range;
pub mod hyper_log_logs;
pub mod lists;
pub mod sets;
pub mod streams;
