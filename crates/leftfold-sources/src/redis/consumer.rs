//! A consumer of a group.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use ::redis::aio::MultiplexedConnection;
use ::redis::{AsyncConnectionConfig, Client, Cmd, RedisError, Value, cmd};
use leftfold::{Error, Invalid, Kind, Result};
use tokio::time::{Instant, sleep_until};

use super::reply::{failure, fields, first_stream, id, items, message, text};
use crate::message::Message;
use crate::source::Source;

/// The maximum time of a blocking read, before the consumer checks for other work.
const WAIT: Duration = Duration::from_secs(5);
/// The timeout for all other commands.
const ANSWER: Duration = Duration::from_secs(10);
/// The maximum number of messages to redeliver later. Beyond it, the consumer reads no new ones.
const LATER: usize = 10_000;

/// A source that reads the entries of a stream as a consumer of a group.
///
/// An entry's field `data` is the content of its message, and all other fields are attributes.
/// `XADD orders * ce-id 1 ce-type … data '{…}'` is a CloudEvent in binary mode. `XADD orders * data
/// '{"specversion":"1.0",…}'` is one in structured mode. Without such a field, the content is a
/// JSON object of all fields. The attribute `redis-id` is the id of the entry.
///
/// ```no_run
/// # async fn start() -> leftfold::Result<()> {
/// use leftfold::{Memory, Policy, Sequencer};
/// use leftfold_sources::{Feed, Mapping, redis::Redis};
///
/// let orders = Redis::new("redis://localhost", "orders", "leftfold", "worker-1")?;
/// let (_stop, stopped) = tokio::sync::watch::channel(false);
/// Feed::new(orders, Sequencer::new(Memory::default()), Mapping::default(), Policy::Contiguous).run(stopped).await
/// # }
/// ```
pub struct Redis {
    client: Client,
    name: String,
    stream: String,
    group: String,
    consumer: String,
    content: String,
    begin: &'static str,
    idle: Duration,
    connected: Option<Connected>,
    /// Entries that the feed has: read, but neither acknowledged nor refused.
    delivered: BTreeSet<String>,
    /// Entries to redeliver, by the earliest time.
    later: BTreeMap<Instant, Vec<String>>,
    /// The id after which to read pending entries, if some may not have reached the feed.
    history: Option<String>,
    /// When to claim entries that others have left, and the id to begin from.
    claim: (Instant, String),
}

/// Two connections: one for blocking reads, the other for all other commands.
struct Connected {
    blocking: MultiplexedConnection,
    other: MultiplexedConnection,
}

impl Redis {
    /// Creates a consumer of a group. A missing stream or group is created; the group then begins
    /// at the stream's first entry.
    pub fn new(url: &str, stream: &str, group: &str, consumer: &str) -> Result<Self> {
        let expected = "redis://host:port/database, or rediss:// for TLS";
        let shown = url.rsplit('@').next().unwrap_or_default();
        let client = Client::open(url)
            .map_err(|error| Invalid::new("URL of a Redis server", shown, format!("{expected}: {error}")))?;
        for (what, text) in
            [("name of a stream", stream), ("name of a group", group), ("name of a consumer", consumer)]
        {
            if text.is_empty() {
                return Err(Invalid::new(what, text, "a name that is not empty").into());
            }
        }
        // Has no effect if a provider is installed already.
        let _ = rustls::crypto::ring::default_provider().install_default();
        Ok(Self {
            client,
            name: format!("redis {stream}"),
            stream: stream.to_owned(),
            group: group.to_owned(),
            consumer: consumer.to_owned(),
            content: "data".into(),
            begin: "0",
            idle: Duration::from_mins(1),
            connected: None,
            delivered: BTreeSet::new(),
            later: BTreeMap::new(),
            history: Some("0".into()),
            claim: (Instant::now(), "0-0".into()),
        })
    }

    /// Sets the name that operators see. The default is `redis` and the name of the stream.
    #[must_use]
    pub fn named(self, name: impl Into<String>) -> Self {
        Self { name: name.into(), ..self }
    }

    /// Sets the field with the content. The default is `data`.
    #[must_use]
    pub fn content(self, field: impl Into<String>) -> Self {
        Self { content: field.into(), ..self }
    }

