//! Examines everything, and passes it to the judge. The only decision here: a failed check does not
//! hide the other findings.

use std::collections::BTreeSet;
use std::time::Duration;

use jiff::Timestamp;
use tokio::time::sleep;

use super::finding::{Area, Finding};
use super::{Examine, judge};
use crate::documents::{Checkpoint, Claim, Collection, Documents};
use crate::env::{Env, event_id};
use crate::error::Result;
use crate::event::{Partition, Position};
use crate::fold::Activity;
use crate::inspect::ProjectionStatus;
use crate::log::Limit;
use crate::react::{DocumentSource, ReactionStore, place_name};
use crate::sequence::{Sequencer, Sequences};
use crate::store::Store;

/// Examines the store, the deliveries that wait before its log, and the clocks of the writers.
pub(crate) async fn look_over<S: Store + Sequences + Examine>(
    store: &S,
    env: &dyn Env,
) -> Result<Vec<Finding>> {
    let mut findings =
        vec![Finding::fine(Area::Versions, "Leftfold", concat!("version ", env!("CARGO_PKG_VERSION")))];
    findings.extend(store.examine().await?);
    match newest(store).await {
        Ok(newest) => findings.push(judge::newest(newest, env.now())),
        Err(error) => findings.push(Finding::failed(Area::Store, "the log", &error)),
    }
    match Sequencer::new(store.clone()).status().await {
        Ok(status) => findings.extend(judge::sequence(&status, env.now())),
        Err(error) => findings.push(Finding::failed(Area::Sequence, "held events", &error)),
    }
    Ok(findings)
}

/// Returns the latest time among the last events of all partitions.
async fn newest<S: Store>(store: &S) -> Result<Option<Timestamp>> {
    let heads = store.heads().await?;
    let mut newest = None;
    for partition in (0..store.partitions()).map(Partition) {
        let head = heads.get(&partition.into());
        if head > 0 {
            let limit = Limit { events: 1, ..Limit::default() };
            let page = store.read(partition, Position(head - 1), limit).await?;
            newest = newest.max(page.events.last().map(|event| event.time));
        }
    }
    Ok(newest)
}

/// Examines a projection, or reports that it has never run on the store.
pub(crate) async fn look_at<S: Store>(
    store: &S,
    env: &dyn Env,
    name: &Collection,
    status: impl AsyncFnOnce() -> Result<ProjectionStatus>,
) -> Vec<Finding> {
    let look = async {
        let generations = store.generations(name).await?;
        if generations.revision == 0 && store.checkpoint(name).await? == Checkpoint::default() {
            return Ok(vec![judge::never_run(name.as_str())]);
        }
        let status = status().await?;
        let mut hands = hands(store, env, name, &status).await?;
        if hands == judge::Hands::Somebody && status.lag > 0 && is_still(store, name, &status).await? {
            hands = judge::Hands::Stuck;
        }
        let building = match &status.generations.building {
            Some(building) => Some(claimed(store, env, &name.generation(building.number)).await?),
            None => None,
        };
        let mut findings = judge::projection(&status, hands, building);
        findings.extend(damaged(store, name).await?);
        Ok(findings)
    };
    let looked: Result<Vec<Finding>> = look.await;
    looked.unwrap_or_else(|error| vec![Finding::failed(Area::Projections, name.as_str(), &error)])
}

/// Looks for unreadable documents among the first of a collection: examining all would take as long
/// as verifying.
async fn damaged<S: Store>(store: &S, name: &Collection) -> Result<Option<Finding>> {
    const LOOKED_AT: usize = 1_000;
    const BYTES: usize = 8 << 20;
    let (records, _) = store.scan_page(name, None, LOOKED_AT, BYTES).await?;
    let damaged = records.iter().filter_map(|record| Some((&record.id, record.body.as_ref()?.damage()?)));
    Ok(judge::damaged(name.as_str(), damaged))
}

async fn hands<S: Store>(
    store: &S,
    env: &dyn Env,
    name: &Collection,
    status: &ProjectionStatus,
) -> Result<judge::Hands> {
    match status.activity {
        Activity::Failing => Ok(judge::Hands::Failing),
        Activity::CatchingUp | Activity::Live => Ok(judge::Hands::Somebody),
        // If there is nothing to do, no worker needs to be active.
        _ if status.lag == 0 && status.generations.switching.is_none() => Ok(judge::Hands::Nobody),
        Activity::Stopped | Activity::Standby => claimed(store, env, name).await,
    }
}

/// Returns whether a projection makes no progress although it has events to fold.
async fn is_still<S: Store>(store: &S, name: &Collection, status: &ProjectionStatus) -> Result<bool> {
    const LOOKS: u32 = 15;
    const PAUSE: Duration = Duration::from_millis(200);
    for _ in 0..LOOKS {
        sleep(PAUSE).await;
        if store.checkpoint(name).await?.mark != status.position {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Returns whether a worker has the lease of a projection. Claims it with zero length, and releases
/// it.
async fn claimed<S: Documents>(store: &S, env: &dyn Env, name: &Collection) -> Result<judge::Hands> {
    let owner = format!("doctor {}", event_id(env));
    match store.claim(name, &owner, Duration::ZERO).await? {
        Claim::Theirs { .. } => Ok(judge::Hands::Somebody),
        Claim::Ours => {
            store.release(name, &owner).await?;
            Ok(judge::Hands::Nobody)
        }
    }
}

/// Judges all reactions whose tasks a store keeps. For stores, as a part of [`Examine::examine`].
pub async fn reactions<S: ReactionStore>(store: &S) -> Vec<Finding> {
    let look = async {
        let registered = store.registered().await?;
        if registered.is_empty() {
            return Ok(Vec::new());
        }
        let (now, depths) = (store.time().await?, store.task_depths().await?);
        let of = |name: &String| depths.get(name).cloned().unwrap_or_default();
        let mut findings: Vec<_> =
            registered.iter().flat_map(|one| judge::reaction(one, &of(&one.name), now)).collect();
        let sources: BTreeSet<_> = registered.iter().filter_map(|one| one.on.as_ref()).collect();
        for on in sources {
            if Box::pin(is_unplanned(store, on)).await? {
                findings.push(judge::unplanned(on));
            }
        }
        Ok(findings)
    };
    let looked: Result<Vec<Finding>> = look.await;
    looked.unwrap_or_else(|error| vec![Finding::failed(Area::Reactions, "tasks", &error)])
}

/// Returns whether documents have changed and nobody plans tasks for them: their feed makes no
/// progress.
async fn is_unplanned<S: ReactionStore>(store: &S, on: &DocumentSource) -> Result<bool> {
    const LOOKS: u32 = 15;
    const PAUSE: Duration = Duration::from_millis(200);
    let name = place_name(on);
    // Without a place the documents were never followed: reactions are registered before they
    // start.
    let Some(place) = store.feed_place(&name).await? else { return Ok(false) };
    if !store.has_changes(vec![on.clone()], place.clone()).await? {
        return Ok(false);
    }
    for _ in 0..LOOKS {
        sleep(PAUSE).await;
        if store.feed_place(&name).await?.as_ref() != Some(&place) {
            return Ok(false);
        }
    }
    Ok(true)
}
