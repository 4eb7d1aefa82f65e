//! Gaps: skipped by operators, or overdue.

use super::fixtures::{delivery, held, revisions, settlement, step, time, waiting};
use crate::error::Kind;
use crate::event::Revision;
use crate::sequence::{
    DueGaps, Held, IngestAnswer, Policy, Sequencer, Sequences, Skipped, StreamChange, Waiting,
};
use crate::store::Store;
use crate::testing::conformance::stream;

/// A skipped revision is recorded with its reason, and nothing waits for it any more.
pub async fn what_is_skipped_is_remembered<S: Store + Sequences>(store: S) {
    let sequencer = Sequencer::new(store.clone());
    let fed = vec![delivery("s", 1), delivery("s", 4), delivery("s", 5), delivery("s", 9)];
    sequencer.ingest(Policy::Contiguous, fed).await.unwrap();
    for wrong in [1, 4, 5] {
        let refused = sequencer.skip(&stream("s"), Revision(wrong), "a guess").await.unwrap_err();
        assert_eq!(refused.kind(), Kind::Invalid, "{refused}");
        assert!(refused.to_string().contains("2 to 3"), "{refused}");
    }
    assert_eq!(sequencer.skip(&stream("s"), Revision(2), "lost for ever").await.unwrap(), 0);
    assert_eq!(sequencer.skip(&stream("s"), Revision(3), "lost, too").await.unwrap(), 2);
    assert_eq!(revisions(&store, "s").await, [1, 4, 5]);
    let Skipped { after, through, reason, .. } = &store.skipped(&stream("s")).await.unwrap()[1];
    assert_eq!((after.0, through.0, reason.as_str()), (2, 3, "lost, too"));
    assert_eq!(store.skipped(&stream("t")).await.unwrap(), []);
    let late = sequencer.ingest(Policy::Contiguous, vec![delivery("s", 2), delivery("s", 6)]).await.unwrap();
    assert!(matches!(late[..], [IngestAnswer::Conflict(_), IngestAnswer::Appended(_)]), "{late:?}");
    let refused = sequencer.skip(&stream("t"), Revision(1), "nothing waits").await.unwrap_err();
    assert_eq!(refused.kind(), Kind::Invalid, "{refused}");
}

/// Streams that wait longest are resupplied first, and none before its time.
pub async fn what_waits_longest_is_overdue_first<S: Store + Sequences>(store: S) {
    for (name, since, ask_at) in [("a", 30, 30), ("b", 10, 40), ("c", 20, 20)] {
        let held = Held { since: time(since), ..held(name, 2) };
        let waiting = Waiting { ask_at: time(ask_at), ..waiting(1, &held) };
        let step = StreamChange { waiting: Some(waiting), hold: vec![held], ..step(name, 0, None) };
        store.settle(settlement(&store, vec![step])).await.unwrap();
    }
    let overdue = async |since, now, limit| {
        let due = DueGaps { since: time(since), now: time(now), end: time(100) };
        let found = store.overdue(due, limit).await.unwrap();
        found.into_iter().map(|(name, _)| name.to_string()).collect::<Vec<_>>().join(" ")
    };
    assert_eq!(overdue(30, 40, 9).await, "b c a");
    assert_eq!(overdue(30, 40, 2).await, "b c");
    assert_eq!(overdue(29, 40, 9).await, "b c");
    assert_eq!(overdue(30, 39, 9).await, "c a");
    assert_eq!(overdue(9, 99, 9).await, "");
    // A clock that is wrong by more than the longest wait does not block a stream.
    for (name, since, ask_at) in [("d", 101, 30), ("e", 30, 101)] {
        let held = Held { since: time(since), ..held(name, 2) };
        let waiting = Waiting { ask_at: time(ask_at), ..waiting(1, &held) };
        let step = StreamChange { waiting: Some(waiting), hold: vec![held], ..step(name, 0, None) };
        store.settle(settlement(&store, vec![step])).await.unwrap();
    }
    assert_eq!(overdue(30, 30, 9).await, "c a e d");
}
