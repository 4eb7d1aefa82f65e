//! A consumer of a queue.

use std::collections::BTreeMap;
use std::time::Duration;

use futures_util::future::join_all;
use futures_util::{FutureExt as _, StreamExt as _};
use lapin::message::Delivery;
use lapin::options::{BasicAckOptions, BasicConsumeOptions, BasicQosOptions, QueueDeclareOptions};
use lapin::types::FieldTable;
use lapin::uri::AMQPUri;
use lapin::{Acker, Channel, Connection, ConnectionProperties, Consumer};
use leftfold::{Error, Invalid, Kind, Result};
use tokio::time::{Instant, sleep_until, timeout};

use super::message::{failure, message_of};
use crate::message::Message;
use crate::source::Source;

/// The timeout for every request to the broker.
const ANSWER: Duration = Duration::from_secs(10);

/// A source that reads the messages of a queue.
///
/// A message's body is its content. Headers are attributes, as are the properties `content-type`,
/// `message-id`, `correlation-id`, `type`, `app-id` and `timestamp`, and also `routing-key` and
/// `exchange`.
///
/// To survive a restart of the broker, the queue must be durable. Messages must be persistent and
/// published as `mandatory`: a restarting broker briefly confirms and drops messages for an
/// existing queue.
///
/// A queue with a delivery limit drops messages that were delivered more often, also if that was
/// because consumers ended. The limit is `x-delivery-limit`; quorum queues of RabbitMQ 4 have one
/// of 20 by default. Set it to -1, or give the queue a dead-letter exchange.
///
/// ```no_run
/// # async fn start() -> leftfold::Result<()> {
/// use leftfold::{Memory, Policy, Sequencer};
/// use leftfold_sources::{Feed, Mapping, rabbitmq::RabbitMq};
///
/// let orders = RabbitMq::new("amqp://guest:guest@localhost/%2f", "orders")?.prefetch(200);
/// let (_stop, stopped) = tokio::sync::watch::channel(false);
/// Feed::new(orders, Sequencer::new(Memory::default()), Mapping::default(), Policy::Contiguous).run(stopped).await
/// # }
/// ```
pub struct RabbitMq {
    url: String,
    name: String,
    queue: String,
    prefetch: u16,
    /// `true` after the first connection. A restarting broker briefly reports that the queue does
    /// not exist.
    was_connected: bool,
    connected: Option<Connected>,
    /// Unacknowledged messages by receipt: those that the feed has, and those to redeliver later.
    open: BTreeMap<u64, (Message, Acker)>,
    receipts: u64,
    /// Receipts of messages to redeliver, by the earliest time.
    later: BTreeMap<Instant, Vec<u64>>,
}

struct Connected {
    consumer: Consumer,
    _channel: Channel,
    _connection: Connection,
}

impl RabbitMq {
    /// Creates a consumer of an existing queue. The URL is
    /// `amqp://user:password@host:port/virtual-host`, with `%2f` for the virtual host `/`, or
    /// `amqps://` for TLS.
    pub fn new(url: &str, queue: &str) -> Result<Self> {
        if let Err(error) = url.parse::<AMQPUri>() {
            let shown = url.rsplit('@').next().unwrap_or_default();
            let expected = format!("amqp://user:password@host:port/virtual-host: {error}");
            return Err(Invalid::new("URL of a RabbitMQ server", shown, expected).into());
        }
        if queue.is_empty() || queue.len() > 255 {
            return Err(Invalid::new("name of a queue", queue, "1 to 255 bytes").into());
        }
        Ok(Self {
            url: url.to_owned(),
            name: format!("rabbitmq {queue}"),
            queue: queue.to_owned(),
            prefetch: 1_000,
            was_connected: false,
            connected: None,
            open: BTreeMap::new(),
            receipts: 0,
            later: BTreeMap::new(),
        })
    }

    /// Sets the name that operators see. The default is `rabbitmq` and the name of the queue.
    #[must_use]
    pub fn named(self, name: impl Into<String>) -> Self {
        Self { name: name.into(), ..self }
    }

    /// Sets the maximum number of unacknowledged messages, including refused ones. The default is
    /// 1,000.
    #[must_use]
    pub fn prefetch(self, messages: u16) -> Self {
        Self { prefetch: messages.max(1), ..self }
    }

    async fn connect(&mut self) -> Result<()> {
        if self.connected.is_some() {
            return Ok(());
        }
        // The broker requeued them when their connection ended.
        self.open.clear();
        self.later.clear();
        let doing = format!("consuming the RabbitMQ queue {}", self.queue);
        let connected = timeout(ANSWER, self.consume()).await;
        let late = |_| Error::new(Kind::Unavailable, format!("{doing}: no response within {ANSWER:?}"));
        let connected = connected.map_err(late)?.map_err(|error| match failure(&doing, error) {
            error if self.was_connected && !error.is_transient() => {
                Error::new(Kind::Unavailable, error.to_string())
            }
            error => error,
        });
        self.connected = Some(connected?);
        self.was_connected = true;
        Ok(())
    }

