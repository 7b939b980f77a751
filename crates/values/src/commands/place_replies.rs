//! Units of length, and the parts of replies about places.

use base::nested::{NestedItem, NestedReply};
use base::transaction::CallError;

use crate::geohash::GeoPoint;

/// A unit of length.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct LengthUnit {
    pub(super) metres: f64,
}

impl LengthUnit {
    pub(super) const METRE: LengthUnit = LengthUnit { metres: 1.0 };

    pub(super) fn parse(text: &[u8]) -> Result<LengthUnit, CallError> {
        let metres = match text.to_ascii_lowercase().as_slice() {
            b"m" => 1.0,
            b"km" => 1000.0,
            b"ft" => 0.3048,
            b"mi" => 1609.34,
            _ => return Err(CallError::UnknownUnit),
        };
        Ok(LengthUnit { metres })
    }
}

/// Appends a distance to a reply.
pub(super) fn push_distance(reply: &mut NestedReply, distance: f64) {
    reply.bytes(format!("{distance:.4}").as_bytes());
}

/// Appends a place to a reply.
pub(super) fn push_place(reply: &mut NestedReply, place: GeoPoint) {
    reply.push(NestedItem::Array(2));
    reply.push(NestedItem::Decimal(place.longitude));
    reply.push(NestedItem::Decimal(place.latitude));
}
