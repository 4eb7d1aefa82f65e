//! The simulated store's feed of changes.

use std::collections::VecDeque;
use std::time::Duration;

use leftfold::react::{DocumentFeed, DocumentSource, FeedItem, ReactionStore};
use leftfold::{DocumentId, Memory, Result};

use super::handle::SimStore;
use crate::faults::Fault;
use crate::reactions::ledger::Sometimes;

/// The number of changes per call of a feed during faults. It is small, so that there are many
/// places to stop at.
const FEW: usize = 3;
/// The number of changes that a feed may repeat.
const REPEATED: usize = 8;

/// A feed that repeats changes and loses them.
pub struct SimFeed {
    store: SimStore,
    feed: <Memory as ReactionStore>::Feed,
    before: VecDeque<(DocumentSource, DocumentId)>,
}

impl SimFeed {
    /// Opens a feed, in some cases at an earlier place than requested.
    pub(super) async fn open(
        store: SimStore,
        on: Vec<DocumentSource>,
        mut from: Option<String>,
    ) -> Result<Self> {
        if store.strikes(Fault::Twice) {
            let back = store.shared.faults.dice().below(REPEATED as u64);
            let earlier =
                |place: String| place.parse::<u64>().map_or(place, |at| at.saturating_sub(back).to_string());
            from = from.map(earlier);
        }
        let feed = store.inner().follow(on, from).await?;
        Ok(Self { store, feed, before: VecDeque::new() })
    }
}

impl DocumentFeed for SimFeed {
    async fn next(&mut self, most: usize, patience: Duration) -> Result<FeedItem> {
        let Self { store, feed, before } = self;
        let calm = store.shared.faults.is_calm();
        let most = if calm { most } else { most.min(FEW) };
        let item = async {
            if store.strikes(Fault::Lost) {
                store.inner().forget_changes();
                store.shared.ledger.happened(Sometimes::LostFeeds);
                return Ok(FeedItem::Lost("the changes are lost".to_owned()));
            }
            let item = feed.next(most, patience).await?;
            let FeedItem::Changes(mut changes) = item else {
                store.shared.ledger.happened(Sometimes::LostFeeds);
                return Ok(item);
            };
            let new: Vec<_> = changes
                .documents
                .iter()
                .flat_map(|(on, ids)| ids.iter().map(|id| (on.clone(), id.clone())))
                .collect();
            if store.strikes(Fault::Twice) {
                for (on, id) in before.iter() {
                    changes.documents.entry(on.clone()).or_default().insert(id.clone());
                }
            }
            before.extend(new);
            before.drain(..before.len().saturating_sub(REPEATED));
            Ok(FeedItem::Changes(changes))
        };
        store.answer("follow changes", item).await
    }
}
