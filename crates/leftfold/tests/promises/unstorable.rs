//! Documents that can't be stored.

use std::collections::BTreeMap;

use crate::fixtures::{quick, soon};
use leftfold::documents::MAX_BODY_BYTES;
use leftfold::{Event, Leftfold, Memory, Projection, fold};

/// A projection where seven creates a document that JSON can't represent.
struct Lengths;

impl Projection for Lengths {
    type Event = usize;
    type Document = BTreeMap<Vec<u8>, u8>;

    fn name(&self) -> &'static str {
        "lengths"
    }

    fn fold(
        &self,
        _: Option<Self::Document>,
        event: &Event<usize>,
    ) -> Result<Option<Self::Document>, fold::Error> {
        Ok(Some(if event.data == 7 { BTreeMap::from([(vec![7], 7)]) } else { BTreeMap::new() }))
    }
}

/// A projection that grows the document to as many bytes as the event says.
struct Grown;

impl Projection for Grown {
    type Event = usize;
    type Document = String;

    fn name(&self) -> &'static str {
        "grown"
    }

    fn fold(&self, _: Option<String>, event: &Event<usize>) -> Result<Option<String>, fold::Error> {
        Ok(Some("x".repeat(event.data)))
    }
}

async fn append_number<S: leftfold::Store>(app: &leftfold::App<S>, stream: &str, number: usize) {
    let event = leftfold::NewEvent::new("number", leftfold::Json::of(&number).unwrap()).unwrap();
    app.append_events(stream, leftfold::Expected::Any, vec![event]).await.unwrap();
}

#[tokio::test]
async fn a_document_that_cant_be_stored_takes_no_other_of_its_batch_along() {
    let store = Memory::default();
    let app = Leftfold::on(store.clone()).projection(Lengths).open().await.unwrap();
    for (stream, number) in [("before", 0), ("bad", 0), ("bad", 7), ("after", 0)] {
        append_number(&app, stream, number).await;
    }
    // All of it is one batch.
    let app = Leftfold::on(store).options(quick()).projection(Lengths).start().await.unwrap();
    soon(app.caught_up()).await.unwrap();
    for id in ["before", "after", "bad"] {
        assert_eq!(app.get(Lengths, id).await.unwrap(), Some(BTreeMap::new()), "{id}");
    }
    let parked = app.parked("lengths", None, 10).await.unwrap();
    assert_eq!((parked.len(), parked[0].1.revision.0), (1, 2));
    assert_eq!(app.status().await.unwrap()[0].tally.applied, 3);
    app.stop().await;
}

#[tokio::test]
async fn a_document_that_grows_too_large_parks_and_others_go_on() {
    let app = Leftfold::on(Memory::default()).options(quick()).projection(Grown).start().await.unwrap();
    for (stream, number) in [("large", 1), ("large", MAX_BODY_BYTES), ("small", 2)] {
        append_number(&app, stream, number).await;
    }
    soon(app.caught_up()).await.unwrap();
    assert_eq!(app.get(Grown, "large").await.unwrap().unwrap(), "x", "as it was before");
    assert_eq!(app.get(Grown, "small").await.unwrap().unwrap(), "xx");
    let parked = app.parked("grown", None, 10).await.unwrap();
    assert!(parked[0].1.error.contains("split it"), "{}", parked[0].1.error);
    app.stop().await;
}
