//! The modules of each crate: which use which, and which types have the same name.
//!
//! A module *uses* another one if a path outside of tests leads there: in a `use`, an expression or a type;
//! re-exports are followed to the module that defines the name, and are no uses themselves. Modules that use each other, directly or
//! over others, are a *cycle*. Names within macro calls are not seen.
//!
//! The limits are those of `ARCHITECTURE.md`, one row for each crate: they only become smaller.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use syn::visit::{self, Visit};
use syn::{Attribute, Item, UseTree, Visibility};

use crate::workspace::Crate;

/// The modules of one crate.
#[derive(Debug, Default)]
pub(super) struct Modules {
    all: Vec<Module>,
    by_path: BTreeMap<Vec<String>, usize>,
}

#[derive(Debug, Default)]
struct Module {
    path: Vec<String>,
    /// Names of types that other modules can use. A type that several `cfg`s define is here once.
    types: BTreeSet<String>,
    /// Names that are imported or re-exported here, and where they come from.
    imports: BTreeMap<String, Vec<String>>,
    /// Modules all of whose names are imported or re-exported here.
    globs: Vec<Vec<String>>,
    /// Names that are defined here.
    defined: BTreeSet<String>,
    /// Paths that occur here, but for those of re-exports.
    paths: Vec<Vec<String>>,
}

impl Modules {
    /// Reads the modules of a crate from its `src/lib.rs` or `src/main.rs` on.
    ///
    /// # Errors
    /// If a file cannot be read or parsed.
    pub(super) fn read(dir: &Path) -> Result<Modules> {
        let mut modules = Modules::default();
        for root in ["lib.rs", "main.rs"] {
            let file = dir.join("src").join(root);
            if file.is_file() {
                modules.read_file(&file, &dir.join("src"), Vec::new())?;
                break;
            }
        }
        Ok(modules)
    }

    /// Reads a module's file; those of its children lie in `children`.
    fn read_file(&mut self, file: &Path, children: &Path, path: Vec<String>) -> Result<()> {
        let text = fs::read_to_string(file)?;
        let parsed = syn::parse_file(&text)
            .with_context(|| format!("{} cannot be parsed", file.display()))?;
        self.read_items(&parsed.items, children, path)
    }

    fn read_items(&mut self, items: &[Item], children: &Path, path: Vec<String>) -> Result<()> {
        // Several `cfg`s may declare one module.
        let index = match self.by_path.get(&path) {
            Some(index) => *index,
            None => {
                self.all.push(Module {
                    path: path.clone(),
                    ..Module::default()
                });
                self.all.len() - 1
            }
        };
        self.by_path.insert(path.clone(), index);
        let module = &mut self.all[index];
        let mut found = Vec::new();
        for item in items {
            match item {
                Item::Mod(one) if is_test(&one.attrs) => {}
                Item::Mod(one) => found.push(one),
                item => module.add(item),
            }
        }
        for one in found {
            let name = one.ident.to_string();
            let at = [&path[..], std::slice::from_ref(&name)].concat();
            let inner = children.join(&name);
            if let Some((_, items)) = &one.content {
                self.read_items(items, &inner, at)?;
            } else if let Some(file) = file_of(children, &name) {
                self.read_file(&file, &inner, at)?;
            }
        }
        Ok(())
    }

    /// Returns the module in which a path ends that occurs in the module `from`, or `None` if it leads out of
    /// the crate.
    fn target(&self, from: usize, path: &[String], depth: usize) -> Option<usize> {
        // Re-exports may be of each other.
        if depth > 16 {
            return None;
        }
        let own = &self.all[from];
        let (first, mut rest) = path.split_first()?;
        let mut at: Vec<String> = match first.as_str() {
            "crate" => Vec::new(),
            "self" => own.path.clone(),
            "super" => own.path.split_last()?.1.to_vec(),
            name => {
                let child = [&own.path[..], &[name.to_owned()]].concat();
                if self.by_path.contains_key(&child) {
                    child
                } else if let Some(import) = own.imports.get(name) {
                    let whole = [&import[..], rest].concat();
                    // `use crate::x; x::y()` is not the path `x` of this module once more.
                    return (import[0] != *first)
                        .then(|| self.target(from, &whole, depth + 1))
                        .flatten();
                } else {
                    return None;
                }
            }
        };
        while let Some((next, after)) = rest.split_first() {
            if next == "super" {
                at.pop()?;
            } else if next != "self" {
                let child = [&at[..], std::slice::from_ref(next)].concat();
                if !self.by_path.contains_key(&child) {
                    break;
                }
                at = child;
            }
            rest = after;
        }
        let index = *self.by_path.get(&at)?;
        let module = &self.all[index];
        let Some(name) = rest.first() else {
            return Some(index);
        };
        if module.defined.contains(name) {
            return Some(index);
        }
        if let Some(import) = module.imports.get(name) {
            return self.target(index, import, depth + 1);
        }
        for glob in &module.globs {
            if let Some(found) = self.target(index, glob, depth + 1)
                && self.all[found].defined.contains(name)
            {
                return Some(found);
            }
        }
        Some(index)
    }

