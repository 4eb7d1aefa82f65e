//! The guarantees of a feed, on a broker and a store in memory that fail on demand. Acknowledged
//! messages are safe, a bad message blocks nothing, and a full store only slows the feed down.

#![allow(clippy::unwrap_used, reason = "a step that fails fails the test")]

#[path = "common/broker.rs"]
mod broker;
mod common;
#[path = "common/faulty.rs"]
mod faulty;

use std::sync::Arc;
use std::time::Duration;

use broker::Broker;
use common::{assert_right, event, event_with, logged, poison, rejected, shuffled, soon, story, until};
use faulty::{Fault, Faulty};
use leftfold::sequence::{HoldingLimits, MAX_REJECTED, Rejected};
use leftfold::testing::bad_json;
use leftfold::{
    Backoff, Error, IngestAnswer, Kind, Memory, Policy, Result, Sequencer, Sequences, StreamId, System,
};
use leftfold_sources::{CloudEvents, Feed, Handle, Mapping, Message, Resubmitted, resubmit};
use tokio::sync::watch;
use tokio::task::JoinHandle;

struct Running {
    handle: Handle,
    stop: watch::Sender<bool>,
    task: JoinHandle<Result<()>>,
}

impl Running {
    async fn stop(self) -> Handle {
        self.stop.send_replace(true);
        soon("stopping", self.task).await.unwrap().unwrap();
        self.handle
    }
}

fn start<S: Sequences + Clone>(broker: &Broker, sequencer: &Sequencer<S>, batch: usize) -> Running {
    let (stop, stopped) = watch::channel(false);
    let feed =
        Feed::new(broker.consumer(), sequencer.clone(), Mapping::default(), Policy::Contiguous).batch(batch);
    Running { handle: feed.handle(), stop, task: tokio::spawn(feed.run(stopped)) }
}

async fn emptied(broker: &Broker) {
    until("the broker has nothing left", async || broker.is_empty()).await;
}

#[tokio::test(start_paused = true)]
async fn duplicates_reordering_and_poison_end_in_a_right_log() {
    for seed in 0..20 {
        let (broker, store) = (Broker::default(), Memory::default());
        let mut messages = story(5, 40);
        for (number, poison) in poison().into_iter().enumerate() {
            messages.insert(number * 37, poison);
        }
        let messages = shuffled(messages, 30, seed);
        let count = messages.len() as u64;
        broker.publish(messages);
        let running = start(&broker, &Sequencer::new(store.clone()), 16);
        emptied(&broker).await;
        let counts = running.stop().await.counts();

        assert_right(&store, 5, 40).await;
        let rejected = rejected(&store).await;
        assert_eq!(rejected.len(), 4, "{rejected:?}");
        for (source, reason) in rejected.values() {
            assert!(
                source == "broker" && reason.starts_with("invalid ") && reason.contains(": expected "),
                "{reason}"
            );
        }
        assert_eq!((counts.received, counts.acknowledged, counts.refused), (count, count, 0));
        assert!(counts.rejected >= 4);
    }
}

/// Brokers can't bring JSON into the log that HTTP would refuse. Each such message is rejected with
/// path and reason, and the carts beside them are right.
#[tokio::test(start_paused = true)]
async fn json_that_breaks_a_rule_is_rejected() {
    let (broker, store) = (Broker::default(), Memory::default());
    let bad: Vec<_> = bad_json()
        .into_iter()
        .zip(1..)
        .flat_map(|(bad, number)| {
            let structured = event_with(&format!("bad-{number}"), 1, &bad.text);
            let mut binary = Message::new(bad.text.clone());
            let attributes =
                [("specversion", "1.0"), ("id", "b"), ("source", "/"), ("type", "t"), ("sequence", "1")];
            for (name, value) in attributes {
                binary = binary.with(&format!("ce_{name}"), value);
            }
            let binary = binary.with("ce_subject", format!("binary-{number}"));
            [(bad.clone(), structured), (bad, binary)]
        })
        .collect();
    let messages = bad.iter().map(|(_, message)| message.clone()).chain(story(2, 20));
    broker.publish(shuffled(messages.collect(), 10, 3));
    let running = start(&broker, &Sequencer::new(store.clone()), 7);
    emptied(&broker).await;
    running.stop().await;

    assert_right(&store, 2, 20).await;
    assert_eq!(common::count(&store).await, 40, "nothing else is in the log");
    let rejected = rejected(&store).await;
    for (bad, message) in bad {
        let (_, reason) = &rejected[&message.content];
        assert!(bad.is_described_by(reason), "{}: {reason}", bad.name);
    }
}

