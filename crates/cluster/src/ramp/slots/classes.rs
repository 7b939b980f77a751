//! The sizes of slots.

/// The smallest size, in words.
const LEAST: usize = 16;
/// Sizes are multiples of a line of the processor's caches.
pub(super) const LINE: usize = 8;

/// Returns the sizes into which a page of `page` words is divided, in rising order. They grow by a
/// quarter each up to an eighth of the page, so that little is lost at a slot's end; then so that little
/// is lost at the page's end.
pub(super) fn of_page(page: usize) -> Vec<u32> {
    let mut sizes = Vec::new();
    let mut size = LEAST;
    while size < page / 8 {
        sizes.push(size as u32);
        size = (size + size / 4).next_multiple_of(LINE);
    }
    for slots in (1..=8).rev() {
        let size = page / slots / LINE * LINE;
        if size >= LEAST && sizes.last().is_none_or(|last| *last < size as u32) {
            sizes.push(size as u32);
        }
    }
    sizes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_grow_in_small_steps_to_a_whole_page() {
        let sizes = of_page(8192);
        assert_eq!((sizes[0], *sizes.last().unwrap()), (16, 8192));
        assert!(sizes.is_sorted_by(|one, next| one < next));
        assert!(sizes.iter().all(|size| size % 8 == 0));
        let steep = sizes.windows(2).filter(|two| two[1] * 5 > two[0] * 8);
        assert_eq!(
            steep.count(),
            1,
            "only the last step, to the whole page: {sizes:?}"
        );
        assert_eq!(of_page(16), [16]);
        assert_eq!(of_page(64), [16, 32, 64]);
    }
}
