//! Searches for places within a circle or a rectangle.

use base::nested::{NestedItem, NestedReply};
use base::transaction::OpError;

use super::place_replies::{LengthUnit, push_distance, push_place};
use super::sorted_replies::view_of;
use crate::call::{ChangedData, StoredBlock, StoredData};
use crate::geohash::{GeoPoint, GridCell};
use crate::sorted_set::{ScoredMember, SortedSetEditor, SortedSetView};

/// The area of a search, around its centre, in its unit.
#[derive(Clone, Copy, Debug)]
pub(super) enum SearchArea {
    Circle { radius: f64 },
    Rectangle { width: f64, height: f64 },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SearchOrder {
    Nearest,
    Farthest,
}

/// A search.
#[derive(Clone, Debug)]
pub struct PlaceSearch<'c> {
    /// `None`: the key is absent, and a member was to be the centre.
    pub(super) centre: Option<GeoPoint>,
    pub(super) area: SearchArea,
    pub(super) unit: LengthUnit,
    pub(super) order: Option<SearchOrder>,
    pub(super) count: usize,
    pub(super) any: bool,
    pub(super) with_distance: bool,
    pub(super) with_hash: bool,
    pub(super) with_place: bool,
    /// The key that gets the result.
    pub(super) store: Option<&'c [u8]>,
    pub(super) stores_distances: bool,
}

/// A place that was found.
#[derive(Clone, Copy)]
struct FoundPlace<'v> {
    own: ScoredMember<'v>,
    place: GeoPoint,
    /// In metres.
    distance: f64,
}

