//! A reactor from documents to handlers.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use super::fixtures::{carts, write};
use crate::fold::Projection;
use crate::react::{Reaction, ReactionStore, Reactor, Retry, State};
use crate::store::Store;
use crate::testing::conformance::soon;

/// From documents to handlers, with a reactor: matching documents are handled, and handled again
/// when they change. Two processes share the work, and changes without a running process are
/// handled later.
pub async fn documents_are_reacted_to<S: Store + ReactionStore>(store: S) {
    let handled: Arc<Mutex<Vec<(String, u64)>>> = Arc::default();
    let reaction = || {
        let handled = Arc::clone(&handled);
        let filter = r#"{"n":{"$gt":0}}"#.parse().unwrap();
        let draft =
            Reaction::on(Numbers, "count").filter(filter).retry(Retry::fixed(Duration::from_millis(10)));
        draft.run(move |ctx| {
            let handled = Arc::clone(&handled);
            async move {
                let document: BTreeMap<String, u64> = ctx.document().await?;
                if ctx.attempt() == 1 && document["n"] % 7 == 3 {
                    return Err("not at the first attempt".into());
                }
                handled.lock().unwrap().push((ctx.id().to_string(), document["n"]));
                Ok(())
            }
        })
    };
    store.prepare(&carts()).await.unwrap();
    let body = |number: u64| format!(r#"{{"n":{number}}}"#);
    for number in 0..20 {
        write(&store, &[(&format!("d{number:02}"), Some(&body(number)))]).await;
    }
    let start = async || Reactor::on(store.clone()).reaction(reaction()).start().await.unwrap();
    let (first, second) = (start().await, start().await);
    soon(first.idle_within(Duration::from_secs(5))).await.unwrap();
    let sorted = || {
        let mut all = handled.lock().unwrap().clone();
        all.sort();
        all
    };
    let expected: Vec<_> = (1..20).map(|number| (format!("d{number:02}"), number)).collect();
    assert_eq!(sorted(), expected, "each existing document once");
    write(
        &store,
        &[("d05", Some(&body(100))), ("d06", None), ("d00", Some(&body(1))), ("d07", Some(&body(0)))],
    )
    .await;
    soon(second.idle_within(Duration::from_secs(5))).await.unwrap();
    assert_eq!(sorted().len(), 21);
    assert!(sorted().contains(&("d05".to_owned(), 100)) && sorted().contains(&("d00".to_owned(), 1)));
    first.stop(Duration::from_secs(5)).await;
    second.stop(Duration::from_secs(5)).await;
    write(&store, &[("d99", Some(&body(99)))]).await;
    let third = start().await;
    soon(third.idle_within(Duration::from_secs(5))).await.unwrap();
    assert!(sorted().len() == 22 && sorted().contains(&("d99".to_owned(), 99)));
    third.assert_no_failures().await.unwrap();
    let depths = third.depths().await.unwrap();
    let done = depths["count"].states.get(&State::Done).copied();
    assert_eq!(done, Some(21), "{depths:?}");
    third.stop(Duration::from_secs(5)).await;
}

struct Numbers;

impl Projection for Numbers {
    type Event = ();
    type Document = BTreeMap<String, u64>;

    fn name(&self) -> &'static str {
        "carts"
    }

    fn fold(
        &self,
        document: Option<Self::Document>,
        _: &crate::event::Event<()>,
    ) -> Result<Option<Self::Document>, crate::fold::Error> {
        Ok(document)
    }
}
