//! The mark: the events that a document has already folded, and the rule that follows from it.

use std::fmt;

use compact_str::CompactString;
use serde::de::{MapAccess, Visitor};
use serde::ser::SerializeMap;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use smallvec::SmallVec;

use crate::event::{Partition, Position};

/// A sequence of numbered events: a partition of the log, or any numbering of callers that guard
/// their documents themselves, such as a stream.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Lane(LaneKind);

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum LaneKind {
    Partition(u16),
    Named(CompactString),
}

impl Lane {
    /// Returns the lane with this name. A partition's lane is named by its number.
    pub fn named(name: &str) -> Self {
        let digits =
            name.bytes().all(|byte| byte.is_ascii_digit()) && (name == "0" || !name.starts_with('0'));
        match name.parse() {
            Ok(partition) if digits => Self(LaneKind::Partition(partition)),
            _ => Self(LaneKind::Named(CompactString::from(name))),
        }
    }

    /// Returns the partition this lane stands for, if any.
    pub fn partition(&self) -> Option<Partition> {
        match self.0 {
            LaneKind::Partition(number) => Some(Partition(number)),
            LaneKind::Named(_) => None,
        }
    }
}

impl From<Partition> for Lane {
    fn from(partition: Partition) -> Self {
        Self(LaneKind::Partition(partition.0))
    }
}

impl From<&str> for Lane {
    fn from(name: &str) -> Self {
        Self::named(name)
    }
}

impl fmt::Display for Lane {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            LaneKind::Partition(number) => fmt::Display::fmt(number, f),
            LaneKind::Named(name) => f.write_str(name),
        }
    }
}

/// The decision about an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The event is new: fold it.
    Apply,
    /// The event was folded before: skip it.
    Skip,
    /// The event came too early: the event numbered `expected` has not been folded yet.
    Gap {
        /// The number that must come first.
        expected: u64,
    },
}

/// The events that have been folded: a number per lane. Lanes without an entry are at 0.
///
/// ```
/// use leftfold::{Lane, Mark, Verdict};
///
/// let mut mark = Mark::default();
/// let lane = Lane::named("cart-42");
/// assert_eq!(mark.judge(&lane, 1), Verdict::Apply);
/// mark.advance(&lane, 1);
/// assert_eq!(mark.judge(&lane, 1), Verdict::Skip);
/// assert_eq!(mark.judge(&lane, 3), Verdict::Apply);
/// assert_eq!(mark.judge_contiguous(&lane, 3), Verdict::Gap { expected: 2 });
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Mark(SmallVec<[(Lane, u64); 1]>);

impl Mark {
    /// Returns the number of the lane.
    pub fn get(&self, lane: &Lane) -> u64 {
        self.find(lane).map_or(0, |at| self.0[at].1)
    }

    /// Returns the number of events between this mark and a later one.
    pub(crate) fn distance(&self, to: &Self) -> u64 {
        to.lanes().map(|(lane, number)| number.saturating_sub(self.get(lane))).sum()
    }

    /// Returns the position in a partition.
    pub fn position(&self, partition: Partition) -> Position {
        Position(self.get(&partition.into()))
    }

    /// Decides about the event numbered `number`: apply it if the mark is below it, else skip it.
    pub fn judge(&self, lane: &Lane, number: u64) -> Verdict {
        if number > self.get(lane) { Verdict::Apply } else { Verdict::Skip }
    }

    /// Decides the same way, but reports a gap if `number` is beyond the next one.
    pub fn judge_contiguous(&self, lane: &Lane, number: u64) -> Verdict {
        match self.judge(lane, number) {
            Verdict::Apply if number > self.get(lane) + 1 => Verdict::Gap { expected: self.get(lane) + 1 },
            verdict => verdict,
        }
    }

    /// Advances the lane to `number`. It never goes back.
    pub fn advance(&mut self, lane: &Lane, number: u64) {
        match self.find(lane) {
            Ok(at) => self.0[at].1 = self.0[at].1.max(number),
            Err(at) if number > 0 => self.0.insert(at, (lane.clone(), number)),
            Err(_) => {}
        }
    }

    /// Advances every lane to the number in `other`, if that is higher.
    pub fn merge(&mut self, other: &Mark) {
        for (lane, number) in other.lanes() {
            self.advance(lane, number);
        }
    }

    /// Returns whether every lane is at least at the number in `other`.
    pub fn covers(&self, other: &Mark) -> bool {
        other.lanes().all(|(lane, number)| self.get(lane) >= number)
    }

