//! The trees of a version whose value is a large collection (crate `values`).
//!
//! The value of such a version in memory is a [`VersionTree`] instead of bytes:
//!
//! | time | it has |
//! |---|---|
//! | before the publication | the editor, which belongs to the transaction |
//! | staged | the roots, and the nodes that the version before has and this one has not |
//! | afterwards | the roots |
//! | once another version has replaced it | the nodes that its successor has not |
//!
//! A transaction that is staged after this version ([`VersionTree::stage`]) reads and edits it as if it were
//! published. It becomes current, or it is withdrawn, with all versions that were edited from it, the newest
//! first ([`VersionTree::withdraw`]).
//!
//! Contract:
//! 1. Before the publication one thread at a time uses it (contract 2 of module `record`).
//! 2. After the publication readers use the stamp and the roots, which do not change; their worker is
//!    pinned, so that no node which the version has is freed ([`crate::garbage`]).
//! 3. The replaced nodes and the log are used by the thread that has the record locked, or that has taken
//!    the version out of its chain, or that published it and has not yet handed it to the log.
//! 4. A version that was replaced stays in its chain until a snapshot does not need it. When it leaves, it
//!    gives the nodes that an older version in the chain has to that one ([`VersionTree::leave`]).

#![allow(unsafe_code)]

use std::cell::UnsafeCell;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use base::Tid;
use base::planted::{self, Bug};
use base::transaction::Kind;
use values::tree::VersionStamp;
use values::{CollectionEditor, CollectionRoots, CollectionView, ReplacedTrees};

/// See the module's description.
pub(crate) struct VersionTree {
    kind: Kind,
    stamp: VersionStamp,
    /// The address and the TID of the version that was edited; `None`: the collection is new.
    base: Option<(u64, Tid)>,
    is_published: AtomicBool,
    is_unchanged: AtomicBool,
    /// About the bytes of all nodes of the version that was edited.
    base_bytes: usize,
    /// About the bytes of all nodes, once they were asked for; 0 before.
    all_bytes: AtomicUsize,
    /// The bytes of the nodes that were made for the successor: about those of the nodes that it replaces.
    successor_bytes: AtomicUsize,
    editor: UnsafeCell<Option<Box<CollectionEditor>>>,
    roots: UnsafeCell<Option<CollectionRoots>>,
    replaced: UnsafeCell<Option<ReplacedTrees>>,
    /// Of a staged version: what its publication will give to the version before.
    staged: UnsafeCell<Option<ReplacedTrees>>,
    /// The bytes of the nodes that were made for a staged version.
    staged_bytes: AtomicUsize,
    logged: UnsafeCell<LoggedForm>,
}

/// The form in which the log gets a version.
#[derive(Debug, Default)]
pub(crate) enum LoggedForm {
    /// It has been logged, or the editor has what is to be logged.
    #[default]
    None,
    /// The changes of elements.
    Elements(Vec<u8>),
    /// All elements, as one packed block.
    Whole(Vec<u8>),
}

impl VersionTree {
    /// Returns the tree of a collection that is made of a packed block.
    pub(crate) fn of_packed(kind: Kind, block: &[u8]) -> VersionTree {
        let stamp = VersionStamp(1);
        let editor = CollectionEditor::of_packed(kind, block, stamp);
        VersionTree::new(kind, stamp, (None, 0), Box::new(editor))
    }

    /// Returns the tree of a new collection with the elements of this one.
    pub(crate) fn copied(&self) -> VersionTree {
        let stamp = VersionStamp(1);
        let editor = CollectionEditor::of_copy(self.kind, self.view(), stamp);
        VersionTree::new(self.kind, stamp, (None, 0), Box::new(editor))
    }

    fn new(
        kind: Kind,
        stamp: VersionStamp,
        (base, base_bytes): (Option<(u64, Tid)>, usize),
        editor: Box<CollectionEditor>,
    ) -> VersionTree {
        VersionTree {
            kind,
            stamp,
            base,
            base_bytes,
            all_bytes: AtomicUsize::new(0),
            is_published: AtomicBool::new(false),
            is_unchanged: AtomicBool::new(false),
            successor_bytes: AtomicUsize::new(0),
            editor: UnsafeCell::new(Some(editor)),
            roots: UnsafeCell::new(None),
            replaced: UnsafeCell::new(None),
            staged: UnsafeCell::new(None),
            staged_bytes: AtomicUsize::new(0),
            logged: UnsafeCell::new(LoggedForm::None),
        }
    }

    /// Returns an editor of the version after this one, which is published. `address` and `tid` are those of
    /// this one.
    pub(crate) fn edit(&self) -> Box<CollectionEditor> {
        let roots = self.roots().expect("it is published");
        let stamp = VersionStamp(self.stamp.0 + 1);
        // SAFETY: contract 2: the nodes live as long as the transaction, or as the hold of its record; the stamps
        // of the versions before are smaller.
        Box::new(unsafe { CollectionEditor::new(roots, self.kind, stamp) })
    }

