//! Values and checks that the cases share.

use serde::{Deserialize, Serialize};

use crate::content::{ContentGuard, ContentWrite, Contents, Counted, Operation, OperationId, Stored};
use crate::event::DocumentId;
use crate::json::Json;
use crate::react::ExternalCollection;
use crate::testing::conformance::json;

pub(super) const THINGS: &str = "things";

pub(super) fn things() -> ExternalCollection {
    ExternalCollection::new(THINGS).unwrap()
}

pub(super) fn id(name: &str) -> DocumentId {
    DocumentId::new(name).unwrap()
}

pub(super) fn guard(text: &str) -> ContentGuard {
    ContentGuard::stored(text.as_bytes())
}

pub(super) fn write(name: &str, expected: Option<&str>, to: Option<(&str, &str)>) -> ContentWrite {
    let to = to.map(|(version, body)| (guard(version), json(body)));
    ContentWrite { id: id(name), expected: expected.map(guard), to }
}

pub(super) fn operation(number: u64) -> Operation {
    Operation::new(OperationId::new(number).unwrap())
}

pub(super) async fn stored(store: &impl Contents, name: &str) -> Option<Stored> {
    store.contents(&things(), vec![id(name)]).await.unwrap().pop()
}

/// Returns the text that a guard was created from.
pub(super) fn shown(guard: &ContentGuard) -> String {
    String::from_utf8_lossy(guard.as_bytes()).into_owned()
}

/// Returns the canonical form of a document, independent of the order of its fields.
pub(super) fn canonical(body: &Json) -> String {
    crate::content::canonical(body, &Counted::All).unwrap()
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Thing {
    pub(super) n: i64,
    pub(super) seen: i64,
}
