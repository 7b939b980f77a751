//! Functions of libraries that are called again without the code of their library.
//!
//! That is allowed as long as nothing can tell: a function is cached if the values that it reaches through its
//! upvalues are numbers, strings, booleans, and functions for which the same is true; and it is forgotten as soon
//! as one of them is another one after a call. Tables and threads may change unseen, so that a function which
//! reaches one is not cached. Global variables and their tables cannot be changed.
//!
//! A cached function is a table: the function, and then the values that it reaches, in the order in which they are
//! found.

use hashbrown::HashMap;

use crate::lua::{Kind, LuaStack};
use crate::protection::RegistryItem;

/// The most functions that are cached.
const MOST_FUNCTIONS: usize = 1000;
/// The most values that a cached function reaches.
const MOST_VALUES: i32 = 64;

/// The cached functions of an interpreter.
#[derive(Default)]
pub(super) struct CachedFunctions {
    /// By the hash of their library's source.
    by_library: HashMap<[u8; 40], Vec<CachedFunction>>,
    /// The number of items that were ever used since the last clearing.
    items: usize,
}

/// A function, and where it is cached.
struct CachedFunction {
    name: String,
    place: CachedPlace,
}

/// The place of a cached function.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct CachedPlace {
    item: i32,
    /// The number of values that the function reaches.
    values: i32,
}

impl CachedFunctions {
    /// Returns the place of a function.
    pub(super) fn find(&self, library: &[u8; 40], name: &str) -> Option<CachedPlace> {
        let functions = self.by_library.get(library)?;
        let own = functions.iter().find(|own| own.name == name)?;
        Some(own.place)
    }

    /// Caches the function on the top, if it may be cached.
    pub(super) fn add(&mut self, stack: &mut LuaStack<'_>, library: &[u8; 40], name: &str) {
        let function = stack.top();
        let Some(values) = push_reached(stack, function) else {
            return;
        };
        if self.items >= MOST_FUNCTIONS {
            self.clear(stack);
        }
        self.items += 1;
        let item = self.items as i32;
        stack.push_table(1 + values as usize, 0);
        let table = stack.top();
        for at in 0..=values {
            stack.push_value(function + at);
            stack.raw_set_item(table, 1 + at);
        }
        stack.push_registered(RegistryItem::CachedFunctions);
        stack.push_value(table);
        stack.raw_set_item(-2, item);
        stack.set_top(function);
        let place = CachedPlace { item, values };
        let name = name.to_owned();
        let functions = self.by_library.entry(*library).or_default();
        functions.push(CachedFunction { name, place });
    }

    /// Forgets a function, which has run, unless it reaches the same values as before.
    pub(super) fn check(&mut self, stack: &mut LuaStack<'_>, place: CachedPlace) {
        if place.values > 0 && !is_same(stack, place) {
            for functions in self.by_library.values_mut() {
                functions.retain(|own| own.place != place);
            }
        }
    }

    /// Forgets all functions.
    pub(super) fn clear(&mut self, stack: &mut LuaStack<'_>) {
        self.by_library.clear();
        self.items = 0;
        stack.push_table(0, 0);
        stack.register(RegistryItem::CachedFunctions);
    }
}

/// Pushes a cached function.
pub(super) fn push_cached(stack: &mut LuaStack<'_>, place: CachedPlace) {
    stack.push_registered(RegistryItem::CachedFunctions);
    stack.raw_get_item(-1, place.item);
    stack.raw_get_item(-1, 1);
    stack.replace(-3);
    stack.pop(1);
}

/// Returns `true` if a cached function reaches the values that it has reached when it was cached.
fn is_same(stack: &mut LuaStack<'_>, place: CachedPlace) -> bool {
    let bottom = stack.top();
    stack.push_registered(RegistryItem::CachedFunctions);
    stack.raw_get_item(-1, place.item);
    let table = stack.top();
    stack.raw_get_item(table, 1);
    let function = stack.top();
    let is_same = push_reached(stack, function) == Some(place.values)
        && (1..=place.values).all(|at| {
            stack.raw_get_item(table, 1 + at);
            let is_equal = stack.raw_equal(-1, function + at);
            stack.pop(1);
            is_equal
        });
    stack.set_top(bottom);
    is_same
}

/// Pushes the values that a function reaches, and returns their number. `None`, and nothing is pushed: it must not be
/// cached.
fn push_reached(stack: &mut LuaStack<'_>, function: i32) -> Option<i32> {
    let bottom = stack.top();
    let mut next = function;
    while next <= stack.top() {
        let seen = |other| {
            stack.kind(other) == Kind::Function && stack.address(other) == stack.address(next)
        };
        let mut before = (bottom..next).filter(|&other| other == function || other > bottom);
        if stack.kind(next) == Kind::Function && !before.any(seen) {
            for upvalue in 1.. {
                if !stack.push_upvalue_of(next, upvalue) {
                    break;
                }
                let changes = matches!(stack.kind(-1), Kind::Table | Kind::Thread | Kind::Userdata);
                if changes || stack.top() - bottom > MOST_VALUES {
                    stack.set_top(bottom);
                    return None;
                }
            }
        }
        next = if next == function {
            bottom + 1
        } else {
            next + 1
        };
    }
    Some(stack.top() - bottom)
}
