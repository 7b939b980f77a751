//! The arguments of searches for places.

use base::double::parse_double;
use base::number::parse_int;
use base::transaction::{CallError, OpError};

use super::place_replies::LengthUnit;
use super::place_search::{PlaceSearch, SearchArea, SearchOrder};
use super::sorted_replies::view_of;
use crate::call::StoredBlock;
use crate::geohash::GeoPoint;
use crate::sorted_set::SortedSetView;

/// Parses a longitude and a latitude.
///
/// # Errors
/// Returns an error if they are no numbers, or out of range.
pub(super) fn parse_place([longitude, latitude]: [&[u8]; 2]) -> Result<GeoPoint, SearchRefusal> {
    let number = |text| parse_double(text).ok_or(OpError::NotNumber);
    let place = GeoPoint {
        longitude: number(longitude)?,
        latitude: number(latitude)?,
    };
    match place.is_valid() {
        true => Ok(place),
        false => Err(SearchRefusal::NoPlace(place.longitude, place.latitude)),
    }
}

/// The command that searches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SearchForm {
    /// `GEOSEARCH`.
    Search,
    /// `GEOSEARCHSTORE`.
    SearchStore,
    /// `GEORADIUS`.
    Radius,
    /// `GEORADIUS_RO`.
    RadiusReadOnly,
    /// `GEORADIUSBYMEMBER`.
    MemberRadius,
    /// `GEORADIUSBYMEMBER_RO`.
    MemberRadiusReadOnly,
}

/// Why a search is refused.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum SearchRefusal {
    /// The longitude and the latitude are out of range.
    NoPlace(f64, f64),
    /// Options that show more of the places do not fit to storing them.
    ShowsStored(SearchForm),
    /// It has no centre.
    NoCentre,
    /// It has no area.
    NoArea,
    /// An error whose text depends on nothing else.
    Failed(OpError),
}

impl From<OpError> for SearchRefusal {
    fn from(error: OpError) -> SearchRefusal {
        SearchRefusal::Failed(error)
    }
}

impl From<CallError> for SearchRefusal {
    fn from(error: CallError) -> SearchRefusal {
        SearchRefusal::Failed(OpError::Call(error))
    }
}

impl SearchRefusal {
    /// Returns the error without what depends on the arguments.
    pub(super) fn error(self) -> OpError {
        match self {
            SearchRefusal::Failed(error) => error,
            _ => OpError::Call(CallError::Syntax),
        }
    }
}

impl SearchForm {
    fn is_search(self) -> bool {
        matches!(self, SearchForm::Search | SearchForm::SearchStore)
    }

    fn is_by_member(self) -> bool {
        matches!(
            self,
            SearchForm::MemberRadius | SearchForm::MemberRadiusReadOnly
        )
    }

    fn may_name_store(self) -> bool {
        matches!(self, SearchForm::Radius | SearchForm::MemberRadius)
    }
}

/// Parses a radius and its unit.
fn parse_circle([radius, unit]: [&[u8]; 2]) -> Result<(SearchArea, LengthUnit), CallError> {
    let radius = parse_double(radius).ok_or(CallError::BadRadius)?;
    if radius < 0.0 {
        return Err(CallError::NegativeRadius);
    }
    Ok((SearchArea::Circle { radius }, LengthUnit::parse(unit)?))
}

/// Parses a width, a height, and their unit.
fn parse_rectangle(
    [width, height, unit]: [&[u8]; 3],
) -> Result<(SearchArea, LengthUnit), CallError> {
    let width = parse_double(width).ok_or(CallError::BadWidth)?;
    let height = parse_double(height).ok_or(CallError::BadHeight)?;
    if width < 0.0 || height < 0.0 {
        return Err(CallError::NegativeBox);
    }
    let area = SearchArea::Rectangle { width, height };
    Ok((area, LengthUnit::parse(unit)?))
}

/// A search whose arguments are being parsed.
struct SearchParser<'v, 'c> {
    form: SearchForm,
    /// `None`: the key is absent.
    set: Option<SortedSetView<'v>>,
    /// `true` if a centre was given, by a place or by a member.
    has_centre: bool,
    by_member: bool,
    area: Option<SearchArea>,
    search: PlaceSearch<'c>,
}

