//! The few facts about a projection that are cheap enough to be asked for every second.

use super::App;
use crate::documents::Store;
use crate::error::Result;
use crate::fold::{Activity, distance};
use crate::mark::Mark;

/// How a projection is doing, in as much as that can be told without counting its documents. [`App::status`] says more.
#[derive(Clone, Debug, PartialEq)]
pub struct Vitals {
    /// Its name.
    pub projection: String,
    /// The work of this process on it.
    pub activity: Activity,
    /// The last error that this process met.
    pub last_error: Option<String>,
    /// The position up to which it is folded, per partition.
    pub position: Mark,
    /// How many events it is behind.
    pub lag: u64,
    /// Whether a document or a stream of it is parked.
    pub is_parked: bool,
}

impl<S: Store> App<S> {
    /// How each projection is doing, cheaply: for a probe that asks again and again.
    pub async fn vitals(&self) -> Result<Vec<Vitals>> {
        let store = self.store();
        let head = store.heads().await?;
        let mut all = Vec::with_capacity(self.0.parts.len());
        for part in &self.0.parts {
            let name = part.collection();
            let position = store.checkpoint(name).await?.mark;
            let is_parked = !store.parked(name, None, 1).await?.is_empty()
                || !store.parked(&name.streams(), None, 1).await?.is_empty();
            let pulse = part.seen();
            all.push(Vitals {
                projection: name.to_string(),
                activity: pulse.activity,
                last_error: pulse.last_error,
                lag: distance(&position, &head),
                position,
                is_parked,
            });
        }
        Ok(all)
    }
}