impl<'c> PlaceSearch<'c> {
    /// Returns the key that gets the result, if an option names it.
    #[must_use]
    pub fn store(&self) -> Option<&'c [u8]> {
        self.store
    }

    /// Returns the places that are found.
    ///
    /// # Errors
    /// [`OpError::WrongType`]: the value is no sorted set.
    pub fn reply(&self, value: Option<StoredBlock<'_>>) -> Result<NestedReply, OpError> {
        Ok(self.reply_of(view_of(value.map(Into::into))?))
    }

    /// Answers with the places of a set that are found.
    pub(crate) fn reply_of(&self, set: SortedSetView<'_>) -> NestedReply {
        let found = self.found(set);
        let mut reply = NestedReply::default();
        reply.push(NestedItem::Array(found.len()));
        let shown = [self.with_distance, self.with_hash, self.with_place];
        let shown = shown.into_iter().filter(|shown| *shown).count();
        for one in found {
            if shown > 0 {
                reply.push(NestedItem::Array(1 + shown));
            }
            reply.bytes(one.own.member);
            if self.with_distance {
                push_distance(&mut reply, one.distance / self.unit.metres);
            }
            if self.with_hash {
                reply.push(NestedItem::Int(one.own.score as i64));
            }
            if self.with_place {
                push_place(&mut reply, one.place);
            }
        }
        reply
    }

    /// Returns the places that are found as a sorted set, and their number; `None` if there are none.
    ///
    /// # Errors
    /// As [`PlaceSearch::reply`].
    pub fn stored(
        &self,
        value: Option<StoredBlock<'_>>,
    ) -> Result<Option<(Vec<u8>, usize)>, OpError> {
        let found = self.found(view_of(value.map(Into::into))?);
        let mut members: Vec<ScoredMember<'_>> = found.iter().map(|one| one.own).collect();
        if self.stores_distances {
            for (own, one) in members.iter_mut().zip(&found) {
                own.score = one.distance / self.unit.metres;
            }
        }
        members.sort_unstable_by(ScoredMember::compare);
        let mut stored = SortedSetEditor::new(StoredData::Bytes(b""));
        members.iter().for_each(|own| stored.push(*own));
        let stored = stored.into_changed().and_then(ChangedData::into_bytes);
        Ok(stored.map(|bytes| (bytes, members.len())))
    }

    /// Returns the places that are found, in the order of the search.
    fn found<'v>(&self, set: SortedSetView<'v>) -> Vec<FoundPlace<'v>> {
        let Some(centre) = self.centre else {
            return Vec::new();
        };
        let most = match self.any {
            true => self.count,
            false => usize::MAX,
        };
        let cells = self.cells(centre).into_iter().flatten();
        let members = cells.flat_map(|cell| {
            let (least, behind) = cell.scores();
            set.at_least(least)
                .take_while(move |own| own.score < behind)
        });
        let found = members.filter_map(|own| self.matches(centre, own));
        let mut found: Vec<FoundPlace<'v>> = found.take(most).collect();
        match self.order {
            Some(SearchOrder::Nearest) => found.sort_by(|a, b| a.distance.total_cmp(&b.distance)),
            Some(SearchOrder::Farthest) => found.sort_by(|a, b| b.distance.total_cmp(&a.distance)),
            None => {}
        }
        if self.count > 0 {
            found.truncate(self.count);
        }
        found
    }

    /// Returns a member if it is in the area.
    fn matches<'v>(&self, centre: GeoPoint, own: ScoredMember<'v>) -> Option<FoundPlace<'v>> {
        let place = GeoPoint::of_score(own.score);
        let distance = centre.distance(place);
        let metres = self.unit.metres;
        let is_inside = match self.area {
            SearchArea::Circle { radius } => distance <= radius * metres,
            SearchArea::Rectangle { width, height } => {
                let (below, aside) = (
                    GeoPoint {
                        longitude: place.longitude,
                        latitude: centre.latitude,
                    },
                    GeoPoint {
                        longitude: centre.longitude,
                        latitude: place.latitude,
                    },
                );
                place.distance(aside) <= width * metres / 2.0
                    && place.distance(below) <= height * metres / 2.0
            }
        };
        is_inside.then_some(FoundPlace {
            own,
            place,
            distance,
        })
    }

    /// Returns the cells that the area touches, the one of the centre first. A cell that was just before is left
    /// out: in coarse grids the neighbours on both sides are the same.
    fn cells(&self, centre: GeoPoint) -> [Option<GridCell>; 9] {
        const DIRECTIONS: [(i32, i32); 9] = [
            (0, 0),
            (0, 1),
            (0, -1),
            (1, 0),
            (-1, 0),
            (1, 1),
            (-1, 1),
            (1, -1),
            (-1, -1),
        ];
        let metres = self.unit.metres;
        let (width, height) = match self.area {
            SearchArea::Circle { radius } => (radius * metres, radius * metres),
            SearchArea::Rectangle { width, height } => {
                (width / 2.0 * metres, height / 2.0 * metres)
            }
        };
        let radius = match self.area {
            SearchArea::Circle { .. } => width,
            SearchArea::Rectangle { .. } => (width * width + height * height).sqrt(),
        };
        let bounds = centre.bounds(width, height);
        let mut cell = centre.cell(GridCell::steps_for(radius, centre.latitude));
        let reaches = |east, north| cell.neighbour(east, north).bounds();
        let is_too_small = reaches(0, 1).north < bounds.north
            || reaches(0, -1).south > bounds.south
            || reaches(1, 0).east < bounds.east
            || reaches(-1, 0).west > bounds.west;
        if cell.steps > 1 && is_too_small {
            cell = centre.cell(cell.steps - 1);
        }
        let own = cell.bounds();
        let is_touched = |(east, north): (i32, i32)| {
            cell.steps < 2
                || !(north < 0 && own.south < bounds.south
                    || north > 0 && own.north > bounds.north
                    || east < 0 && own.west < bounds.west
                    || east > 0 && own.east > bounds.east)
        };
        let mut last = None;
        DIRECTIONS.map(|(east, north)| {
            if !is_touched((east, north)) {
                return None;
            }
            let next = Some(cell.neighbour(east, north));
            if next == last {
                return None;
            }
            last = next;
            next
        })
    }
}
