//! Cancelled rebuilds, parked documents per generation, and verification.

use std::sync::Arc;
use std::time::Duration;

use crate::common::Happened;
use crate::fixtures::{Notes, append, assert_all_by, folded, notes, start};
use leftfold::documents::{CollectionWrites, Commit, CommitOutcome, DocumentWrite, Header, Record};
use leftfold::inspect::Sample;
use leftfold::{DocumentId, Documents as _, Json, Memory};

#[tokio::test(start_paused = true)]
async fn what_is_given_up_leaves_nothing() {
    let store = folded(1, 30).await;
    let app = start(&store, Notes::new(2)).await;
    let rebuild = app.rebuild("notes").await.unwrap();
    let building = notes().generation(rebuild.generation());
    rebuild.built().await.unwrap();
    rebuild.cancel().await.unwrap();
    assert!(store.scan(&building, None, 1).await.is_err(), "it should be gone");
    assert_all_by(&app, "1").await;
    // The holder of a rebuild learns that another process has cancelled it.
    let rebuild = app.rebuild("notes").await.unwrap();
    assert!(app.cancel_rebuild("notes").await.unwrap() && !app.cancel_rebuild("notes").await.unwrap());
    assert!(rebuild.switch().await.unwrap_err().is_conflict());
    assert_all_by(&app, "1").await;
    app.stop().await;
}

/// A document that is parked in one generation need not be parked in the other.
#[tokio::test(start_paused = true)]
async fn what_is_parked_is_parked_in_its_own_generation() {
    let store = Memory::new(1);
    let code = Notes::new(1);
    let app = start(&store, code.clone()).await;
    append(&app, 21).await;
    app.append("s0", [Happened::Poison { to: vec!["s0".into()] }]).await.unwrap();
    app.caught_up().await.unwrap();
    assert_eq!(app.parked("notes", None, 9).await.unwrap().len(), 1);
    code.mended.now();
    let rebuild = app.rebuild("notes").await.unwrap();
    rebuild.built().await.unwrap();
    let difference = rebuild.difference(9).await.unwrap();
    assert_eq!((difference.compared, difference.parked, difference.is_none()), (6, 1, true));
    rebuild.switch().await.unwrap();
    assert!(app.parked("notes", None, 9).await.unwrap().is_empty());
    assert_all_by(&app, "1").await;
    app.undo("notes").await.unwrap();
    assert_eq!(app.parked("notes", None, 9).await.unwrap().len(), 1, "as it was");
    app.retry_all("notes", false, |_, _| ()).await.unwrap();
    assert_all_by(&app, "1").await;
    app.stop().await;
}

#[tokio::test(start_paused = true)]
async fn verifying_finds_what_was_tampered_with_and_nothing_else_while_events_come_in() {
    for by_stream in [true, false] {
        // Partitions have no common order, so lists of events of several partitions would differ.
        let store = Memory::new(if by_stream { 3 } else { 1 });
        let app = start(&store, Notes { by_stream, ..Notes::new(1) }).await;
        append(&app, 140).await;
        app.caught_up().await.unwrap();
        let appending = {
            let app = app.clone();
            tokio::spawn(async move {
                loop {
                    append(&app, 3).await;
                    tokio::time::sleep(Duration::from_micros(700)).await;
                }
            })
        };
        for sample in [Sample::All, Sample::Some(4), Sample::Some(100)] {
            for _ in 0..10 {
                let verified = app.verify("notes", sample, |wrong| panic!("{wrong:?}")).await.unwrap();
                assert!(verified.differing == 0 && verified.checked > 0, "{verified:?}");
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        }
        appending.abort();
        app.caught_up().await.unwrap();
        app.stop().await;
        // One document is changed, one is deleted, and one belongs to no event.
        let wrong = |id: &str, body: Option<&str>, expected: Option<Header>, mark| {
            let header = Header { mark, parked: None };
            let body = body.map(|body| Json::parse(body).unwrap());
            DocumentWrite { expected, record: Record { id: DocumentId::new(id).unwrap(), header, body } }
        };
        let ids = ["s1", "s2"].map(|id| DocumentId::new(id).unwrap()).to_vec();
        let stored = store.load(&notes(), ids).await.unwrap();
        let headers: Vec<_> = stored.into_iter().map(|record| record.header).collect();
        let writes = vec![
            wrong("s1", Some(r#"{"events":[]}"#), Some(headers[0].clone()), headers[0].mark.clone()),
            wrong("s2", None, Some(headers[1].clone()), headers[1].mark.clone()),
            wrong("stray", Some(r#"{"events":[]}"#), None, leftfold::Mark::default()),
        ];
        let commit =
            Commit { advance: None, changes: vec![CollectionWrites { collection: notes(), writes }] };
        assert!(matches!(store.commit(Arc::new(commit)).await.unwrap(), CommitOutcome::Applied));
        let mut found = Vec::new();
        let verified = app.verify("notes", Sample::All, |wrong| found.push(wrong)).await.unwrap();
        found.sort_by(|one, other| one.id.cmp(&other.id));
        let seen: Vec<_> =
            found.iter().map(|wrong| (wrong.id.as_str(), wrong.stored, wrong.folded)).collect();
        assert_eq!(seen, [("s1", true, true), ("s2", false, true), ("stray", true, false)]);
        let changes = &found[0].changes;
        assert!(changes.iter().all(|change| change.path.starts_with("events[")), "{changes:?}");
        assert_eq!((verified.checked, verified.differing), (8, 3));
    }
}
