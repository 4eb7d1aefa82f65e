//! The numbers that order events: revisions, positions, partitions.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::names::StreamId;

macro_rules! number {
    ($(#[$doc:meta])* $name:ident($inner:ty)) => {
        $(#[$doc])*
        #[derive(
            Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
        )]
        #[serde(transparent)]
        pub struct $name(pub $inner);

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Display::fmt(&self.0, f)
            }
        }
    };
}

number!(
    /// The place of an event in its stream: 1, 2, 3 …; 0 means no event yet.
    Revision(u64)
);
number!(
    /// The place of an event in its partition of the log: 1 or more; 0 is before the first event.
    Position(u64)
);
number!(
    /// A part of the log with its own total order. A stream lives in one partition.
    Partition(u16)
);

impl Partition {
    /// Returns the partition of a stream, out of `count`. It never changes: it is derived from the
    /// 64-bit FNV-1a hash of the id.
    pub fn of(stream: &StreamId, count: u16) -> Self {
        if count <= 1 {
            return Self(0);
        }
        let hash = stream.as_str().bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
        });
        Self(u16::try_from(hash % u64::from(count)).unwrap_or_default())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Streams must stay in their partition for the life of a log, so these numbers never change.
    #[test]
    fn partitions_are_stable() {
        let of = |text| Partition::of(&StreamId::new(text).unwrap(), 16).0;
        assert_eq!(["cart-1", "cart-2", "cart-42", "ünïcode"].map(of), [5, 12, 12, 11]);
        assert_eq!(Partition::of(&StreamId::new("cart-1").unwrap(), 1), Partition(0));
    }
}
