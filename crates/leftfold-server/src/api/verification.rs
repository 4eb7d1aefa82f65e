//! Verification of stored documents against the log.

use axum::extract::State;
use leftfold::inspect::{Differing, Sample, Verified};
use serde::{Deserialize, Serialize};

use super::extract::{Named, Params, known};
use super::{Answer, Operation, json_of};
use crate::access::Scope;
use crate::problem::Problem;
use crate::{Backend, Shared};

/// The maximum number of differing documents to show.
pub(super) const MAX_SHOWN: usize = 10;
/// The maximum number of documents that one request verifies.
const MAX_SAMPLE: usize = 10_000;

pub(super) fn operations<S: Backend>() -> Vec<Operation<S>> {
    vec![
        Operation::get(
            "/collections/{collection}/verification",
            "verifyCollection",
            "Fold documents from the log, and compare them with the stored ones",
            verify::<S>,
        )
        .scope(Scope::Operate)
        .query("sample", "The number of random documents: 100 by default, at most 10000", "integer"),
    ]
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Verify {
    sample: Option<usize>,
}

#[derive(Serialize)]
struct Verification {
    collection: String,
    verified: Verified,
    /// Some of the documents that differ.
    differing: Vec<Differing>,
}

async fn verify<S: Backend>(
    State(shared): State<Shared<S>>,
    Named(collection): Named<String>,
    Params(params): Params<Verify>,
) -> Answer {
    known(&shared, &collection)?;
    let sample = params.sample.unwrap_or(100);
    if !(1..=MAX_SAMPLE).contains(&sample) {
        return Err(Problem::invalid(format!(
            "sample: expected 1 to {MAX_SAMPLE}, not {sample}; `leftfold verify` checks all documents"
        )));
    }
    let mut differing = Vec::new();
    let record = |one: Differing| {
        if differing.len() < MAX_SHOWN {
            differing.push(one);
        }
    };
    let verified = shared.app.verify(&collection, Sample::Some(sample), record).await?;
    json_of(&Verification { collection, verified, differing })
}
