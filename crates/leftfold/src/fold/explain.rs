//! Why a document is what it is: every event that made it, and what each changed.

use serde::Serialize;
use serde_json::Value;

use super::Projection;
use super::batch::{Desk, Folder, Next, Occurrence, Portion};
use super::moment::Until;
use super::slot::Slot;
use crate::documents::Store;
use crate::env::Env;
use crate::error::Result;
use crate::event::{DocumentId, Revision};
use crate::json::Json;
use crate::mark::Mark;

/// What one event did to a document.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Explained {
    /// The event.
    #[serde(flatten)]
    pub event: Occurrence,
    /// What it did.
    pub effect: Effect,
    /// The document after it, if there is one.
    pub document: Option<Value>,
}

/// What an event did.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Effect {
    /// It changed these fields; none, if the document stayed as it was.
    Changed(Vec<Change>),
    /// It could not be folded.
    Failed(String),
    /// It waits behind one that could not be folded, or has not been reached yet.
    Waiting,
}

/// A field that an event changed.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Change {
    /// Where in the document, such as `items[0].quantity`; empty for the document itself.
    pub path: String,
    /// What was there.
    pub before: Option<Value>,
    /// What is there now.
    pub after: Option<Value>,
}

impl<P: Projection> Folder<P> {
    /// Tells every event of a document in order, up to a moment. `false` if there is no such document and never was.
    pub(crate) async fn explain<S: Store>(
        &self,
        store: &S,
        env: &dyn Env,
        id: &DocumentId,
        until: Until,
        tell: &mut (dyn FnMut(Explained) + Send),
    ) -> Result<bool> {
        let Some(record) = store.load(&self.collection, vec![id.clone()]).await?.pop() else {
            return Ok(false);
        };
        let mut through = store.checkpoint(&self.collection).await?.mark;
        through.merge(&record.header.mark);
        let mut desk = Desk::careful(Mark::default());
        desk.documents.insert(id.clone(), Slot::refolded(None));
        let mut replay = self.replay_of(id, Revision(0), Mark::default(), through, store)?;
        let mut before = None;
        while let Some((partition, page)) = replay.next(store).await? {
            let mut page = self.route(partition, page);
            let streams = self.missing_streams(&desk, &page, true);
            if !streams.is_empty() {
                self.load_streams(store, &mut desk, streams).await?;
            }
            while let Some(next) = page.next_for(id, self.routes_by_stream()) {
                let Next::Concerns(event) = next else {
                    self.apply(&mut desk, &mut page, Portion::ONE, env.now());
                    continue;
                };
                if !until.covers(&event) {
                    replay.leave(partition);
                    break;
                }
                let failed = desk.documents.get(id).is_some_and(|slot| slot.loss().is_some());
                let waits = !self.routes_by_stream() && desk.is_set_aside(&event);
                self.apply(&mut desk, &mut page, Portion::ONE, env.now());
                let effect = match desk.documents.get(id).and_then(Slot::loss) {
                    _ if failed || waits => Effect::Waiting,
                    Some(loss) => {
                        Effect::Failed(loss.error.as_ref().map(ToString::to_string).unwrap_or_default())
                    }
                    None => {
                        let after =
                            desk.documents.get(id).and_then(Slot::document).map(Json::of).transpose()?;
                        let after = after.map(|json| json.to()).transpose()?;
                        let changes = changes(before.as_ref(), after.as_ref());
                        before = after;
                        Effect::Changed(changes)
                    }
                };
                tell(Explained { event, effect, document: before.clone() });
            }
        }
        Ok(true)
    }
}

/// What differs between two documents, field by field.
pub(crate) fn changes(before: Option<&Value>, after: Option<&Value>) -> Vec<Change> {
    let mut changes = Vec::new();
    compare(String::new(), before, after, &mut changes);
    changes
}

fn compare(path: String, before: Option<&Value>, after: Option<&Value>, changes: &mut Vec<Change>) {
    match (before, after) {
        (Some(Value::Object(a)), Some(Value::Object(b))) => {
            let mut keys: Vec<_> = a.keys().chain(b.keys().filter(|key| !a.contains_key(*key))).collect();
            keys.sort();
            for key in keys {
                let inner = if path.is_empty() { key.clone() } else { format!("{path}.{key}") };
                compare(inner, a.get(key), b.get(key), changes);
            }
        }
        (Some(Value::Array(a)), Some(Value::Array(b))) => {
            for at in 0..a.len().max(b.len()) {
                compare(format!("{path}[{at}]"), a.get(at), b.get(at), changes);
            }
        }
        (before, after) if before == after => {}
        (before, after) => {
            changes.push(Change { path, before: before.cloned(), after: after.cloned() });
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn changes_name_the_innermost_fields() {
        let before = json!({"a": 1, "list": [{"n": 1}, {"n": 2}], "gone": true, "same": {"x": []}});
        let after = json!({"a": 2, "list": [{"n": 1}], "new": null, "same": {"x": []}});
        let found = changes(Some(&before), Some(&after));
        let seen: Vec<_> = found.iter().map(|change| change.path.as_str()).collect();
        assert_eq!(seen, ["a", "gone", "list[1]", "new"]);
        assert_eq!(found[2], Change { path: "list[1]".into(), before: Some(json!({"n": 2})), after: None });
        assert_eq!(changes(None, Some(&after))[0].path, "");
        assert!(changes(Some(&after), Some(&after)).is_empty());
    }
}
