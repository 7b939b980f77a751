//! Places on the earth as cells of a grid, after the published geohash method.
//!
//! A grid with `steps` steps divides each axis into 2^`steps` parts. The number of a cell interleaves the bits of
//! its row (south to north, the even bits) and of its column (west to east, the odd bits), so that a cell's
//! parts in a finer grid have consecutive numbers. A place is kept as the number of its cell in the finest grid
//! of [`FINEST`] steps: 52 bits, which a double holds exactly.
//!
//! Distances are those on a sphere, by the haversine formula.

use std::f64::consts::PI;
use std::ops::RangeInclusive;

/// The steps of the finest grid.
pub(crate) const FINEST: u32 = 26;
/// The radius of the earth in metres.
const EARTH_RADIUS: f64 = 6_372_797.560_856;
/// Half the length of the equator in the Mercator projection, in metres.
const HALF_EQUATOR: f64 = 20_037_726.37;
/// The longitudes and latitudes that places may have: those of the square Mercator projection.
const LONGITUDES: RangeInclusive<f64> = -180.0..=180.0;
const LATITUDES: RangeInclusive<f64> = -85.051_128_78..=85.051_128_78;
/// The latitudes of geohashes as texts.
const ALL_LATITUDES: RangeInclusive<f64> = -90.0..=90.0;
/// The digits of geohashes as texts.
const DIGITS: &[u8; 32] = b"0123456789bcdefghjkmnpqrstuvwxyz";
/// The length of a geohash as a text.
const TEXT: usize = 11;

/// A place, in degrees.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct GeoPoint {
    pub(crate) longitude: f64,
    pub(crate) latitude: f64,
}

/// A cell of a grid.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct GridCell {
    pub(crate) steps: u32,
    column: u32,
    row: u32,
}

/// The edges of an area, in degrees.
#[derive(Clone, Copy, Debug)]
pub(crate) struct GeoBounds {
    pub(crate) west: f64,
    pub(crate) south: f64,
    pub(crate) east: f64,
    pub(crate) north: f64,
}

impl GeoPoint {
    /// Returns `true` if the place can be kept.
    pub(crate) fn is_valid(self) -> bool {
        LONGITUDES.contains(&self.longitude) && LATITUDES.contains(&self.latitude)
    }

    /// Returns the place as a score.
    pub(crate) fn score(self) -> f64 {
        self.cell(FINEST).number() as f64
    }

    /// Returns the place of a score: the middle of its cell.
    pub(crate) fn of_score(score: f64) -> GeoPoint {
        let bounds = GridCell::of_number(score as u64, FINEST).bounds();
        let middle = |range: RangeInclusive<f64>, one: f64, other: f64| {
            ((one + other) / 2.0).clamp(*range.start(), *range.end())
        };
        GeoPoint {
            longitude: middle(LONGITUDES, bounds.west, bounds.east),
            latitude: middle(LATITUDES, bounds.south, bounds.north),
        }
    }

    /// Returns the cell of a grid in which the place is.
    pub(crate) fn cell(self, steps: u32) -> GridCell {
        self.cell_of((LONGITUDES, LATITUDES), steps)
    }

    fn cell_of(
        self,
        (longitudes, latitudes): (RangeInclusive<f64>, RangeInclusive<f64>),
        steps: u32,
    ) -> GridCell {
        let part = |value: f64, range: RangeInclusive<f64>| {
            let part = (value - range.start()) / (range.end() - range.start());
            (part * (1u64 << steps) as f64) as u32
        };
        GridCell {
            steps,
            column: part(self.longitude, longitudes),
            row: part(self.latitude, latitudes),
        }
    }

    /// Returns the geohash as a text, in its usual form, whose latitudes go from pole to pole. The last
    /// digit would need more bits than there are, and is 0.
    pub(crate) fn text(self) -> [u8; TEXT] {
        let number = self.cell_of((LONGITUDES, ALL_LATITUDES), FINEST).number();
        let mut text = [DIGITS[0]; TEXT];
        for (at, digit) in text.iter_mut().enumerate().take(TEXT - 1) {
            let shift = 2 * FINEST as usize - 5 * (at + 1);
            *digit = DIGITS[(number >> shift & 31) as usize];
        }
        text
    }

    /// Returns the distance to another place, in metres.
    pub(crate) fn distance(self, other: GeoPoint) -> f64 {
        let [one, two] = [self.latitude, other.latitude].map(radians);
        let [west, east] = [self.longitude, other.longitude].map(radians);
        let u = ((two - one) / 2.0).sin();
        let v = ((east - west) / 2.0).sin();
        2.0 * EARTH_RADIUS * (u * u + one.cos() * two.cos() * v * v).sqrt().asin()
    }

    /// Returns the edges of an area around the place that reaches so many metres to each side.
    pub(crate) fn bounds(self, width: f64, height: f64) -> GeoBounds {
        let up = degrees(height / EARTH_RADIUS);
        // The side of the area that is nearer to a pole spans more degrees.
        let widest = match self.latitude < 0.0 {
            true => self.latitude - up,
            false => self.latitude + up,
        };
        let aside = degrees(width / EARTH_RADIUS / radians(widest).cos());
        GeoBounds {
            west: self.longitude - aside,
            south: self.latitude - up,
            east: self.longitude + aside,
            north: self.latitude + up,
        }
    }
}

