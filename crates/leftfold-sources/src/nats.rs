//! NATS JetStream: a durable pull consumer.
//!
//! Each message is acknowledged separately. Unacknowledged messages are redelivered after the
//! consumer's `ack_wait`. Several feeds may share a consumer.

use std::fmt;
use std::time::Duration;

use async_nats::jetstream::consumer::pull::{self, Stream};
use async_nats::jetstream::consumer::{AckPolicy, PullConsumer};
use async_nats::jetstream::context::GetStreamErrorKind;
use async_nats::jetstream::message::Acker;
use async_nats::jetstream::{self, AckKind};
use async_nats::{Client, ConnectOptions};
use futures_util::{FutureExt as _, StreamExt as _};
use leftfold::{Error, Invalid, Kind, Result};

use crate::message::Message;
use crate::source::Source;

/// The interval of the server's heartbeats while there are no messages.
const HEARTBEAT: Duration = Duration::from_secs(5);

/// A source that reads the messages of a stream through a durable consumer.
///
/// A message's payload is its content. Headers are attributes, as are `subject`, the subject it was
/// published to, and `nats-sequence`, its number in the stream.
///
/// ```no_run
/// # async fn start() -> leftfold::Result<()> {
/// use leftfold::{Memory, Policy, Sequencer};
/// use leftfold_sources::{Feed, Mapping, nats::Nats};
///
/// let orders = Nats::new("nats://localhost", "ORDERS", "leftfold")?.filter("orders.>");
/// let (_stop, stopped) = tokio::sync::watch::channel(false);
/// Feed::new(orders, Sequencer::new(Memory::default()), Mapping::default(), Policy::Contiguous).run(stopped).await
/// # }
/// ```
pub struct Nats {
    server: Server,
    name: String,
    stream: String,
    durable: String,
    filter: String,
    ack_wait: Duration,
    window: usize,
    /// `true` after the first subscription. A restarting server may briefly report that the stream
    /// does not exist.
    was_subscribed: bool,
    client: Option<Client>,
    messages: Option<Stream>,
}

enum Server {
    At(String),
    Connected,
}

impl Nats {
    /// Creates a consumer of an existing stream. A missing consumer is created; it begins at the
    /// stream's first message.
    pub fn new(url: &str, stream: &str, durable: &str) -> Result<Self> {
        let shown = url.rsplit('@').next().unwrap_or_default();
        if let Err(error) = url.parse::<async_nats::ServerAddr>() {
            let expected = format!("nats://host:port, or tls://: {error}");
            return Err(Invalid::new("URL of a NATS server", shown, expected).into());
        }
        Self::create(Server::At(url.to_owned()), None, stream, durable)
    }

    /// Creates a consumer with a client that is already connected.
    pub fn with_client(client: Client, stream: &str, durable: &str) -> Result<Self> {
        Self::create(Server::Connected, Some(client), stream, durable)
    }

    fn create(server: Server, client: Option<Client>, stream: &str, durable: &str) -> Result<Self> {
        for (what, text) in [("name of a stream", stream), ("name of a consumer", durable)] {
            if text.is_empty()
                || text.contains(['.', '*', '>', ' ', '/', '\\'])
                || text.contains(char::is_control)
            {
                return Err(Invalid::new(what, text, "a name without spaces, dots, slashes, * and >").into());
            }
        }
        Ok(Self {
            server,
            name: format!("nats {stream}"),
            stream: stream.to_owned(),
            durable: durable.to_owned(),
            filter: String::new(),
            ack_wait: Duration::from_secs(30),
            window: 10_000,
            was_subscribed: false,
            client,
            messages: None,
        })
    }

    /// Sets the name that operators see. The default is `nats` and the name of the stream.
    #[must_use]
    pub fn named(self, name: impl Into<String>) -> Self {
        Self { name: name.into(), ..self }
    }

    /// Sets the subjects to read, if the consumer has to be created. The default is all.
    #[must_use]
    pub fn filter(self, subject: impl Into<String>) -> Self {
        Self { filter: subject.into(), ..self }
    }

    /// Sets the time after which an unacknowledged message is redelivered, if the consumer has to
    /// be created. The default is 30 seconds. It should be longer than a batch takes.
    #[must_use]
    pub fn ack_wait(self, ack_wait: Duration) -> Self {
        Self { ack_wait, ..self }
    }

    /// Sets the maximum number of unacknowledged messages, including refused ones, if the consumer
    /// has to be created. The default is 10,000.
    #[must_use]
    pub fn window(self, messages: usize) -> Self {
        Self { window: messages, ..self }
    }

    async fn connect(&mut self, most: usize) -> Result<&mut Stream> {
        if self.messages.is_none() {
            let subscribed = Box::pin(self.subscribe(most)).await.map_err(|error| {
                let may_pass = self.was_subscribed && !error.is_transient();
                if may_pass { Error::new(Kind::Unavailable, error.to_string()) } else { error }
            });
            self.messages = Some(subscribed?);
            self.was_subscribed = true;
        }
        self.messages.as_mut().ok_or_else(|| Error::new(Kind::Unavailable, "connecting to NATS"))
    }

