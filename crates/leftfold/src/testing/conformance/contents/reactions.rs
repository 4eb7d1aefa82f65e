//! Reactions to such documents.

use std::time::Duration;

use super::fixtures::{THINGS, Thing, canonical, operation};
use crate::content::{Contents, Versioned, WriteAnswer};
use crate::json::Json;
use crate::react::{Context, Reaction, ReactionStore, Reactor};
use crate::testing::conformance::soon;

/// Reactions see such documents without their guards.
pub async fn contents_are_reacted_to<S: Contents + ReactionStore>(store: S) {
    let things = Versioned::<Thing, _>::new(store.clone(), THINGS).await.unwrap();
    let (sender, mut received) = tokio::sync::mpsc::unbounded_channel();
    let reaction = Reaction::on_plain(THINGS, "tell").run(move |ctx: Context<Json>| {
        let sender = sender.clone();
        async move { Ok(sender.send(canonical(&ctx.document().await?))?) }
    });
    let reacting = Reactor::on(store).reaction(reaction).start().await.unwrap();
    let WriteAnswer::Applied(_) = things.insert("a", &Thing { n: 1, seen: 0 }).await.unwrap() else {
        panic!("refused")
    };
    assert_eq!(soon(received.recv()).await.unwrap(), r#"{"n":1,"seen":0}"#);
    things.operate("a", operation(1).increment("n", 1).unwrap()).await.unwrap();
    assert_eq!(soon(received.recv()).await.unwrap(), r#"{"n":2,"seen":0}"#);
    reacting.stop(Duration::from_secs(5)).await;
}