    /// Returns the lanes with their numbers, in order.
    pub fn lanes(&self) -> impl Iterator<Item = (&Lane, u64)> {
        self.0.iter().map(|(lane, number)| (lane, *number))
    }

    fn find(&self, lane: &Lane) -> Result<usize, usize> {
        match self.0.as_slice() {
            [(only, _)] if only == lane => Ok(0),
            lanes => lanes.binary_search_by(|(other, _)| other.cmp(lane)),
        }
    }
}

impl FromIterator<(Lane, u64)> for Mark {
    fn from_iter<I: IntoIterator<Item = (Lane, u64)>>(lanes: I) -> Self {
        let mut mark = Self::default();
        for (lane, number) in lanes {
            mark.advance(&lane, number);
        }
        mark
    }
}

/// Formats the mark as the JSON object that stores keep.
impl fmt::Display for Mark {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut before = '{';
        for (lane, number) in &self.0 {
            match &lane.0 {
                LaneKind::Partition(partition) => write!(f, "{before}\"{partition}\":{number}")?,
                LaneKind::Named(name) => {
                    let name = serde_json::to_string(name).map_err(|_| fmt::Error)?;
                    write!(f, "{before}{name}:{number}")?;
                }
            }
            before = ',';
        }
        f.write_str(if before == '{' { "{}" } else { "}" })
    }
}

impl Serialize for Mark {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(self.0.len()))?;
        for (lane, number) in &self.0 {
            map.serialize_entry(&format_args!("{lane}"), number)?;
        }
        map.end()
    }
}

impl<'de> Deserialize<'de> for Mark {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Lanes;
        impl<'de> Visitor<'de> for Lanes {
            type Value = Mark;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a mark: an object of lanes with their numbers")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Mark, A::Error> {
                let mut mark = Mark::default();
                while let Some((lane, number)) = map.next_entry::<CompactString, u64>()? {
                    mark.advance(&Lane::named(&lane), number);
                }
                Ok(mark)
            }
        }
        deserializer.deserialize_map(Lanes)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn any_lane() -> impl Strategy<Value = Lane> {
        prop_oneof![
            (0_u16..4).prop_map(|n| Partition(n).into()),
            "[a-c0-9\"]{1,3}".prop_map(|s| Lane::named(&s))
        ]
    }

    fn any_mark() -> impl Strategy<Value = Mark> {
        prop::collection::vec((any_lane(), 0_u64..9), 0..5).prop_map(Mark::from_iter)
    }

    proptest! {
        #[test]
        fn survives_its_text_and_has_only_one(mark in any_mark()) {
            let text = mark.to_string();
            let back: Mark = serde_json::from_str(&text).unwrap();
            prop_assert_eq!(&back, &mark);
            prop_assert_eq!(&serde_json::to_string(&back).unwrap(), &text);
        }

        #[test]
        fn whatever_was_advanced_over_is_skipped_ever_after(
            mut mark in any_mark(), steps in prop::collection::vec((any_lane(), 1_u64..9), 0..20)
        ) {
            let mut seen = Vec::new();
            for (lane, number) in steps {
                let before = mark.clone();
                mark.advance(&lane, number);
                prop_assert!(mark.covers(&before), "a mark never goes back");
                seen.push((lane, number));
                for (lane, number) in &seen {
                    prop_assert_eq!(mark.judge(lane, *number), Verdict::Skip);
                    prop_assert_eq!(mark.judge_contiguous(lane, *number), Verdict::Skip);
                }
            }
        }

        #[test]
        fn contiguous_applies_the_next_number_alone(mark in any_mark(), lane in any_lane(), number in 1_u64..12) {
            let next = mark.get(&lane) + 1;
            let expected = match number {
                n if n < next => Verdict::Skip,
                n if n == next => Verdict::Apply,
                _ => Verdict::Gap { expected: next },
            };
            prop_assert_eq!(mark.judge_contiguous(&lane, number), expected);
        }

        #[test]
        fn merge_is_the_least_that_covers_both(a in any_mark(), b in any_mark()) {
            let mut merged = a.clone();
            merged.merge(&b);
            prop_assert!(merged.covers(&a) && merged.covers(&b));
            for (lane, number) in merged.lanes() {
                prop_assert_eq!(number, a.get(lane).max(b.get(lane)));
            }
        }
    }

    #[test]
    fn a_partition_and_its_number_are_one_lane() {
        assert_eq!(Lane::named("7"), Lane::from(Partition(7)));
        for odd in ["07", "+7", "65536", "", "7 "] {
            assert_eq!(Lane::named(odd).partition(), None, "{odd:?} is a name");
        }
    }
}
