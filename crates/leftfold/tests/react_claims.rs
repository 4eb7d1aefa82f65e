//! Claims that end in unusual ways: in transactions of handlers, manually, by newer code. The
//! simulation found the bugs behind these tests.

#![allow(clippy::unwrap_used, reason = "a step that fails fails the test")]

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use leftfold::log::Entry;
use leftfold::react::{
    Context, Draft, Evolution, Query, Reaction, ReactionStore as _, Reactor, Retry, State, TaskChange,
};
use leftfold::{Append as _, DocumentId, Event, EventId, EventKind, Expected, Json, Memory, StreamId};
use tokio::time::Instant;

async fn sell(store: &Memory, number: u64) {
    let entry = Entry {
        id: EventId::new(format!("e{number}")).unwrap(),
        kind: EventKind::new("sold").unwrap(),
        time: jiff::Timestamp::UNIX_EPOCH,
        data: Json::of(&number).unwrap(),
        metadata: None,
    };
    store.append(StreamId::new("cart").unwrap(), Expected::Any, vec![entry]).await.unwrap();
}

fn draft() -> Draft<Event> {
    Reaction::on_event(["sold"], "ship").from_start().retry(Retry::fixed(Duration::from_secs(1)).attempts(2))
}

/// The shipped events, by revision.
#[derive(Clone, Default)]
struct Shipped(Arc<Mutex<Vec<u64>>>);

impl Shipped {
    fn all(&self) -> Vec<u64> {
        self.0.lock().unwrap().clone()
    }

    fn each(&self, draft: Draft<Event>) -> Reaction {
        let shipped = self.clone();
        draft.for_each(move |ctx| {
            let shipped = shipped.clone();
            async move {
                shipped.0.lock().unwrap().push(ctx.event()?.revision.0);
                Ok(())
            }
        })
    }
}

/// Completes a task as a handler's own transaction would.
async fn complete<D>(ctx: &Context<D>) -> leftfold::Result<()> {
    let store = ctx.store::<Memory>().unwrap();
    let task = store.load_tasks(vec![ctx.task().key.clone()]).await?.pop().unwrap();
    let seen = task.version;
    let done = ctx.complete(task).ok_or_else(|| ctx.lost())?;
    assert!(store.save_tasks(vec![TaskChange::Update(seen, done)]).await?.is_empty());
    Ok(())
}

/// Regression: the task was claimed for the next event before this process learned that the last
/// run had ended. It then took the new run for the old one. Nobody renewed or finished the new run,
/// and it ran again when its claim had ended.
#[tokio::test(start_paused = true)]
async fn a_task_that_is_claimed_again_at_once_is_not_taken_for_the_run_before() {
    let (store, runs) = (Memory::default(), Arc::new(AtomicU64::new(0)));
    for number in 0..20 {
        sell(&store, number).await;
    }
    let reaction = {
        let runs = Arc::clone(&runs);
        draft().for_each(move |ctx| {
            let runs = Arc::clone(&runs);
            async move {
                runs.fetch_add(1, Ordering::Relaxed);
                complete(&ctx).await?;
                // Other workers have time to claim it for the next event.
                tokio::time::sleep(Duration::from_millis(20)).await;
                Ok(())
            }
        })
    };
    let began = Instant::now();
    let reacting = Reactor::on(store.clone()).reaction(reaction).start().await.unwrap();
    // Wakes the runners all the time.
    let stirring = tokio::spawn({
        let store = store.clone();
        async move {
            loop {
                store.wake().await.unwrap();
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        }
    });
    reacting.idle().await.unwrap();
    stirring.abort();
    assert_eq!((runs.load(Ordering::Relaxed), reacting.counts().takeovers), (20, 0));
    assert!(began.elapsed() < Duration::from_secs(2), "{:?}", began.elapsed());
}

/// Regression: a handler completed its task in a transaction and did not notice that it was not
/// committed. It was believed if the task was about an event.
#[tokio::test(start_paused = true)]
async fn an_event_is_not_handled_if_its_transaction_was_not_committed() {
    let (store, runs) = (Memory::default(), Arc::new(AtomicU64::new(0)));
    sell(&store, 1).await;
    let reaction = {
        let runs = Arc::clone(&runs);
        draft().for_each(move |ctx| {
            let runs = Arc::clone(&runs);
            async move {
                if runs.fetch_add(1, Ordering::Relaxed) == 0 {
                    assert!(ctx.complete(ctx.task().clone()).is_some());
                    return Ok(());
                }
                Ok(complete(&ctx).await?)
            }
        })
    };
    let reacting = Reactor::on(store.clone()).reaction(reaction).start().await.unwrap();
    reacting.idle_within(Duration::from_mins(1)).await.unwrap();
    assert_eq!(runs.load(Ordering::Relaxed), 2);
    reacting.assert_no_failures().await.unwrap();
}

/// Regression: a finished task ran again, found no event, and failed. Its stream was stuck from
/// there on.
#[tokio::test(start_paused = true)]
async fn events_that_are_handled_are_not_run_again() {
    let (store, shipped) = (Memory::default(), Shipped::default());
    sell(&store, 1).await;
    let reacting = Reactor::on(store.clone()).reaction(shipped.each(draft())).start().await.unwrap();
    reacting.idle().await.unwrap();
    assert_eq!(reacting.retry(Query::default(), None).await.unwrap(), 0);
    reacting.idle_within(Duration::from_mins(1)).await.unwrap();
    reacting.assert_no_failures().await.unwrap();
    reacting.stop(Duration::ZERO).await;
    let newer = shipped.each(draft().version(2, Evolution::AllAgain));
    let reacting = Reactor::on(store.clone()).reaction(newer).start().await.unwrap();
    reacting.idle_within(Duration::from_mins(1)).await.unwrap();
    sell(&store, 2).await;
    reacting.idle_within(Duration::from_mins(1)).await.unwrap();
    assert_eq!(shipped.all(), [1, 2]);
    let key =
        leftfold::react::TaskKey { reaction: "ship".to_owned(), document: DocumentId::new("cart").unwrap() };
    assert_eq!(reacting.task(key).await.unwrap().map(|task| task.state), Some(State::Done));
}

/// Regression: events between the start of the reaction and the first read of the log were left
/// out.
#[tokio::test(start_paused = true)]
async fn what_comes_after_the_start_is_handled() {
    let (store, shipped) = (Memory::default(), Shipped::default());
    sell(&store, 1).await;
    let draft = Reaction::on_event(["sold"], "ship");
    let reacting = Reactor::on(store.clone()).reaction(shipped.each(draft)).start().await.unwrap();
    sell(&store, 2).await;
    reacting.idle().await.unwrap();
    assert_eq!(shipped.all(), [2]);
}
