//! Hashes: an element is a field and its value, in the order in which the fields came.
//!
//! Fields may have deadlines, milliseconds since the Unix epoch. If some field has one, the form is
//! [`Form::ExpiringPairs`], and the second blob of each element is its deadline (8 bytes, little-endian; 0: none) and
//! the value.
//!
//! Invariants:
//! 1. A field whose deadline has passed is absent. [`HashEditor::new`] removes such fields; reading passes over them.
//! 2. The form of a hash that was changed is [`Form::Pairs`] if no field has a deadline.

use smallvec::SmallVec;

use crate::packed::{Element, Form, PackedEditor, PackedView};

/// A hash that is read at a time.
#[derive(Clone, Copy)]
pub(crate) struct HashView<'v> {
    packed: PackedView<'v>,
    time_ms: u64,
}

/// A field of a hash.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct HashField<'v> {
    pub(crate) name: &'v [u8],
    pub(crate) value: &'v [u8],
    pub(crate) deadline: Option<u64>,
}

impl<'v> HashView<'v> {
    /// Returns the hash of a value at a time in milliseconds since the Unix epoch; no bytes are a hash without fields.
    pub(crate) fn new(bytes: &'v [u8], time_ms: u64) -> HashView<'v> {
        HashView {
            packed: PackedView::new(bytes),
            time_ms,
        }
    }

    /// Returns `true` if fields have deadlines, which may have passed.
    pub(crate) fn expires(self) -> bool {
        self.packed.form() == Some(Form::ExpiringPairs)
    }

    /// Returns the number of fields.
    pub(crate) fn len(self) -> usize {
        match self.expires() {
            true => self.iter().count(),
            false => self.packed.len(),
        }
    }

    /// Returns a field.
    pub(crate) fn get(self, name: &[u8]) -> Option<HashField<'v>> {
        let (_, element) = self.packed.find(name)?;
        self.field(&element, self.expires())
    }

    /// Returns the fields in their order.
    pub(crate) fn iter(self) -> impl Iterator<Item = HashField<'v>> + Clone {
        let (elements, expires) = (self.packed.iter(), self.expires());
        elements.filter_map(move |element| self.field(&element, expires))
    }

    /// Returns the field of an element, unless its deadline has passed.
    fn field(self, element: &Element<'v>, expires: bool) -> Option<HashField<'v>> {
        let (deadline, value) = match expires {
            true => {
                let (deadline, value) = element.second.split_first_chunk::<8>()?;
                (u64::from_le_bytes(*deadline), value)
            }
            false => (0, element.second),
        };
        let has_passed = deadline != 0 && deadline <= self.time_ms;
        (!has_passed).then_some(HashField {
            name: element.first,
            value,
            deadline: (deadline != 0).then_some(deadline),
        })
    }
}

/// A hash that is changed.
pub(crate) struct HashEditor<'v> {
    packed: PackedEditor<'v>,
    expires: bool,
    time_ms: u64,
    /// `true` if fields were removed because their deadlines had passed.
    has_expired: bool,
    /// `true` if the key was absent.
    is_new: bool,
}

impl<'v> HashEditor<'v> {
    /// Begins to change the hash of a value at a time in milliseconds since the Unix epoch; no bytes are a hash without
    /// fields.
    pub(crate) fn new(bytes: &'v [u8], time_ms: u64) -> HashEditor<'v> {
        let view = HashView::new(bytes, time_ms);
        let expires = view.expires();
        let form = if expires {
            Form::ExpiringPairs
        } else {
            Form::Pairs
        };
        let has_expired = expires && view.len() < view.packed.len();
        HashEditor {
            packed: match has_expired {
                true => packed_of(form, view),
                false => PackedEditor::new(form, bytes),
            },
            expires,
            time_ms,
            has_expired,
            is_new: bytes.is_empty(),
        }
    }

    /// Returns the hash as it is now.
    pub(crate) fn view(&self) -> HashView<'_> {
        HashView {
            packed: self.packed.view(),
            time_ms: self.time_ms,
        }
    }

    /// Sets a field, which has this deadline then. Returns `true` if it is new.
    pub(crate) fn set(&mut self, name: &[u8], value: &[u8], deadline: Option<u64>) -> bool {
        if deadline.is_some() && !self.expires {
            self.packed = packed_of(Form::ExpiringPairs, self.view());
            self.expires = true;
        }
        let mut second: SmallVec<[u8; 128]> = SmallVec::new();
        let second = match self.expires {
            true => {
                second.extend_from_slice(&deadline.unwrap_or(0).to_le_bytes());
                second.extend_from_slice(value);
                &second[..]
            }
            false => value,
        };
        let found = self.packed.view().find(name);
        match found.map(|(_, element)| element.place) {
            Some(place) => {
                self.packed.replace(place, 1, Some((name, second)));
                false
            }
            None => {
                self.packed.push(name, second);
                true
            }
        }
    }

