//! Where memory lies on a machine with several NUMA nodes (paper 2, section 3.2).
//!
//! The kernel takes memory from a node when a thread touches it first: from the thread's own node,
//! unless the thread's policy says otherwise. Threads inherit the policy of the thread that starts
//! them. [`interleave`] spreads what is touched over all nodes, page by page, which is for data that
//! every thread uses; [`keep_near`] exempts memory that one thread uses.
//!
//! Safety contract: the system calls read and write masks of nodes that live longer than the calls.
//! The ranges of memory that they get belong to the caller, and their content stays.

#![allow(unsafe_code)]

use std::io;
use std::mem::MaybeUninit;
use std::sync::atomic::{AtomicBool, Ordering};

/// `true` if memory is spread: otherwise it comes from near the thread that touches it first anyway.
static INTERLEAVED: AtomicBool = AtomicBool::new(false);

/// Nodes of which a mask can tell: as many as Linux can be built for.
const NODES: usize = 1024;
const WORDS: usize = NODES / u64::BITS as usize;
/// The number of bits that the kernel expects, which is one more than it uses.
const BITS: usize = NODES + 1;

/// A set of nodes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct NodeMask([u64; WORDS]);

impl NodeMask {
    /// Returns the nodes of which this thread may use memory.
    fn allowed() -> io::Result<NodeMask> {
        const MEMORY_ALLOWED: usize = 1 << 2;
        let mut mask = NodeMask([0; WORDS]);
        // SAFETY: the kernel writes at most the number of bits that is passed, and the mask has them.
        let result = unsafe {
            libc::syscall(
                libc::SYS_get_mempolicy,
                std::ptr::null_mut::<libc::c_int>(),
                mask.0.as_mut_ptr(),
                BITS,
                0_usize,
                MEMORY_ALLOWED,
            )
        };
        checked(result)?;
        Ok(mask)
    }

    fn count(&self) -> usize {
        self.0.iter().map(|word| word.count_ones() as usize).sum()
    }

    /// Makes the policy of this thread: memory comes from these nodes by turns.
    fn interleave(&self) -> io::Result<()> {
        // SAFETY: the kernel reads at most the number of bits that is passed, and the mask has them.
        let result = unsafe {
            libc::syscall(
                libc::SYS_set_mempolicy,
                libc::c_long::from(libc::MPOL_INTERLEAVE),
                self.0.as_ptr(),
                BITS,
            )
        };
        checked(result)?;
        INTERLEAVED.store(true, Ordering::Relaxed);
        Ok(())
    }
}

fn checked(result: libc::c_long) -> io::Result<()> {
    match result {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Spreads the memory that this thread, and threads that it starts from now on, touch first: page
/// by page over all nodes that the process may use. Returns the number of these nodes; with one
/// there is nothing to spread, and the policy stays.
///
/// # Errors
/// Returns the operating system's error: `Unsupported` on a kernel without NUMA, `PermissionDenied`
/// in a container that forbids it.
pub fn interleave() -> io::Result<usize> {
    let nodes = NodeMask::allowed()?;
    if nodes.count() > 1 {
        nodes.interleave()?;
    }
    Ok(nodes.count())
}

/// Has pages that lie within `memory`, and were not touched yet, come from the node of the thread
/// that touches them first, although [`interleave`] has spread what this process touches. It is a hint: where
/// the kernel refuses it, nothing changes. Without [`interleave`] it does nothing: the range would become a
/// mapping of its own in the kernel.
pub fn keep_near(memory: &mut [MaybeUninit<u8>]) {
    if !INTERLEAVED.load(Ordering::Relaxed) {
        return;
    }
    let page = rustix::param::page_size();
    let range = memory.as_mut_ptr_range();
    let first = range.start.addr().next_multiple_of(page);
    let Some(bytes) = (range.end.addr() / page * page).checked_sub(first) else {
        return;
    };
    // SAFETY: these are whole pages of the caller's memory; the call moves no page and changes no
    // byte. Without a mask the kernel reads none.
    let _ = unsafe {
        libc::syscall(
            libc::SYS_mbind,
            first,
            bytes,
            libc::c_long::from(libc::MPOL_LOCAL),
            std::ptr::null::<u64>(),
            0_usize,
            0_usize,
        )
    };
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns what the kernel says of this thread's mapping that begins at `address`, or of its first
    /// one: the policy, and where pages lie.
    fn policy_at(address: Option<usize>) -> String {
        let maps = std::fs::read_to_string("/proc/thread-self/numa_maps").expect("it has NUMA");
        let start = address.map(|address| format!("{address:08x} "));
        let is_it = |line: &&str| start.as_ref().is_none_or(|start| line.starts_with(start));
        let line = maps.lines().find(is_it).expect("a mapping");
        line.split_once(' ')
            .expect("address and policy")
            .1
            .to_owned()
    }

    #[test]
    fn memory_is_interleaved_but_for_what_is_kept_near() {
        // A policy is a thread's own: other tests keep theirs.
        let thread = std::thread::spawn(|| {
            let Ok(nodes) = NodeMask::allowed() else {
                eprintln!("left out: this kernel or container has no NUMA policies");
                return;
            };
            let before = policy_at(None);
            let count = interleave().unwrap();
            assert_eq!(count, nodes.count());
            assert!(count > 0);
            if count == 1 {
                assert_eq!(policy_at(None), before, "there is nothing to interleave");
            }
            // On one node it has no effect, but the kernel records it.
            nodes.interleave().unwrap();
            let policy = policy_at(None);
            assert!(policy.starts_with("interleave"), "{policy}");
            let inherited = std::thread::spawn(|| policy_at(None)).join().unwrap();
            assert!(inherited.starts_with("interleave"), "{inherited}");

            // Its middle pages get a policy of their own, and thereby a line.
            let mut memory: Vec<u8> = Vec::with_capacity(16 << 20);
            let page = rustix::param::page_size();
            let first = memory.as_ptr().addr().next_multiple_of(page);
            keep_near(memory.spare_capacity_mut());
            memory.resize(16 << 20, 1);
            let near = policy_at(Some(first));
            assert!(near.starts_with("local"), "{near}");
        });
        thread.join().unwrap();
    }
}