    /// Returns which modules of the longest cycle use which.
    pub(super) fn uses_in_longest_cycle(&self) -> Vec<(String, String)> {
        let cycles = self.cycles();
        let cycle = cycles.first().map_or(&[][..], Vec::as_slice);
        let mut found = Vec::new();
        for (from, used) in self.uses().iter().enumerate() {
            let names = used.iter().map(|to| (self.name(from), self.name(*to)));
            found.extend(names.filter(|(from, to)| cycle.contains(from) && cycle.contains(to)));
        }
        found
    }

    /// Returns the modules that each module uses.
    fn uses(&self) -> Vec<BTreeSet<usize>> {
        let used = |(from, module): (usize, &Module)| {
            let paths = module.paths.iter();
            let targets = paths.filter_map(|path| self.target(from, path, 0));
            targets.filter(|to| *to != from).collect()
        };
        self.all.iter().enumerate().map(used).collect()
    }

    /// Returns the names of the modules in each cycle, the longest cycle first.
    pub(super) fn cycles(&self) -> Vec<Vec<String>> {
        let uses = self.uses();
        let reached: Vec<BTreeSet<usize>> = (0..uses.len()).map(|at| reach(&uses, at)).collect();
        let mut cycles: Vec<Vec<String>> = Vec::new();
        let mut done = BTreeSet::new();
        for at in 0..uses.len() {
            let with = |other: &usize| reached[*other].contains(&at);
            let cycle: Vec<usize> = reached[at].iter().copied().filter(with).collect();
            if cycle.len() > 1 && done.insert(cycle.clone()) {
                cycles.push(cycle.into_iter().map(|at| self.name(at)).collect());
            }
        }
        cycles.sort_by_key(|cycle| std::cmp::Reverse(cycle.len()));
        cycles
    }

    /// Returns `true` if there is such a module.
    pub(super) fn contains(&self, module: &str) -> bool {
        self.by_path.keys().any(|path| path.join("::") == module)
    }

    /// Returns which modules use which, of those within the module `from` and those within `to`.
    pub(super) fn uses_between(&self, from: &str, to: &str) -> Vec<(String, String)> {
        let mut found = Vec::new();
        for (user, used) in self.uses().iter().enumerate() {
            let names = used.iter().map(|used| (self.name(user), self.name(*used)));
            found.extend(names.filter(|(user, used)| is_within(user, from) && is_within(used, to)));
        }
        found
    }

    /// Returns which modules use which, of those within the module `from` and those within the module `to` of the
    /// crate `other`, which has the name `name`.
    pub(super) fn uses_beyond(
        &self,
        from: &str,
        (name, other): (&str, &Modules),
        to: &str,
    ) -> Vec<(String, String)> {
        let mut found = BTreeSet::new();
        for (user, module) in self.all.iter().enumerate() {
            let outward = module.paths.iter().filter(|path| path[0] == name);
            let inner = outward.map(|path| [&["crate".to_owned()], &path[1..]].concat());
            let used = inner.filter_map(|path| other.target(0, &path, 0));
            found.extend(used.map(|used| (self.name(user), other.name(used))));
        }
        let both = |(user, used): &(String, String)| is_within(user, from) && is_within(used, to);
        found.into_iter().filter(both).collect()
    }

    fn name(&self, at: usize) -> String {
        match &self.all[at].path[..] {
            [] => "(root)".to_owned(),
            path => path.join("::"),
        }
    }

    /// Returns the names of types that are public in the crate or beyond, with their modules.
    fn types(&self) -> impl Iterator<Item = (&str, String)> {
        let modules = self.all.iter().enumerate();
        modules.flat_map(move |(at, module)| {
            let types = module.types.iter();
            types.map(move |name| (name.as_str(), self.name(at)))
        })
    }
}

