//! Commands on places, which are sorted sets.

use base::key_event::KeyEvent;
use resp::{Args, Writer};
use values::commands::{PlaceSearch, SearchForm, SearchRefusal, check_geoadd};

use super::sorted_set_results::store;
use super::values::value;
use crate::command::CommandKind::{Compound, Store};
use crate::command::{CommandDefinition, CompoundStop, Ops, Plan, Planned, commands};
use crate::refusal::Refusal;
use crate::render::{Render, write_nested};
use crate::working_set::WorkingSet;

/// The commands of this family.
pub(super) const COMMANDS: &[CommandDefinition] = commands! { "geo";
    "geoadd" -5 "write denyoom" ONE("RW update") "geo" ""
        "3.2.0" "O(log(N)) for each place added, where N is the number of members in the sorted set.",
        Store(geoadd), "Adds places to a sorted set; answers how many are new.";
    "geodist" -4 "readonly" ONE("RO access") "geo" ""
        "3.2.0" "O(log(N))",
        Store(value::<{ values::places::GEODIST }>), "The distance between two places.";
    "geohash" -2 "readonly" ONE("RO access") "geo" ""
        "3.2.0" "O(log(N)) for each member asked for, where N is the number of members in the sorted set.",
        Store(value::<{ values::places::GEOHASH }>), "The geohashes of places, as texts.";
    "geopos" -2 "readonly" ONE("RO access") "geo" ""
        "3.2.0" "O(N) where N is the number of members asked for.",
        Store(value::<{ values::places::GEOPOS }>), "The longitudes and latitudes of places.";
    "geosearch" -7 "readonly" ONE("RO access") "geo" ""
        "6.2.0" "O(N+log(M)) with N places in the cells that the area touches, and M in the area.",
        Store(geosearch), "The places within a circle or a rectangle.";
    "georadius_ro" -6 "readonly" ONE("RO access") "geo" ""
        "3.2.10" "O(N+log(M)) with N places in the cells that the area touches, and M in the area.",
        Store(georadius_ro), "The places within a circle around a place.";
    "georadiusbymember_ro" -5 "readonly" ONE("RO access") "geo" ""
        "3.2.10" "O(N+log(M)) with N places in the cells that the area touches, and M in the area.",
        Store(georadiusbymember_ro), "The places within a circle around a member.";
    "geosearchstore" -8 "write denyoom" FIRST_TWO("OW update; RO access") "geo" ""
        "6.2.0" "O(N+log(M)) with N places in the cells that the area touches, and M in the area.",
        Compound(geosearchstore), "Stores the places within a circle or a rectangle; answers how many there are.";
    "georadius" -6 "write denyoom movablekeys" GEO_RADIUS("RO access; OW update; OW update") "geo" ""
        "3.2.0" "O(N+log(M)) with N places in the cells that the area touches, and M in the area.",
        Compound(georadius), "The places within a circle around a place; stores them if a key is given.";
    "georadiusbymember" -5 "write denyoom movablekeys" GEO_MEMBER_RADIUS("RO access; OW update; OW update") "geo" ""
        "3.2.0" "O(N+log(M)) with N places in the cells that the area touches, and M in the area.",
        Compound(georadiusbymember), "The places within a circle around a member; stores them if a key is given.";
};

/// Returns the refusal of a search by a command, with the name by which the client called it.
fn refusal(refusal: SearchRefusal, command: &[u8]) -> Refusal {
    let named = |text: &str| Refusal::Owned([text.as_bytes(), command].concat());
    match refusal {
        SearchRefusal::Failed(error) => Refusal::Failed(error),
        SearchRefusal::NoPlace(longitude, latitude) => {
            let text = format!("ERR invalid longitude,latitude pair {longitude:.6},{latitude:.6}");
            Refusal::Owned(text.into_bytes())
        }
        SearchRefusal::ShowsStored(SearchForm::SearchStore) => Refusal::Text(
            "ERR GEOSEARCHSTORE is not compatible with WITHDIST, WITHHASH and WITHCOORD options",
        ),
        SearchRefusal::ShowsStored(_) => Refusal::Text(
            "ERR STORE option in GEORADIUS is not compatible with WITHDIST, WITHHASH and WITHCOORD \
             options",
        ),
        SearchRefusal::NoCentre => {
            named("ERR exactly one of FROMMEMBER or FROMLONLAT can be specified for ")
        }
        SearchRefusal::NoArea => {
            named("ERR exactly one of BYRADIUS and BYBOX can be specified for ")
        }
    }
}

