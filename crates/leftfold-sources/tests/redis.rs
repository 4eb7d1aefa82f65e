//! Redis Streams on a real server, which is killed; consumers that die, and the entries they leave.

#![allow(clippy::unwrap_used, reason = "a step that fails fails the test")]

mod common;
#[path = "common/path.rs"]
mod path;

use std::time::Duration;

use common::{event, soon, until};
use leftfold_sources::redis::Redis;
use leftfold_sources::{Message, Source as _};
use leftfold_testbed::redis::Server;
use path::{Rig, whole_path};
use redis::{Value, cmd};

struct OnRedis(Server);

impl OnRedis {
    async fn run(&self, command: &redis::Cmd) -> Value {
        let client = redis::Client::open(self.0.url()).unwrap();
        let mut connection = client.get_multiplexed_async_connection().await.unwrap();
        command.query_async(&mut connection).await.unwrap()
    }

    fn consumer(&self, name: &str) -> Redis {
        let source = Redis::new(&self.0.url(), "orders", "leftfold", name).unwrap();
        source.take_over_after(Duration::from_millis(300))
    }
}

impl Rig for OnRedis {
    type Source = Redis;

    async fn source(&self) -> Redis {
        self.consumer("worker")
    }

    async fn publish(&self, messages: Vec<Message>) {
        let client = redis::Client::open(self.0.url()).unwrap();
        let mut connection = client.get_multiplexed_async_connection().await.unwrap();
        let mut all = redis::pipe();
        for message in messages {
            let add = all.cmd("XADD").arg("orders").arg("*").arg("data").arg(message.content);
            for (name, value) in message.attributes {
                add.arg(name).arg(value);
            }
        }
        all.query_async::<Value>(&mut connection).await.unwrap();
    }

    async fn kill(&self) {
        self.0.kill().await.unwrap();
    }

    async fn restart(&self) {
        self.0.restart().await.unwrap();
    }

    async fn left(&self) -> u64 {
        let Value::Array(pending) = self.run(cmd("XPENDING").arg("orders").arg("leftfold")).await else {
            panic!()
        };
        let Value::Int(count) = pending[0] else { panic!() };
        u64::try_from(count).unwrap()
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn from_redis_to_documents() {
    whole_path(&OnRedis(Server::start().await.unwrap())).await;
}

#[tokio::test]
async fn what_a_dead_consumer_left_is_taken_over() {
    let redis = OnRedis(Server::start().await.unwrap());
    redis.publish((1..=5).map(|number| event(1, number)).collect()).await;
    let mut dead = redis.consumer("dead");
    assert_eq!(soon("messages", dead.receive(3)).await.unwrap().len(), 3);
    drop(dead);
    let mut heir = redis.consumer("heir");
    let mut seen = 0;
    while seen < 5 {
        let messages = soon("what was left", heir.receive(2)).await.unwrap();
        seen += messages.len();
        heir.acknowledge(messages.into_iter().map(|(_, receipt)| receipt).collect()).await.unwrap();
    }
    assert_eq!(redis.left().await, 0);
}

#[tokio::test]
async fn what_is_refused_comes_again_and_what_is_cancelled_is_not_lost() {
    let redis = OnRedis(Server::start().await.unwrap());
    let mut source = redis.consumer("worker");
    // A blocking read is cancelled; entries added afterwards must not be lost with it.
    for _ in 0..3 {
        assert!(tokio::time::timeout(Duration::from_millis(50), source.receive(10)).await.is_err());
    }
    redis.publish(vec![event(1, 1), event(1, 2)]).await;
    let first = soon("messages", source.receive(10)).await.unwrap();
    let mut messages = first.len();
    let mut receipts: Vec<_> = first.into_iter().map(|(_, receipt)| receipt).collect();
    while messages < 2 {
        let more = soon("messages", source.receive(10)).await.unwrap();
        messages += more.len();
        receipts.extend(more.into_iter().map(|(_, receipt)| receipt));
    }
    let begun = tokio::time::Instant::now();
    source.refuse(receipts.clone(), Duration::from_millis(200)).await.unwrap();
    let again = soon("they come again", source.receive(10)).await.unwrap();
    assert!(begun.elapsed() >= Duration::from_millis(200), "not before their time");
    assert_eq!(again.iter().map(|(_, receipt)| receipt.clone()).collect::<Vec<_>>(), receipts);
    source.acknowledge(receipts).await.unwrap();
    assert_eq!(redis.left().await, 0);
}

#[tokio::test]
async fn entries_of_any_shape_are_messages() {
    let redis = OnRedis(Server::start().await.unwrap());
    redis.run(cmd("XADD").arg("orders").arg("1-1").arg("Cart").arg("7").arg("v").arg("1")).await;
    redis
        .run(cmd("XADD").arg("orders").arg("1-2").arg("data").arg(&b"\xff\x00"[..]).arg("Key").arg("k"))
        .await;
    redis.run(cmd("XADD").arg("orders").arg("1-3").arg("data").arg("gone")).await;
    let mut source = redis.consumer("worker");
    let messages = soon("messages", source.receive(10)).await.unwrap();
    assert_eq!(
        messages[0].0,
        Message::new(r#"{"cart":"7","v":"1"}"#).with("cart", "7").with("v", "1").with("redis-id", "1-1")
    );
    assert_eq!(messages[1].0, Message::new(&b"\xff\x00"[..]).with("key", "k").with("redis-id", "1-2"));
    drop(source);
    // Deleted entries can't be redelivered, and nothing waits for them.
    redis.run(cmd("XDEL").arg("orders").arg("1-3")).await;
    let mut source = redis.consumer("worker");
    assert_eq!(soon("messages", source.receive(10)).await.unwrap().len(), 2);
    until("what was deleted is forgotten", async || redis.left().await == 2).await;
}

#[tokio::test]
async fn what_can_not_work_is_said_at_once() {
    let redis = OnRedis(Server::start().await.unwrap());
    redis.run(cmd("SET").arg("orders").arg("text")).await;
    let error = redis.consumer("worker").receive(1).await.unwrap_err();
    assert!(
        !error.is_transient() && error.to_string().contains("the group leftfold of the stream orders"),
        "{error}"
    );
    let error = redis.consumer("worker").check().await.unwrap_err();
    assert!(!error.is_transient() && error.to_string().contains("the Redis stream orders"), "{error}");
    let error = Redis::new("http://user:secret@host", "orders", "g", "c").map(drop).unwrap_err().to_string();
    assert!(error.contains("URL of a Redis server") && !error.contains("secret"), "{error}");
    assert!(Redis::new("redis://host", "", "g", "c").is_err());
    let unreachable =
        Redis::new("redis://127.0.0.1:1", "orders", "g", "c").unwrap().receive(1).await.unwrap_err();
    assert!(unreachable.is_transient(), "{unreachable}");
    let unreachable =
        Redis::new("redis://127.0.0.1:1", "orders", "g", "c").unwrap().check().await.unwrap_err();
    assert!(unreachable.is_transient(), "{unreachable}");
    // The check creates nothing.
    Redis::new(&redis.0.url(), "others", "g", "c").unwrap().check().await.unwrap();
    assert_eq!(redis.run(cmd("EXISTS").arg("others")).await, Value::Int(0));
}
