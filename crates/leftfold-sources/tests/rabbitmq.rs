//! RabbitMQ on a real server, which is killed.

#![allow(clippy::unwrap_used, reason = "a step that fails fails the test")]

mod common;
#[path = "common/path.rs"]
mod path;

use std::time::Duration;

use common::{event, soon, until};
use lapin::options::{BasicPublishOptions, ConfirmSelectOptions, QueueDeclareOptions};
use lapin::types::{AMQPValue, FieldTable};
use lapin::{BasicProperties, Channel, Confirmation, Connection, ConnectionProperties, Queue};
use leftfold_sources::rabbitmq::RabbitMq;
use leftfold_sources::{Message, Source as _};
use leftfold_testbed::rabbitmq::Server;
use path::{Rig, whole_path};

struct OnRabbitMq(Server);

impl OnRabbitMq {
    async fn start() -> Self {
        let rabbitmq = Self(Server::start().await.unwrap());
        let (connection, channel) = rabbitmq.channel().await;
        let durable = QueueDeclareOptions { durable: true, ..QueueDeclareOptions::default() };
        channel.queue_declare("orders".into(), durable, FieldTable::default()).await.unwrap();
        connection.close(200, "done".into()).await.unwrap();
        // The broker reports the queue before it is on disk, and loses it if it is killed in
        // between.
        until("the broker has written down its queue", async || is_written(rabbitmq.0.directory())).await;
        rabbitmq
    }

    async fn queue(&self) -> Queue {
        let (connection, channel) = self.channel().await;
        let passive = QueueDeclareOptions { passive: true, ..QueueDeclareOptions::default() };
        let queue = channel.queue_declare("orders".into(), passive, FieldTable::default()).await.unwrap();
        connection.close(200, "done".into()).await.unwrap();
        queue
    }

    async fn channel(&self) -> (Connection, Channel) {
        let connection = Connection::connect(&self.0.url(), ConnectionProperties::default()).await.unwrap();
        let channel = connection.create_channel().await.unwrap();
        channel.confirm_select(ConfirmSelectOptions::default()).await.unwrap();
        (connection, channel)
    }
}

/// Returns whether the broker's database has the queue on disk: its log has the intent, followed by
/// the confirmation.
fn is_written(directory: &std::path::Path) -> bool {
    let last = |bytes: &[u8], word: &[u8]| bytes.windows(word.len()).rposition(|found| found == word);
    let entries = std::fs::read_dir(directory).into_iter().flatten().flatten();
    entries.map(|entry| entry.path()).any(|path| {
        if path.is_dir() {
            return is_written(&path);
        }
        let bytes = || std::fs::read(&path).unwrap_or_default();
        match path.extension().and_then(std::ffi::OsStr::to_str) {
            Some("LOG") => {
                let bytes = bytes();
                last(&bytes, b"orders").is_some_and(|named| last(&bytes, b"committed") > Some(named))
            }
            Some("DCL" | "DCD") => last(&bytes(), b"orders").is_some(),
            _ => false,
        }
    })
}

impl Rig for OnRabbitMq {
    type Source = RabbitMq;

    async fn source(&self) -> RabbitMq {
        RabbitMq::new(&self.0.url(), "orders").unwrap().prefetch(100)
    }

    async fn publish(&self, mut messages: Vec<Message>) {
        // A restarting broker briefly returns messages for an existing queue.
        let publishing = async {
            while !messages.is_empty() {
                let (connection, channel) = self.channel().await;
                messages = publish_once(&channel, messages).await;
                connection.close(200, "done".into()).await.unwrap();
                if !messages.is_empty() {
                    tokio::time::sleep(Duration::from_millis(50)).await;
                }
            }
        };
        soon("all messages are in the queue", publishing).await;
    }

    async fn kill(&self) {
        self.0.kill().await.unwrap();
    }

    async fn restart(&self) {
        self.0.restart().await.unwrap();
    }

    async fn left(&self) -> u64 {
        self.queue().await.message_count().into()
    }
}

