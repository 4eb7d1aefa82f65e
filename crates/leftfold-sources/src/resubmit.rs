//! A second chance for a message that was rejected.

use leftfold::sequence::{Refusal, Rejected};
use leftfold::{Answer, Invalid, Policy, Result, Sequencer, Sequences};

use crate::mapping::Mapping;
use crate::message::Message;

/// What became of a message that was submitted again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Resubmitted {
    /// No message with this id is rejected; somebody else may have submitted it meanwhile.
    NotThere,
    /// It still can't be accepted, and stays where it is.
    StillRejected(Invalid),
    /// It was brought into the log, or what the answer says. It is no longer among the rejected, unless there is no room for it yet
    /// ([`Answer::is_final`]).
    Answered(Answer),
}

/// Maps a rejected message again, by what is perhaps another mapping by now, and ingests it.
///
/// Done twice, or by two at once, it is harmless: the second one finds a duplicate, or nothing.
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
        Some(Answer::Refused(Refusal::Invalid(invalid))) => Ok(Resubmitted::StillRejected(invalid)),
        Some(answer) => {
            if answer.is_final() {
                sequencer.store().forget(rejected).await?;
            }
            Ok(Resubmitted::Answered(answer))
        }
        None => Ok(Resubmitted::NotThere),
    }
}

/// Looks for a rejected message. Ids are all of the same length, so that those between an id without its last letter and the id itself
/// are few.
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