/// Returns `true` if the module `name` is `module`, or within it. All modules are within the root, which is empty.
fn is_within(name: &str, module: &str) -> bool {
    if module.is_empty() {
        return true;
    }
    let rest = name.strip_prefix(module);
    rest.is_some_and(|rest| rest.is_empty() || rest.starts_with("::"))
}

/// Returns the modules that one reaches over those it uses.
fn reach(uses: &[BTreeSet<usize>], from: usize) -> BTreeSet<usize> {
    let mut found = BTreeSet::new();
    let mut left: Vec<usize> = uses[from].iter().copied().collect();
    while let Some(at) = left.pop() {
        if found.insert(at) {
            left.extend(&uses[at]);
        }
    }
    found
}

/// Returns the names that several modules of these crates define a public type of, and where.
pub(super) fn duplicates(crates: &[(&Crate, Modules)]) -> BTreeMap<String, Vec<String>> {
    let mut places: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for (one, modules) in crates {
        for (name, module) in modules.types() {
            let place = format!("{}::{module}", one.name);
            places.entry(name.to_owned()).or_default().push(place);
        }
    }
    places.retain(|_, places| places.len() > 1);
    places
}

/// Returns a child module's file.
fn file_of(children: &Path, name: &str) -> Option<PathBuf> {
    let file = children.join(format!("{name}.rs"));
    file.is_file().then_some(file)
}

/// Returns `true` if what has these attributes is compiled for tests alone.
fn is_test(attributes: &[Attribute]) -> bool {
    attributes.iter().any(|attribute| {
        let list = attribute.meta.require_list();
        let tokens = list.map(|list| list.tokens.to_string());
        let is_cfg = attribute.path().is_ident("cfg");
        is_cfg && tokens.is_ok_and(|tokens| tokens.starts_with("test") || tokens.contains("(test"))
    })
}

impl Module {
    fn add(&mut self, item: &Item) {
        let (name, visibility, attributes) = match item {
            Item::Struct(one) => (&one.ident, &one.vis, &one.attrs),
            Item::Enum(one) => (&one.ident, &one.vis, &one.attrs),
            Item::Union(one) => (&one.ident, &one.vis, &one.attrs),
            Item::Trait(one) => (&one.ident, &one.vis, &one.attrs),
            Item::Type(one) => (&one.ident, &one.vis, &one.attrs),
            Item::Fn(one) => (&one.sig.ident, &Visibility::Inherited, &one.attrs),
            Item::Const(one) => (&one.ident, &Visibility::Inherited, &one.attrs),
            Item::Static(one) => (&one.ident, &Visibility::Inherited, &one.attrs),
            item => {
                return Paths { module: self }.visit_item(item);
            }
        };
        if is_test(attributes) {
            return;
        }
        self.defined.insert(name.to_string());
        // What a module keeps to itself, or shows its parent alone, may have any name.
        let shown = match visibility {
            Visibility::Public(_) => true,
            Visibility::Restricted(to) => to.path.is_ident("crate"),
            Visibility::Inherited => false,
        };
        if shown {
            self.types.insert(name.to_string());
        }
        Paths { module: self }.visit_item(item);
    }

    /// Adds the names of a `use`; `is_used`: it is no re-export.
    fn add_use(&mut self, before: &[String], tree: &UseTree, is_used: bool) {
        let with = |name: &syn::Ident| [before, &[name.to_string()]].concat();
        let (name, path) = match tree {
            UseTree::Path(path) => {
                return self.add_use(&with(&path.ident), &path.tree, is_used);
            }
            UseTree::Group(group) => {
                let trees = group.items.iter();
                return trees.for_each(|tree| self.add_use(before, tree, is_used));
            }
            UseTree::Glob(_) => {
                self.globs.push(before.to_vec());
                (None, before.to_vec())
            }
            UseTree::Name(name) if name.ident == "self" => {
                (before.last().cloned(), before.to_vec())
            }
            UseTree::Name(name) => (Some(name.ident.to_string()), with(&name.ident)),
            UseTree::Rename(rename) => (Some(rename.rename.to_string()), with(&rename.ident)),
        };
        if is_used {
            self.paths.push(path.clone());
        }
        if let Some(name) = name {
            self.imports.insert(name, path);
        }
    }
}

/// Collects the paths of a module's items.
struct Paths<'m> {
    module: &'m mut Module,
}

