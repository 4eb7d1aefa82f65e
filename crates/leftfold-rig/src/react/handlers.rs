//! The reactions under test, and their effects.
//!
//! | reaction | on | effect |
//! | --- | --- | --- |
//! | `record` | documents by stream | in the transaction that completes it: exactly once |
//! | `mail` | documents by content | outside the store: at least once |
//! | `item` | a table that the rig writes to | outside the store: at least once |
//! | `event` | events of some types | in the transaction that completes it: once, in order |
//! | `poison` | a deadly item and its neighbours | the deadly one kills its process |
//! | `hold` | held items | none at the first attempt, which never ends |
//! | `large` | items with a large watched value | after two long errors, outside the store |

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use leftfold::react::{Context, HandlerError, Reaction, Retry};
use leftfold_sim::dice::Dice;
use leftfold_sim::notes::{FoldedEvents, Notes};
use tokio::time::sleep;

use super::effect_file::{Effect, EffectFile};
use super::item_writer::{Item, ItemKind};
use crate::messages::{Message, send};
use crate::points;
use crate::signals;
use crate::store::TestedStore;

pub(crate) const RECORD: &str = "record";
pub(crate) const MAIL: &str = "mail";
pub(crate) const ITEM: &str = "item";
pub(crate) const EVENT: &str = "event";
pub(crate) const POISON: &str = "poison";
pub(crate) const HOLD: &str = "hold";
pub(crate) const LARGE: &str = "large";
/// The table or collection that the rig writes to.
pub(crate) const ITEMS: &str = "items";
/// The item that can't be read for some time.
pub(crate) const GARBLED: &str = "garbled";
/// The types of events that are handled one by one.
pub(crate) const KINDS: [&str; 4] = ["cleared", "poison", "flaky", "unheard-of"];
/// The attempts for a document that kills its process, and for its neighbours.
pub(crate) const POISON_ATTEMPTS: u32 = 3;
/// The longest time from a failure to the next attempt.
pub(crate) const MAX_RETRY_DELAY: Duration = Duration::from_secs(2);
/// The start and the end of an error that is too long to be kept.
pub(super) const LONG_ERROR: (&str, &str) = ("it begins", "it ends");

/// The time that a claim outlives its process.
const VISIBILITY: Duration = Duration::from_secs(1);
/// The debounce time.
const QUIET: Duration = Duration::from_millis(100);
/// The number of attempts of healthy tasks. Handlers fail at most three times by themselves; the
/// rest is for unavailable stores.
const ATTEMPTS: u32 = 10;
/// The number of runs that a task remembers, so that the check sees all of them.
const HISTORY: usize = 200;
/// The delay before the deadly document kills. Handlers that were claimed with it have begun by
/// then.
const DEADLY_AFTER: Duration = Duration::from_millis(20);
/// The duration of the handler of its neighbours.
const NEIGHBOUR_TAKES: Duration = Duration::from_millis(200);
/// The number of attempts that fail with a long error. `LONG_ERROR_BYTES` is its size.
const LONG_ERRORS: u32 = 2;
const LONG_ERROR_BYTES: usize = 3_000_000;
/// The longest duration of a slow handler, longer than a claim lasts without renewal.
const MAX_RUN: Duration = Duration::from_millis(1_500);

/// The events that a projection's document lists, by stream: the first and the last revision, and
/// the count.
pub(crate) type Summary = BTreeMap<String, (u64, u64, u64)>;

pub(crate) fn summary(seen: &FoldedEvents) -> Summary {
    let mut summary = Summary::new();
    for name in &seen.events {
        let Some((stream, revision)) = name.split_once('@') else { continue };
        let revision = revision.parse().unwrap_or(0);
        let (first, last, count) = summary.entry(stream.to_owned()).or_insert((revision, revision, 0));
        (*first, *last, *count) = (revision.min(*first), revision.max(*last), *count + 1);
    }
    summary
}

/// Returns all reactions.
pub(super) fn all<S: TestedStore>(effects: &Arc<EffectFile>) -> Vec<Reaction> {
    let retry = || Retry::exponential(Duration::from_millis(20), MAX_RETRY_DELAY).attempts(ATTEMPTS);
    let record = Reaction::on(Notes::new(true), RECORD)
        .watch(summary)
        .debounce(QUIET)
        .history(HISTORY)
        .visibility(VISIBILITY)
        .retry(retry())
        .run(record::<S>);
    let mail = Reaction::on(Notes::new(false), MAIL)
        .watch(summary)
        .debounce(QUIET)
        .history(HISTORY)
        .visibility(VISIBILITY)
        .retry(retry())
        .run({
            let effects = Arc::clone(effects);
            move |ctx| mail(ctx, Arc::clone(&effects))
        });
    let item = Reaction::on_plain(ITEMS, ITEM)
        .when(|item: &Item| item.on)
        .watch(|item| item.tag)
        .history(HISTORY)
        .visibility(VISIBILITY)
        .retry(retry())
        .run({
            let effects = Arc::clone(effects);
            move |ctx| item(ctx, Arc::clone(&effects))
        });
    let event = Reaction::on_event(KINDS, EVENT)
        .from_start()
        .history(HISTORY)
        .visibility(VISIBILITY)
        .retry(retry())
        .for_each(event::<S>);
    let poison = Reaction::on_plain(ITEMS, POISON)
        .when(|item: &Item| matches!(item.kind, ItemKind::Deadly | ItemKind::Neighbour))
        .watch(|item| (item.kind, item.tag))
        .history(HISTORY)
        .visibility(VISIBILITY)
        .retry(Retry::fixed(Duration::from_millis(10)).attempts(POISON_ATTEMPTS))
        .run({
            let effects = Arc::clone(effects);
            move |ctx| poison(ctx, Arc::clone(&effects))
        });
    let hold = Reaction::on_plain(ITEMS, HOLD)
        .when(|item: &Item| item.kind == ItemKind::Held)
        .history(HISTORY)
        .retry(retry())
        .run({
            let effects = Arc::clone(effects);
            move |ctx| hold(ctx, Arc::clone(&effects))
        });
    let large = Reaction::on_plain(ITEMS, LARGE)
        .when(|item: &Item| item.kind == ItemKind::Large)
        .watch(|item| item.text.clone())
        .history(HISTORY)
        .visibility(VISIBILITY)
        .retry(retry())
        .run({
            let effects = Arc::clone(effects);
            move |ctx| large::<S>(ctx, Arc::clone(&effects))
        });
    vec![record, mail, item, event, poison, hold, large]
}