impl<'c> SearchParser<'_, 'c> {
    fn set_centre(&mut self, [longitude, latitude]: [&[u8]; 2]) -> Result<(), SearchRefusal> {
        self.search.centre = Some(parse_place([longitude, latitude])?);
        self.has_centre = true;
        Ok(())
    }

    fn set_member(&mut self, member: &[u8]) -> Result<(), SearchRefusal> {
        (self.has_centre, self.by_member) = (true, true);
        if let Some(set) = self.set {
            let (_, score) = set.find(member).ok_or(CallError::UnknownPlace)?;
            self.search.centre = Some(GeoPoint::of_score(score));
        }
        Ok(())
    }

    fn set_area(&mut self, (area, unit): (SearchArea, LengthUnit)) {
        self.area = Some(area);
        self.search.unit = unit;
    }

    /// Parses the arguments that commands of the older forms have at their beginning.
    fn fixed_arguments(&mut self, args: &mut &[&'c [u8]]) -> Result<(), SearchRefusal> {
        if self.form.is_by_member() {
            let Some(([member, radius, unit], rest)) = args.split_first_chunk() else {
                return Err(CallError::Arity.into());
            };
            *args = rest;
            self.set_member(member)?;
            if self.set.is_some() {
                self.set_area(parse_circle([radius, unit])?);
            }
        } else if !self.form.is_search() {
            let Some(([longitude, latitude, radius, unit], rest)) = args.split_first_chunk() else {
                return Err(CallError::Arity.into());
            };
            *args = rest;
            self.set_centre([longitude, latitude])?;
            self.set_area(parse_circle([radius, unit])?);
        }
        Ok(())
    }

    /// Parses the option with which the arguments begin. Returns the number of its arguments.
    fn option(&mut self, option: &[u8], behind: &[&'c [u8]]) -> Result<usize, SearchRefusal> {
        let search = &mut self.search;
        match option.to_ascii_lowercase().as_slice() {
            b"withdist" => search.with_distance = true,
            b"withhash" => search.with_hash = true,
            b"withcoord" => search.with_place = true,
            b"any" => search.any = true,
            b"asc" => search.order = Some(SearchOrder::Nearest),
            b"desc" => search.order = Some(SearchOrder::Farthest),
            b"storedist" if self.form == SearchForm::SearchStore => search.stores_distances = true,
            word => return self.option_with_arguments(word, behind),
        }
        Ok(0)
    }

    fn option_with_arguments(
        &mut self,
        option: &[u8],
        behind: &[&'c [u8]],
    ) -> Result<usize, SearchRefusal> {
        let is_search = self.form.is_search();
        let by_place = self.has_centre && !self.by_member;
        match (option, behind) {
            (b"count", [count, ..]) => {
                let count = parse_int(count).ok_or(OpError::NotInteger)?;
                let count = usize::try_from(count).ok().filter(|count| *count > 0);
                self.search.count = count.ok_or(CallError::CountNotPositive)?;
                Ok(1)
            }
            (b"store" | b"storedist", [key, ..]) if self.form.may_name_store() => {
                self.search.store = Some(key);
                self.search.stores_distances = option == b"storedist";
                Ok(1)
            }
            (b"frommember", [member, ..]) if is_search && !by_place => {
                self.set_member(member)?;
                Ok(1)
            }
            (b"fromlonlat", [longitude, latitude, ..]) if is_search && !self.by_member => {
                self.set_centre([longitude, latitude])?;
                Ok(2)
            }
            (b"byradius", [radius, unit, ..])
                if is_search && !matches!(self.area, Some(SearchArea::Rectangle { .. })) =>
            {
                self.set_area(parse_circle([radius, unit])?);
                Ok(2)
            }
            (b"bybox", [width, height, unit, ..])
                if is_search && !matches!(self.area, Some(SearchArea::Circle { .. })) =>
            {
                self.set_area(parse_rectangle([width, height, unit])?);
                Ok(3)
            }
            _ => Err(CallError::Syntax.into()),
        }
    }

    /// Checks that the options fit together.
    fn end(mut self) -> Result<PlaceSearch<'c>, SearchRefusal> {
        let search = &self.search;
        let stores = search.store.is_some() || self.form == SearchForm::SearchStore;
        if stores && (search.with_distance || search.with_hash || search.with_place) {
            return Err(SearchRefusal::ShowsStored(self.form));
        }
        if !self.has_centre {
            return Err(SearchRefusal::NoCentre);
        }
        match self.area {
            Some(area) => self.search.area = area,
            None if self.form.is_search() => return Err(SearchRefusal::NoArea),
            None => {}
        }
        if self.search.any && self.search.count == 0 {
            return Err(CallError::AnyWithoutCount.into());
        }
        if self.search.count > 0 && !self.search.any && self.search.order.is_none() {
            self.search.order = Some(SearchOrder::Nearest);
        }
        Ok(self.search)
    }
}

impl<'c> PlaceSearch<'c> {
    /// Parses the arguments behind the key, or behind the source of `GEOSEARCHSTORE`; the value of that key may be
    /// left out if the arguments are only checked.
    ///
    /// # Errors
    /// Returns the reason why the search is refused.
    pub fn parse(
        form: SearchForm,
        args: &[&'c [u8]],
        value: Option<StoredBlock<'_>>,
    ) -> Result<PlaceSearch<'c>, SearchRefusal> {
        let set = value.map(|value| view_of(Some(value.into()))).transpose()?;
        PlaceSearch::parse_in(form, args, set)
    }

    /// Parses the arguments of a search in a set; see [`PlaceSearch::parse`].
    pub(crate) fn parse_in(
        form: SearchForm,
        mut args: &[&'c [u8]],
        set: Option<SortedSetView<'_>>,
    ) -> Result<PlaceSearch<'c>, SearchRefusal> {
        let mut parser = SearchParser {
            form,
            set,
            has_centre: false,
            by_member: false,
            area: None,
            search: PlaceSearch {
                centre: None,
                area: SearchArea::Circle { radius: 0.0 },
                unit: LengthUnit::METRE,
                order: None,
                count: 0,
                any: false,
                with_distance: false,
                with_hash: false,
                with_place: false,
                store: None,
                stores_distances: false,
            },
        };
        parser.fixed_arguments(&mut args)?;
        while let [option, behind @ ..] = args {
            let taken = parser.option(option, behind)?;
            args = &behind[taken..];
        }
        parser.end()
    }
}
