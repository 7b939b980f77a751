//! Commands on places: sorted sets whose scores are cells of the earth.

use base::nested::{NestedItem, NestedReply};
use base::transaction::{CallError, OpError, Reply};

use super::place_replies::{LengthUnit, push_distance, push_place};
use super::place_search::PlaceSearch;
use super::search_arguments::{SearchForm, SearchRefusal, parse_place};
use super::sorted_additions::add_members;
use super::sorted_replies::view_of;
use crate::call::{CallArguments, CallOutcome, StoredValue, W, calls};
use crate::geohash::GeoPoint;
use crate::sorted_set::ScoredMember;

calls! {
    GEODIST = 1280 => geodist;
    GEOHASH = 1281 => geohash;
    GEOPOS = 1282 => geopos;
    GEOSEARCH = 1283 => geosearch;
    GEORADIUS_RO = 1284 => georadius_ro;
    GEORADIUSBYMEMBER_RO = 1285 => georadiusbymember_ro;
    GEOADD = 1286 | W => geoadd;
}

/// The options and the places of `GEOADD`.
struct PlacesToAdd<'a, 'c> {
    options: &'a [&'c [u8]],
    places: &'a [[&'c [u8]; 3]],
}

impl<'a, 'c> PlacesToAdd<'a, 'c> {
    fn parse(args: &'a [&'c [u8]]) -> Result<PlacesToAdd<'a, 'c>, OpError> {
        let has = |arg: &[u8], word: &str| arg.eq_ignore_ascii_case(word.as_bytes());
        let is_option = |arg: &&[u8]| ["nx", "xx", "ch"].iter().any(|word| has(arg, word));
        let count = args.iter().take_while(|arg| is_option(arg)).count();
        let (options, places) = args.split_at(count);
        let given = |word| options.iter().any(|arg| has(arg, word));
        match places.as_chunks::<3>() {
            (places @ [_, ..], []) if !(given("nx") && given("xx")) => {
                Ok(PlacesToAdd { options, places })
            }
            _ => Err(OpError::Call(CallError::Syntax)),
        }
    }
}

/// Checks the arguments of `GEOADD` behind its key.
///
/// # Errors
/// Returns the reason why they are refused.
pub fn check_geoadd(args: &[&[u8]]) -> Result<(), SearchRefusal> {
    let places = PlacesToAdd::parse(args)?.places;
    places
        .iter()
        .try_for_each(|[longitude, latitude, _]| parse_place([longitude, latitude]).map(|_| ()))
}

/// `GEOADD key [NX|XX] [CH] longitude latitude member [longitude latitude member …]`, with arguments that
/// [`check_geoadd`] has accepted.
fn geoadd<'v>(
    call: CallArguments<'_>,
    value: Option<StoredValue<'v>>,
) -> Result<CallOutcome<'v>, OpError> {
    let PlacesToAdd { options, places } = PlacesToAdd::parse(call.args)?;
    let scored = places.iter().map(|[longitude, latitude, member]| {
        let place = parse_place([longitude, latitude]).map_err(SearchRefusal::error)?;
        let score = place.score();
        Ok(ScoredMember { member, score })
    });
    let members = scored.collect::<Result<Vec<_>, OpError>>()?;
    add_members(options, &members, value)
}

/// `GEODIST key member member [unit]`.
fn geodist<'v>(
    call: CallArguments<'_>,
    value: Option<StoredValue<'v>>,
) -> Result<CallOutcome<'v>, OpError> {
    let (one, other, unit) = match *call.args {
        [one, other] => (one, other, LengthUnit::METRE),
        [one, other, unit] => (one, other, LengthUnit::parse(unit).map_err(OpError::Call)?),
        _ => return Err(OpError::Call(CallError::Syntax)),
    };
    let set = view_of(value)?;
    let place = |member| Some(GeoPoint::of_score(set.find(member)?.1));
    let (Some(one), Some(other)) = (place(one), place(other)) else {
        return Ok(CallOutcome::unchanged(Reply::Nil));
    };
    let mut reply = NestedReply::default();
    push_distance(&mut reply, one.distance(other) / unit.metres);
    Ok(CallOutcome::unchanged(Reply::Nested(reply)))
}

/// `GEOHASH key [member …]`.
fn geohash<'v>(
    call: CallArguments<'_>,
    value: Option<StoredValue<'v>>,
) -> Result<CallOutcome<'v>, OpError> {
    of_members(call, value, NestedItem::Nil, |reply, place| {
        reply.bytes(&place.text());
    })
}

/// `GEOPOS key [member …]`.
fn geopos<'v>(
    call: CallArguments<'_>,
    value: Option<StoredValue<'v>>,
) -> Result<CallOutcome<'v>, OpError> {
    of_members(call, value, NestedItem::NilArray, push_place)
}

/// Answers for each member with its place, or with `absent`.
fn of_members<'v>(
    call: CallArguments<'_>,
    value: Option<StoredValue<'v>>,
    absent: NestedItem<'_>,
    push: fn(&mut NestedReply, GeoPoint),
) -> Result<CallOutcome<'v>, OpError> {
    let set = view_of(value)?;
    let mut reply = NestedReply::default();
    reply.push(NestedItem::Array(call.args.len()));
    for member in call.args {
        match set.find(member) {
            Some((_, score)) => push(&mut reply, GeoPoint::of_score(score)),
            None => reply.push(absent),
        }
    }
    Ok(CallOutcome::unchanged(Reply::Nested(reply)))
}

/// `GEOSEARCH key …`.
fn geosearch<'v>(
    call: CallArguments<'_>,
    value: Option<StoredValue<'v>>,
) -> Result<CallOutcome<'v>, OpError> {
    search(SearchForm::Search, call, value)
}

/// `GEORADIUS_RO key longitude latitude radius unit …`.
fn georadius_ro<'v>(
    call: CallArguments<'_>,
    value: Option<StoredValue<'v>>,
) -> Result<CallOutcome<'v>, OpError> {
    search(SearchForm::RadiusReadOnly, call, value)
}

/// `GEORADIUSBYMEMBER_RO key member radius unit …`.
fn georadiusbymember_ro<'v>(
    call: CallArguments<'_>,
    value: Option<StoredValue<'v>>,
) -> Result<CallOutcome<'v>, OpError> {
    search(SearchForm::MemberRadiusReadOnly, call, value)
}

/// Answers with the places, or with `Ok` if the search is refused for a reason that its text shows: the
/// caller knows it from the arguments.
fn search<'v>(
    form: SearchForm,
    call: CallArguments<'_>,
    value: Option<StoredValue<'v>>,
) -> Result<CallOutcome<'v>, OpError> {
    let is_there = value.is_some();
    let set = view_of(value)?;
    let reply = match PlaceSearch::parse_in(form, call.args, is_there.then_some(set)) {
        Ok(search) => Reply::Nested(search.reply_of(set)),
        Err(SearchRefusal::Failed(error)) => return Err(error),
        Err(_) => Reply::Ok,
    };
    Ok(CallOutcome::unchanged(reply))
}
