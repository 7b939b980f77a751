//! A storage node, as many threads use it.
