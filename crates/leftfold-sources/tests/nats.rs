//! NATS JetStream on a real server, which is killed.

#![allow(clippy::unwrap_used, reason = "a step that fails fails the test")]

mod common;
#[path = "common/path.rs"]
mod path;

use std::time::Duration;

use async_nats::HeaderMap;
use async_nats::jetstream::stream::{Config, StorageType};
use async_nats::jetstream::{self, Context};
use common::{event, soon};
use leftfold_sources::nats::Nats;
use leftfold_sources::{Message, Source as _};
use leftfold_testbed::nats::Server;
use path::{Rig, whole_path};

struct OnNats(Server);

impl OnNats {
    async fn start() -> Self {
        let nats = Self(Server::start().await.unwrap());
        let subjects = vec!["orders.>".into()];
        let config =
            Config { name: "ORDERS".into(), subjects, storage: StorageType::File, ..Config::default() };
        nats.context().await.create_stream(config).await.unwrap();
        nats
    }

    async fn context(&self) -> Context {
        jetstream::new(async_nats::connect(self.0.url()).await.unwrap())
    }
}

impl Rig for OnNats {
    type Source = Nats;

    async fn source(&self) -> Nats {
        Nats::new(&self.0.url(), "ORDERS", "leftfold").unwrap().ack_wait(Duration::from_secs(1))
    }

    async fn publish(&self, messages: Vec<Message>) {
        let context = self.context().await;
        for message in messages {
            let mut headers = HeaderMap::new();
            for (name, value) in &message.attributes {
                headers.insert(&name[..], &value[..]);
            }
            let sent =
                context.publish_with_headers("orders.all", headers, message.content.into()).await.unwrap();
            sent.await.unwrap();
        }
    }

    async fn kill(&self) {
        self.0.kill().await.unwrap();
    }

    async fn restart(&self) {
        self.0.restart().await.unwrap();
    }

    async fn left(&self) -> u64 {
        let stream = self.context().await.get_stream("ORDERS").await.unwrap();
        let info = stream.consumer_info("leftfold").await.unwrap();
        info.num_pending + info.num_ack_pending as u64
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn from_nats_to_documents() {
    whole_path(&OnNats::start().await).await;
}

#[tokio::test]
async fn what_is_refused_comes_again_and_what_is_cancelled_is_not_lost() {
    let nats = OnNats::start().await;
    let mut source = nats.source().await;
    for _ in 0..3 {
        assert!(tokio::time::timeout(Duration::from_millis(50), source.receive(10)).await.is_err());
    }
    nats.publish(vec![event(1, 1).with("Trace", "t")]).await;
    let mut received = soon("a message", source.receive(10)).await.unwrap();
    let (message, receipt) = received.remove(0);
    let expected = event(1, 1).with("trace", "t").with("subject", "orders.all").with("nats-sequence", "1");
    assert_eq!(message, expected);
    let begun = tokio::time::Instant::now();
    source.refuse(vec![receipt], Duration::from_millis(300)).await.unwrap();
    let mut again = soon("it comes again", source.receive(10)).await.unwrap();
    assert!(begun.elapsed() >= Duration::from_millis(300), "not before its time");
    source.acknowledge(vec![again.remove(0).1]).await.unwrap();
    common::until("it is acknowledged", async || nats.left().await == 0).await;
}

#[tokio::test]
async fn what_can_not_work_is_said_at_once() {
    let nats = OnNats::start().await;
    let missing =
        Nats::new(&nats.0.url(), "OTHER", "leftfold").unwrap().receive(1).await.map(drop).unwrap_err();
    assert!(
        !missing.is_transient() && missing.to_string().contains("the stream does not exist; create it first"),
        "{missing}"
    );
    let missing = Nats::new(&nats.0.url(), "OTHER", "leftfold").unwrap().check().await.unwrap_err();
    assert!(!missing.is_transient() && missing.to_string().contains("create it first"), "{missing}");
    let stream = nats.context().await.get_stream("ORDERS").await.unwrap();
    let config = jetstream::consumer::pull::Config {
        durable_name: Some("lossy".into()),
        ack_policy: jetstream::consumer::AckPolicy::Explicit,
        max_deliver: 3,
        ..Default::default()
    };
    stream.create_consumer(config).await.unwrap();
    let lossy = Nats::new(&nats.0.url(), "ORDERS", "lossy").unwrap().receive(1).await.map(drop).unwrap_err();
    assert!(!lossy.is_transient() && lossy.to_string().contains("max_deliver 3"), "{lossy}");
    let unreachable =
        Nats::new("nats://127.0.0.1:1", "ORDERS", "c").unwrap().receive(1).await.map(drop).unwrap_err();
    assert!(unreachable.is_transient(), "{unreachable}");
    for bad in ["", "a.b", "a b", "a>"] {
        assert!(
            Nats::new("nats://localhost", bad, "c").is_err()
                && Nats::new("nats://localhost", "S", bad).is_err()
        );
    }
}
