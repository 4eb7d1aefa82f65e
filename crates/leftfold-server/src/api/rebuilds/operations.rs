//! Rebuilds of documents beside the live ones, and verification of stored documents against the
//! log.
//!
//! A rebuild can take long, so no request waits for it. One request starts it, it runs in this
//! process, and other requests return its progress. If this process ends, the same request resumes
//! the rebuild.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use axum::extract::State;
use axum::http::StatusCode;
use leftfold::inspect::{Differing, Sample};
use leftfold::rebuild::{Difference, Progress, Rebuild};
use serde::{Deserialize, Serialize};
use serde_json::json;
use tokio::time::interval;

use super::super::audit::{Actor, REASON, Reason, reason};
use super::super::documents::known;
use super::super::extract::{Content, Named, Params};
use super::super::{Answer, Operation, json_of, with_status};
use crate::access::Scope;
use crate::problem::Problem;
use crate::{Backend, Shared};

/// The interval at which the progress of a rebuild is recorded.
const TICK: Duration = Duration::from_millis(250);
/// The maximum number of differing documents to show.
const SHOWN: usize = 10;
/// The maximum number of documents that one request verifies.
const MOST: usize = 10_000;

/// The rebuilds that this process has begun, by collection.
#[derive(Default)]
pub(crate) struct Rebuilds(Mutex<BTreeMap<String, Known>>);

/// The state of a rebuild.
#[derive(Clone, Default, Serialize)]
struct Known {
    state: Stage,
    generation: u32,
    progress: Option<Progress>,
    difference: Option<Difference>,
    error: Option<String>,
    /// `true` if readers are switched to it as soon as it is built.
    #[serde(skip)]
    switch: bool,
    /// The operator who began it, and the reason.
    #[serde(skip)]
    order: Option<(Actor, Option<String>)>,
    /// Locked by the task that works on the rebuild.
    #[serde(skip)]
    turn: Arc<tokio::sync::Mutex<()>>,
}

#[derive(Clone, Copy, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
enum Stage {
    /// The rebuild is in progress.
    #[default]
    Building,
    /// The rebuild is built and compared. Another request switches to it or cancels it.
    Built,
    /// Readers see the rebuilt documents.
    Switched,
    /// The rebuild failed.
    Failed,
}

impl Rebuilds {
    /// Records the start of a rebuild, and returns the state of the last one. Fails if one is in
    /// progress.
    fn begin(
        &self,
        collection: &str,
        switch: bool,
        order: (Actor, Option<String>),
    ) -> Result<Option<Known>, Problem> {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if all.get(collection).is_some_and(|known| known.state == Stage::Building) {
            return Err(Problem::conflict(format!("{collection} is being rebuilt; ask how far it is")));
        }
        let order = Some(order);
        Ok(all.insert(collection.to_owned(), Known { switch, order, ..Known::default() }))
    }

    /// Returns the rebuilds in progress.
    fn under_way(&self) -> Vec<(String, Known)> {
        let all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let under_way = all.iter().filter(|(_, known)| known.state == Stage::Building);
        under_way.map(|(collection, known)| (collection.clone(), known.clone())).collect()
    }

    /// Restores the state of the last rebuild, because the new one could not start.
    fn put_back(&self, collection: &str, last: Option<Known>) {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        match last {
            Some(last) => all.insert(collection.to_owned(), last),
            None => all.remove(collection),
        };
    }

    fn change(&self, collection: &str, change: impl FnOnce(&mut Known)) {
        if let Some(known) = self.0.lock().unwrap_or_else(PoisonError::into_inner).get_mut(collection) {
            change(known);
        }
    }

    /// Records the end of a rebuild.
    fn end(&self, collection: &str, ended: leftfold::Result<Stage>) {
        self.change(collection, |known| match ended {
            Ok(state) => known.state = state,
            Err(error) => {
                tracing::warn!(%collection, %error, "a rebuild failed");
                (known.state, known.error) = (Stage::Failed, Some(error.to_string()));
            }
        });
    }

    fn get(&self, collection: &str) -> Option<Known> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).get(collection).cloned()
    }
}

