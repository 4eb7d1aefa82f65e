//! Values and checks that the cases share.

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;

use crate::documents::{
    Collection, CollectionWrites as Written, Commit, CommitOutcome, DocumentWrite, Header, Record,
};
use crate::event::DocumentId;
use crate::json::Json;
use crate::mark::Mark;
use crate::react::{
    Comparing, DocumentSource, Ended, ReactionStore, Registered, Run, State, Suspicion, Task, TaskChange,
    TaskKey,
};
use crate::store::Store;
use crate::testing::conformance::json;

pub(super) const A_WHILE: Duration = Duration::from_secs(20);

pub(super) fn carts() -> Collection {
    Collection::new("carts").unwrap()
}

pub(super) fn on() -> DocumentSource {
    DocumentSource::Projection(carts())
}

pub(super) fn id(name: &str) -> DocumentId {
    DocumentId::new(name).unwrap()
}

/// Writes documents of a projection, one commit each; no body means a delete.
pub(super) async fn write<S: Store>(store: &S, documents: &[(&str, Option<&str>)]) {
    write_to(store, &carts(), documents).await;
}

pub(super) async fn write_to<S: Store>(
    store: &S,
    collection: &Collection,
    documents: &[(&str, Option<&str>)],
) {
    for (name, body) in documents {
        let before = store.load_current(collection, vec![id(name)]).await.unwrap().pop();
        let at =
            before.as_ref().map_or(0, |record| record.header.mark.lanes().map(|(_, number)| number).sum());
        let mark: Mark = [(crate::event::Partition(0).into(), at + 1)].into_iter().collect();
        let record = Record { id: id(name), header: Header { mark, parked: None }, body: body.map(json) };
        let write = DocumentWrite { expected: before.map(|record| record.header), record };
        let changes = vec![Written { collection: collection.clone(), writes: vec![write] }];
        let outcome = store.commit(Arc::new(Commit { advance: None, changes })).await.unwrap();
        assert!(matches!(outcome, CommitOutcome::Applied), "{outcome:?}");
    }
}

pub(super) async fn prepared<S: Store + ReactionStore>(store: &S) {
    store.prepare(&carts()).await.unwrap();
    store.prepare_reactions(&[on()]).await.unwrap();
    store.prepare_reactions(&[on()]).await.unwrap();
}

pub(super) fn key(reaction: &str, document: &str) -> TaskKey {
    TaskKey { reaction: reaction.to_owned(), document: id(document) }
}

/// Returns a time to the microsecond, this many seconds after a fixed day.
pub(super) fn at(second: i64) -> Timestamp {
    Timestamp::from_microsecond(1_800_000_000_000_000 + second * 1_000_000 + 7).unwrap()
}

pub(super) fn task(reaction: &str, document: &str, version: u64) -> Task {
    Task {
        key: key(reaction, document),
        version,
        state: State::Pending,
        inside: true,
        epoch: 3,
        generation: 4,
        watched: Json::parse(r#"{"status":"confirmed","list":[1,null,"ä"]}"#).unwrap(),
        due: Some(Timestamp::from_microsecond(1_000_000).unwrap()),
        since: at(1),
        check_at: None,
        needs: 1,
        attempts: 2,
        first_failed: Some(at(2)),
        error: Some("The Server said \"no\"".to_owned()),
        owner: Some("worker-1".to_owned()),
        claimed_at: Some(at(3)),
        done_at: None,
        changed_at: at(4),
        history: vec![Run { at: at(5), millis: 17, outcome: Ended::Failed, error: Some("no".to_owned()) }],
        cursor: Some(crate::react::StreamProgress { handled: 6, last: 1 << 50 }),
        suspicion: Suspicion::None,
        excused: 0,
    }
}

pub(super) async fn insert<S: ReactionStore>(store: &S, tasks: Vec<Task>) {
    let refused = store.save_tasks(tasks.into_iter().map(TaskChange::Insert).collect()).await.unwrap();
    assert_eq!(refused, []);
}

pub(super) fn registered(name: &str, version: u64) -> Registered {
    Registered {
        name: name.to_owned(),
        version,
        on: Some(on()),
        definition: r#"{"status":"confirmed"}"#.to_owned(),
        code: 3,
        paused: false,
        paused_because: None,
        throttled: None,
        comparing: Some(Comparing::Documents(id("m"))),
    }
}
