//! Several versions of the code.

use std::sync::Arc;
use std::time::Duration;

use crate::common::{Happened, Seen};
use crate::fixtures::{Notes, append, assert_all_by, folded, known, options, start};
use leftfold::fold::Error;
use leftfold::{Event, Leftfold, Projection};

/// A projection that folds like version 1, with its own fingerprint.
struct Fingerprinted(&'static str);

impl Projection for Fingerprinted {
    type Event = Happened;
    type Document = Seen;

    fn name(&self) -> &'static str {
        "notes"
    }

    fn fingerprint(&self) -> std::borrow::Cow<'_, str> {
        self.0.into()
    }

    fn fold(&self, seen: Option<Seen>, event: &Event<Happened>) -> Result<Option<Seen>, Error> {
        Notes::new(1).fold(seen, event)
    }
}

#[tokio::test]
async fn code_is_told_apart_by_its_fingerprint() {
    let store = folded(1, 3).await;
    assert_eq!(known(&store).await.live.version.as_deref(), Some("1"), "by default it is the version");
    for (fingerprint, differs) in [("1", false), ("1-f00d", true)] {
        let app = Leftfold::on(store.clone()).projection(Arc::new(Fingerprinted(fingerprint)));
        let status = app.open().await.unwrap().status().await.unwrap().pop().unwrap();
        assert_eq!((status.version.as_str(), status.rebuild_needed), (fingerprint, differs));
    }
}

#[tokio::test(start_paused = true)]
async fn code_that_was_replaced_stands_by() {
    let store = folded(1, 30).await;
    let old = start(&store, Notes::new(1)).await;
    let new = start(&store, Notes::new(2)).await;
    new.rebuild("notes").await.unwrap().finish(0).await.unwrap();
    // The new code folds the next events, even if the old worker is faster.
    for _ in 0..20 {
        append(&new, 7).await;
        new.caught_up().await.unwrap();
    }
    assert_all_by(&new, "2").await;
    new.stop().await;
    append(&old, 1).await;
    while !old.status().await.unwrap()[0]
        .tally
        .last_error
        .as_ref()
        .is_some_and(|said| said.contains("stands by"))
    {
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    // An undo lets the old code continue.
    old.undo("notes").await.unwrap();
    assert_all_by(&old, "1").await;
    old.stop().await;
}

#[tokio::test(start_paused = true)]
async fn code_that_changed_is_rebuilt_if_that_is_wanted() {
    let store = folded(1, 30).await;
    let asked = start(&store, Notes::new(2)).await;
    assert!(asked.status().await.unwrap()[0].rebuild_needed);
    assert_eq!(known(&store).await.live.number, 0);
    asked.stop().await;
    for _ in 0..2 {
        let app = Leftfold::on(store.clone()).options(options()).rebuild_on_change(true);
        let app = app.projection(Notes::new(2)).start().await.unwrap();
        while known(&store).await.live.number == 0 {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        assert_all_by(&app, "2").await;
        assert!(!app.status().await.unwrap()[0].rebuild_needed);
        app.stop().await;
    }
    assert_eq!(known(&store).await.made, 1, "once is enough");
}
