//! The parked units of a collection.

use crate::app::Unit;
use crate::documents::{Collection, Parked};
use crate::error::Result;
use crate::event::{DocumentId, StreamId};
use crate::store::Store;

/// Returns at most `most` parked units of a collection, after a unit: streams first, then documents
/// by id.
pub(crate) async fn parked_units<S: Store>(
    store: &S,
    name: &Collection,
    after: Option<&Unit>,
    most: usize,
) -> Result<Vec<(Unit, Parked)>> {
    let mut found = Vec::new();
    if !matches!(after, Some(Unit::Document(_))) {
        let after = match after {
            Some(Unit::Stream(stream)) => Some(DocumentId::from(stream)),
            _ => None,
        };
        for record in store.parked(&name.streams(), after, most).await? {
            let unit = Unit::Stream(StreamId::new(&record.id)?);
            found.extend(record.header.parked.map(|parked| (unit, *parked)));
        }
    }
    let after = match after {
        Some(Unit::Document(id)) => Some(id.clone()),
        _ => None,
    };
    let left = most.saturating_sub(found.len());
    for record in store.parked(name, after, left).await? {
        found.extend(record.header.parked.map(|parked| (Unit::Document(record.id), *parked)));
    }
    Ok(found)
}
