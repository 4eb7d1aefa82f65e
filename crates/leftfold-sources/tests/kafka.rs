//! Kafka, on librdkafka's mock cluster, which speaks the real protocol and is unavailable for a
//! while.

#![allow(clippy::unwrap_used, reason = "a step that fails fails the test")]

mod common;
#[path = "common/path.rs"]
mod path;

use std::collections::BTreeSet;
use std::time::Duration;

use common::{event, soon, until};
use leftfold_sources::kafka::Kafka;
use leftfold_sources::{Message, Source as _};
use path::{Rig, whole_path};
use rdkafka::config::ClientConfig;
use rdkafka::consumer::{BaseConsumer, Consumer as _};
use rdkafka::message::{Header, OwnedHeaders};
use rdkafka::mocking::MockCluster;
use rdkafka::producer::{DefaultProducerContext, FutureProducer, FutureRecord};
use rdkafka::{Offset, TopicPartitionList};

const PARTITIONS: i32 = 3;
const ANSWER: Duration = Duration::from_secs(10);

struct OnKafka(MockCluster<'static, DefaultProducerContext>);

impl OnKafka {
    fn start() -> Self {
        let cluster = MockCluster::new(1).unwrap();
        cluster.create_topic("orders", PARTITIONS, 1).unwrap();
        Self(cluster)
    }

    fn config(&self) -> ClientConfig {
        let mut config = ClientConfig::new();
        config.set("bootstrap.servers", self.0.bootstrap_servers());
        config
    }

    async fn publish_to(&self, partition: Option<i32>, messages: Vec<Message>) {
        let producer: FutureProducer = self.config().create().unwrap();
        for (number, message) in messages.into_iter().enumerate() {
            let mut headers = OwnedHeaders::new();
            for (name, value) in &message.attributes {
                headers = headers.insert(Header { key: name, value: Some(value) });
            }
            let key = number.to_string();
            let mut record = FutureRecord::to("orders").payload(&message.content).key(&key).headers(headers);
            record.partition = partition;
            producer.send(record, ANSWER).await.unwrap();
        }
    }
}

impl Rig for OnKafka {
    type Source = Kafka;

    const NOTICES: bool = false;

    async fn source(&self) -> Kafka {
        let source = Kafka::new(&self.0.bootstrap_servers(), &["orders"], "leftfold").unwrap();
        source.set("session.timeout.ms", "6000").unwrap()
    }

    async fn publish(&self, messages: Vec<Message>) {
        self.publish_to(None, messages).await;
    }

    async fn kill(&self) {
        self.0.broker_down(1).unwrap();
    }

    async fn restart(&self) {
        self.0.broker_up(1).unwrap();
    }

    async fn left(&self) -> u64 {
        let consumer: BaseConsumer = self.config().set("group.id", "leftfold").create().unwrap();
        let left = tokio::task::spawn_blocking(move || {
            let mut asked = TopicPartitionList::new();
            asked.add_partition_range("orders", 0, PARTITIONS - 1);
            let committed = consumer.committed_offsets(asked, ANSWER).unwrap();
            let mut left = 0;
            for element in committed.elements() {
                let (low, high) = consumer.fetch_watermarks("orders", element.partition(), ANSWER).unwrap();
                left += high - if let Offset::Offset(offset) = element.offset() { offset } else { low };
            }
            u64::try_from(left).unwrap()
        });
        left.await.unwrap()
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn from_kafka_to_documents() {
    whole_path(&OnKafka::start()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_refused_is_read_again_and_nothing_before_it_is_skipped() {
    let kafka = OnKafka::start();
    let mut source = kafka.source().await;
    for _ in 0..3 {
        assert!(tokio::time::timeout(Duration::from_millis(50), source.receive(10)).await.is_err());
    }
    let messages = vec![event(1, 1).with("Trace", "t"), event(1, 2), event(1, 3), event(1, 4)];
    kafka.publish_to(Some(0), messages).await;
    let mut received = Vec::new();
    while received.len() < 4 {
        received.extend(soon("messages", source.receive(10)).await.unwrap());
    }
    let first = &received[0].0;
    assert_eq!(first.content, event(1, 1).content);
    let text = ["trace", "key", "topic", "partition", "offset"].map(|name| first.attribute(name).unwrap());
    assert_eq!(text, ["t", "0", "orders", "0", "0"]);

    // The third is refused; the others are safe.
    let mut receipts: Vec<_> = received.into_iter().map(|(_, receipt)| receipt).collect();
    let third = receipts.remove(2);
    source.acknowledge(receipts).await.unwrap();
    until("what is before the third is committed", async || kafka.left().await == 2).await;
    let begun = tokio::time::Instant::now();
    source.refuse(vec![third], Duration::from_millis(500)).await.unwrap();
    // Other partitions continue meanwhile.
    kafka.publish_to(Some(1), vec![event(2, 1)]).await;
    let (mut seen, mut receipts) = (BTreeSet::new(), Vec::new());
    while seen.len() < 3 {
        for (message, receipt) in soon("they come again", source.receive(10)).await.unwrap() {
            if message.attribute("partition") == Some("0") {
                assert!(begun.elapsed() >= Duration::from_millis(500), "not before its time");
            }
            seen.insert(message.content);
            receipts.push(receipt);
        }
    }
    let expected = [event(1, 3), event(1, 4), event(2, 1)].map(|message| message.content);
    assert_eq!(seen, BTreeSet::from(expected));
    source.acknowledge(receipts).await.unwrap();
    until("all is committed", async || kafka.left().await == 0).await;
}

#[tokio::test]
async fn what_can_not_work_is_said_at_once() {
    assert!(Kafka::new("", &["orders"], "g").is_err());
    assert!(Kafka::new("localhost", &[], "g").is_err() && Kafka::new("localhost", &["a", ""], "g").is_err());
    let auto = Kafka::new("localhost", &["a"], "g").unwrap().set("enable.auto.commit", "true");
    assert!(auto.map(drop).unwrap_err().to_string().contains("enable.auto.commit"));
    let mut unknown = Kafka::new("localhost", &["a"], "g").unwrap().set("no.such.option", "1").unwrap();
    let error = unknown.receive(1).await.map(drop).unwrap_err();
    assert!(!error.is_transient() && error.to_string().contains("no.such.option"), "{error}");
    let error = unknown.check().await.unwrap_err();
    assert!(!error.is_transient() && error.to_string().contains("no.such.option"), "{error}");
}
