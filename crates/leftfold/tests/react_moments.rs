//! Reactions at moments that are hard to hit: between two calls of the store, something else happens, or the process dies.

#![allow(clippy::unwrap_used, reason = "a step that fails fails the test")]

#[path = "common/held.rs"]
mod held;

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use held::Held;
use leftfold::react::{Context, Plain, Reaction, Reactor, State, TaskKey};
use leftfold::{DocumentId, Json, Memory};
use tokio::sync::{Notify, mpsc};

fn put(store: &Memory, body: Option<&str>) {
    let id = DocumentId::new("a").unwrap();
    store.write_plain(&Plain::new("orders").unwrap(), id, body.map(|body| Json::parse(body).unwrap()));
}

fn key() -> TaskKey {
    TaskKey { reaction: "mail".to_owned(), document: DocumentId::new("a").unwrap() }
}

/// What is handled twice in a row by the same process, while it asks whether its claims still stand: the answer is about the first run, and
/// must not end the second.
#[tokio::test(start_paused = true)]
async fn a_run_is_not_ended_by_news_of_the_one_before() {
    let (store, go_on) = (Held::default(), Arc::new(Notify::new()));
    let (begin, mut begun) = mpsc::unbounded_channel();
    let reaction = {
        let go_on = Arc::clone(&go_on);
        Reaction::on_plain("orders", "mail").run(move |_: Context<Json>| {
            let (begin, go_on) = (begin.clone(), Arc::clone(&go_on));
            async move {
                begin.send(())?;
                go_on.notified().await;
                Ok(())
            }
        })
    };
    let reacting = Reactor::on(store.clone()).reaction(reaction).start().await.unwrap();
    reacting.idle().await.unwrap();
    put(&store.memory, Some("1"));
    begun.recv().await.unwrap();
    // The next one who asks for tasks is who renews claims.
    store.holds_loads.store(true, Ordering::Relaxed);
    store.is_held.notified().await;
    store.holds_loads.store(false, Ordering::Relaxed);
    go_on.notify_one();
    while reacting.task(key()).await.unwrap().unwrap().state != State::Done {
        tokio::task::yield_now().await;
    }
    put(&store.memory, Some("2"));
    begun.recv().await.unwrap();
    store.go_on.notify_one();
    // Renewed once more: what was asked before is long answered.
    tokio::time::sleep(Duration::from_secs(2)).await;
    go_on.notify_one();
    reacting.idle().await.unwrap();
    let counts = reacting.counts();
    assert_eq!((counts.done, counts.lost, counts.takeovers), (2, 0, 0), "{counts:?}");
}