#[tokio::test(start_paused = true)]
async fn a_feed_that_is_dropped_in_the_middle_loses_nothing() {
    let (broker, store) = (Broker::default(), Memory::default());
    broker.publish(shuffled(story(3, 60), 20, 7));
    let sequencer = Sequencer::new(store.clone());
    for events in (10..180).step_by(10) {
        let running = start(&broker, &sequencer, 7);
        logged(&store, events).await;
        running.task.abort();
        drop(running.task.await);
    }
    let running = start(&broker, &sequencer, 7);
    emptied(&broker).await;
    running.stop().await;
    assert_right(&store, 3, 60).await;
}

#[tokio::test(start_paused = true)]
async fn nothing_is_acknowledged_that_the_store_did_not_take() {
    let (broker, store) = (Broker::default(), Faulty::default());
    broker.publish(story(2, 10).into_iter().chain(poison()));
    let down = [Kind::Unavailable, Kind::Store, Kind::Format].map(Fault::Before);
    store.settle.lock().unwrap().extend(down);
    store.reject.lock().unwrap().extend([Fault::Before(Kind::Unavailable); 2]);
    let running = start(&broker, &Sequencer::new(store.clone()), 1_000);
    until("it has failed twice", async || running.handle.counts().failures == 2).await;
    assert_eq!((broker.state().acknowledged, running.handle.counts().acknowledged), (0, 0));
    emptied(&broker).await;
    let counts = running.stop().await.counts();
    assert_right(&store.store, 2, 10).await;
    assert_eq!(rejected(&store).await.len(), 4);
    assert!(counts.failures >= 3 && counts.refused >= 3, "{counts:?}");
    let refused = &broker.state().refused;
    assert!(refused.iter().all(|after| *after >= Duration::from_millis(100)), "{refused:?}");
}

#[tokio::test(start_paused = true)]
async fn what_was_written_although_the_store_did_not_say_so_is_not_written_twice() {
    let (broker, store) = (Broker::default(), Faulty::default());
    broker.publish(shuffled(story(2, 30), 10, 3).into_iter().chain(poison()));
    store.settle.lock().unwrap().extend([Fault::After, Fault::Before(Kind::Unavailable), Fault::After]);
    store.reject.lock().unwrap().push_back(Fault::After);
    let running = start(&broker, &Sequencer::new(store.clone()), 10);
    emptied(&broker).await;
    running.stop().await;
    assert_right(&store.store, 2, 30).await;
    assert_eq!(rejected(&store).await.len(), 4);
}

#[tokio::test(start_paused = true)]
async fn an_event_that_the_store_can_not_take_hinders_no_other() {
    let (broker, store) = (Broker::default(), Faulty::default());
    *store.unacceptable.lock().unwrap() = Some(StreamId::new("cart-3").unwrap());
    broker.publish(story(4, 8));
    let running = start(&broker, &Sequencer::new(store.clone()), 1_000);
    emptied(&broker).await;
    let counts = running.stop().await.counts();
    assert_right(&store.store, 2, 8).await;
    assert_eq!((counts.rejected, counts.acknowledged, counts.refused), (8, 32, 0));
    assert_eq!(rejected(&store).await.len(), 8);
}

#[tokio::test(start_paused = true)]
async fn a_full_holding_area_pushes_back_and_drops_nothing() {
    let (broker, store) = (Broker::default(), Memory::default());
    let limits = HoldingLimits { stream_events: 5, ..HoldingLimits::default() };
    let sequencer = Sequencer::with(store.clone(), limits, Arc::new(System));
    // The first event comes last, so that 19 would have to be held.
    broker
        .publish((2..=20).map(|number| event(1, number)).chain(story(2, 20).into_iter().skip(1).step_by(2)));
    let running = start(&broker, &sequencer, 4);
    until("some are refused", async || running.handle.counts().refused > 30).await;
    assert_eq!(store.waiting(None, 10).await.unwrap()[0].1.waiting.as_ref().unwrap().events, 5);
    assert!(sequencer.counts().appended >= 20, "the other stream goes on");
    assert_eq!(broker.state().unacknowledged.len(), 14);
    assert!(broker.state().refused.iter().all(|after| *after == Duration::from_secs(5)));
    broker.publish([event(1, 1)]);
    emptied(&broker).await;
    running.stop().await;
    assert_right(&store, 2, 20).await;
}

