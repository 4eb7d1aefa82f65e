//! Values and checks that these tests share.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use leftfold::react::{Context, Draft, ExternalCollection, Reaction, Reactor, ReactorHandle, State, TaskKey};
use leftfold::{DocumentId, Json, Memory};
use serde::Deserialize;
use serde_json::Value;

#[derive(Clone, Debug, Deserialize)]
pub(crate) struct Order {
    pub(crate) status: String,
    #[serde(default)]
    pub(crate) total: u64,
}

pub(crate) fn orders() -> ExternalCollection {
    ExternalCollection::new("orders").unwrap()
}

pub(crate) fn id(name: &str) -> DocumentId {
    DocumentId::new(name).unwrap()
}

pub(crate) fn key(reaction: &str, document: &str) -> TaskKey {
    TaskKey { reaction: reaction.to_owned(), document: id(document) }
}

pub(crate) fn put(store: &Memory, name: &str, document: &Value) {
    store.write_plain(&orders(), id(name), Some(Json::of(document).unwrap()));
}

pub(crate) fn remove(store: &Memory, name: &str) {
    store.write_plain(&orders(), id(name), None);
}

/// The documents that handlers saw, one entry per run.
#[derive(Clone, Default)]
pub(crate) struct Mails(Arc<Mutex<Vec<(String, u64, String)>>>);

impl Mails {
    pub(crate) fn send(&self, ctx: &Context<Order>, order: &Order) {
        self.0.lock().unwrap().push((ctx.id().to_string(), order.total, ctx.idempotency_key()));
    }

    pub(crate) fn of(&self, name: &str) -> Vec<u64> {
        self.0.lock().unwrap().iter().filter(|mail| mail.0 == name).map(|mail| mail.1).collect()
    }

    pub(crate) fn count(&self) -> usize {
        self.0.lock().unwrap().len()
    }
}

/// Returns a reaction that sends a mail for each confirmed order, and again if its total changes.
pub(crate) fn draft() -> Draft<Order> {
    Reaction::on_plain("orders", "mail")
        .when(|order: &Order| order.status == "confirmed")
        .watch(|order| order.total)
}

pub(crate) fn sends(draft: Draft<Order>, mails: &Mails) -> Reaction {
    let mails = mails.clone();
    draft.run(move |ctx| {
        let mails = mails.clone();
        async move {
            let order = ctx.document().await?;
            mails.send(&ctx, &order);
            Ok(())
        }
    })
}

pub(crate) async fn start(store: &Memory, reaction: Reaction) -> ReactorHandle<Memory> {
    Reactor::on(store.clone()).reaction(reaction).start().await.unwrap()
}

pub(crate) async fn state(reacting: &ReactorHandle<Memory>, name: &str) -> Option<State> {
    reacting.task(key("mail", name)).await.unwrap().map(|task| task.state)
}

/// Polls until the condition holds; paused time advances by itself.
pub(crate) async fn until(what: &str, mut is_so: impl AsyncFnMut() -> bool) {
    let asking = async {
        while !is_so().await {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(Duration::from_hours(1), asking).await.unwrap_or_else(|_| panic!("{what}"));
}
