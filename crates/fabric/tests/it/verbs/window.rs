//! Memory that is lent to a peer, which writes it through a connection of its own.

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use kumiki_fabric as fabric;

use fabric::memory::Grant;
use fabric::shm::Shm;
use fabric::window::{RemoteWindow, Window};

use crate::verbs::net::domain;

/// The greatest time of any step: far more than it takes.
const PATIENCE: Duration = Duration::from_secs(60);

#[test]
fn what_is_written_is_there_when_it_has_settled() {
    let Some(domain) = domain() else {
        return;
    };
    let shm = Shm::default();
    let mut window = Window::verbs(&domain, 1 << 20).unwrap();
    let mut bytes = Vec::new();
    window.grant().encode(&mut bytes);
    let grant = Grant::decode(&bytes).unwrap();
    let (mut far, answer) = RemoteWindow::reach(&grant, &shm, Some(&domain)).unwrap();
    window.meet(&answer).unwrap();
    assert_eq!(far.len(), 1 << 20);
    let page: Vec<u8> = (0..128 << 10).map(|at| (at % 251) as u8).collect();
    for from in [0, 4096, (1 << 20) - page.len()] {
        far.write(from, &page).unwrap();
        let began = Instant::now();
        while !far.settle().unwrap() {
            assert!(began.elapsed() < PATIENCE, "it does not settle");
            std::thread::yield_now();
        }
        let words = window.words()[from / 8..][..page.len() / 8].iter();
        let bytes = words.flat_map(|word| word.load(Ordering::Acquire).to_ne_bytes());
        assert!(bytes.eq(page.iter().copied()), "from {from}");
    }
    assert!(far.write(1 << 20, &page[..8]).is_err(), "beyond the end");
    assert!(far.place(0, 4096).is_none(), "nothing is mapped");
    // The window takes no invalid answer, and no second one.
    assert!(window.meet(b"no address").is_err());
    let mut other = Window::verbs(&domain, 4096).unwrap();
    assert!(other.meet(b"").is_err());
}
