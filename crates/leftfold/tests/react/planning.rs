//! Planning after lost changes, and with changed code.

use std::time::Duration;

use crate::fixtures::{Mails, Order, draft, key, put, remove, sends, start, state, until};
use leftfold::Memory;
use leftfold::react::{Context, Evolution, Filter, Paths, Reaction, ReactionStore as _, Reactor, State};
use serde_json::json;

#[tokio::test(start_paused = true)]
async fn changes_that_were_lost_are_found_by_comparing() {
    let (store, mails) = (Memory::default(), Mails::default());
    let reacting = start(&store, sends(draft(), &mails)).await;
    put(&store, "a", &json!({ "status": "confirmed", "total": 1 }));
    put(&store, "gone", &json!({ "status": "confirmed", "total": 1 }));
    reacting.idle().await.unwrap();
    reacting.stop(Duration::from_secs(1)).await;
    for number in 0..1_200 {
        put(&store, &format!("o{number:04}"), &json!({ "status": "confirmed", "total": number }));
    }
    put(&store, "a", &json!({ "status": "confirmed", "total": 2 }));
    remove(&store, "gone");
    store.forget_changes();
    let reacting = start(&store, sends(draft(), &mails)).await;
    reacting.idle().await.unwrap();
    assert_eq!((mails.of("a"), mails.count()), (vec![1, 2], 1_203));
    assert!(!reacting.task(key("mail", "gone")).await.unwrap().unwrap().inside);
}

/// A lost feed position has the same effect as lost changes.
#[tokio::test(start_paused = true)]
async fn a_place_that_is_gone_is_made_up_for_by_comparing() {
    let (store, mails) = (Memory::default(), Mails::default());
    let reacting = start(&store, sends(draft(), &mails)).await;
    reacting.idle().await.unwrap();
    reacting.stop(Duration::from_secs(1)).await;
    put(&store, "a", &json!({ "status": "confirmed", "total": 1 }));
    let lease =
        store.take_lease("feed of plain orders", "somebody", Duration::from_secs(1)).await.unwrap().unwrap();
    assert!(store.put_feed_place("feed of plain orders", lease, None).await.unwrap());
    store.give_lease("feed of plain orders", "somebody").await.unwrap();
    let reacting = start(&store, sends(draft(), &mails)).await;
    reacting.idle().await.unwrap();
    assert_eq!(mails.of("a"), [1]);
}

/// A process that follows the documents but does not know a reaction must not lose that reaction's
/// changes.
#[tokio::test(start_paused = true)]
async fn who_plans_need_not_know_all_reactions() {
    let (store, mails, others) = (Memory::default(), Mails::default(), Mails::default());
    let other = Reaction::on_plain("orders", "audit").run({
        let others = others.clone();
        move |ctx: Context<Order>| {
            let others = others.clone();
            async move {
                others.send(&ctx, &ctx.document().await?);
                Ok(())
            }
        }
    });
    // The first process has the lease, and does not know the mail reaction.
    let first = start(&store, other).await;
    put(&store, "a", &json!({ "status": "confirmed", "total": 1 }));
    first.idle().await.unwrap();
    let second = start(&store, sends(draft(), &mails)).await;
    second.idle().await.unwrap();
    put(&store, "b", &json!({ "status": "confirmed", "total": 2 }));
    put(&store, "a", &json!({ "status": "confirmed", "total": 3 }));
    first.idle().await.unwrap();
    second.idle().await.unwrap();
    assert_eq!((mails.of("a"), mails.of("b")), (vec![1, 3], vec![2]));
    assert_eq!((others.of("a"), others.of("b")), (vec![1, 3], vec![2]));
    // Some processes only plan, some only run.
    second.stop(Duration::from_secs(1)).await;
    let planner = Reactor::on(store.clone())
        .reaction(sends(draft(), &mails))
        .runs(Vec::<String>::new())
        .start()
        .await
        .unwrap();
    put(&store, "c", &json!({ "status": "confirmed", "total": 4 }));
    until("it is planned", async || state(&planner, "c").await == Some(State::Pending)).await;
    let runner =
        Reactor::on(store.clone()).reaction(sends(draft(), &mails)).plans(false).start().await.unwrap();
    runner.idle().await.unwrap();
    assert_eq!(mails.of("c"), [4]);
}

#[tokio::test(start_paused = true)]
async fn filters_and_paths_are_data_and_time_counts() {
    let (store, mails) = (Memory::default(), Mails::default());
    let now = store.time().await.unwrap();
    let overdue: Filter = r#"{"status":"open","since":{"$lt":{"$now":"-1h"}}}"#.parse().unwrap();
    let reaction =
        Reaction::on_plain("orders", "mail").filter(overdue).watch_paths(Paths::new(["total"]).unwrap());
    let reacting = start(&store, sends(reaction, &mails)).await;
    let since = |minutes: i64| {
        let at = now - jiff::SignedDuration::from_mins(minutes);
        json!({ "$date": at.to_string() })
    };
    put(&store, "old", &json!({ "status": "open", "since": since(90), "total": 1 }));
    put(&store, "new", &json!({ "status": "open", "since": since(30), "total": 2 }));
    put(&store, "paid", &json!({ "status": "open", "since": since(30), "total": 3 }));
    reacting.idle().await.unwrap();
    assert_eq!((mails.of("old"), mails.of("new")), (vec![1], vec![]));
    put(&store, "paid", &json!({ "status": "paid", "since": since(30), "total": 3 }));
    // Only the time changes.
    tokio::time::sleep(Duration::from_mins(31)).await;
    reacting.idle().await.unwrap();
    assert_eq!((mails.of("new"), mails.of("paid")), (vec![2], vec![]));
}

#[tokio::test(start_paused = true)]
async fn a_changed_reaction_compares_and_a_new_version_does_again_what_it_is_told_to() {
    let (store, mails) = (Memory::default(), Mails::default());
    let first = start(&store, sends(draft(), &mails)).await;
    put(&store, "a", &json!({ "status": "confirmed", "total": 1 }));
    put(&store, "open", &json!({ "status": "open", "total": 2 }));
    first.idle().await.unwrap();
    first.stop(Duration::from_secs(1)).await;
    // A wider filter finds documents that were left out before.
    let all = Reaction::on_plain("orders", "mail").watch(|order: &Order| order.total).trigger_version(2);
    let second = start(&store, sends(all, &mails)).await;
    second.idle().await.unwrap();
    assert_eq!((mails.of("a"), mails.of("open")), (vec![1], vec![2]));
    second.stop(Duration::from_secs(1)).await;
    // New code runs everything again; old code that still runs does not.
    let old_mails = Mails::default();
    let draft = || Reaction::on_plain("orders", "mail").watch(|order: &Order| order.total).trigger_version(2);
    let old = start(&store, sends(draft(), &old_mails)).await;
    let new = start(&store, sends(draft().version(2, Evolution::AllAgain), &mails)).await;
    new.idle().await.unwrap();
    assert_eq!((mails.of("a"), mails.of("open"), old_mails.count()), (vec![1, 1], vec![2, 2], 0));
    old.stop(Duration::from_secs(1)).await;
}