fn geoadd<'a>(args: Args<'a>, ops: &mut Ops<'a>) -> Planned<'a> {
    let places: Vec<&[u8]> = args.from(2).iter().collect();
    check_geoadd(&places).map_err(|reason| refusal(reason, args.at(0)))?;
    value::<{ values::places::GEOADD }>(args, ops)
}

fn geosearch<'a>(args: Args<'a>, ops: &mut Ops<'a>) -> Planned<'a> {
    let plan = value::<{ values::places::GEOSEARCH }>;
    plan_search(SearchForm::Search, plan, args, ops)
}

fn georadius_ro<'a>(args: Args<'a>, ops: &mut Ops<'a>) -> Planned<'a> {
    let plan = value::<{ values::places::GEORADIUS_RO }>;
    plan_search(SearchForm::RadiusReadOnly, plan, args, ops)
}

fn georadiusbymember_ro<'a>(args: Args<'a>, ops: &mut Ops<'a>) -> Planned<'a> {
    let plan = value::<{ values::places::GEORADIUSBYMEMBER_RO }>;
    plan_search(SearchForm::MemberRadiusReadOnly, plan, args, ops)
}

fn plan_search<'a>(form: SearchForm, plan: Plan, args: Args<'a>, ops: &mut Ops<'a>) -> Planned<'a> {
    let options: Vec<&[u8]> = args.from(2).iter().collect();
    let planned = plan(args, ops)?;
    match PlaceSearch::parse(form, &options, None) {
        Ok(_) | Err(SearchRefusal::Failed(_)) => Ok(planned),
        Err(reason) => Ok(Render::RefusedIfThere(refusal(reason, args.at(0)))),
    }
}

fn geosearchstore(
    args: Args<'_>,
    set: &mut WorkingSet,
    writer: &mut Writer<'_>,
) -> Result<(), CompoundStop> {
    search(SearchForm::SearchStore, args, set, writer)
}

fn georadius(
    args: Args<'_>,
    set: &mut WorkingSet,
    writer: &mut Writer<'_>,
) -> Result<(), CompoundStop> {
    search(SearchForm::Radius, args, set, writer)
}

fn georadiusbymember(
    args: Args<'_>,
    set: &mut WorkingSet,
    writer: &mut Writer<'_>,
) -> Result<(), CompoundStop> {
    search(SearchForm::MemberRadius, args, set, writer)
}

/// Searches, and stores the result if a key is given.
fn search(
    form: SearchForm,
    args: Args<'_>,
    set: &mut WorkingSet,
    writer: &mut Writer<'_>,
) -> Result<(), CompoundStop> {
    let (source, event) = match form {
        SearchForm::SearchStore => (2, KeyEvent::GeoSearchStore),
        _ => (1, KeyEvent::GeoRadiusStore),
    };
    let options: Vec<&[u8]> = args.from(source + 1).iter().collect();
    let value = set.stored(args.at(source));
    let search = PlaceSearch::parse(form, &options, value);
    let search = search.map_err(|reason| refusal(reason, args.at(0)))?;
    let to = match form {
        SearchForm::SearchStore => Some(args.at(1)),
        _ => search.store(),
    };
    match to {
        Some(to) => {
            let stored = search.stored(value).map_err(Refusal::Failed)?;
            store(set, to, stored, event, writer);
        }
        None => write_nested(&search.reply(value).map_err(Refusal::Failed)?, writer),
    }
    Ok(())
}
