//! The access of handlers to the store, independent of its type.

use std::any::Any;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;

use crate::error::Result;
use crate::mutant;
use crate::react::reactor::Shared;
use crate::react::store::{ReactionStore, Registered};

type BoxFuture<T> = Pin<Box<dyn Future<Output = Result<T>> + Send>>;

/// The store operations that a handler needs, independent of the store's type.
pub(crate) trait StoreAccess: Send + Sync {
    /// Returns the store's time, estimated without a request to the store.
    fn now(&self) -> Timestamp;
    fn random(&self) -> u64;
    fn throttle(&self, reaction: &str, until: Timestamp) -> BoxFuture<()>;
    fn pause(&self, reaction: &str, reason: &str) -> BoxFuture<()>;
    fn take_lease(&self, name: String, owner: String, length: Duration) -> BoxFuture<Option<u64>>;
    fn give_lease(&self, name: String, owner: String) -> BoxFuture<()>;
    fn as_any(&self) -> &dyn Any;
}

/// The store of a reactor, for its handlers.
pub(crate) struct HandlerAccess<S>(pub(crate) Arc<Shared<S>>);

impl<S: ReactionStore> StoreAccess for HandlerAccess<S> {
    fn now(&self) -> Timestamp {
        self.0.now()
    }

    fn random(&self) -> u64 {
        self.0.env.random()
    }

    fn throttle(&self, reaction: &str, until: Timestamp) -> BoxFuture<()> {
        let (shared, reaction) = (Arc::clone(&self.0), reaction.to_owned());
        Box::pin(async move {
            mutant!(ThrottleNobody => return Ok(()));
            let throttle = |registered: &mut Registered| {
                registered.throttled = Some(registered.throttled.map_or(until, |before| before.max(until)));
            };
            shared.change(&reaction, throttle).await.map(drop)
        })
    }

    fn pause(&self, reaction: &str, reason: &str) -> BoxFuture<()> {
        let (shared, reaction, reason) = (Arc::clone(&self.0), reaction.to_owned(), reason.to_owned());
        Box::pin(async move {
            let pause = |registered: &mut Registered| {
                registered.paused = true;
                registered.paused_because = Some(reason.clone());
            };
            shared.change(&reaction, pause).await.map(drop)
        })
    }

    fn take_lease(&self, name: String, owner: String, length: Duration) -> BoxFuture<Option<u64>> {
        let shared = Arc::clone(&self.0);
        Box::pin(async move { shared.store.take_lease(&name, &owner, length).await })
    }

    fn give_lease(&self, name: String, owner: String) -> BoxFuture<()> {
        let shared = Arc::clone(&self.0);
        Box::pin(async move { shared.store.give_lease(&name, &owner).await })
    }

    fn as_any(&self) -> &dyn Any {
        &self.0.store
    }
}