pub(in super::super) fn operations<S: Backend>() -> Vec<Operation<S>> {
    let how = json!({
        "type": "object", "additionalProperties": false,
        "properties": {
            "switch": { "type": "boolean", "description": "Switch when it is built; true by default" },
            "reason": { "type": "string", "description": REASON },
        },
    });
    vec![
        Operation::post(
            "/collections/{collection}/rebuild",
            "rebuildCollection",
            "Start or resume a rebuild of all documents beside the live ones, and switch to them",
            begin::<S>,
        )
        .scope(Scope::Operate)
        .once()
        .optional_body("application/json", how)
        .answers(202, "application/json", "The rebuild has started; GET returns its progress")
        .fails(409, "A rebuild or a switch is in progress"),
        Operation::get(
            "/collections/{collection}/rebuild",
            "getRebuild",
            "Show the progress of a rebuild, and the documents that it changes",
            get::<S>,
        )
        .scope(Scope::Operate)
        .fails(404, "This process has started no rebuild of the collection"),
        Operation::post(
            "/collections/{collection}/rebuild/cancel",
            "cancelRebuild",
            "Cancel the rebuild in progress, also one of another process",
            cancel::<S>,
        )
        .scope(Scope::Operate)
        .once()
        .optional_body("application/json", reason()),
        Operation::post(
            "/collections/{collection}/undo",
            "undoRebuild",
            "Switch back to the documents from before the last rebuild",
            undo::<S>,
        )
        .scope(Scope::Operate)
        .strictly_once()
        .optional_body("application/json", reason()),
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
#[serde(default, deny_unknown_fields)]
struct How {
    switch: bool,
    reason: Option<String>,
}

impl Default for How {
    fn default() -> Self {
        Self { switch: true, reason: None }
    }
}

async fn begin<S: Backend>(
    State(shared): State<Shared<S>>,
    actor: Actor,
    Named(collection): Named<String>,
    content: Content,
) -> Answer {
    known(&shared, &collection)?;
    let How { switch, reason } = content.json_or_default()?;
    let last = shared.rebuilds.begin(&collection, switch, (actor.clone(), reason.clone()))?;
    // Use a separate task: the client may disconnect.
    let begun = tokio::spawn(async move {
        let rebuild = match shared.app.rebuild(&collection).await {
            Ok(rebuild) => rebuild,
            Err(error) => {
                shared.rebuilds.put_back(&collection, last);
                return Err(error);
            }
        };
        let generation = rebuild.generation();
        shared.rebuilds.change(&collection, |known| known.generation = generation);
        let outcome = format!("generation {generation} is begun");
        actor.did(&shared, "rebuild", &collection, reason.as_deref(), &outcome).await;
        let answer = json!({ "collection": collection, "generation": generation, "state": Stage::Building });
        tokio::spawn(work(shared, collection, rebuild, switch));
        Ok(answer)
    });
    let answer = begun.await.map_err(|error| Problem::failed(format!("beginning a rebuild: {error}")))??;
    Ok(with_status(json_of(&answer)?, StatusCode::ACCEPTED))
}

/// Resumes the rebuilds of a replaced service, once that service has left them.
pub(crate) fn take_up<S: Backend>(shared: &Shared<S>) {
    for (collection, Known { switch, turn, .. }) in shared.rebuilds.under_way() {
        let shared = Arc::clone(shared);
        tokio::spawn(async move {
            drop(turn.lock().await);
            // It may have ended in the meantime.
            if shared.rebuilds.get(&collection).is_none_or(|known| known.state != Stage::Building) {
                return;
            }
            match shared.app.rebuild(&collection).await {
                Ok(rebuild) => work(shared, collection, rebuild, switch).await,
                Err(error) => shared.rebuilds.end(&collection, Err(error)),
            }
        });
    }
}

/// Builds it, compares it and switches to it.
async fn work<S: Backend>(shared: Shared<S>, collection: String, rebuild: Rebuild<S>, switch: bool) {
    let Known { turn, order, .. } = shared.rebuilds.get(&collection).unwrap_or_default();
    let _turn = turn.lock().await;
    let built = tokio::select! {
        () = shared.stopping() => return rebuild.leave().await,
        built = build(&shared, &collection, &rebuild) => built,
    };
    let generation = rebuild.generation();
    let ended = match built {
        Ok(()) if switch => rebuild.switch().await.map(|()| Stage::Switched),
        built => {
            rebuild.leave().await;
            built.map(|()| Stage::Built)
        }
    };
    if let (Ok(Stage::Switched), Some((actor, reason))) = (&ended, order) {
        let outcome = format!("switched to generation {generation}");
        actor.did(&shared, "switch", &collection, reason.as_deref(), &outcome).await;
    }
    shared.rebuilds.end(&collection, ended);
}

async fn build<S: Backend>(
    shared: &Shared<S>,
    collection: &str,
    rebuild: &Rebuild<S>,
) -> leftfold::Result<()> {
    let (mut built, mut tick) = (std::pin::pin!(rebuild.built()), interval(TICK));
    loop {
        tokio::select! {
            built = &mut built => break built?,
            _ = tick.tick() => {
                let progress = rebuild.progress().await?;
                shared.rebuilds.change(collection, |known| known.progress = Some(progress));
            }
        }
    }
    let (progress, difference) = (rebuild.progress().await?, rebuild.difference(SHOWN).await?);
    shared.rebuilds.change(collection, |known| {
        (known.progress, known.difference) = (Some(progress), Some(difference));
    });
    Ok(())
}

async fn get<S: Backend>(State(shared): State<Shared<S>>, Named(collection): Named<String>) -> Answer {
    known(&shared, &collection)?;
    match shared.rebuilds.get(&collection) {
        Some(known) => json_of(&known),
        None => Err(Problem::missing(format!(
            "no rebuild of {collection} was begun by this process; see /status"
        ))),
    }
}

async fn cancel<S: Backend>(
    State(shared): State<Shared<S>>,
    actor: Actor,
    Named(collection): Named<String>,
    Reason(reason): Reason,
) -> Answer {
    known(&shared, &collection)?;
    let cancelled = shared.app.cancel_rebuild(&collection).await?;
    if cancelled {
        actor.did(&shared, "cancel-rebuild", &collection, reason.as_deref(), "given up").await;
    }
    json_of(&json!({ "collection": collection, "cancelled": cancelled }))
}

async fn undo<S: Backend>(
    State(shared): State<Shared<S>>,
    actor: Actor,
    Named(collection): Named<String>,
    Reason(reason): Reason,
) -> Answer {
    known(&shared, &collection)?;
    shared.app.undo(&collection).await?;
    actor.did(&shared, "undo", &collection, reason.as_deref(), "switched back").await;
    json_of(&json!({ "collection": collection, "undone": true }))
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Verify {
    sample: Option<usize>,
}

#[derive(Serialize)]
struct Verification {
    collection: String,
    verified: leftfold::inspect::Verified,
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
    if !(1..=MOST).contains(&sample) {
        return Err(Problem::invalid(format!(
            "sample: {sample} is not from 1 to {MOST}; `leftfold verify` looks at all"
        )));
    }
    let mut differing = Vec::new();
    let tell = |one: Differing| {
        if differing.len() < SHOWN {
            differing.push(one);
        }
    };
    let verified = shared.app.verify(&collection, Sample::Some(sample), tell).await?;
    json_of(&Verification { collection, verified, differing })
}
