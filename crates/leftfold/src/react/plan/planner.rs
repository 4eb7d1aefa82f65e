//! Planning: turns changed documents into tasks.
//!
//! The planner reads the task first and the document afterwards. The store writes the resulting
//! task only if nobody changed it since it was read. So several planners may work at the same time,
//! and a planner may stall. The lease of a collection only avoids double work; its number guards
//! the place of the feed.
//!
//! A planner that follows a collection may not know all its reactions, or may have another version
//! of them. For those it marks the task as to be checked, and a process that knows the reaction
//! checks it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, sleep};

use crate::backoff::Backoff;
use crate::error::{Error, Kind, Result};
use crate::event::DocumentId;
use crate::mutant;
use crate::react::define::Every;
use crate::react::define::{Cleanup, Definition};
use crate::react::reactor::shared::Shared;
use crate::react::run::loader::BYTES;
use crate::react::store::{
    Comparing, DocumentFeed as _, DocumentSource, FeedItem, FoundDocument, FoundDocuments, Query,
    ReactionStore, Registered, TaskChange,
};
use crate::react::task::{Observation, State, Task, TaskKey};

/// The length of a collection's lease after its last renewal.
pub(crate) const LEASE: Duration = Duration::from_millis(3_500);
/// The age at which a lease is renewed: early enough for retries.
pub(crate) const RENEW: Duration = Duration::from_millis(2_250);
/// The document id of tasks that have no document.
const TIMED: &str = "time";
/// The maximum number of changes or documents that are processed at once.
const PIECE: usize = 500;
/// The interval at which the place of a feed is written although nothing has changed.
const NOTE_EVERY: Duration = Duration::from_secs(30);
/// The default interval between sweeps for tasks to delete.
pub(crate) const SWEEP_EVERY: Duration = Duration::from_mins(1);
/// The longest wait before the planner looks again for documents to check or compare.
const LOOK_EVERY: Duration = Duration::from_secs(15);

/// Follows the documents of one place while this process has the lease, and stands by otherwise.
pub(crate) async fn follow<S: ReactionStore>(shared: Arc<Shared<S>>, on: DocumentSource) {
    let name = place_name(&on);
    let (shared, on, name) = (&shared, &on, &name);
    let lead = move |number| async move {
        shared.falls_behind(on);
        tracing::info!(%on, number, "following changes");
        let led = Leader { shared, on, name, number }.lead().await;
        // A leader that failed continues soon, and counts as behind until then.
        if led.is_ok() {
            shared.follows_no_more(on);
        }
        led
    };
    shared.while_leading(name, lead).await;
}

impl<S: ReactionStore> Shared<S> {
    /// Runs `lead` while this process has the lease of this name, and stands by otherwise. Releases
    /// the lease at the end.
    pub(crate) async fn while_leading<L: Future<Output = Result<()>>>(
        &self,
        name: &str,
        lead: impl Fn(u64) -> L,
    ) {
        let mut pauses = self.pauses();
        // Writes of an earlier lead that got no answer may still arrive.
        let mut is_in_doubt = false;
        while !self.is_stopping() {
            let taken = async {
                if is_in_doubt {
                    // They have no effect under a new lease number.
                    self.store.give_lease(name, &self.owner).await?;
                }
                let number = self.store.take_lease(name, &self.owner, LEASE).await?;
                if number.is_some() {
                    // The previous leader may have died after it saved tasks and before it woke the
                    // runners.
                    self.wake().await?;
                }
                Ok(number)
            };
            let ended = match taken.await {
                Ok(Some(number)) => {
                    is_in_doubt = false;
                    lead(number).await
                }
                Ok(None) => {
                    is_in_doubt = false;
                    self.wait(LEASE / 4).await;
                    continue;
                }
                Err(error) => Err(error),
            };
            match ended {
                Ok(()) => pauses = self.pauses(),
                Err(error) => {
                    is_in_doubt = true;
                    mutant!(SameLease => is_in_doubt = false);
                    self.failed(&error, "following changes");
                    self.wait(pauses.next().unwrap_or(LEASE)).await;
                }
            }
        }
        if let Err(error) = self.store.give_lease(name, &self.owner).await {
            tracing::warn!(%error, name, "could not give a lease back; it ends by itself");
        }
    }
}