    /// Returns the tree of the version after this one, which an editor of [`VersionTree::edit`] has made.
    /// `place` is the address and the TID of this one.
    pub(crate) fn next(&self, place: (u64, Tid), editor: Box<CollectionEditor>) -> VersionTree {
        VersionTree::new(
            self.kind,
            VersionStamp(self.stamp.0 + 1),
            (Some(place), self.all_bytes()),
            editor,
        )
    }

    /// Returns the tree with the editor of this one, which is not published; this one is empty from now on.
    pub(crate) fn moved(&self) -> VersionTree {
        // SAFETY: contract 1.
        let editor = unsafe { &mut *self.editor.get() }.take();
        let editor = editor.expect("it is not published");
        let base = (self.base, self.base_bytes);
        VersionTree::new(self.kind, self.stamp, base, editor)
    }

    pub(crate) fn is_published(&self) -> bool {
        self.is_published.load(Ordering::Relaxed)
    }

    fn roots(&self) -> Option<CollectionRoots> {
        if !self.is_published() {
            return None;
        }
        // SAFETY: contract 2: they do not change after the publication.
        unsafe { *self.roots.get() }
    }

    /// Returns the editor, before the publication.
    // Contract 1: one thread at a time uses it.
    #[allow(clippy::mut_from_ref)]
    pub(crate) fn editor(&self) -> Option<&mut CollectionEditor> {
        if self.is_published() {
            return None;
        }
        // SAFETY: contract 1.
        unsafe { &mut *self.editor.get() }.as_deref_mut()
    }

    /// Returns the collection.
    pub(crate) fn view<'p>(&self) -> CollectionView<'p> {
        match self.roots() {
            // SAFETY: contract 2; the lifetime is the caller's pin.
            Some(roots) => unsafe { roots.view() },
            None => {
                // SAFETY: contract 1. The caller does not use the view while it edits.
                let editor = unsafe { &*self.editor.get() };
                let editor = editor.as_deref().expect("it was not moved");
                // SAFETY: the editor lives as long as its transaction, which uses the view.
                unsafe {
                    std::mem::transmute::<CollectionView<'_>, CollectionView<'p>>(editor.view())
                }
            }
        }
    }

    /// Returns about the bytes of all nodes of the version, which is not edited any more. The answer does not change.
    pub(crate) fn all_bytes(&self) -> usize {
        match self.all_bytes.load(Ordering::Relaxed) {
            0 => self.sum_bytes(),
            bytes => bytes,
        }
    }

    fn sum_bytes(&self) -> usize {
        let Some(editor) = self.editor() else {
            return 0;
        };
        let bytes = (self.base_bytes + editor.allocated()).saturating_sub(editor.replaced_bytes());
        self.all_bytes.store(bytes, Ordering::Relaxed);
        bytes
    }

    /// Returns the collection as one packed block.
    pub(crate) fn to_packed(&self) -> Vec<u8> {
        self.view().to_packed(self.kind)
    }

    /// Has the log get the whole collection.
    pub(crate) fn log_whole(&self) {
        let block = self.to_packed();
        // SAFETY: contract 3.
        unsafe { *self.logged.get() = LoggedForm::Whole(block) };
    }

    /// Prepares what the log gets: the whole collection if it is new, else the changes of its elements.
    /// Called before [`VersionTree::publish`].
    pub(crate) fn prepare_log(&self) {
        match self.logged() {
            LoggedForm::Whole(_) => return,
            _ if self.base.is_none() => return self.log_whole(),
            _ => {}
        }
        let mut log = self.editor().map_or(Vec::new(), |editor| editor.take_log());
        if planted::is(Bug::ForgottenElements) {
            log.clear();
        }
        // SAFETY: contract 3.
        unsafe { *self.logged.get() = LoggedForm::Elements(log) };
    }

    /// Returns what [`VersionTree::prepare_log`] has prepared.
    pub(crate) fn logged<'p>(&self) -> &'p LoggedForm {
        // SAFETY: contract 3; the caller uses it before `forget_log`.
        unsafe { &*self.logged.get() }
    }

    /// Returns `true` if its elements are those of the version that was edited; only its deadline may be another.
    pub(crate) fn is_unchanged(&self) -> bool {
        self.is_unchanged.load(Ordering::Relaxed)
    }

    /// Frees what was prepared for the log.
    pub(crate) fn forget_log(&self) {
        // SAFETY: contract 3.
        unsafe { *self.logged.get() = LoggedForm::None };
    }

    /// Returns the TID of the version that was edited.
    pub(crate) fn base_tid(&self) -> Option<Tid> {
        self.base.map(|(_, tid)| tid)
    }

    /// Publishes the collection. Returns the nodes that the version before has and this one has not, if this
    /// one was edited from the version at this address, and the bytes of the nodes that were made.
    pub(crate) fn publish(&self, before: u64) -> (Option<ReplacedTrees>, usize) {
        let is_derived = self.base.is_some_and(|(address, _)| address == before);
        assert!(
            is_derived || self.base.is_none(),
            "the version that was edited is the one that is replaced"
        );
        // SAFETY: contract 3: the record is locked.
        let staged = unsafe { &mut *self.staged.get() }.take();
        let (replaced, allocated) = match staged {
            Some(replaced) => (replaced, self.own_bytes()),
            None => self.publish_roots(),
        };
        (is_derived.then_some(replaced), allocated)
    }

