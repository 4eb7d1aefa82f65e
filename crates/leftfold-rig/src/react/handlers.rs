//! The reactions under test, and what they do.
//!
//! | reaction | on | what it does |
//! | --- | --- | --- |
//! | `record` | documents by stream | an effect in the transaction that completes it: exactly once |
//! | `mail` | documents by content | an effect outside of the store: at least once |
//! | `item` | a table that the rig writes to | the same |
//! | `event` | events of some types | a record in the transaction that completes it: each event once, in order |
//! | `poison` | items that are poison | kills its process |
//! | `hold` | items that are to be held | never ends at its first attempt |

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use leftfold::react::{Context, HandlerError, Reaction, Retry};
use leftfold_sim::dice::Dice;
use leftfold_sim::notes::{Notes, Seen};
use tokio::time::sleep;

use super::book::{Book, Effect};
use super::garden::Item;
use crate::points;
use crate::signals;
use crate::store::Rigged;
use crate::words::{Said, say};

pub(crate) const RECORD: &str = "record";
pub(crate) const MAIL: &str = "mail";
pub(crate) const ITEM: &str = "item";
pub(crate) const EVENT: &str = "event";
pub(crate) const POISON: &str = "poison";
pub(crate) const HOLD: &str = "hold";
/// The table or collection that the rig writes to.
pub(crate) const ITEMS: &str = "items";
/// The events that are handled one by one.
pub(crate) const KINDS: [&str; 4] = ["cleared", "poison", "flaky", "unheard-of"];
/// How often a document that kills its process is tried.
pub(crate) const POISON_ATTEMPTS: u32 = 3;

/// How long a claim outlives its process.
const VISIBILITY: Duration = Duration::from_secs(1);
/// How long documents must be quiet.
const QUIET: Duration = Duration::from_millis(100);
/// The longest that a handler takes which takes long: longer than a claim lasts that is not renewed.
const LONGEST: Duration = Duration::from_millis(1_500);

/// What a document of a projection lists, by stream: the first and the last revision, and how many.
pub(crate) type Summary = BTreeMap<String, (u64, u64, u64)>;

pub(crate) fn summary(seen: &Seen) -> Summary {
    let mut summary = Summary::new();
    for name in &seen.events {
        let Some((stream, revision)) = name.split_once('@') else { continue };
        let revision = revision.parse().unwrap_or(0);
        let (first, last, count) = summary.entry(stream.to_owned()).or_insert((revision, revision, 0));
        (*first, *last, *count) = (revision.min(*first), revision.max(*last), *count + 1);
    }
    summary
}

/// All of them.
pub(super) fn all<S: Rigged>(book: &Arc<Book>) -> Vec<Reaction> {
    // A run may be lost any number of times here, and it must go on.
    let retry = || Retry::exponential(Duration::from_millis(20), Duration::from_millis(200));
    let record = Reaction::on(Notes::new(true), RECORD)
        .watch(summary)
        .debounce(QUIET)
        .visibility(VISIBILITY)
        .retry(retry())
        .run(record::<S>);
    let mail = Reaction::on(Notes::new(false), MAIL)
        .watch(summary)
        .debounce(QUIET)
        .visibility(VISIBILITY)
        .retry(retry())
        .run({
            let book = Arc::clone(book);
            move |ctx| mail(ctx, Arc::clone(&book))
        });
    let item = Reaction::on_plain(ITEMS, ITEM)
        .when(|item: &Item| item.on)
        .watch(|item| item.tag)
        .visibility(VISIBILITY)
        .retry(retry())
        .run({
            let book = Arc::clone(book);
            move |ctx| item(ctx, Arc::clone(&book))
        });
    let event = Reaction::on_event(KINDS, EVENT)
        .from_start()
        .visibility(VISIBILITY)
        .retry(retry())
        .for_each(event::<S>);
    let poison = Reaction::on_plain(ITEMS, POISON)
        .when(|item: &Item| item.poison)
        .visibility(VISIBILITY)
        .retry(Retry::fixed(Duration::from_millis(10)).attempts(POISON_ATTEMPTS))
        .run(poison);
    let hold = Reaction::on_plain(ITEMS, HOLD).when(|item: &Item| item.hold).retry(retry()).run({
        let book = Arc::clone(book);
        move |ctx| hold(ctx, Arc::clone(&book))
    });
    vec![record, mail, item, event, poison, hold]
}

/// Some attempts fail: which ones follows from the key alone.
fn fails<D>(ctx: &Context<D>) -> Result<(), HandlerError> {
    if ctx.attempt() <= 3 && luck(ctx, u64::from(ctx.attempt())).happens(200) {
        return Err("it was to fail".into());
    }
    Ok(())
}

fn luck<D>(ctx: &Context<D>, salt: u64) -> Dice {
    let sum = ctx.idempotency_key().bytes().fold(salt, |sum, byte| sum.wrapping_mul(31) + u64::from(byte));
    Dice::new(sum)
}

async fn record<S: Rigged>(ctx: Context<Seen>) -> Result<(), HandlerError> {
    fails(&ctx)?;
    S::record(ctx).await
}

async fn event<S: Rigged>(ctx: Context<leftfold::Event>) -> Result<(), HandlerError> {
    fails(&ctx)?;
    S::pass(ctx).await
}

async fn mail(ctx: Context<Seen>, book: Arc<Book>) -> Result<(), HandlerError> {
    let seen = ctx.document().await?;
    points::reached(points::EFFECT);
    book.enter(&Effect::of(&ctx, &summary(&seen))?)?;
    points::reached(points::EFFECTED);
    // What fails after its effect is the worst case for those who hear of it twice.
    fails(&ctx)
}

async fn item(ctx: Context<Item>, book: Arc<Book>) -> Result<(), HandlerError> {
    let item = ctx.document().await?;
    let luck = luck(&ctx, 0);
    if luck.happens(100) {
        sleep(luck.time(LONGEST)).await;
    }
    fails(&ctx)?;
    points::reached(points::EFFECT);
    book.enter(&Effect::of(&ctx, &item.tag)?)?;
    points::reached(points::EFFECTED);
    Ok(())
}

async fn poison(_: Context<Item>) -> Result<(), HandlerError> {
    say(&Said::Fell)?;
    signals::kill_self()
}

async fn hold(ctx: Context<Item>, book: Arc<Book>) -> Result<(), HandlerError> {
    if ctx.attempt() == 1 {
        ctx.cancelled().await;
        return Err("it is held for ever".into());
    }
    let item = ctx.document().await?;
    Ok(book.enter(&Effect::of(&ctx, &item.tag)?)?)
}