/// Returns the name under which the lease and the place of a feed are stored.
pub(crate) fn place_name(on: &DocumentSource) -> String {
    format!("feed of {on}")
}

struct Leader<'a, S> {
    shared: &'a Arc<Shared<S>>,
    on: &'a DocumentSource,
    name: &'a str,
    number: u64,
}

impl<S: ReactionStore> Leader<'_, S> {
    /// Plans until the lease is lost.
    async fn lead(self) -> Result<()> {
        let store = &self.shared.store;
        let mut place = store.feed_place(self.name).await?;
        let mut feed = store.follow(vec![self.on.clone()], place.clone()).await?;
        let (mut renewed, mut noted, mut swept) = (Instant::now(), Instant::now(), Instant::now());
        if place.is_none() {
            // Get the place before comparing, or changes during the comparison would be missed.
            let begin = self.first_place(&mut feed).await?;
            // Earlier changes are unknown, even if a place was stored once.
            self.compare_all().await?;
            if !self.note(&begin).await? {
                return Ok(());
            }
            place = Some(begin);
            self.shared.wake().await?;
        }
        // The feed may already have changes, as it may after a full batch.
        let mut is_more = true;
        while !self.shared.is_stopping() {
            if renewed.elapsed() >= RENEW {
                if store.take_lease(self.name, &self.shared.owner, LEASE).await? != Some(self.number) {
                    return Ok(());
                }
                renewed = Instant::now();
            }
            let patience = if is_more { Duration::ZERO } else { RENEW.saturating_sub(renewed.elapsed()) };
            let told = tokio::select! { biased;
                () = self.shared.stopping() => return Ok(()),
                told = feed.next(PIECE, patience) => told?,
            };
            let changes = match told {
                FeedItem::Changes(changes) => changes,
                FeedItem::Lost(why) => {
                    feed = store.follow(vec![self.on.clone()], None).await?;
                    let begin = self.first_place(&mut feed).await?;
                    self.compare_after_loss(&why).await?;
                    if !self.note(&begin).await? {
                        return Ok(());
                    }
                    place = Some(begin);
                    self.shared.wake().await?;
                    continue;
                }
            };
            let count: usize = changes.documents.values().map(BTreeSet::len).sum();
            let is_quiet = count == 0;
            if !is_quiet {
                self.shared.falls_behind(self.on);
                mutant!(PlaceFirst => self.note(&changes.through).await?);
            }
            for (on, ids) in changes.documents {
                self.shared.plan(&on, ids).await?;
            }
            let is_new = place.as_ref() != Some(&changes.through);
            if is_new && (!is_quiet || noted.elapsed() >= NOTE_EVERY) {
                if !self.note(&changes.through).await? {
                    return Ok(());
                }
                noted = Instant::now();
                place = Some(changes.through);
            }
            is_more = count >= PIECE;
            if !is_more {
                self.shared.keeps_up(self.on);
            }
            if swept.elapsed() >= self.shared.sweep_every {
                self.shared.sweep(self.on).await?;
                swept = Instant::now();
            }
        }
        Ok(())
    }

    async fn first_place(&self, feed: &mut S::Feed) -> Result<String> {
        match feed.next(PIECE, Duration::ZERO).await? {
            FeedItem::Changes(changes) => {
                for (on, ids) in changes.documents {
                    self.shared.plan(&on, ids).await?;
                }
                Ok(changes.through)
            }
            FeedItem::Lost(why) => {
                let message =
                    format!("following {}: changes are lost before they are heard of: {why}", self.on);
                Err(Error::new(Kind::Unavailable, message))
            }
        }
    }

    /// Stores the place of the feed. Returns whether this process still has the lease.
    async fn note(&self, place: &str) -> Result<bool> {
        self.shared.store.put_feed_place(self.name, self.number, Some(place.to_owned())).await
    }

    /// Makes all reactions compare their documents, because changes were lost.
    async fn compare_after_loss(&self, why: &str) -> Result<()> {
        tracing::warn!(on = %self.on, why, "changes were lost; all documents are compared");
        mutant!(LostIsNothing => return Ok(()));
        self.compare_all().await
    }

    /// Makes all reactions to these documents compare them.
    async fn compare_all(&self) -> Result<()> {
        for registered in self.shared.store.registered().await? {
            if registered.on.as_ref() == Some(self.on) {
                self.shared
                    .change(&registered.name, |registered| registered.comparing = Some(Comparing::ToBegin))
                    .await?;
            }
        }
        Ok(())
    }
}