    async fn consume(&self) -> lapin::Result<Connected> {
        let connection = Connection::connect(&self.url, ConnectionProperties::default()).await?;
        let channel = connection.create_channel().await?;
        channel.basic_qos(self.prefetch, BasicQosOptions::default()).await?;
        let (options, arguments) = (BasicConsumeOptions::default(), FieldTable::default());
        let consumer =
            channel.basic_consume(self.queue.as_str().into(), "".into(), options, arguments).await?;
        Ok(Connected { consumer, _channel: channel, _connection: connection })
    }

    async fn declare_passively(&self) -> lapin::Result<()> {
        let connection = Connection::connect(&self.url, ConnectionProperties::default()).await?;
        let channel = connection.create_channel().await?;
        let passive = QueueDeclareOptions { passive: true, ..QueueDeclareOptions::default() };
        channel.queue_declare(self.queue.as_str().into(), passive, FieldTable::default()).await.map(drop)
    }

    /// Returns the refused messages that are due.
    fn due(&mut self) -> Vec<(Message, u64)> {
        let still_later = self.later.split_off(&Instant::now());
        let due = std::mem::replace(&mut self.later, still_later).into_values().flatten();
        due.filter_map(|receipt| Some((self.open.get(&receipt)?.0.clone(), receipt))).collect()
    }

    fn keep(&mut self, delivery: Delivery) -> (Message, u64) {
        let (message, acker) = message_of(delivery);
        self.receipts += 1;
        self.open.insert(self.receipts, (message.clone(), acker));
        (message, self.receipts)
    }
}

impl Source for RabbitMq {
    type Receipt = u64;

    fn name(&self) -> &str {
        &self.name
    }

    async fn check(&mut self) -> Result<()> {
        let doing = format!("checking the RabbitMQ queue {}", self.queue);
        let late = |_| Error::new(Kind::Unavailable, format!("{doing}: no response within {ANSWER:?}"));
        timeout(ANSWER, self.declare_passively()).await.map_err(late)?.map_err(|error| failure(&doing, error))
    }

    async fn receive(&mut self, most: usize) -> Result<Vec<(Message, u64)>> {
        loop {
            self.connect().await?;
            let due = self.due();
            if !due.is_empty() {
                return Ok(due);
            }
            let Some(connected) = &mut self.connected else { continue };
            let next = match self.later.keys().next().copied() {
                Some(due) => tokio::select! { biased;
                    next = connected.consumer.next() => next,
                    () = sleep_until(due) => continue,
                },
                None => connected.consumer.next().await,
            };
            let doing = format!("receiving from the RabbitMQ queue {}", self.queue);
            let first = match next {
                Some(Ok(delivery)) => delivery,
                Some(Err(error)) => {
                    self.connected = None;
                    return Err(Error::new(Kind::Unavailable, doing).with_source(error));
                }
                None => {
                    self.connected = None;
                    return Err(Error::new(
                        Kind::Unavailable,
                        format!("{doing}: the broker closed the channel"),
                    ));
                }
            };
            let mut deliveries = vec![first];
            let mut has_ended = false;
            while deliveries.len() < most && !has_ended {
                match connected.consumer.next().now_or_never() {
                    Some(Some(Ok(delivery))) => deliveries.push(delivery),
                    Some(Some(Err(_)) | None) => has_ended = true,
                    None => break,
                }
            }
            if has_ended {
                // Return the messages received so far, even though they can't be acknowledged any
                // more.
                let kept = deliveries.into_iter().map(|delivery| self.keep(delivery)).collect();
                self.connected = None;
                return Ok(kept);
            }
            return Ok(deliveries.into_iter().map(|delivery| self.keep(delivery)).collect());
        }
    }

    async fn acknowledge(&mut self, receipts: Vec<u64>) -> Result<()> {
        let ackers: Vec<_> = receipts.iter().filter_map(|receipt| self.open.remove(receipt)).collect();
        let doing = format!("acknowledging messages of the RabbitMQ queue {}", self.queue);
        let answers = join_all(ackers.iter().map(|(_, acker)| acker.ack(BasicAckOptions::default())));
        let error = match timeout(ANSWER, answers).await {
            Ok(answers) => {
                answers.into_iter().find_map(std::result::Result::err).map(|error| failure(&doing, error))
            }
            Err(_) => Some(Error::new(Kind::Unavailable, format!("{doing}: no response within {ANSWER:?}"))),
        };
        if error.is_some() {
            self.connected = None;
        }
        error.map_or(Ok(()), Err)
    }

    async fn refuse(&mut self, receipts: Vec<u64>, after: Duration) -> Result<()> {
        self.later.entry(Instant::now() + after).or_default().extend(receipts);
        Ok(())
    }
}
