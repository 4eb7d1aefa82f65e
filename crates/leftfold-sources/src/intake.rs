//! Ingestion in which an event that the store can't accept blocks no other.

use leftfold::sequence::Refusal;
use leftfold::{Delivery, Error, IngestAnswer, Invalid, Kind, Policy, Sequencer, Sequences};

/// Ingests deliveries. Returns the answer for each, and an error if some have none.
pub(crate) async fn ingest<S: Sequences + Clone>(
    sequencer: &Sequencer<S>,
    policy: Policy,
    deliveries: Vec<Delivery>,
) -> (Vec<Option<IngestAnswer>>, Option<Error>) {
    let mut answers = vec![None; deliveries.len()];
    let mut parts = vec![(0, deliveries)];
    while let Some((first, mut part)) = parts.pop() {
        match sequencer.ingest(policy, part.clone()).await {
            Ok(answered) => {
                for (number, answer) in answered.into_iter().enumerate() {
                    answers[first + number] = Some(answer);
                }
            }
            Err(error) if error.kind() == Kind::Invalid && part.len() > 1 => {
                let half = part.len() / 2;
                let rest = part.split_off(half);
                parts.extend([(first + half, rest), (first, part)]);
            }
            Err(error) if error.kind() == Kind::Invalid => {
                let id = part.first().map_or("", |delivery| delivery.entry.id.as_str());
                let invalid = Invalid::new("event", id, format!("an event that the store accepts: {error}"));
                answers[first] = Some(IngestAnswer::Refused(Refusal::Invalid(invalid)));
            }
            Err(error) => return (answers, Some(error)),
        }
    }
    (answers, None)
}