/// Checks documents that are due, and compares all documents where that is needed, for the
/// reactions that this process knows.
pub(crate) async fn look_after<S: ReactionStore>(shared: Arc<Shared<S>>) {
    let mut pauses = shared.pauses();
    let mut stirs = u64::MAX;
    while !shared.is_stopping() {
        let looked = async {
            let registered = shared.refresh().await?;
            let next = shared.check().await?;
            Ok((shared.compare(registered).await?, next))
        };
        let wait = match looked.await {
            Ok((true, _)) => Duration::ZERO,
            Ok((false, next)) => {
                pauses = shared.pauses();
                next.unwrap_or(LOOK_EVERY).min(LOOK_EVERY)
            }
            Err(error) => {
                shared.failed(&error, "looking at documents");
                let pause = pauses.next().unwrap_or(LOOK_EVERY);
                sleep(pause).await;
                Duration::ZERO
            }
        };
        if wait.is_zero() {
            continue;
        }
        tokio::select! { biased;
            () = shared.stopping() => return,
            stirred = shared.store.woken(stirs, wait) => match stirred {
                Ok(number) => stirs = number,
                Err(error) => {
                    shared.failed(&error, "waiting for something to look at");
                    shared.wait(Duration::from_secs(1)).await;
                }
            },
        }
    }
}

impl<S: ReactionStore> Shared<S> {
    /// Plans tasks for documents that may have changed.
    pub(crate) async fn plan(&self, on: &DocumentSource, ids: BTreeSet<DocumentId>) -> Result<()> {
        let registered: Vec<_> =
            self.refresh().await?.into_iter().filter(|one| one.on.as_ref() == Some(on)).collect();
        let mut pairs: BTreeSet<(String, DocumentId)> = BTreeSet::new();
        for reaction in registered {
            pairs.extend(ids.iter().map(|id| (reaction.name.clone(), id.clone())));
        }
        self.plan_pairs(on, pairs).await
    }

    /// Plans tasks, and retries where other processes changed a task first.
    async fn plan_pairs(&self, on: &DocumentSource, mut pairs: BTreeSet<(String, DocumentId)>) -> Result<()> {
        let backoff = Backoff::default().first(Duration::from_millis(1)).most(Duration::from_millis(200));
        let mut delays = backoff.limit(50).delays(self.env.random());
        let mut is_due = false;
        while !pairs.is_empty() {
            let keys: Vec<_> = pairs
                .iter()
                .map(|(reaction, document)| TaskKey {
                    reaction: reaction.clone(),
                    document: document.clone(),
                })
                .collect();
            let ids: Vec<_> =
                keys.iter().map(|key| key.document.clone()).collect::<BTreeSet<_>>().into_iter().collect();
            // This order matters: the document must not be older than the task.
            let mut tasks: BTreeMap<_, _> = self
                .store
                .load_tasks(keys.clone())
                .await?
                .into_iter()
                .map(|task| (task.key.clone(), task))
                .collect();
            let FoundDocuments { documents, left, .. } = self.store.current_documents(on, ids, BYTES).await?;
            let documents: BTreeMap<_, _> =
                documents.into_iter().map(|document| (document.id.clone(), document)).collect();
            let left: BTreeSet<_> = left.into_iter().collect();
            let known = self.definitions_of(&keys);
            let mut changes = Vec::new();
            for key in keys.iter().filter(|key| !left.contains(&key.document)) {
                let task = tasks.remove(key);
                changes.extend(self.change_of(key, task, documents.get(&key.document)));
            }
            // The documents are not needed while the tasks are written.
            drop(documents);
            let planned = changes.len() as u64;
            is_due |= !changes.is_empty();
            let refused = self.store.save_tasks(changes).await?;
            self.count(|counts| counts.planned += planned - refused.len() as u64);
            pairs = refused.into_iter().map(|key| (key.reaction, key.document)).collect();
            mutant!(PlanOnce => pairs.clear());
            if planned > 0 {
                let outdated = self.outdated(&keys, &known).await?;
                let planned = outdated.into_iter().filter(|key| !left.contains(&key.document));
                pairs.extend(planned.map(|key| (key.reaction, key.document)));
            }
            let is_contended = !pairs.is_empty();
            let unseen = keys.into_iter().filter(|key| left.contains(&key.document));
            pairs.extend(unseen.map(|key| (key.reaction, key.document)));
            if is_contended {
                let busy =
                    || Error::new(Kind::Unavailable, "planning tasks: others keep changing the same ones");
                sleep(delays.next().ok_or_else(busy)?).await;
            }
        }
        if is_due {
            self.wake().await?;
        }
        Ok(())
    }