/// The number of handlers that run in this process.
static RUNNING: AtomicU64 = AtomicU64::new(0);

/// A running handler of this process.
struct Running;

impl Running {
    fn begin() -> Self {
        RUNNING.fetch_add(1, Ordering::Relaxed);
        Self
    }

    /// Returns the number of running handlers besides the caller.
    fn beside_caller() -> u64 {
        RUNNING.load(Ordering::Relaxed).saturating_sub(1)
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        RUNNING.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Makes some attempts fail. The choice follows from the key alone.
fn fails<D>(ctx: &Context<D>) -> Result<(), HandlerError> {
    if ctx.attempt() <= 3 && luck(ctx, u64::from(ctx.attempt())).happens(200) {
        return Err("it fails on purpose".into());
    }
    Ok(())
}

fn luck<D>(ctx: &Context<D>, salt: u64) -> Dice {
    let sum = ctx.idempotency_key().bytes().fold(salt, |sum, byte| sum.wrapping_mul(31) + u64::from(byte));
    Dice::new(sum)
}

async fn record<S: TestedStore>(ctx: Context<FoldedEvents>) -> Result<(), HandlerError> {
    let _running = Running::begin();
    fails(&ctx)?;
    S::record(ctx).await
}

async fn event<S: TestedStore>(ctx: Context<leftfold::Event>) -> Result<(), HandlerError> {
    let _running = Running::begin();
    fails(&ctx)?;
    S::pass(ctx).await
}

async fn mail(ctx: Context<FoldedEvents>, effects: Arc<EffectFile>) -> Result<(), HandlerError> {
    let _running = Running::begin();
    let seen = ctx.document().await?;
    points::reached(points::EFFECT);
    effects.enter(&Effect::of(&ctx, &summary(&seen))?)?;
    points::reached(points::EFFECTED);
    // A failure after the effect is the worst case for receivers, which then see the effect twice.
    fails(&ctx)
}

async fn item(ctx: Context<Item>, effects: Arc<EffectFile>) -> Result<(), HandlerError> {
    let _running = Running::begin();
    let item = ctx.document().await?;
    let luck = luck(&ctx, 0);
    if luck.happens(100) {
        sleep(luck.time(MAX_RUN)).await;
    }
    fails(&ctx)?;
    points::reached(points::EFFECT);
    effects.enter(&Effect::of(&ctx, &item.tag)?)?;
    points::reached(points::EFFECTED);
    Ok(())
}

/// Reads nothing from the store: a neighbour must not fail because the store is unavailable.
async fn poison(ctx: Context<Item>, effects: Arc<EffectFile>) -> Result<(), HandlerError> {
    let _running = Running::begin();
    let (kind, tag) = ctx.watched::<(ItemKind, u64)>()?;
    if kind == ItemKind::Deadly {
        sleep(DEADLY_AFTER).await;
        send(&Message::Dying { beside: Running::beside_caller() })?;
        signals::kill_self()
    }
    sleep(NEIGHBOUR_TAKES).await;
    Ok(effects.enter(&Effect::of(&ctx, &tag)?)?)
}

async fn hold(ctx: Context<Item>, effects: Arc<EffectFile>) -> Result<(), HandlerError> {
    let _running = Running::begin();
    // The loss of the first run does not count as an attempt.
    if ctx.task().history.is_empty() {
        ctx.cancelled().await;
        return Err("it is held forever".into());
    }
    let item = ctx.document().await?;
    Ok(effects.enter(&Effect::of(&ctx, &item.tag)?)?)
}

async fn large<S: TestedStore>(ctx: Context<Item>, effects: Arc<EffectFile>) -> Result<(), HandlerError> {
    let _running = Running::begin();
    let item = ctx.document().await?;
    if ctx.attempt() <= LONG_ERRORS {
        let (begin, end) = LONG_ERROR;
        return Err(format!("{begin}{}{end}", "x".repeat(LONG_ERROR_BYTES)).into());
    }
    // A document that was read in part gets no tag, and the check finds a state that never existed.
    let tag = (item.text == Item::large_text(item.tag, S::LARGE_BYTES)).then_some(item.tag);
    Ok(effects.enter(&Effect::of(&ctx, &tag)?)?)
}
