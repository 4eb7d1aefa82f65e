//! The whole path from a broker to documents, while feeds are dropped midway and the broker is
//! killed.

use std::future::Future;
use std::time::Duration;

use leftfold::{Backoff, Policy, Sequencer};
use leftfold_sources::{Feed, Handle, Mapping, Message, Source};
use leftfold_sqlite::Sqlite;
use tokio::sync::watch;
use tokio::task::JoinHandle;

use super::common::{PATIENCE, assert_right, count, logged, poison, rejected, shuffled, soon, story, until};

/// A broker under test.
pub(crate) trait Rig {
    type Source: Source;

    /// `true` if a feed notices that the broker is gone; `false` if the broker's library reconnects
    /// by itself.
    const NOTICES: bool = true;

    /// Returns a new consumer of the broker's messages.
    fn source(&self) -> impl Future<Output = Self::Source>;

    /// Publishes messages, and returns when they are safe.
    fn publish(&self, messages: Vec<Message>) -> impl Future<Output = ()>;

    fn kill(&self) -> impl Future<Output = ()>;

    fn restart(&self) -> impl Future<Output = ()>;

    /// Returns the number of unacknowledged messages.
    fn left(&self) -> impl Future<Output = u64>;
}

pub(crate) struct Running {
    pub(crate) handle: Handle,
    stop: watch::Sender<bool>,
    task: JoinHandle<leftfold::Result<()>>,
}

impl Running {
    pub(crate) fn start(source: impl Source, sequencer: &Sequencer<Sqlite>) -> Self {
        let (stop, stopped) = watch::channel(false);
        let quick = Backoff::default()
            .first(Duration::from_millis(20))
            .most(Duration::from_millis(500))
            .without_limit();
        let feed = Feed::new(source, sequencer.clone(), Mapping::default(), Policy::Contiguous)
            .batch(50)
            .backoff(quick);
        Self { handle: feed.handle(), stop, task: tokio::spawn(feed.run(stopped)) }
    }

    /// Aborts the feed at any point.
    pub(crate) async fn abort(self) {
        self.task.abort();
        drop(self.task.await);
    }

    pub(crate) async fn stop(self) {
        self.stop.send_replace(true);
        soon("stopping", self.task).await.unwrap().unwrap();
    }
}

const STREAMS: u64 = 10;
const LENGTH: u64 = 60;

pub(crate) async fn whole_path<R: Rig>(rig: &R) {
    let directory = tempfile::tempdir().unwrap();
    let store = Sqlite::open(directory.path().join("shop.db")).await.unwrap();
    let sequencer = Sequencer::new(store.clone());
    let mut messages = story(STREAMS, LENGTH);
    for (number, poison) in poison().into_iter().enumerate() {
        messages.insert(number * 100 + 50, poison);
    }
    let mut messages = shuffled(messages, 60, 11);
    let second = messages.split_off(messages.len() / 2);

    rig.publish(messages).await;
    soon("it can be read from", async { rig.source().await.check().await }).await.unwrap();
    // A consumer receives messages, and is dropped before it processes them.
    let mut careless = rig.source().await;
    assert!(!soon("messages", careless.receive(20)).await.unwrap().is_empty());
    drop(careless);
    for events in [10, 60, 150] {
        let running = Running::start(rig.source().await, &sequencer);
        logged(&store, events).await;
        running.abort().await;
    }
    let mut running = Running::start(rig.source().await, &sequencer);
    logged(&store, 200).await;
    rig.kill().await;
    until("the feed notices", async || !R::NOTICES || running.handle.counts().failures > 0).await;
    rig.restart().await;
    rig.publish(second).await;
    tokio::select! {
        () = logged(&store, STREAMS * LENGTH) => {}
        ended = &mut running.task => panic!("the feed should go on: {ended:?}"),
        () = tokio::time::sleep(PATIENCE / 2) => {
            let (counts, left) = (running.handle.counts(), rig.left().await);
            panic!("{} events in the log, {left} messages left at the broker: {counts:?}", count(&store).await);
        }
    }
    until("nothing is left at the broker", async || rig.left().await == 0).await;
    running.stop().await;

    assert_right(&store, STREAMS, LENGTH).await;
    let rejected = rejected(&store).await;
    assert_eq!(rejected.len(), 4, "{rejected:?}");
}