    /// Re-reads the registry, and returns the tasks of reactions whose definition became known or
    /// unknown. A process that registered another definition meanwhile may have compared before the
    /// tasks were written. A process that registers from now on compares after that.
    async fn outdated(&self, keys: &[TaskKey], known: &BTreeMap<String, bool>) -> Result<Vec<TaskKey>> {
        mutant!(OldPlans => return Ok(Vec::new()));
        self.refresh().await?;
        let now = self.definitions_of(keys);
        let is_outdated = |key: &&TaskKey| now.get(&key.reaction) != known.get(&key.reaction);
        Ok(keys.iter().filter(is_outdated).cloned().collect())
    }

    /// Returns, for each reaction of these tasks, whether this process has its registered
    /// definition.
    fn definitions_of(&self, keys: &[TaskKey]) -> BTreeMap<String, bool> {
        let names: BTreeSet<_> = keys.iter().map(|key| &key.reaction).collect();
        names.into_iter().map(|name| (name.clone(), self.known(name).is_some())).collect()
    }

    /// Returns the change of a task after its document was read, if there is one.
    fn change_of(
        &self,
        key: &TaskKey,
        task: Option<Task>,
        document: Option<&FoundDocument>,
    ) -> Option<TaskChange> {
        let seen = task.as_ref().map(|task| task.version);
        let moment = self.moment();
        let change = |after| match seen {
            Some(seen) => TaskChange::Update(seen, after),
            None => TaskChange::Insert(after),
        };
        let Some(definition) = self.known(&key.reaction) else {
            mutant!(OthersForgotten => return None);
            return Some(change(Task::look_again(task, key, moment)));
        };
        let (looks, check_at) = definition.look(document, moment.now);
        if let Observation::Unreadable(why) = &looks {
            tracing::warn!(reaction = key.reaction, document = %key.document, why, "document can't be read, its task fails");
        }
        let check_at = check_at.filter(|at| *at > moment.now);
        Task::observe(task, key, looks, check_at, &definition.rules, moment).map(change)
    }

    /// Checks documents that are due. Returns the time until the next one is due.
    async fn check(&self) -> Result<Option<Duration>> {
        loop {
            let names: Vec<_> = self.current().iter().map(|definition| definition.name.clone()).collect();
            if names.is_empty() {
                return Ok(None);
            }
            let due = self.store.tasks_to_check(names, PIECE).await?;
            if due.tasks.is_empty() {
                return Ok(due.next.map(|next| until(next, due.now)));
            }
            let mut by_place: BTreeMap<DocumentSource, BTreeSet<(String, DocumentId)>> = BTreeMap::new();
            for task in due.tasks {
                let definition = self.definitions.iter().find(|one| one.name == task.key.reaction);
                if let Some(on) = definition.and_then(|one| one.on.clone()) {
                    let pair = (task.key.reaction, task.key.document);
                    by_place.entry(on).or_default().insert(pair);
                }
            }
            for (on, pairs) in by_place {
                self.plan_pairs(&on, pairs).await?;
            }
        }
    }

