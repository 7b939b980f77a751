//! Nodes in memory.
//!
//! A node is one allocation:
//!
//! | offset | bytes | field |
//! |---|---|---|
//! | 0 | 8 | link: the next node of a list of replaced nodes, and a mark in the lowest bit |
//! | 8 | 8 | birth: the stamp of the version that made the node |
//! | 16 | 4 | capacity: bytes of the allocation |
//! | 20 | 4 | total: entries in the node, or below it |
//! | 24 | 4 | used: bytes of a leaf's entries, or of an inner node's separators |
//! | 28 | 2 | count: entries of a leaf, or children of an inner node |
//! | 30 | 1 | height: 0 for a leaf |
//! | 31 | 1 | unused |
//! | 32 | … | body, as the modules `leaf` and `inner` describe it |
//!
//! Contract (with the module `node_store`, all unsafe code of trees that is not about freeing):
//! 1. A [`NodePtr`] is the address of a node that [`NewNode`] has made and that was not freed yet. Only the
//!    modules of `tree` have such addresses.
//! 2. A node is changed only while one thread alone can reach it: by [`NewNode`] before it has an address,
//!    and by the editor that made it before its tree is published.
//! 3. The link is atomic, and readers do not use it. It is written by the owner of the list of replaced
//!    nodes while others may still read the node.
//! 4. The body of an inner node ends with the addresses of its children, the first one last. They live at
//!    least as long as the node can be reached.
//! 5. All bytes of a body are initialized.

#![allow(unsafe_code)]

use std::marker::PhantomData;
use std::ptr::{NonNull, with_exposed_provenance_mut};
use std::sync::atomic::{AtomicUsize, Ordering};

use super::{VersionStamp, node_pool};

/// The bytes of a node before its body.
pub(super) const HEADER_BYTES: usize = size_of::<NodeHeader>();
#[cfg(target_arch = "x86_64")]
const PREFETCHED_LINES: usize = 16;
const ADDRESS_BYTES: usize = size_of::<usize>();

#[derive(Debug)]
#[repr(C)]
struct NodeHeader {
    link: AtomicUsize,
    birth: u64,
    capacity: u32,
    total: u32,
    used: u32,
    count: u16,
    height: u8,
}

/// The address of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct NodePtr(NonNull<NodeHeader>);

// SAFETY: an address alone gives no access; the contract of the module says who may use it.
unsafe impl Send for NodePtr {}
// SAFETY: as above.
unsafe impl Sync for NodePtr {}

impl NodePtr {
    /// Returns the node for reading.
    ///
    /// # Safety
    ///
    /// The node, and those below it, are neither freed nor changed during `'a`.
    pub(super) unsafe fn read<'a>(self) -> NodeRef<'a> {
        NodeRef {
            node: self.0,
            lifetime: PhantomData,
        }
    }

    /// Returns the node for changes.
    ///
    /// # Safety
    ///
    /// Nothing else refers to the node during `'a`.
    pub(super) unsafe fn write<'a>(self) -> NodeMut<'a> {
        NodeMut {
            node: self.0,
            lifetime: PhantomData,
        }
    }

    /// Starts to load the first cache lines of a node that is read next: their addresses would be known one
    /// after the other only.
    #[inline]
    fn prefetch(self) {
        #[cfg(target_arch = "x86_64")]
        for line in 1..PREFETCHED_LINES {
            use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
            let address = self.0.as_ptr().cast::<i8>().wrapping_add(64 * line);
            // SAFETY: a prefetch has no effect but on speed, at any address.
            unsafe { _mm_prefetch::<_MM_HINT_T0>(address) };
        }
    }

    /// Frees the node, and returns the bytes of its allocation.
    ///
    /// # Safety
    ///
    /// Nothing refers to the node, now or later.
    pub(super) unsafe fn free(self) -> usize {
        // SAFETY: the caller owns the node.
        let capacity = unsafe { self.0.as_ref() }.capacity as usize;
        #[cfg(test)]
        super::tests::registry::remove(self.address(), capacity);
        // SAFETY: `NewNode` has allocated so many bytes.
        unsafe { node_pool::free(self.0.cast(), capacity) };
        capacity
    }

