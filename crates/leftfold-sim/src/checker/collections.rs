//! The collections of a projection: its generations and its parked streams.

use std::collections::BTreeMap;

use leftfold::{Collection, Documents, Mark, Position, Result};

use super::fold::ParkedStreams;
use crate::notes::{BY_CONTENT, BY_STREAM};

/// Returns the projection that writes a collection of documents.
pub(super) fn projection(collection: &Collection) -> Option<&'static str> {
    let base = collection.belongs_to().is_none().then(|| collection.base())?;
    [BY_STREAM, BY_CONTENT].into_iter().find(|name| base.as_str() == *name)
}

/// Returns whether a generation exists, that is, it is not being removed and has not been removed.
pub(super) async fn is_there(store: &impl Documents, collection: &Collection) -> Result<bool> {
    let known = store.generations(&collection.base()).await?;
    let numbers = [Some(&known.live), known.building.as_ref(), known.kept.as_ref()];
    let mut all = numbers.into_iter().flatten().map(|one| collection.base().generation(one.number).stored(0));
    let generation = collection.belongs_to().unwrap_or(collection.as_str());
    let generation = Collection::from_stored(generation)?.stored(0);
    Ok(!collection.names_generation() || all.any(|one| one == generation))
}

/// Returns the part of a checkpoint's mark that says what is folded.
pub(super) fn folded(mark: &Mark) -> Mark {
    let lanes = mark.lanes().filter(|(lane, _)| lane.partition().is_some());
    lanes.map(|(lane, number)| (lane.clone(), number)).collect()
}

/// Returns the parked streams of a projection, each with its first and last parked position.
pub(super) async fn parked_ranges(
    store: &impl Documents,
    projection: &Collection,
) -> Result<BTreeMap<String, (Position, Position)>> {
    let rows = store.parked(&projection.streams(), None, usize::MAX).await?;
    let rows = rows.into_iter().filter_map(|row| Some((row.id.to_string(), row.header.parked?)));
    Ok(rows
        .map(|(stream, parked)| (stream, (parked.position, parked.through.position(parked.partition))))
        .collect())
}

pub(super) async fn parked_streams(store: &impl Documents, projection: &Collection) -> Result<ParkedStreams> {
    if projection.base().as_str() != BY_CONTENT {
        return Ok(ParkedStreams::new());
    }
    let rows = parked_ranges(store, projection).await?;
    Ok(rows.into_iter().map(|(stream, (from, _))| (stream, from)).collect())
}