    /// Makes a new group begin at entries that are added from now on.
    #[must_use]
    pub fn from_now(self) -> Self {
        Self { begin: "$", ..self }
    }

    /// Sets the time after which the consumer takes over another consumer's unacknowledged entry.
    /// The default is a minute. If the other one was only slow, this is harmless.
    #[must_use]
    pub fn take_over_after(self, idle: Duration) -> Self {
        Self { idle: idle.max(Duration::from_millis(1)), ..self }
    }

    async fn connect(&mut self) -> Result<&mut Connected> {
        if self.connected.is_none() {
            let doing =
                format!("connecting to Redis for the group {} of the stream {}", self.group, self.stream);
            let failed = |error: RedisError| failure(&doing, error);
            let config = AsyncConnectionConfig::new().set_connection_timeout(Some(ANSWER));
            let patient = config.clone().set_response_timeout(Some(WAIT + ANSWER));
            let impatient = config.set_response_timeout(Some(ANSWER));
            let blocking =
                self.client.get_multiplexed_async_connection_with_config(&patient).await.map_err(failed)?;
            let mut other =
                self.client.get_multiplexed_async_connection_with_config(&impatient).await.map_err(failed)?;
            let mut create = cmd("XGROUP");
            create.arg("CREATE").arg(&self.stream).arg(&self.group).arg(self.begin).arg("MKSTREAM");
            match create.query_async::<Value>(&mut other).await {
                Err(error) if error.code() != Some("BUSYGROUP") => return Err(failed(error)),
                _ => {}
            }
            self.history = Some("0".into());
            self.connected = Some(Connected { blocking, other });
        }
        self.connected.as_mut().ok_or_else(|| Error::new(Kind::Unavailable, "connecting to Redis"))
    }

    /// Runs a command. A connection that failed is not used again.
    async fn run(&mut self, doing: &str, blocks: bool, command: &Cmd) -> Result<Value> {
        let connected = self.connect().await?;
        let connection = if blocks { &mut connected.blocking } else { &mut connected.other };
        let answer = command.query_async::<Value>(connection).await;
        answer.map_err(|error| {
            self.connected = None;
            failure(
                &format!("{doing} of the group {} of the Redis stream {}", self.group, self.stream),
                error,
            )
        })
    }

    /// Returns entries of this consumer that may not have reached the feed.
    async fn pending(&mut self, after: &str, most: usize) -> Result<Vec<(Message, String)>> {
        let answer = self.run("reading pending messages", false, &self.read(after, most, None)).await?;
        let entries = first_stream(answer);
        let last = entries.last().and_then(id);
        let messages = self.fresh(entries).await?;
        self.history = last;
        Ok(messages)
    }

    fn read(&self, after: &str, most: usize, wait: Option<Duration>) -> Cmd {
        let mut read = cmd("XREADGROUP");
        read.arg("GROUP").arg(&self.group).arg(&self.consumer).arg("COUNT").arg(most);
        if let Some(wait) = wait {
            // 0 would block forever.
            read.arg("BLOCK").arg(u64::try_from(wait.as_millis()).unwrap_or(u64::MAX).max(1));
        }
        read.arg("STREAMS").arg(&self.stream).arg(after);
        read
    }

    /// Takes over entries that other consumers have left.
    async fn claim(&mut self, most: usize) -> Result<Vec<(Message, String)>> {
        let mut claim = cmd("XAUTOCLAIM");
        let idle = u64::try_from(self.idle.as_millis()).unwrap_or(u64::MAX);
        claim.arg(&self.stream).arg(&self.group).arg(&self.consumer).arg(idle).arg(&self.claim.1);
        claim.arg("COUNT").arg(most);
        // If this future is dropped, the claimed entries are pending.
        self.history.get_or_insert_with(|| "0".into());
        let answer = self.run("claiming messages of dead consumers", false, &claim).await?;
        let Value::Array(parts) = answer else { return Ok(Vec::new()) };
        let mut parts = parts.into_iter();
        let next = parts.next().and_then(|next| text(&next)).unwrap_or_else(|| "0-0".into());
        let entries = parts.next().map(items).unwrap_or_default();
        let due = if next == "0-0" { Instant::now() + self.idle / 2 } else { Instant::now() };
        self.claim = (due, next);
        self.fresh(entries).await
    }