    /// Gives a field, which is there, a deadline or none.
    pub(crate) fn set_deadline(&mut self, name: &[u8], deadline: Option<u64>) {
        let value = self.view().get(name).map(|field| field.value.to_vec());
        if let Some(value) = value {
            self.set(name, &value, deadline);
        }
    }

    /// Removes a field. Returns `true` if it was there.
    pub(crate) fn remove(&mut self, name: &[u8]) -> bool {
        let found = self.packed.view().find(name);
        let place = found.map(|(_, element)| element.place);
        if let Some(place) = place.clone() {
            self.packed.replace(place, 1, None);
        }
        place.is_some()
    }

    /// Returns `true` if fields were removed because their deadlines had passed.
    pub(crate) fn has_expired(&self) -> bool {
        self.has_expired
    }

    /// Returns the bytes of the changed value, none if no field is left; `None` if nothing was changed.
    pub(crate) fn into_changed(self) -> Option<Vec<u8>> {
        let view = self.view();
        if view.packed.len() == 0 {
            return (!self.is_new).then(Vec::new);
        }
        let keeps_form = !self.expires || view.iter().any(|field| field.deadline.is_some());
        match keeps_form {
            true => self.packed.into_changed(),
            false => packed_of(Form::Pairs, view).into_changed(),
        }
    }
}

/// Returns the fields of a hash as a block of another form.
fn packed_of<'n>(form: Form, hash: HashView<'_>) -> PackedEditor<'n> {
    let mut packed = PackedEditor::new(form, b"");
    let mut second = Vec::new();
    for field in hash.iter() {
        second.clear();
        if form == Form::ExpiringPairs {
            second.extend_from_slice(&field.deadline.unwrap_or(0).to_le_bytes());
        }
        second.extend_from_slice(field.value);
        packed.push(field.name, &second);
    }
    packed
}

#[cfg(test)]
mod tests {
    use super::*;

    type Model = Vec<(Vec<u8>, Vec<u8>, Option<u64>)>;

    fn fields(bytes: &[u8], time_ms: u64) -> Model {
        let fields = HashView::new(bytes, time_ms).iter();
        let owned =
            |field: HashField<'_>| (field.name.to_vec(), field.value.to_vec(), field.deadline);
        fields.map(owned).collect()
    }

    /// Changes the hash and the model at random. Returns `true` if it has changed something.
    fn change(hash: &mut HashEditor<'_>, model: &mut Model, random: &mut fastrand::Rng) -> bool {
        let name = vec![b'a' + random.u8(..2); random.usize(1..3)];
        let at = model.iter().position(|field| field.0 == name);
        let deadline = random.bool().then(|| hash.time_ms + random.u64(1..9));
        match (random.u8(..4), at) {
            (0, _) => {
                assert_eq!(hash.remove(&name), at.is_some());
                at.map(|at| model.remove(at)).is_some()
            }
            (1, Some(at)) => {
                hash.set_deadline(&name, deadline);
                model[at].2 = deadline;
                true
            }
            (1, None) => false,
            _ => {
                let deadline = deadline.filter(|_| random.bool());
                let value = vec![random.u8(..); random.usize(..200)];
                assert_eq!(hash.set(&name, &value, deadline), at.is_none());
                match at {
                    Some(at) => model[at] = (name, value, deadline),
                    None => model.push((name, value, deadline)),
                }
                true
            }
        }
    }

    #[test]
    fn a_hash_is_what_was_done_to_it() {
        let mut random = fastrand::Rng::with_seed(2);
        let (mut model, mut bytes, mut deleted) = (Model::new(), Vec::new(), 0);
        for time_ms in 0..20_000 {
            let before = model.len();
            let is_due =
                |field: &(_, _, Option<u64>)| field.2.is_none_or(|deadline| deadline > time_ms);
            model.retain(is_due);
            let has_expired = model.len() < before;
            assert_eq!(fields(&bytes, time_ms), model);
            let mut hash = HashEditor::new(&bytes, time_ms);
            let changes =
                (0..random.usize(..3)).filter(|_| change(&mut hash, &mut model, &mut random));
            let has_changed = changes.count() > 0;
            assert_eq!(HashView::len(hash.view()), model.len());
            assert_eq!(hash.has_expired(), has_expired);
            let is_new = hash.is_new;
            match hash.into_changed() {
                None => assert!(!has_expired && !has_changed || is_new && model.is_empty()),
                Some(new) => {
                    assert!(has_expired || has_changed);
                    deleted += u32::from(new.is_empty());
                    bytes = new;
                }
            }
            assert_eq!(fields(&bytes, time_ms), model);
            let has_deadlines = model.iter().any(|field| field.2.is_some());
            assert_eq!(HashView::new(&bytes, time_ms).expires(), has_deadlines);
            for (name, value, deadline) in &model {
                let field = HashView::new(&bytes, time_ms)
                    .get(name)
                    .expect("it is there");
                assert_eq!((field.value, field.deadline), (&value[..], *deadline));
            }
        }
        assert!(deleted > 100, "{deleted}");
    }
}
