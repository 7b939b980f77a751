//! The nodes that exist, by the thread that made them.

use std::cell::RefCell;
use std::collections::HashMap;

thread_local! {
    static NODES: RefCell<HashMap<usize, usize>> = RefCell::default();
}

pub(crate) fn add(address: usize, capacity: usize) {
    let known = NODES.with_borrow_mut(|nodes| nodes.insert(address, capacity));
    assert_eq!(known, None, "a node is where another one is");
}

pub(crate) fn remove(address: usize, capacity: usize) {
    let known = NODES.with_borrow_mut(|nodes| nodes.remove(&address));
    assert_eq!(known, Some(capacity), "a node is freed once");
}

/// Returns the addresses of the nodes that exist, and their bytes.
pub(crate) fn nodes() -> HashMap<usize, usize> {
    NODES.with_borrow(Clone::clone)
}