    /// Makes the version one that others may read and edit, before it is current.
    pub(crate) fn stage(&self) {
        self.forget_log();
        let (replaced, allocated) = self.publish_roots();
        self.staged_bytes.store(allocated, Ordering::Relaxed);
        // SAFETY: contract 1.
        unsafe { *self.staged.get() = Some(replaced) };
    }

    /// Returns the bytes of the nodes that were made for a staged version.
    pub(crate) fn own_bytes(&self) -> usize {
        self.staged_bytes.load(Ordering::Relaxed)
    }

    /// Takes the roots from the editor. Returns the nodes that the version that was edited has and this one has
    /// not, and the bytes of the nodes that were made.
    fn publish_roots(&self) -> (ReplacedTrees, usize) {
        self.all_bytes();
        // SAFETY: contract 1.
        let editor = unsafe { &mut *self.editor.get() }.take();
        let editor = editor.expect("it is published once");
        let is_unchanged = self.base.is_some() && !editor.is_changed();
        self.is_unchanged.store(is_unchanged, Ordering::Relaxed);
        // SAFETY: the record is locked or held, and its newest version is the one that was edited: there is no
        // other successor, unless this one is withdrawn before.
        let published = unsafe { editor.publish() };
        // SAFETY: contract 1: readers use the roots once `is_published` is set.
        unsafe { *self.roots.get() = Some(published.roots) };
        self.is_published.store(true, Ordering::Release);
        (published.replaced, published.allocated)
    }

    /// Withdraws a staged version that will not become current: it has only the nodes that were made for it, to be
    /// freed with it, and the version that was edited has its own ones again. Versions that were edited from this
    /// one are withdrawn already.
    pub(crate) fn withdraw(&self) {
        // SAFETY: contract 3: the version is in no chain any more.
        if unsafe { &mut *self.staged.get() }.take().is_none() {
            return;
        }
        let roots = self.roots().expect("it is staged");
        // SAFETY: the version has no successor. The nodes that are older join no list: those of the version that
        // was edited, and those of the versions before that it shares with them.
        let mut own = unsafe { roots.replace_all() };
        let older = VersionStamp(self.stamp.0 - 1);
        drop(own.split_off_older(older));
        // SAFETY: contract 3.
        unsafe { *self.replaced.get() = Some(own) };
    }

    /// Notes that another version, with `bytes` of new nodes, has replaced this one. `replaced` are the nodes that
    /// it has not; `None`: it has none of them.
    pub(crate) fn note_successor(&self, replaced: Option<ReplacedTrees>, bytes: usize) {
        self.successor_bytes.store(bytes, Ordering::Relaxed);
        let replaced = match (replaced, self.roots()) {
            (Some(replaced), _) => replaced,
            // SAFETY: there is one successor, which shares nothing.
            (None, Some(roots)) => unsafe { roots.replace_all() },
            (None, None) => ReplacedTrees::default(),
        };
        // SAFETY: contract 3: the record is locked.
        unsafe { *self.replaced.get() = Some(replaced) };
    }

    /// Returns the bytes of the nodes that were made for the version which has replaced this one.
    pub(crate) fn successor_bytes(&self) -> usize {
        self.successor_bytes.load(Ordering::Relaxed)
    }

    /// Takes the nodes that are to be freed with this version, which has left the chain: those that its successor
    /// has not, or all if it has none. No reader has the version any more.
    pub(crate) fn take_nodes(&self) -> ReplacedTrees {
        let all = self.roots();
        // SAFETY: contract 3, and no reader uses the roots.
        let replaced = unsafe {
            *self.roots.get() = None;
            (*self.replaced.get()).take()
        };
        match (replaced, all) {
            (Some(replaced), _) => replaced,
            // SAFETY: there is no successor that has some of them.
            (None, Some(roots)) => unsafe { roots.replace_all() },
            (None, None) => ReplacedTrees::default(),
        }
    }

    /// Gives the nodes that an older version has to that one, because this one leaves the chain before it.
    pub(crate) fn leave(&self, older: &VersionTree) {
        // SAFETY: contract 3: the record is locked.
        let (own, others) = unsafe { (&mut *self.replaced.get(), &mut *older.replaced.get()) };
        if let Some(own) = own {
            let shared = own.split_off_older(older.stamp);
            others.get_or_insert_default().append(shared);
        }
    }
}

impl Drop for VersionTree {
    /// Frees the nodes that are left. Large trees are taken out before ([`VersionTree::take_nodes`]).
    fn drop(&mut self) {
        self.withdraw();
        let mut nodes = self.take_nodes();
        while !nodes.is_empty() {
            // SAFETY: the version is freed, so that no reader has it (contract 1 of module `record`).
            unsafe { nodes.free_some(1 << 10) };
        }
    }
}