#[tokio::test(start_paused = true)]
async fn poison_that_finds_no_room_comes_again_and_events_go_on() {
    let (broker, store) = (Broker::default(), Memory::default());
    let filler = |number: u64| Rejected {
        source: "elsewhere".into(),
        reason: "it fills the list".into(),
        since: "2026-01-01T00:00:00Z".parse().unwrap(),
        attributes: [].into(),
        content: number.to_le_bytes().into(),
    };
    store.reject((0..MAX_REJECTED).map(filler).collect()).await.unwrap();
    broker.publish(poison().into_iter().chain(story(2, 10)));
    let running = start(&broker, &Sequencer::new(store.clone()), 8);
    logged(&store, 20).await;
    assert_eq!(broker.state().unacknowledged.len(), 4);
    for number in 0..4 {
        assert!(store.forget(&filler(number).id()).await.unwrap());
    }
    emptied(&broker).await;
    running.stop().await;
    assert_right(&store, 2, 10).await;
}

#[tokio::test(start_paused = true)]
async fn a_source_that_fails_is_tried_again_unless_that_is_no_use() {
    let (broker, store) = (Broker::default(), Memory::default());
    let lost = || Error::new(Kind::Unavailable, "receiving: the connection is lost");
    broker.state().receive_fails.extend([lost(), lost(), lost()]);
    broker.state().acknowledge_fails = 2;
    broker.publish(story(2, 10));
    let running = start(&broker, &Sequencer::new(store.clone()), 3);
    emptied(&broker).await;
    assert!(running.stop().await.counts().failures >= 5);
    assert_right(&store, 2, 10).await;

    broker.state().receive_fails.push_back(Error::new(Kind::Invalid, "there is no such queue"));
    let running = start(&broker, &Sequencer::new(store.clone()), 3);
    let ended = soon("it ends", running.task).await.unwrap().unwrap_err();
    assert_eq!(ended.to_string(), "there is no such queue");

    broker.state().receive_fails.extend([lost(), lost(), lost()]);
    let (_stop, stopped) = watch::channel(false);
    let feed = Feed::new(broker.consumer(), Sequencer::new(store), Mapping::default(), Policy::Contiguous);
    let ended = feed.backoff(Backoff::default().limit(2)).run(stopped).await.unwrap_err();
    assert!(ended.is_transient(), "{ended}");
}

#[tokio::test(start_paused = true)]
async fn stopping_needs_no_message() {
    let broker = Broker::default();
    let running = start(&broker, &Sequencer::new(Memory::default()), 10);
    tokio::task::yield_now().await;
    running.stop().await;
    let Running { stop, task, .. } = start(&broker, &Sequencer::new(Memory::default()), 10);
    drop(stop);
    soon("it ends with the sender", task).await.unwrap().unwrap();
}

#[tokio::test(start_paused = true)]
async fn what_was_rejected_can_be_submitted_again() {
    let (broker, store) = (Broker::default(), Memory::default());
    let sequencer = Sequencer::new(store.clone());
    let message = Message::new(r#"{"number":1}"#)
        .with("ce-specversion", "1.0")
        .with("ce-id", "e-1")
        .with("ce-source", "/")
        .with("ce-type", "added")
        .with("ce-partitionkey", "cart-1")
        .with("ce-sequence", "1");
    broker.publish([message, Message::new("junk")]);
    let running = start(&broker, &sequencer, 10);
    emptied(&broker).await;
    running.stop().await;

    let rejected = store.rejected(None, 10).await.unwrap();
    let id = |junk: bool| rejected.iter().find(|one| (one.content == b"junk") == junk).unwrap().id();
    let again = async |id: &str, mapping: &Mapping| {
        resubmit(&sequencer, id, mapping, Policy::Contiguous).await.unwrap()
    };
    let as_before = again(&id(false), &Mapping::default()).await;
    assert!(
        matches!(&as_before, Resubmitted::StillRejected(why) if why.to_string().contains("subject")),
        "{as_before:?}"
    );
    assert_eq!(store.rejected(None, 10).await.unwrap().len(), 2);

    let by_key = CloudEvents { stream: "partitionkey".into(), ..CloudEvents::default() }.into();
    assert!(matches!(again(&id(false), &by_key).await, Resubmitted::Answered(IngestAnswer::Appended(_))));
    assert_eq!(again(&id(false), &by_key).await, Resubmitted::NotThere);
    for nonsense in ["", "x", "é", "ffffffffffffffffffffffffffffffff"] {
        assert_eq!(again(nonsense, &by_key).await, Resubmitted::NotThere, "{nonsense}");
    }
    assert!(matches!(again(&id(true), &by_key).await, Resubmitted::StillRejected(_)));
    assert_right(&store, 1, 1).await;
}
