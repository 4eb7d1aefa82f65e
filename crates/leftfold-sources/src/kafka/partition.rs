//! The progress in a partition: a pure decision about the offset to commit.

use std::collections::BTreeMap;

use tokio::time::Instant;

/// The progress in a partition.
#[derive(Default)]
pub(super) struct Partition {
    pub(super) generation: u64,
    /// The offsets that the feed has received, and whether they are safe, from the first
    /// uncommitted one on.
    pub(super) open: BTreeMap<i64, bool>,
    /// The offset after the last one that the feed has received.
    pub(super) next: i64,
    /// The offset to seek back to, and when.
    pub(super) back: Option<(i64, Instant)>,
    /// The offset before which everything is safe.
    pub(super) safe: Option<i64>,
    /// The last offset sent in a commit, unless that failed.
    pub(super) committed: Option<i64>,
}

impl Partition {
    /// Records a message that the feed receives. A message behind a refused one will be delivered
    /// again, too.
    pub(super) fn track(&mut self, offset: i64) {
        if self.back.is_none_or(|(to, _)| offset < to) {
            self.open.insert(offset, false);
        }
        self.next = offset + 1;
    }

    /// Records that a message is safe, and advances over all safe ones.
    pub(super) fn acknowledge(&mut self, offset: i64) {
        if let Some(is_safe) = self.open.get_mut(&offset) {
            *is_safe = true;
        }
        while let Some(first) = self.open.first_entry().filter(|first| *first.get()) {
            self.safe = Some(first.key() + 1);
            first.remove();
        }
    }

    /// Records that a message, and everything behind it, must be read again.
    pub(super) fn refuse(&mut self, offset: i64, due: Instant) {
        let (to, due) = self.back.map_or((offset, due), |(to, earlier)| (to.min(offset), due.max(earlier)));
        self.back = Some((to, due));
        self.open.split_off(&to);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_partition_advances_over_safe_messages_and_stops_before_others() {
        let mut partition = Partition::default();
        // 7 was compacted away.
        for offset in [5, 6, 8, 9] {
            partition.track(offset);
        }
        partition.acknowledge(6);
        assert_eq!(partition.safe, None);
        partition.acknowledge(5);
        assert_eq!(partition.safe, Some(7));
        partition.acknowledge(9);
        assert_eq!(partition.safe, Some(7));
        let now = Instant::now();
        partition.refuse(9, now);
        partition.refuse(8, now);
        assert_eq!(partition.back, Some((8, now)));
        // Messages behind the refused one are delivered again. They no longer count as safe, and
        // neither do those read in the meantime.
        partition.track(10);
        partition.acknowledge(9);
        partition.acknowledge(10);
        assert_eq!((partition.safe, partition.open.len()), (Some(7), 0));
    }
}
