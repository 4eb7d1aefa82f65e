//! The reactions under test. Their handlers succeed, fail, defer, throttle their reaction, take
//! long, or die.

use std::sync::Arc;
use std::time::Duration;

use leftfold::react::{Context, Draft, HandlerError, NotCurrent, Reaction, Retry, Task};
use leftfold::{Event, Kind};
use serde_json::Value;
use tokio::time::{Instant, sleep};

use super::ledger::Sometimes;
use super::setup::Setup;
use super::things::{DEADLY, POISON, THINGS, Thing};
use crate::dice::Dice;
use crate::store::SimStore;

/// The context of a handler: the parts of its node.
#[derive(Clone)]
pub(super) struct HandlerContext {
    pub(super) store: SimStore,
    pub(super) dice: Arc<Dice>,
    pub(super) setup: Arc<Setup>,
    pub(super) code: u32,
}

/// Detects a handler that is canceled before it has finished.
struct RunningHandler {
    store: SimStore,
    task: Task,
    has_ended: bool,
}

impl Drop for RunningHandler {
    fn drop(&mut self) {
        self.store.shared().ledger.is_through(&self.store.name, &self.task);
        if !self.has_ended {
            for violation in self.store.shared().ledger.cancelled(&self.store.name, &self.task) {
                self.store.violated(violation);
            }
        }
    }
}

/// Records when a handler releases its lock.
struct HeldLock {
    store: SimStore,
    number: u64,
}

impl Drop for HeldLock {
    fn drop(&mut self) {
        self.store.shared().ledger.unlocked(self.number);
    }
}

impl HandlerContext {
    /// Returns the reaction with this name.
    pub(super) fn reaction(&self, name: &str) -> Reaction {
        let context = self.clone();
        match name {
            "mail" => self.on_things(name).run(move |ctx| context.clone().run(ctx, Self::mail)),
            "books" => self.on_things(name).run(move |ctx| context.clone().run(ctx, Self::book)),
            "turns" => self.on_things(name).run(move |ctx| context.clone().run(ctx, Self::run_locked)),
            "ship" => self.on_events(name).for_each(move |ctx| context.clone().run(ctx, Self::ship)),
            _ => self.on_events(name).for_each(move |ctx| context.clone().run(ctx, Self::tally)),
        }
    }

    fn on_things(&self, name: &str) -> Draft<Thing> {
        let draft = Reaction::on_plain(THINGS, name).watch(|thing: &Thing| thing.value);
        // Newer code has another filter.
        let draft = match self.code {
            1 => draft.when(|thing| thing.on),
            code => draft.when(|thing| thing.on != (thing.value == 3)).trigger_version(code),
        };
        self.common(draft).debounce(self.setup.debounce)
    }

    fn on_events(&self, name: &str) -> Draft<Event> {
        let draft = self.common(Reaction::on_event(["sold"], name));
        if self.setup.from_start { draft.from_start() } else { draft }
    }

    fn common<D>(&self, draft: Draft<D>) -> Draft<D> {
        let setup = &self.setup;
        draft
            .retry(Retry::fixed(Duration::from_millis(700)).attempts(setup.attempts))
            .visibility(setup.visibility)
            .cleanup(setup.cleanup)
            .concurrency(setup.concurrency)
            .history(1_000)
            .version(self.code, setup.evolution)
    }

    /// Runs the part that all handlers share, before and after `handle`.
    async fn run<D, R>(
        self,
        ctx: Context<D>,
        handle: impl FnOnce(Self, Context<D>) -> R,
    ) -> Result<(), HandlerError>
    where
        R: Future<Output = Result<(), HandlerError>>,
    {
        let (store, task) = (self.store.clone(), ctx.task().clone());
        let mut running = RunningHandler { store: store.clone(), task: task.clone(), has_ended: false };
        self.report(store.shared().ledger.began(&store.name, &task));
        let occurs = |rate| !store.shared().faults.is_calm() && self.dice.happens(rate);
        if ctx.id().as_str() == DEADLY && !store.shared().faults.is_calm() {
            store.shared().trace.note(|| format!("{} is killed by a document", store.name));
            store.fuse().light(0);
            store.fuse().run(std::future::pending::<()>()).await;
        }
        if occurs(self.setup.lingers) {
            sleep(self.dice.time(self.setup.visibility * 3)).await;
        }
        if occurs(self.setup.throttles) {
            let (held_up, from) = (self.dice.time(Duration::from_secs(3)), Instant::now());
            if ctx.throttle(held_up).await.is_ok() {
                store.shared().ledger.throttled(&task.key.reaction, from + held_up);
            }
        }
        if occurs(self.setup.defers) {
            ctx.defer(self.dice.time(Duration::from_secs(3)));
            running.has_ended = true;
            return Ok(());
        }
        let fails = occurs(self.setup.fails);
        if fails && self.dice.happens(400) {
            running.has_ended = true;
            // Some errors are too long for any store.
            let times = if self.dice.happens(30) { 30_000 } else { 1 };
            return Err("it does not work today".repeat(times).into());
        }
        let panics = fails && self.dice.happens(300);
        let handled = handle(self, ctx).await;
        running.has_ended = true;
        handled?;
        if task.key.document.as_str() == POISON || task.key.document.as_str() == DEADLY {
            return Err("it can't be done".into());
        }
        if panics {
            // This avoids the message that a panic prints.
            std::panic::resume_unwind(Box::new("a handler panics"));
        }
        if fails {
            return Err("it was done, and failed".into());
        }
        store.shared().ledger.succeeded(&task);
        Ok(())
    }