    /// Returns the link of the node.
    ///
    /// # Safety
    ///
    /// The node is not freed yet.
    pub(super) unsafe fn link(self) -> usize {
        // SAFETY: the caller says so; the field is atomic.
        unsafe { &(*self.0.as_ptr()).link }.load(Ordering::Relaxed)
    }

    /// Sets the link of the node.
    ///
    /// # Safety
    ///
    /// The node is not freed yet, and the caller owns the list that it joins.
    pub(super) unsafe fn set_link(self, link: usize) {
        // SAFETY: the caller says so; the field is atomic.
        unsafe { &(*self.0.as_ptr()).link }.store(link, Ordering::Relaxed);
    }

    /// Returns the address as a number. Its three lowest bits are zero.
    pub(super) fn address(self) -> usize {
        self.0.as_ptr().expose_provenance()
    }

    /// Returns the node at an address, or `None` for the number zero.
    pub(super) fn at_address(address: usize) -> Option<NodePtr> {
        NonNull::new(with_exposed_provenance_mut(address)).map(NodePtr)
    }
}

/// A node that others may read as well.
#[derive(Clone, Copy, Debug)]
pub(super) struct NodeRef<'a> {
    node: NonNull<NodeHeader>,
    lifetime: PhantomData<&'a NodeHeader>,
}

impl<'a> NodeRef<'a> {
    #[inline]
    fn header(self) -> &'a NodeHeader {
        // SAFETY: `NodePtr::read` promises that the node is neither freed nor changed.
        unsafe { self.node.as_ref() }
    }

    #[inline]
    pub(super) fn body(self) -> &'a [u8] {
        let len = self.header().capacity as usize - HEADER_BYTES;
        // SAFETY: as above; the body follows the header in the same allocation.
        unsafe {
            let body = self.node.as_ptr().cast::<u8>().add(HEADER_BYTES);
            std::slice::from_raw_parts(body, len)
        }
    }

    pub(super) fn pointer(self) -> NodePtr {
        NodePtr(self.node)
    }

    pub(super) fn birth(self) -> VersionStamp {
        VersionStamp(self.header().birth)
    }

    pub(super) fn capacity(self) -> usize {
        self.header().capacity as usize
    }

    #[inline]
    pub(super) fn total(self) -> usize {
        self.header().total as usize
    }

    #[inline]
    pub(super) fn used(self) -> usize {
        self.header().used as usize
    }

    #[inline]
    pub(super) fn count(self) -> usize {
        usize::from(self.header().count)
    }

    #[inline]
    pub(super) fn height(self) -> u8 {
        self.header().height
    }

    /// Returns a child of an inner node.
    #[inline]
    pub(super) fn child(self, index: usize) -> NodeRef<'a> {
        assert!(self.height() > 0 && index < self.count());
        let body = self.body();
        let field = &body[body.len() - (index + 1) * ADDRESS_BYTES..][..ADDRESS_BYTES];
        let address = usize::from_ne_bytes(field.try_into().expect("bytes of an address"));
        let child = NodePtr::at_address(address).expect("a child has an address");
        child.prefetch();
        // SAFETY: a child lives as long as its parent can be reached, and is as immutable.
        unsafe { child.read() }
    }
}

/// A node that one thread alone can reach.
#[derive(Debug)]
pub(super) struct NodeMut<'a> {
    node: NonNull<NodeHeader>,
    lifetime: PhantomData<&'a mut NodeHeader>,
}