impl GridCell {
    /// Returns the number of steps of a grid whose cells have about the size of an area with this radius in metres,
    /// at a latitude.
    pub(crate) fn steps_for(radius: f64, latitude: f64) -> u32 {
        if radius == 0.0 {
            return FINEST;
        }
        let (mut radius, mut steps) = (radius, 1i32);
        while radius < HALF_EQUATOR {
            radius *= 2.0;
            steps += 1;
        }
        // Cells become narrower towards the poles.
        let narrow = i32::from(latitude.abs() > 66.0) + i32::from(latitude.abs() > 80.0);
        (steps - 2 - narrow).clamp(1, FINEST as i32) as u32
    }

    /// Returns the cell with a number.
    fn of_number(number: u64, steps: u32) -> GridCell {
        GridCell {
            steps,
            column: gathered(number >> 1),
            row: gathered(number),
        }
    }

    /// Returns the number of the cell in its grid.
    fn number(self) -> u64 {
        spread(self.row) | spread(self.column) << 1
    }

    /// Returns the least score of a place in the cell, and the least one behind all its places.
    pub(crate) fn scores(self) -> (f64, f64) {
        let shift = 2 * (FINEST - self.steps);
        let number = self.number();
        ((number << shift) as f64, ((number + 1) << shift) as f64)
    }

    /// Returns the cell so many columns to the east and rows to the north. Behind the last column is the first
    /// one, and behind the last row as well. A place on the eastern or northern edge of the grid is in a column or
    /// row of its own, behind the last one.
    pub(crate) fn neighbour(self, east: i32, north: i32) -> GridCell {
        let moved = |at: u32, by: i32| match by {
            0 => at,
            by => at.wrapping_add_signed(by) & ((1 << self.steps) - 1),
        };
        GridCell {
            steps: self.steps,
            column: moved(self.column, east),
            row: moved(self.row, north),
        }
    }

    /// Returns the edges of the cell.
    pub(crate) fn bounds(self) -> GeoBounds {
        let edge = |part: f64, range: RangeInclusive<f64>| {
            range.start() + part / (1u64 << self.steps) as f64 * (range.end() - range.start())
        };
        let (column, row) = (f64::from(self.column), f64::from(self.row));
        GeoBounds {
            west: edge(column, LONGITUDES),
            south: edge(row, LATITUDES),
            east: edge(column + 1.0, LONGITUDES),
            north: edge(row + 1.0, LATITUDES),
        }
    }
}

fn radians(degrees: f64) -> f64 {
    degrees * (PI / 180.0)
}

fn degrees(radians: f64) -> f64 {
    radians / (PI / 180.0)
}

/// Returns a number with a zero bit before each of its bits.
fn spread(bits: u32) -> u64 {
    let bits = u64::from(bits);
    (0..32).fold(0, |spread, at| spread | (bits >> at & 1) << (2 * at))
}

/// Returns the even bits of a number.
fn gathered(bits: u64) -> u32 {
    (0..32).fold(0, |gathered, at| {
        gathered | ((bits >> (2 * at) & 1) as u32) << at
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_come_back_from_their_scores() {
        let mut random = fastrand::Rng::with_seed(3);
        for _ in 0..2000 {
            let place = GeoPoint {
                longitude: random.f64() * 360.0 - 180.0,
                latitude: random.f64() * 170.0 - 85.0,
            };
            let kept = GeoPoint::of_score(place.score());
            assert!((kept.longitude - place.longitude).abs() < 1e-5);
            assert!((kept.latitude - place.latitude).abs() < 1e-5);
            assert_eq!(kept.score(), place.score());
            let cell = place.cell(random.u32(1..=FINEST));
            let (least, behind) = cell.scores();
            assert!((least..behind).contains(&place.score()));
        }
    }

    #[test]
    fn palermo_is_where_it_should_be() {
        let palermo = GeoPoint {
            longitude: 13.361389,
            latitude: 38.115556,
        };
        let catania = GeoPoint {
            longitude: 15.087269,
            latitude: 37.502669,
        };
        assert_eq!(palermo.score(), 3_479_099_956_230_698.0);
        let [palermo, catania] = [palermo, catania].map(|place| GeoPoint::of_score(place.score()));
        assert_eq!(&palermo.text(), b"sqc8b49rny0");
        assert_eq!(format!("{:.4}", palermo.distance(catania)), "166274.1516");
    }

    #[test]
    fn the_grid_is_round() {
        let cell = GeoPoint {
            longitude: 179.9,
            latitude: 0.1,
        };
        let cell = cell.cell(10);
        assert_eq!(cell.neighbour(1, 0).column, 0);
        assert_eq!(cell.neighbour(1, 1).neighbour(-1, -1), cell);
    }
}