    /// Reads the document and has an effect outside the store.
    async fn mail(self, ctx: Context<Thing>) -> Result<(), HandlerError> {
        self.read(&ctx).await?;
        sleep(self.dice.time(Duration::from_millis(50))).await;
        self.report(self.store.shared().ledger.sent(ctx.task(), None));
        Ok(())
    }

    async fn read(&self, ctx: &Context<Thing>) -> Result<(), HandlerError> {
        let writes = self.store.shared().ledger.writes();
        let found = serde_json::to_value(ctx.document().await?)?;
        let planned: Value = ctx.watched()?;
        self.report(self.store.shared().ledger.read(ctx.id(), writes, &found, &planned));
        Ok(())
    }

    fn report(&self, wrong: Vec<String>) {
        for wrong in wrong {
            self.store.violated(wrong);
        }
    }

    /// Records an effect in a transaction, in a separate task that may outlive the run.
    async fn book(self, ctx: Context<Thing>) -> Result<(), HandlerError> {
        if matches!(ctx.id().as_str(), POISON | DEADLY) {
            self.read(&ctx).await?;
            return Err("its effect can't be recorded".into());
        }
        self.store.shared().ledger.succeeded(ctx.task());
        let ignores_result = self.ignores_result();
        let booking = tokio::spawn(async move { self.store.book(&ctx).await });
        match booking.await? {
            Err(NotCurrent::Store(error)) if ignores_result && error.kind() == Kind::Unknown => Ok(()),
            booked => Ok(booked?),
        }
    }

    /// Returns whether the handler ignores the result of its transaction.
    fn ignores_result(&self) -> bool {
        self.dice.happens(200)
    }

    /// Does something under a lock.
    async fn run_locked(self, ctx: Context<Thing>) -> Result<(), HandlerError> {
        let ledger = &self.store.shared().ledger;
        let before = ledger.highest_lock();
        let Some(lock) = ctx.lock("door").await? else {
            ctx.defer(Duration::from_millis(200) + self.dice.time(Duration::from_millis(300)));
            return Ok(());
        };
        let owner = format!("{} for {}, claim {}", self.store.name, ctx.id(), ctx.epoch());
        let _held = HeldLock { store: self.store.clone(), number: lock.number() };
        self.report(ledger.locked(lock.number(), before, &self.store.name, &owner));
        // Some handlers take longer than a lock lasts without renewal.
        let most = Duration::from_millis(if self.dice.happens(30) { 12_000 } else { 1_500 });
        sleep(self.dice.time(most)).await;
        if lock.is_lost() {
            ledger.happened(Sometimes::Locks);
            return Err("the lock is lost".into());
        }
        self.read(&ctx).await?;
        self.report(ledger.sent(ctx.task(), None));
        Ok(())
    }

    async fn ship(self, ctx: Context<Event>) -> Result<(), HandlerError> {
        let revision = ctx.event()?.revision.0;
        sleep(self.dice.time(Duration::from_millis(50))).await;
        self.report(self.store.shared().ledger.sent(ctx.task(), Some(revision)));
        Ok(())
    }

    async fn tally(self, ctx: Context<Event>) -> Result<(), HandlerError> {
        self.store.shared().ledger.succeeded(ctx.task());
        let ignores_result = self.ignores_result();
        let booking = tokio::spawn(async move { self.store.book_event(&ctx).await });
        match booking.await? {
            Err(error) if ignores_result && error.kind() == Kind::Unknown => Ok(()),
            booked => Ok(booked?),
        }
    }
}