    /// Returns the refused entries that are due.
    async fn due(&mut self) -> Result<Vec<(Message, String)>> {
        let still_later = self.later.split_off(&Instant::now());
        let ids: Vec<_> = std::mem::replace(&mut self.later, still_later).into_values().flatten().collect();
        if ids.is_empty() {
            return Ok(Vec::new());
        }
        let mut claim = cmd("XCLAIM");
        claim.arg(&self.stream).arg(&self.group).arg(&self.consumer).arg(0).arg(&ids);
        // If this fails or is dropped, the pending entries are read again.
        self.history.get_or_insert_with(|| "0".into());
        let entries = items(self.run("claiming refused messages", false, &claim).await?);
        self.fresh(entries).await
    }

    /// Returns the messages that the feed neither has nor gets later. Entries deleted from the
    /// stream are acknowledged.
    async fn fresh(&mut self, entries: Vec<Value>) -> Result<Vec<(Message, String)>> {
        let (mut messages, mut deleted) = (Vec::new(), Vec::new());
        let later: BTreeSet<_> = self.later.values().flatten().cloned().collect();
        for entry in entries {
            let Some(id) = id(&entry) else { continue };
            if self.delivered.contains(&id) || later.contains(&id) {
                continue;
            }
            match fields(entry) {
                Some(fields) => messages.push((message(fields, &self.content, &id), id)),
                None => deleted.push(id),
            }
        }
        if !deleted.is_empty() {
            self.confirm(&deleted).await?;
        }
        self.delivered.extend(messages.iter().map(|(_, id)| id.clone()));
        Ok(messages)
    }

    async fn confirm(&mut self, ids: &[String]) -> Result<()> {
        let mut confirm = cmd("XACK");
        confirm.arg(&self.stream).arg(&self.group).arg(ids);
        self.run("acknowledging messages", false, &confirm).await.map(drop)
    }
}

impl Source for Redis {
    type Receipt = String;

    fn name(&self) -> &str {
        &self.name
    }

    async fn check(&mut self) -> Result<()> {
        let doing = format!("reading the Redis stream {}", self.stream);
        let failed = |error: RedisError| failure(&doing, error);
        let config = AsyncConnectionConfig::new().set_connection_timeout(Some(ANSWER));
        let config = config.set_response_timeout(Some(ANSWER));
        let mut connection =
            self.client.get_multiplexed_async_connection_with_config(&config).await.map_err(failed)?;
        let length = cmd("XLEN").arg(&self.stream).query_async::<Value>(&mut connection).await;
        length.map(drop).map_err(failed)
    }

    async fn receive(&mut self, most: usize) -> Result<Vec<(Message, String)>> {
        loop {
            self.connect().await?;
            let mut messages = self.due().await?;
            if messages.is_empty()
                && let Some(after) = self.history.clone()
            {
                messages = self.pending(&after, most).await?;
                if messages.is_empty() {
                    continue;
                }
            }
            if messages.is_empty() && self.claim.0 <= Instant::now() {
                messages = self.claim(most).await?;
            }
            if !messages.is_empty() {
                return Ok(messages);
            }
            let now = Instant::now();
            let next = self.later.keys().next().copied().into_iter().chain([self.claim.0, now + WAIT]).min();
            let next = next.unwrap_or(now);
            if self.later.values().map(Vec::len).sum::<usize>() >= LATER {
                sleep_until(next).await;
                continue;
            }
            // If this future is dropped, the entries it read are pending.
            self.history = Some("0".into());
            let read = self.read(">", most, Some(next.duration_since(now)));
            let entries = first_stream(self.run("reading messages", true, &read).await?);
            let messages = self.fresh(entries).await?;
            self.history = None;
            if !messages.is_empty() {
                return Ok(messages);
            }
        }
    }

    async fn acknowledge(&mut self, receipts: Vec<String>) -> Result<()> {
        for id in &receipts {
            self.delivered.remove(id);
        }
        self.confirm(&receipts).await
    }

    async fn refuse(&mut self, receipts: Vec<String>, after: Duration) -> Result<()> {
        for id in &receipts {
            self.delivered.remove(id);
        }
        self.later.entry(Instant::now() + after).or_default().extend(receipts);
        Ok(())
    }
}