    /// Compares some documents with their tasks, if that is requested and no other process does it.
    /// Returns whether there is more to compare.
    async fn compare(&self, registered: Vec<Registered>) -> Result<bool> {
        let mut is_more = false;
        for registered in registered {
            let Some(definition) = self.known(&registered.name) else { continue };
            let Some(comparing) = &registered.comparing else { continue };
            let lease = format!("comparison for {}", definition.name);
            // The feed must be followed already, or changes from now on would be missed.
            let is_followed = match &definition.on {
                Some(on) => self.store.feed_place(&place_name(on)).await?.is_some(),
                None => true,
            };
            if !is_followed || self.store.take_lease(&lease, &self.owner, LEASE).await?.is_none() {
                continue;
            }
            if *comparing == Comparing::ToBegin {
                tracing::info!(reaction = definition.name, "comparing all documents");
            }
            let next = self.compare_piece(&definition, comparing).await?;
            is_more |= next.is_some();
            let mut after = registered.clone();
            after.version = self.env.random() >> 1;
            after.comparing = next;
            // If the registration was changed meanwhile, the same documents are compared once more.
            if self.store.register(Some(registered.version), after.clone()).await?
                && after.comparing.is_none()
            {
                tracing::info!(reaction = definition.name, "all documents were compared");
                self.store.give_lease(&lease, &self.owner).await?;
            }
        }
        Ok(is_more)
    }

    /// Compares one batch. Returns where to continue, if there is more.
    async fn compare_piece(
        &self,
        definition: &Definition,
        comparing: &Comparing,
    ) -> Result<Option<Comparing>> {
        if let Some(every) = &definition.rules.every {
            return self.compare_times(definition, every).await;
        }
        let Some(on) = &definition.on else { return self.compare_tasks(definition, None).await };
        let pairs = |ids: &[DocumentId]| ids.iter().map(|id| (definition.name.clone(), id.clone())).collect();
        let after = match comparing {
            Comparing::ToBegin => None,
            Comparing::Documents(after) => Some(after.clone()),
            Comparing::Tasks(after) => {
                let after = TaskKey { reaction: definition.name.clone(), document: after.clone() };
                return self.compare_tasks(definition, Some(after)).await;
            }
        };
        let ids = self.store.page_of_ids(on, after, PIECE).await?;
        self.plan_pairs(on, pairs(&ids)).await?;
        if let Some(last) = ids.last()
            && ids.len() == PIECE
        {
            return Ok(Some(Comparing::Documents(last.clone())));
        }
        mutant!(CompareDocumentsOnly => return Ok(None));
        self.compare_tasks(definition, None).await
    }

    /// Schedules the task of a recurring reaction.
    async fn compare_times(&self, definition: &Definition, every: &Every) -> Result<Option<Comparing>> {
        let key = TaskKey { reaction: definition.name.clone(), document: DocumentId::new(TIMED)? };
        let task = self.store.load_tasks(vec![key.clone()]).await?.pop();
        let seen = task.as_ref().map(|task| task.version);
        let Some(after) = Task::schedule(task, &key, every, &definition.rules, self.moment()) else {
            return Ok(None);
        };
        let change = seen.map_or_else(
            || TaskChange::Insert(after.clone()),
            |seen| TaskChange::Update(seen, after.clone()),
        );
        let refused = self.store.save_tasks(vec![change]).await?;
        self.wake().await?;
        Ok(if refused.is_empty() { None } else { Some(Comparing::ToBegin) })
    }

    /// Checks the documents of tasks, because some may have been deleted. Also runs tasks again if
    /// new code asks for that.
    async fn compare_tasks(
        &self,
        definition: &Definition,
        after: Option<TaskKey>,
    ) -> Result<Option<Comparing>> {
        let query = Query { reaction: Some(definition.name.clone()), ..Query::default() };
        let tasks = self.store.list_tasks(query, after, PIECE).await?;
        let is_last = tasks.len() < PIECE;
        let last = tasks.last().map(|task| task.key.document.clone());
        let pairs = tasks.iter().map(|task| (task.key.reaction.clone(), task.key.document.clone())).collect();
        if let Some(on) = &definition.on {
            self.plan_pairs(on, pairs).await?;
        }
        let moment = || self.moment();
        let evolved = |task: Task| {
            let seen = task.version;
            let task = task.evolve(&definition.rules, definition.evolution, moment())?;
            Some(TaskChange::Update(seen, task))
        };
        let keys = tasks.into_iter().map(|task| task.key).collect();
        let changes: Vec<_> = self.store.load_tasks(keys).await?.into_iter().filter_map(evolved).collect();
        if !changes.is_empty() {
            // Tasks that were changed meanwhile are handled again, because the error below repeats
            // the batch.
            let refused = self.store.save_tasks(changes).await?;
            self.wake().await?;
            if !refused.is_empty() {
                return Err(Error::new(
                    Kind::Unavailable,
                    "comparing tasks: others keep changing the same ones",
                ));
            }
        }
        Ok(last.filter(|_| !is_last).map(Comparing::Tasks))
    }

