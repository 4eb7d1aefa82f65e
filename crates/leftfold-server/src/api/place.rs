//! A place in the log, as clients name it.

use std::fmt;

use leftfold::log::Limit;
use leftfold::{Event, Lane, Mark, Partition, Position};

use crate::problem::Problem;
use crate::{Backend, Shared};

/// A place in the log: the position in each partition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Place(Vec<u64>);

impl Place {
    /// Parses the place that a client sent.
    pub(super) async fn named<S: Backend>(text: Option<&str>, shared: &Shared<S>) -> Result<Self, Problem> {
        let store = shared.app.store();
        let partitions = usize::from(store.partitions());
        match text {
            None => Ok(Self(vec![0; partitions])),
            Some("end") => {
                let heads = store.heads().await?;
                Ok(Self(
                    (0..store.partitions()).map(|partition| heads.position(Partition(partition)).0).collect(),
                ))
            }
            Some(text) => {
                let positions: Result<Vec<u64>, _> = text.split('-').map(str::parse).collect();
                match positions {
                    Ok(positions) if positions.len() == partitions => Ok(Self(positions)),
                    _ => Err(Problem::invalid(format!(
                        "{text:?} is not a place in this log; use one from an earlier response"
                    ))),
                }
            }
        }
    }

    /// Returns the next events, and whether more are available at once.
    pub(super) async fn read<S: Backend>(
        &mut self,
        shared: &Shared<S>,
        limit: Limit,
    ) -> Result<(Vec<Event>, bool), Problem> {
        let (mut events, mut more, mut left) = (Vec::new(), false, limit);
        for (partition, at) in (0..).zip(&mut self.0) {
            if left.events == 0 || left.bytes == 0 {
                more = true;
                break;
            }
            let page = shared.app.store().read(Partition(partition), Position(*at), left).await?;
            *at = page.through.0;
            more |= page.more;
            left.events -= page.events.len().min(left.events);
            left.bytes = left.bytes.saturating_sub(page.events.iter().map(bytes).sum());
            events.extend(page.events);
        }
        Ok((events, more))
    }

    /// Advances to a position of a partition.
    pub(super) fn pass(&mut self, partition: Partition, position: Position) {
        if let Some(at) = self.0.get_mut(usize::from(partition.0)) {
            *at = position.0;
        }
    }

    /// Returns the place as text. `part` is a partition, and the number of documents of its next
    /// event that were sent already.
    pub(super) fn with_part(&self, part: Option<(usize, usize)>) -> String {
        let positions = self.0.iter().enumerate().map(|(partition, position)| match part {
            Some((one, documents)) if one == partition => format!("{position}+{documents}"),
            _ => position.to_string(),
        });
        positions.collect::<Vec<_>>().join("-")
    }

    /// Returns the place as a mark.
    pub(super) fn mark(&self) -> Mark {
        (0..)
            .zip(&self.0)
            .map(|(partition, position)| (Lane::from(Partition(partition)), *position))
            .collect()
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.with_part(None))
    }
}

/// Returns the size of an event as limits count it.
fn bytes(event: &Event) -> usize {
    event.data.as_str().len() + event.metadata.as_ref().map_or(0, |metadata| metadata.as_str().len())
}