impl<'ast> Visit<'ast> for Paths<'_> {
    fn visit_path(&mut self, path: &'ast syn::Path) {
        let segments = path.segments.iter().map(|part| part.ident.to_string());
        self.module.paths.push(segments.collect());
        visit::visit_path(self, path);
    }

    fn visit_item_use(&mut self, item: &'ast syn::ItemUse) {
        if !is_test(&item.attrs) {
            let is_used = matches!(item.vis, Visibility::Inherited);
            self.module.add_use(&[], &item.tree, is_used);
        }
    }

    fn visit_item_mod(&mut self, _: &'ast syn::ItemMod) {}

    fn visit_visibility(&mut self, _: &'ast Visibility) {}

    fn visit_item_fn(&mut self, item: &'ast syn::ItemFn) {
        if !is_test(&item.attrs) {
            visit::visit_item_fn(self, item);
        }
    }

    fn visit_item_impl(&mut self, item: &'ast syn::ItemImpl) {
        if !is_test(&item.attrs) {
            visit::visit_item_impl(self, item);
        }
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// Returns the modules of a crate with these files.
    pub(in crate::arch) fn read(files: &[(&str, &str)]) -> Modules {
        let dir = tempfile::tempdir().expect("a temporary directory");
        for (name, text) in files {
            let file = dir.path().join("src").join(name);
            fs::create_dir_all(file.parent().expect("a parent")).expect("a directory");
            fs::write(file, text).expect("a file");
        }
        Modules::read(dir.path()).expect("it can be parsed")
    }

    #[test]
    fn modules_in_layers_have_no_cycle() {
        let modules = read(&[
            ("lib.rs", "mod a; mod b; pub use a::A;"),
            ("a.rs", "use crate::b::B; pub struct A(B);"),
            (
                "b.rs",
                "pub struct B; #[cfg(test)] mod tests { use crate::A; }",
            ),
        ]);
        assert_eq!(modules.cycles(), Vec::<Vec<String>>::new());
    }

    #[test]
    fn paths_of_every_kind_make_cycles() {
        for text in [
            "use crate::a::A; pub struct B;",
            "pub struct B; fn f() -> crate::a::A { loop {} }",
            "pub struct B; fn f() { super::a::f(); }",
            // The root defines no such name: it re-exports it.
            "use crate::A; pub struct B;",
            "use super::*; pub struct B; fn f(_: super::A) {}",
        ] {
            let modules = read(&[
                ("lib.rs", "mod a; mod b; pub use a::A;"),
                ("a.rs", "use crate::b::B; pub struct A(B); pub fn f() {}"),
                ("b.rs", text),
            ]);
            assert!(
                modules.cycles()[0].contains(&"b".to_owned()),
                "{text}: {:?}",
                modules.cycles()
            );
            assert!(modules.cycles()[0].contains(&"a".to_owned()), "{text}");
        }
    }

    #[test]
    fn types_are_those_that_others_can_use() {
        let modules = read(&[(
            "lib.rs",
            "mod a { pub struct One; pub(super) struct Two; struct Three; }",
        )]);
        let types: Vec<_> = modules.types().collect();
        assert_eq!(types, [("One", "a".to_owned())]);
    }

    #[test]
    fn what_several_cfgs_define_counts_once() {
        let modules = read(&[
            ("lib.rs", "#[cfg(unix)] mod a; #[cfg(windows)] mod a;"),
            (
                "a.rs",
                "#[cfg(unix)] pub struct A; #[cfg(windows)] pub struct A;",
            ),
        ]);
        let types: Vec<_> = modules.types().collect();
        assert_eq!(types, [("A", "a".to_owned())]);
    }

    #[test]
    fn uses_between_modules_are_those_of_their_children_too() {
        let modules = read(&[(
            "lib.rs",
            "mod a { mod b { fn f(_: crate::c::d::D) {} } } mod c { pub mod d { pub struct D; } } \
             mod cc { pub struct C; } mod e { fn f(_: crate::cc::C) {} }",
        )]);
        let found = modules.uses_between("a", "c");
        assert_eq!(found, [("a::b".to_owned(), "c::d".to_owned())]);
        assert_eq!(modules.uses_between("e", "c"), []);
        assert!(modules.contains("c::d") && !modules.contains("d"));
        let user = read(&[("lib.rs", "mod x { use pages::D; } mod y { use pages::E; }")]);
        let pages = read(&[(
            "lib.rs",
            "mod r { pub struct D; } mod s { pub struct E; } pub use r::D; pub use s::E;",
        )]);
        let found = user.uses_beyond("", ("pages", &pages), "r");
        assert_eq!(found, [("x".to_owned(), "r".to_owned())]);
    }
}