    /// Returns the ids of those documents that exist.
    async fn those_there(
        &self,
        on: &DocumentSource,
        mut ids: Vec<DocumentId>,
    ) -> Result<BTreeSet<DocumentId>> {
        let mut there = BTreeSet::new();
        while !ids.is_empty() {
            let found = self.store.current_documents(on, ids, BYTES).await?;
            there.extend(found.documents.into_iter().map(|document| document.id));
            ids = found.left;
        }
        Ok(there)
    }

    /// Deletes tasks whose retention time has passed.
    pub(crate) async fn sweep(&self, on: &DocumentSource) -> Result<u64> {
        let mut swept = 0;
        for definition in self.current().into_iter().filter(|definition| definition.on.as_ref() == Some(on)) {
            let keep_for = match definition.cleanup {
                Cleanup::Keep => continue,
                Cleanup::Gone(keep_for) | Cleanup::GoneOrOutside(keep_for) => keep_for,
            };
            let now = self.store.time().await?;
            let before = now.checked_sub(jiff::SignedDuration::try_from(keep_for).unwrap_or_default());
            let query = Query {
                reaction: Some(definition.name.clone()),
                states: vec![State::Done, State::Stale, State::Failed],
                changed_before: Some(before.unwrap_or(jiff::Timestamp::MIN)),
                ..Query::default()
            };
            let mut after = None;
            loop {
                let tasks = self.store.list_tasks(query.clone(), after, PIECE).await?;
                let Some(last) = tasks.last() else { break };
                after = Some(last.key.clone());
                let outside: Vec<_> = tasks.into_iter().filter(|task| !task.inside).collect();
                let ids = outside.iter().map(|task| task.key.document.clone()).collect();
                let there = self.those_there(on, ids).await?;
                let is_over = |task: &Task| {
                    let is_gone = !there.contains(&task.key.document);
                    // A document that can't be read may match. Its task tells why it is not
                    // handled.
                    let is_outside = task.check_at.is_none() && !task.is_unreadable();
                    is_gone || is_outside && matches!(definition.cleanup, Cleanup::GoneOrOutside(_))
                };
                let over: Vec<_> = outside
                    .into_iter()
                    .filter(is_over)
                    .map(|task| TaskChange::Delete(task.version, task.key))
                    .collect();
                let count = over.len() as u64;
                // Tasks that were changed meanwhile wait for the next sweep.
                swept += count - self.store.save_tasks(over).await?.len() as u64;
            }
        }
        self.count(|counts| counts.swept += swept);
        Ok(swept)
    }
}

/// Registers a reaction. If it is new or has changed, requests a comparison of all documents.
pub(crate) async fn register<S: ReactionStore>(shared: &Shared<S>, definition: &Definition) -> Result<()> {
    loop {
        let found = shared.store.registered().await?;
        let found = found.into_iter().find(|one| one.name == definition.name);
        let seen = found.as_ref().map(|one| one.version);
        let code = definition.rules.version;
        let after = match found {
            None => Registered {
                name: definition.name.clone(),
                version: 0,
                on: definition.on.clone(),
                definition: definition.text.clone(),
                code,
                paused: false,
                paused_because: None,
                throttled: None,
                comparing: Some(Comparing::ToBegin),
            },
            // Newer code is registered, and takes precedence.
            Some(there) if there.code > code => return Ok(()),
            Some(there) => {
                let is_same =
                    there.definition == definition.text && there.on == definition.on && there.code == code;
                if is_same {
                    return Ok(());
                }
                Registered {
                    on: definition.on.clone(),
                    definition: definition.text.clone(),
                    code,
                    comparing: Some(Comparing::ToBegin),
                    ..there
                }
            }
        };
        let after = Registered { version: shared.env.random() >> 1, ..after };
        if shared.store.register(seen, after).await? {
            return Ok(());
        }
    }
}

/// Returns the duration until a time, or zero if it has passed.
pub(crate) fn until(time: jiff::Timestamp, now: jiff::Timestamp) -> Duration {
    time.duration_since(now).try_into().unwrap_or_default()
}