/// Publishes messages once. Returns those that no queue has accepted.
async fn publish_once(channel: &Channel, messages: Vec<Message>) -> Vec<Message> {
    let mut confirms = Vec::new();
    for message in messages {
        let mut headers = FieldTable::default();
        let mut properties = BasicProperties::default().with_delivery_mode(2);
        for (name, value) in &message.attributes {
            match &name[..] {
                "content-type" => properties = properties.with_content_type(value.as_str().into()),
                _ => {
                    headers.insert(name.as_str().into(), AMQPValue::LongString(value.as_str().into()));
                }
            }
        }
        let properties = properties.with_headers(headers);
        // Without `mandatory`, messages that no queue accepts are confirmed and dropped.
        let options = BasicPublishOptions { mandatory: true, ..BasicPublishOptions::default() };
        let published =
            channel.basic_publish("".into(), "orders".into(), options, &message.content, properties);
        confirms.push((published.await.unwrap(), message));
    }
    let mut returned = Vec::new();
    for (confirm, message) in confirms {
        match confirm.await.unwrap() {
            Confirmation::Ack(None) => {}
            Confirmation::Ack(Some(_)) => returned.push(message),
            other => panic!("not confirmed: {other:?}"),
        }
    }
    returned
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn from_rabbitmq_to_documents() {
    let rabbitmq = OnRabbitMq::start().await;
    whole_path(&rabbitmq).await;
    // Unacknowledged messages are counted again when their consumer is gone.
    until("all consumers are gone", async || rabbitmq.queue().await.consumer_count() == 0).await;
    assert_eq!(rabbitmq.left().await, 0);
}

#[tokio::test]
async fn what_is_refused_comes_again_and_what_is_cancelled_is_not_lost() {
    let rabbitmq = OnRabbitMq::start().await;
    let mut source = rabbitmq.source().await.prefetch(2);
    // A pending read is cancelled, and the consumer continues later.
    for _ in 0..3 {
        assert!(tokio::time::timeout(Duration::from_millis(300), source.receive(10)).await.is_err());
    }
    rabbitmq.publish(vec![event(1, 1).with("Trace", "t"), event(1, 2), event(1, 3)]).await;
    let mut received = Vec::new();
    while received.len() < 2 {
        received.extend(soon("messages", source.receive(10)).await.unwrap());
    }
    let expected = event(1, 1).with("trace", "t").with("routing-key", "orders").with("exchange", "");
    assert_eq!(received[0].0, expected);
    let receipts: Vec<_> = received.into_iter().map(|(_, receipt)| receipt).collect();
    let begun = tokio::time::Instant::now();
    source.refuse(receipts.clone(), Duration::from_millis(300)).await.unwrap();
    let again = soon("they come again", source.receive(10)).await.unwrap();
    assert!(begun.elapsed() >= Duration::from_millis(300), "not before their time");
    assert_eq!(again[0].0, expected);
    source.acknowledge(receipts).await.unwrap();
    let third = soon("the third", source.receive(10)).await.unwrap();
    assert_eq!(third[0].0.content, event(1, 3).content);
    // The message is refused for a long time, and its consumer ends: another consumer gets it at
    // once.
    source.refuse(vec![third[0].1], Duration::from_hours(1)).await.unwrap();
    drop(source);
    let mut other = rabbitmq.source().await;
    let third = soon("the third again", other.receive(10)).await.unwrap();
    assert_eq!(third[0].0.content, event(1, 3).content);
    other.acknowledge(vec![third[0].1]).await.unwrap();
    drop(other);
    until("nothing is left", async || rabbitmq.left().await == 0).await;

    let missing = RabbitMq::new(&rabbitmq.0.url(), "nowhere").unwrap().receive(1).await.unwrap_err();
    assert!(!missing.is_transient() && missing.to_string().contains("queue nowhere"), "{missing}");
    let wrong = rabbitmq.0.url().replace("amqp://", "amqp://nobody:secret@");
    let refused = RabbitMq::new(&wrong, "orders").unwrap().receive(1).await.unwrap_err();
    assert!(!refused.is_transient() && !refused.to_string().contains("secret"), "{refused}");
}

#[tokio::test]
async fn what_can_not_work_is_said_at_once() {
    let error = RabbitMq::new("http://user:secret@host", "orders").map(drop).unwrap_err().to_string();
    assert!(error.contains("URL of a RabbitMQ server") && !error.contains("secret"), "{error}");
    assert!(RabbitMq::new("amqp://host", "").is_err());
    let unreachable = RabbitMq::new("amqp://127.0.0.1:1", "orders").unwrap().receive(1).await.unwrap_err();
    assert!(unreachable.is_transient(), "{unreachable}");
    let unreachable = RabbitMq::new("amqp://127.0.0.1:1", "orders").unwrap().check().await.unwrap_err();
    assert!(unreachable.is_transient(), "{unreachable}");
}
