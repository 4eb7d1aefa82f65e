//! Resubmission of rejected messages.

use leftfold::sequence::{Refusal, Rejected};
use leftfold::{IngestAnswer, Invalid, Policy, Result, Sequencer, Sequences};

use crate::mapping::Mapping;
use crate::message::Message;

/// The outcome of a resubmission.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Resubmitted {
    /// No rejected message has this id; another caller may have resubmitted it.
    NotThere,
    /// The message still can't be accepted, and stays rejected.
    StillRejected(Invalid),
    /// The message was ingested with this answer. It is no longer rejected, unless there is no room
    /// for it yet ([`IngestAnswer::is_final`]).
    Answered(IngestAnswer),
}

/// Maps a rejected message again, perhaps with another mapping, and ingests it.
///
/// Repeated or concurrent calls are harmless: the second one finds a duplicate, or nothing.
pub async fn resubmit<S: Sequences + Clone>(
    sequencer: &Sequencer<S>,
    rejected: &str,
    mapping: &Mapping,
    policy: Policy,
) -> Result<Resubmitted> {
    let Some(Rejected { content, attributes, since, .. }) = find(sequencer.store(), rejected).await? else {
        return Ok(Resubmitted::NotThere);
    };
    let delivery = match mapping.map(&Message { content, attributes }, since) {
        Ok(delivery) => delivery,
        Err(invalid) => return Ok(Resubmitted::StillRejected(invalid)),
    };
    let answers = sequencer.ingest(policy, vec![delivery]).await?;
    match answers.into_iter().next() {
        Some(IngestAnswer::Refused(Refusal::Invalid(invalid))) => Ok(Resubmitted::StillRejected(invalid)),
        Some(answer) => {
            if answer.is_final() {
                sequencer.store().forget(rejected).await?;
            }
            Ok(Resubmitted::Answered(answer))
        }
        None => Ok(Resubmitted::NotThere),
    }
}

/// Finds a rejected message. All ids have the same length, so few of them lie between the id
/// without its last letter and the id itself.
async fn find(store: &impl Sequences, id: &str) -> Result<Option<Rejected>> {
    let mut after = Some(id.get(..id.len().saturating_sub(1)).unwrap_or_default().to_owned());
    loop {
        let page = store.rejected(after, 32).await?;
        let last = page.last().map(Rejected::id);
        if let Some(found) = page.into_iter().find(|rejected| rejected.id() == id) {
            return Ok(Some(found));
        }
        match last {
            Some(last) if last.as_str() < id => after = Some(last),
            _ => return Ok(None),
        }
    }
}
