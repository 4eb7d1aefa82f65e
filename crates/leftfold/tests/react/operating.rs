//! Pauses, cleanup, and invalid reactions.

use std::time::Duration;

use crate::fixtures::{Mails, draft, put, remove, sends, start, state, until};
use leftfold::Memory;
use leftfold::react::{Cleanup, Evolution, Reaction, Reactor, Retry, State};
use serde_json::json;

#[tokio::test(start_paused = true)]
async fn a_paused_reaction_waits_until_it_is_resumed() {
    let (store, mails) = (Memory::default(), Mails::default());
    let reacting = start(&store, sends(draft(), &mails)).await;
    reacting.pause("mail").await.unwrap();
    put(&store, "a", &json!({ "status": "confirmed" }));
    reacting.idle().await.unwrap();
    assert_eq!((mails.count(), state(&reacting, "a").await), (0, Some(State::Pending)));
    reacting.resume("mail").await.unwrap();
    reacting.idle().await.unwrap();
    assert_eq!(mails.count(), 1);
    assert!(
        reacting
            .pause("nothing")
            .await
            .unwrap_err()
            .to_string()
            .contains("the name of a registered reaction")
    );
}

#[tokio::test(start_paused = true)]
async fn tasks_are_forgotten_when_their_time_is_over() {
    let (store, mails) = (Memory::default(), Mails::default());
    let cleanup = Cleanup::Gone(Duration::from_hours(1));
    let reacting = start(&store, sends(draft().cleanup(cleanup), &mails)).await;
    for name in ["gone", "outside", "inside"] {
        put(&store, name, &json!({ "status": "confirmed" }));
    }
    reacting.idle().await.unwrap();
    remove(&store, "gone");
    put(&store, "outside", &json!({ "status": "open" }));
    reacting.idle().await.unwrap();
    assert_eq!(reacting.sweep().await.unwrap(), 0, "not yet");
    // The sweep also happens by itself.
    tokio::time::sleep(Duration::from_mins(63)).await;
    until("it is forgotten", async || state(&reacting, "gone").await.is_none()).await;
    assert!(state(&reacting, "outside").await.is_some() && state(&reacting, "inside").await.is_some());
    reacting.stop(Duration::from_secs(1)).await;
    let strict = sends(draft().cleanup(Cleanup::GoneOrOutside(Duration::from_hours(1))), &mails);
    let reacting = start(&store, strict).await;
    assert_eq!(reacting.sweep().await.unwrap(), 1);
    assert!(state(&reacting, "outside").await.is_none() && state(&reacting, "inside").await.is_some());
}

#[tokio::test(start_paused = true)]
async fn what_can_not_work_is_refused_by_name() {
    let mails = Mails::default();
    let refused = [
        (sends(Reaction::on_plain("orders", "no name!"), &mails), "no name!"),
        (sends(Reaction::on_plain("leftfold.x", "mail"), &mails), "leftfold.x"),
        (sends(draft().debounce(Duration::from_secs(9)).at_most(Duration::from_secs(1)), &mails), "at_most"),
        (sends(draft().retry(Retry::series([])), &mails), "series"),
        (sends(draft().concurrency(0), &mails), "concurrency"),
        (sends(draft().visibility(Duration::ZERO), &mails), "visibility"),
        (sends(draft().version(0, Evolution::Nothing), &mails), "version"),
    ];
    for (reaction, named) in refused {
        let started = Reactor::on(Memory::default()).reaction(reaction).start().await;
        let error = started.map(drop).unwrap_err().to_string();
        assert!(error.contains(named), "{error}");
    }
    let twice =
        Reactor::on(Memory::default()).reaction(sends(draft(), &mails)).reaction(sends(draft(), &mails));
    assert!(twice.start().await.map(drop).unwrap_err().to_string().contains("its own name"));
    let unknown = Reactor::on(Memory::default()).reaction(sends(draft(), &mails)).runs(["nothing"]);
    assert!(unknown.start().await.map(drop).unwrap_err().to_string().contains("mail"));
}
