//! The facts about a projection that are cheap enough to query every second.

use super::App;
use crate::documents::Store;
use crate::error::Result;
use crate::fold::{Activity, distance};
use crate::mark::Mark;

/// The state of a projection, without the costly count of its documents. [`App::status`] says more.
#[derive(Clone, Debug, PartialEq)]
pub struct Vitals {
    /// The name of the projection.
    pub projection: String,
    /// The work of this process on it.
    pub activity: Activity,
    /// The last error in this process.
    pub last_error: Option<String>,
    /// The position up to which the projection has folded, per partition.
    pub position: Mark,
    /// The number of events it is behind.
    pub lag: u64,
    /// `true` if one of its documents or streams is parked.
    pub is_parked: bool,
}

impl<S: Store> App<S> {
    /// Returns the state of each projection at low cost, for probes that poll.
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
