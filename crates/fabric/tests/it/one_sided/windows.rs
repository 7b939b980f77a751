//! Windows that are mapped. The tests of crate `pages` show that the kernel reads data into their
//! places.

use base::memory::RemoteError;
use kumiki_fabric as fabric;

use fabric::memory::{Access, Grant, Memory, Region, RegionKind};
use fabric::shm::Shm;
use fabric::window::{RemoteWindow, Window};

/// Returns a grant as it arrives in a message.
fn travelled(grant: &Grant) -> Grant {
    let mut bytes = Vec::new();
    grant.encode(&mut bytes);
    Grant::decode(&bytes).unwrap()
}

#[test]
fn a_mapped_window_has_places() {
    let shm = Shm::default();
    let mut window = Window::shm(&shm, 64 << 10).unwrap();
    let grant = travelled(window.grant());
    assert_eq!(grant.kind(), RegionKind::Shm);
    let (far, answer) = RemoteWindow::reach(&grant, &shm, None).unwrap();
    window.meet(&answer).unwrap();
    assert_eq!(far.len(), 64 << 10);
    let begin = far.place(0, 4096).unwrap().memory();
    assert_eq!(begin.cast::<u8>().addr().get() % 4096, 0);
    let end = far.place(60 << 10, 4096).unwrap().memory();
    let distance = end.cast::<u8>().addr().get() - begin.cast::<u8>().addr().get();
    assert_eq!((distance, end.len()), (60 << 10, 4096));
    for (from, len) in [
        (60 << 10, 4104),
        (64 << 10, 8),
        (usize::MAX - 7, 8),
        (4, 8),
        (0, 12),
    ] {
        assert!(far.place(from, len).is_none(), "{len} bytes from {from}");
    }
    let error = RemoteWindow::reach(&grant, &shm, None).map(drop);
    assert!(error.is_err(), "it is one peer's");
}

#[test]
fn what_is_for_reading_is_no_window() {
    let shm = Shm::default();
    let region = shm.register(512, Access::Read).unwrap();
    let error = RemoteWindow::reach(region.grant(), &shm, None).map(drop);
    assert!(matches!(error, Err(RemoteError::Refused(_))), "{error:?}");
    let grant = Grant::new(RegionKind::Verbs, Access::Write, 512, [0; 16], &[0; 52]);
    let error = RemoteWindow::reach(&grant, &shm, None).map(drop);
    assert!(matches!(error, Err(RemoteError::Refused(_))), "no device");
}