    fn doing(&self) -> String {
        format!("reading the NATS stream {} through the consumer {}", self.stream, self.durable)
    }

    /// Returns the stream, which must exist.
    async fn stream(&mut self) -> Result<jetstream::stream::Stream> {
        let doing = self.doing();
        let client = match (&self.client, &self.server) {
            (Some(client), _) => client.clone(),
            (None, Server::At(url)) => {
                let options = ConnectOptions::new().name("leftfold");
                options.connect(url).await.map_err(|error| failure(&doing, error))?
            }
            (None, Server::Connected) => return Err(failure(&doing, "the client is gone")),
        };
        self.client = Some(client.clone());
        jetstream::new(client).get_stream(&self.stream).await.map_err(|error| match error.kind() {
            GetStreamErrorKind::JetStream(failure) if failure.code() == 404 => {
                Error::new(Kind::Invalid, format!("{doing}: the stream does not exist; create it first"))
            }
            _ => failure(&doing, error),
        })
    }

    async fn subscribe(&mut self, most: usize) -> Result<Stream> {
        let doing = self.doing();
        let stream = self.stream().await?;
        let config = pull::Config {
            durable_name: Some(self.durable.clone()),
            ack_policy: AckPolicy::Explicit,
            ack_wait: self.ack_wait,
            filter_subject: self.filter.clone(),
            max_ack_pending: i64::try_from(self.window).unwrap_or(i64::MAX),
            ..pull::Config::default()
        };
        let consumer: PullConsumer = stream
            .get_or_create_consumer(&self.durable, config)
            .await
            .map_err(|error| failure(&doing, error))?;
        let found = &consumer.cached_info().config;
        if found.ack_policy != AckPolicy::Explicit || found.max_deliver > 0 {
            let message = format!(
                "{doing}: the consumer has ack policy {:?} and max_deliver {}, so messages would be lost; use a consumer with \
                 explicit acknowledgement and without a delivery limit",
                found.ack_policy, found.max_deliver
            );
            return Err(Error::new(Kind::Invalid, message));
        }
        let messages = consumer.stream().max_messages_per_batch(most).heartbeat(HEARTBEAT).messages().await;
        messages.map_err(|error| failure(&doing, error))
    }

    async fn settle(&self, receipts: Vec<Acker>, kind: AckKind) -> Result<()> {
        let doing = format!("acknowledging messages of the NATS stream {}", self.stream);
        for receipt in receipts {
            receipt.ack_with(kind).await.map_err(|error| failure(&doing, error))?;
        }
        if let Some(client) = &self.client {
            client.flush().await.map_err(|error| failure(&doing, error))?;
        }
        Ok(())
    }
}

impl Source for Nats {
    type Receipt = Acker;

    fn name(&self) -> &str {
        &self.name
    }

    async fn check(&mut self) -> Result<()> {
        // Boxed because the future is large, and would make the callers' futures as large.
        Box::pin(self.stream()).await.map(drop)
    }

    async fn receive(&mut self, most: usize) -> Result<Vec<(Message, Acker)>> {
        let doing = format!("receiving from the NATS stream {}", self.stream);
        let messages = self.connect(most).await?;
        let mut received = Vec::new();
        let mut next = messages.next().await;
        loop {
            match next {
                Some(Ok(message)) => received.push(message_of(message)),
                // Return the messages received so far.
                Some(Err(_)) | None if !received.is_empty() => {
                    self.messages = None;
                    return Ok(received);
                }
                Some(Err(error)) => {
                    self.messages = None;
                    return Err(failure(&doing, error));
                }
                None => {
                    self.messages = None;
                    return Err(failure(&doing, "the server closed the subscription"));
                }
            }
            if received.len() >= most {
                return Ok(received);
            }
            match messages.next().now_or_never() {
                Some(another) => next = another,
                None => return Ok(received),
            }
        }
    }

    async fn acknowledge(&mut self, receipts: Vec<Acker>) -> Result<()> {
        self.settle(receipts, AckKind::Ack).await
    }

    async fn refuse(&mut self, receipts: Vec<Acker>, after: Duration) -> Result<()> {
        self.settle(receipts, AckKind::Nak(Some(after))).await
    }
}

fn message_of(received: jetstream::Message) -> (Message, Acker) {
    let sequence = received.info().map(|info| info.stream_sequence).ok();
    let (received, receipt) = received.split();
    let mut message = Message::new(&received.payload[..]);
    for (name, values) in received.headers.iter().flat_map(async_nats::HeaderMap::iter) {
        let values: Vec<_> = values.iter().map(async_nats::HeaderValue::as_str).collect();
        message = message.with(name.as_ref(), values.join(", "));
    }
    message = message.with("subject", received.subject.as_str());
    if let Some(sequence) = sequence {
        message = message.with("nats-sequence", sequence.to_string());
    }
    (message, receipt)
}

fn failure(doing: &str, why: impl fmt::Display) -> Error {
    Error::new(Kind::Unavailable, format!("{doing}: {why}"))
}
