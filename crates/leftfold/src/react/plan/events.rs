//! Reactions to events: the planner follows the log. Each stream with wanted events has a task that
//! handles them one after the other.

use std::collections::BTreeMap;
use std::sync::Arc;

use tokio::time::{sleep, timeout};

use super::lease::{LEASE, RENEW};
use crate::error::{Error, Kind, Result};
use crate::event::{DocumentId, Event, Partition};
use crate::json::Json;
use crate::log::Limit;
use crate::mark::Mark;
use crate::mutant;
use crate::react::define::{Definition, Wanted};
use crate::react::reactor::Shared;
use crate::react::store::{ReactionStore, TaskChange};
use crate::react::task::{Task, TaskKey};

/// The maximum size of a page of the log.
const PAGE: Limit = Limit { events: 1_000, bytes: 4 << 20 };

/// Follows the log for one reaction while this process has the lease, and stands by otherwise.
pub(crate) async fn follow_events<S: ReactionStore>(shared: Arc<Shared<S>>, definition: Arc<Definition>) {
    let name = place_name(&definition);
    let (shared, definition, name) = (&*shared, &*definition, &name);
    shared.while_leading(name, move |number| lead(shared, definition, name, number)).await;
}

/// Stores the position from which a reaction handles events, unless it is stored already. That
/// happens before the start completes, so that no later event is missed.
pub(crate) async fn begin_events<S: ReactionStore>(
    shared: &Shared<S>,
    definition: &Definition,
) -> Result<()> {
    mutant!(BeginLater => return Ok(()));
    let Some(wanted) = &definition.events else { return Ok(()) };
    let (store, name) = (&shared.store, place_name(definition));
    while store.feed_place(&name).await?.is_none() {
        let Some(number) = store.take_lease(&name, &shared.owner, LEASE).await? else {
            // The owner of the lease is about to store it.
            sleep(LEASE / 20).await;
            continue;
        };
        let mark = place(store, &name, wanted).await?;
        store_place(store, &name, number, &mark).await?;
    }
    Ok(())
}

/// Returns the place from which to continue in the log, or at which to begin.
async fn place<S: ReactionStore>(store: &S, name: &str, wanted: &Wanted) -> Result<Mark> {
    match store.feed_place(name).await? {
        Some(place) => decode(name, &place),
        None if wanted.from_start => Ok(Mark::default()),
        None => store.heads().await,
    }
}

/// Plans until the lease is lost.
async fn lead<S: ReactionStore>(
    shared: &Shared<S>,
    definition: &Definition,
    name: &str,
    number: u64,
) -> Result<()> {
    let Some(wanted) = &definition.events else { return Ok(()) };
    let store = &shared.store;
    let mut mark = place(store, name, wanted).await?;
    if !store_place(store, name, number, &mark).await? {
        return Ok(());
    }
    while !shared.is_stopping() {
        if store.take_lease(name, &shared.owner, LEASE).await? != Some(number) {
            return Ok(());
        }
        let before = mark.clone();
        for partition in (0..store.partitions()).map(Partition) {
            let page = store.read(partition, mark.position(partition), PAGE).await?;
            let mut after = mark.clone();
            after.advance(&partition.into(), page.through.0);
            mutant!(EventPlaceFirst => store_place(store, name, number, &after).await?);
            plan(shared, definition, wanted, &page.events).await?;
            mark = after;
        }
        if mark != before {
            if !store_place(store, name, number, &mark).await? {
                return Ok(());
            }
            continue;
        }
        tokio::select! { biased;
            () = shared.stopping() => return Ok(()),
            grown = timeout(RENEW, store.grown(&mark)) => grown.unwrap_or(Ok(()))?,
        }
    }
    Ok(())
}

fn decode(name: &str, place: &str) -> Result<Mark> {
    serde_json::from_str(place).map_err(|error| {
        let message = format!(
            "reading the place of {name}: {place:?} is damaged, or of a newer version; upgrade leftfold"
        );
        Error::new(Kind::Format, message).with_source(error)
    })
}

/// Stores the place in the log. Returns whether this process still has the lease.
async fn store_place<S: ReactionStore>(store: &S, name: &str, number: u64, mark: &Mark) -> Result<bool> {
    let place = Json::of(mark)?;
    store.put_feed_place(name, number, Some(place.as_str().to_owned())).await
}

/// Records in the tasks of streams which events must be handled.
async fn plan<S: ReactionStore>(
    shared: &Shared<S>,
    definition: &Definition,
    wanted: &Wanted,
    events: &[Event],
) -> Result<()> {
    let mut streams: BTreeMap<DocumentId, (u64, u64)> = BTreeMap::new();
    for event in events.iter().filter(|event| wanted.kinds.contains(&event.kind)) {
        let revision = event.revision.0;
        streams.entry(DocumentId::from(&event.stream)).or_insert((revision, revision)).1 = revision;
    }
    if streams.is_empty() {
        return Ok(());
    }
    let mut pauses = shared.pauses();
    while !streams.is_empty() {
        let key =
            |document: &DocumentId| TaskKey { reaction: definition.name.clone(), document: document.clone() };
        let tasks = shared.store.load_tasks(streams.keys().map(key).collect()).await?;
        let mut tasks: BTreeMap<_, _> =
            tasks.into_iter().map(|task| (task.key.document.clone(), task)).collect();
        let mut changes = Vec::new();
        for (document, found) in &streams {
            let task = tasks.remove(document);
            let seen = task.as_ref().map(|task| task.version);
            let after =
                Task::observe_events(task, &key(document), *found, &definition.rules, shared.moment());
            changes.extend(after.map(|after| TaskChange::write(seen, after)));
        }
        let planned = changes.len() as u64;
        let refused = shared.store.save_tasks(changes).await?;
        shared.count(|counts| counts.planned += planned - refused.len() as u64);
        streams.retain(|document, _| refused.iter().any(|key| key.document == *document));
        if !streams.is_empty() {
            sleep(pauses.next().unwrap_or_default()).await;
        }
    }
    shared.wake().await
}

/// Returns whether all events so far are planned.
pub(crate) async fn is_caught_up<S: ReactionStore>(store: &S, definition: &Definition) -> Result<bool> {
    let name = place_name(definition);
    let Some(place) = store.feed_place(&name).await? else { return Ok(false) };
    let (mark, heads) = (decode(&name, &place)?, store.heads().await?);
    let is_planned = |partition| mark.position(partition) >= heads.position(partition);
    Ok((0..store.partitions()).map(Partition).all(is_planned))
}

/// Returns the name under which the lease and the place of a reaction are stored.
fn place_name(definition: &Definition) -> String {
    format!("events for {}", definition.name)
}