impl NodeMut<'_> {
    fn header(&mut self) -> &mut NodeHeader {
        // SAFETY: `NodePtr::write` and `NewNode` promise that nothing else refers to the node.
        unsafe { self.node.as_mut() }
    }

    pub(super) fn body(&mut self) -> &mut [u8] {
        let len = self.header().capacity as usize - HEADER_BYTES;
        // SAFETY: as above; the body follows the header in the same allocation.
        unsafe {
            let body = self.node.as_ptr().cast::<u8>().add(HEADER_BYTES);
            std::slice::from_raw_parts_mut(body, len)
        }
    }

    pub(super) fn as_ref(&self) -> NodeRef<'_> {
        NodeRef {
            node: self.node,
            lifetime: PhantomData,
        }
    }

    pub(super) fn set_total(&mut self, total: usize) {
        self.header().total = u32::try_from(total).expect("a tree has less than 2^32 entries");
    }

    /// Sets the bytes of a leaf's entries, or of an inner node's separators.
    pub(super) fn set_used(&mut self, used: usize) {
        self.header().used = u32::try_from(used).expect("a node has less than 4 GiB");
    }

    /// Sets the number of a leaf's entries, or of an inner node's children.
    pub(super) fn set_count(&mut self, count: usize) {
        self.header().count = u16::try_from(count).expect("a node has less than 2^16 parts");
    }

    /// Sets a child of an inner node.
    pub(super) fn set_child(&mut self, index: usize, child: NodePtr) {
        let body = self.body();
        let at = body.len() - (index + 1) * ADDRESS_BYTES;
        let field = &mut body[at..at + ADDRESS_BYTES];
        field.copy_from_slice(&child.address().to_ne_bytes());
    }
}

/// A node that no tree has yet. It is freed when it is dropped.
#[derive(Debug)]
pub(super) struct NewNode(NodeMut<'static>);

impl NewNode {
    /// Makes a node with room for so many bytes, its header among them. The runs are the beginning of its
    /// body; the rest of the body is zero.
    pub(super) fn new(bytes: usize, height: u8, birth: VersionStamp, runs: &[&[u8]]) -> NewNode {
        let mut new = NewNode::allocate(bytes, height, birth);
        let len = new.0.header().capacity as usize - HEADER_BYTES;
        let mut written = 0;
        // SAFETY: the runs lie elsewhere, and the assertion keeps each of them within the allocation.
        unsafe {
            let body = new.0.node.as_ptr().cast::<u8>().add(HEADER_BYTES);
            for run in runs {
                assert!(run.len() <= len - written);
                body.add(written)
                    .copy_from_nonoverlapping(run.as_ptr(), run.len());
                written += run.len();
            }
            body.add(written).write_bytes(0, len - written);
        }
        new
    }

    /// Copies a node.
    pub(super) fn copy(node: NodeRef<'_>, birth: VersionStamp) -> NewNode {
        let mut new = NewNode::allocate(node.capacity(), node.height(), birth);
        debug_assert_eq!(new.as_ref().capacity(), node.capacity());
        new.0.set_total(node.total());
        new.0.set_used(node.used());
        new.0.set_count(node.count());
        let body = node.body();
        // SAFETY: both bodies have the same length, and the new one belongs to nothing else.
        unsafe {
            let to = new.0.node.as_ptr().cast::<u8>().add(HEADER_BYTES);
            to.copy_from_nonoverlapping(body.as_ptr(), body.len());
        }
        new
    }

    /// Allocates a node whose body is not initialized.
    fn allocate(bytes: usize, height: u8, birth: VersionStamp) -> NewNode {
        let capacity = node_pool::allocation_bytes(bytes);
        assert!(capacity >= HEADER_BYTES);
        let node = node_pool::allocate(capacity).cast::<NodeHeader>();
        // SAFETY: the allocation has room for a header, and is aligned for it.
        unsafe {
            node.write(NodeHeader {
                link: AtomicUsize::new(0),
                birth: birth.0,
                capacity: u32::try_from(capacity).expect("a node has less than 4 GiB"),
                total: 0,
                used: 0,
                count: 0,
                height,
            });
        }
        #[cfg(test)]
        super::tests::registry::add(NodePtr(node).address(), capacity);
        NewNode(NodeMut {
            node,
            lifetime: PhantomData,
        })
    }

    pub(super) fn as_mut(&mut self) -> &mut NodeMut<'static> {
        &mut self.0
    }

    pub(super) fn as_ref(&self) -> NodeRef<'_> {
        self.0.as_ref()
    }

    /// Returns the address; the node is the caller's to free.
    pub(super) fn into_pointer(self) -> NodePtr {
        let pointer = NodePtr(self.0.node);
        std::mem::forget(self);
        pointer
    }
}

impl Drop for NewNode {
    fn drop(&mut self) {
        // SAFETY: the node has no address outside of this value.
        unsafe { NodePtr(self.0.node).free() };
    }
}
