//! Kafka: a member of a consumer group that commits offsets after ingest.
//!
//! A group's place in a partition is one number, so it only advances to the first message that is
//! not safe yet. If a message is refused, its partition pauses and is then read again from there.
//! Messages behind it that were ingested already are delivered twice, which is harmless. Other
//! partitions continue meanwhile.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures_util::FutureExt as _;
use leftfold::{Error, Invalid, Kind, Result};
use rdkafka::config::ClientConfig;
use rdkafka::consumer::{
    BaseConsumer, CommitMode, Consumer as _, ConsumerContext, Rebalance, StreamConsumer,
};
use rdkafka::error::{KafkaError, KafkaResult, RDKafkaErrorCode};
use rdkafka::message::{BorrowedMessage, Message as _};
use rdkafka::metadata::MetadataTopic;
use rdkafka::{ClientContext, Offset, TopicPartitionList};
use tokio::sync::Notify;
use tokio::task::spawn_blocking;
use tokio::time::{Instant, sleep_until};

use crate::message::Message;
use crate::source::Source;

/// The timeout for seeking back in a partition.
const ANSWER: Duration = Duration::from_secs(10);

/// A source that reads the messages of topics as a member of a group.
///
/// A message's value is its content. Headers are attributes, as are `key`, `topic`, `partition`,
/// `offset` and `timestamp` (in milliseconds).
///
/// ```no_run
/// # async fn start() -> leftfold::Result<()> {
/// use leftfold::{Memory, Policy, Sequencer};
/// use leftfold_sources::{Feed, Mapping, kafka::Kafka};
///
/// let orders = Kafka::new("localhost:9092", &["orders"], "leftfold")?.set("client.id", "worker-1")?;
/// let (_stop, stopped) = tokio::sync::watch::channel(false);
/// Feed::new(orders, Sequencer::new(Memory::default()), Mapping::default(), Policy::Contiguous).run(stopped).await
/// # }
/// ```
///
/// An event may wait for a message in the same partition that is more than a batch behind it. Such
/// events can fill the holding area. Then the partition pauses until the gap is healed or the limit
/// is raised. Producers that use the stream's name as key avoid this.
pub struct Kafka {
    config: ClientConfig,
    name: String,
    topics: Vec<String>,
    consumer: Option<Arc<StreamConsumer<Context>>>,
    generations: Generations,
    troubles: Troubles,
    partitions: BTreeMap<Place, Partition>,
}

/// A topic and a partition of it.
type Place = (String, i32);

/// The number of times each partition was assigned to this member or revoked. Messages read before
/// a reassignment no longer count.
#[derive(Clone, Default)]
struct Generations(Arc<Mutex<BTreeMap<Place, u64>>>);

impl Generations {
    fn all(&self) -> MutexGuard<'_, BTreeMap<Place, u64>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn of(&self, place: &Place) -> u64 {
        self.all().get(place).copied().unwrap_or_default()
    }
}

/// The error of the last commit, if it failed.
#[derive(Clone, Default)]
struct Troubles(Arc<(Mutex<Option<KafkaError>>, Notify)>);

impl Troubles {
    fn take(&self) -> Option<KafkaError> {
        self.last().take()
    }

    fn last(&self) -> MutexGuard<'_, Option<KafkaError>> {
        self.0.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[derive(Clone, Default)]
struct Context {
    generations: Generations,
    troubles: Troubles,
}

impl ClientContext for Context {
    fn error(&self, error: KafkaError, reason: &str) {
        tracing::warn!(%error, reason, "Kafka is in trouble; it goes on by itself");
    }
}

impl ConsumerContext for Context {
    fn pre_rebalance(&self, _: &BaseConsumer<Self>, rebalance: &Rebalance<'_>) {
        if let Rebalance::Assign(partitions) | Rebalance::Revoke(partitions) = rebalance {
            let mut generations = self.generations.all();
            for element in partitions.elements() {
                *generations.entry((element.topic().to_owned(), element.partition())).or_default() += 1;
            }
        }
    }

    fn commit_callback(&self, result: KafkaResult<()>, _: &TopicPartitionList) {
        if let Err(error) = result {
            *self.troubles.last() = Some(error);
            self.troubles.0.1.notify_one();
        }
    }
}

/// The progress in a partition.
#[derive(Default)]
struct Partition {
    generation: u64,
    /// The offsets that the feed has received, and whether they are safe, from the first
    /// uncommitted one on.
    open: BTreeMap<i64, bool>,
    /// The offset after the last one that the feed has received.
    next: i64,
    /// The offset to seek back to, and when.
    back: Option<(i64, Instant)>,
    /// The offset before which everything is safe.
    safe: Option<i64>,
    /// The last offset sent in a commit, unless that failed.
    committed: Option<i64>,
}

impl Partition {
    /// Records a message that the feed receives. A message behind a refused one will be delivered
    /// again, too.
    fn give(&mut self, offset: i64) {
        if self.back.is_none_or(|(to, _)| offset < to) {
            self.open.insert(offset, false);
        }
        self.next = offset + 1;
    }

    /// Records that a message is safe, and advances over all safe ones.
    fn is_safe(&mut self, offset: i64) {
        if let Some(is_safe) = self.open.get_mut(&offset) {
            *is_safe = true;
        }
        while let Some(first) = self.open.first_entry().filter(|first| *first.get()) {
            self.safe = Some(first.key() + 1);
            first.remove();
        }
    }

    /// Records that a message, and everything behind it, must be read again.
    fn refuse(&mut self, offset: i64, due: Instant) {
        let (to, due) = self.back.map_or((offset, due), |(to, earlier)| (to.min(offset), due.max(earlier)));
        self.back = Some((to, due));
        self.open.split_off(&to);
    }
}

/// Identifies a message.
#[derive(Clone, Debug)]
pub struct Receipt {
    place: Place,
    generation: u64,
    offset: i64,
}

impl Kafka {
    /// Creates a member of a group that reads topics. It begins at their first messages if the
    /// group has no committed offsets yet.
    pub fn new(brokers: &str, topics: &[&str], group: &str) -> Result<Self> {
        let named = [
            ("addresses of brokers", brokers),
            ("name of a group", group),
            ("names of topics", &topics.join(",")),
        ];
        for (what, text) in named {
            if text.split(',').any(|part| part.trim().is_empty()) {
                return Err(Invalid::new(what, text, "one or several, none of them empty").into());
            }
        }
        let mut config = ClientConfig::new();
        config
            .set("bootstrap.servers", brokers)
            .set("group.id", group)
            .set("auto.offset.reset", "earliest")
            .set("enable.auto.commit", "false")
            .set("enable.auto.offset.store", "false");
        Ok(Self {
            config,
            name: format!("kafka {}", topics.join(",")),
            topics: topics.iter().map(ToString::to_string).collect(),
            consumer: None,
            generations: Generations::default(),
            troubles: Troubles::default(),
            partitions: BTreeMap::new(),
        })
    }

    /// Sets the name that operators see. The default is `kafka` and the names of the topics.
    #[must_use]
    pub fn named(mut self, name: impl Into<String>) -> Self {
        self.name = name.into();
        self
    }

    /// Sets an option of librdkafka: `sasl.username`, `session.timeout.ms`, `auto.offset.reset` and
    /// so on.
    pub fn set(mut self, option: &str, value: &str) -> Result<Self> {
        if option.starts_with("enable.auto.") {
            let expected = "another one: what is acknowledged is for the feed to say";
            return Err(Invalid::new("option of librdkafka", option, expected).into());
        }
        self.config.set(option, value);
        Ok(self)
    }

    fn connect(&mut self) -> Result<Arc<StreamConsumer<Context>>> {
        if let Some(consumer) = &self.consumer {
            return Ok(Arc::clone(consumer));
        }
        self.partitions.clear();
        let context = Context::default();
        (self.generations, self.troubles) = (context.generations.clone(), context.troubles.clone());
        let doing = format!("subscribing to the Kafka topics {}", self.topics.join(","));
        let made = self.config.create_with_context(context);
        let consumer: StreamConsumer<Context> = made.map_err(|error| failure(&doing, error))?;
        let topics: Vec<_> = self.topics.iter().map(String::as_str).collect();
        consumer.subscribe(&topics).map_err(|error| failure(&doing, error))?;
        Ok(Arc::clone(self.consumer.insert(Arc::new(consumer))))
    }

    /// Tracks a message that the feed receives.
    fn track(&mut self, place: Place, offset: i64) -> Receipt {
        let generation = self.generations.of(&place);
        let partition = self.partitions.entry(place.clone()).or_default();
        if partition.generation != generation {
            *partition = Partition { generation, ..Partition::default() };
        }
        partition.give(offset);
        Receipt { place, generation, offset }
    }

    /// Returns the partition of a receipt, unless it was reassigned since.
    fn partition(&mut self, receipt: &Receipt) -> Option<&mut Partition> {
        let generation = self.generations.of(&receipt.place);
        let partition = self.partitions.get_mut(&receipt.place)?;
        (partition.generation == generation && receipt.generation == generation).then_some(partition)
    }

    /// Commits the safe offsets without waiting for the response. Uncommitted messages are
    /// delivered again.
    fn commit(&mut self) -> Result<()> {
        let Some(consumer) = &self.consumer else { return Ok(()) };
        if self.troubles.take().is_some() {
            self.partitions.values_mut().for_each(|partition| partition.committed = None);
        }
        let generations = self.generations.clone();
        self.partitions.retain(|place, partition| partition.generation == generations.of(place));
        let mut offsets = TopicPartitionList::new();
        let failed = |error| {
            failure(&format!("committing offsets of the Kafka topics {}", self.topics.join(",")), error)
        };
        for (place, partition) in &self.partitions {
            if let Some(offset) = partition.safe.filter(|_| partition.committed != partition.safe) {
                offsets.add_partition_offset(&place.0, place.1, Offset::Offset(offset)).map_err(failed)?;
            }
        }
        if offsets.count() > 0 {
            consumer.commit(&offsets, CommitMode::Async).map_err(failed)?;
        }
        self.partitions.values_mut().for_each(|partition| partition.committed = partition.safe);
        Ok(())
    }

    /// Seeks back to refused messages that are due.
    async fn go_back(&mut self, consumer: &Arc<StreamConsumer<Context>>) -> Result<()> {
        let now = Instant::now();
        let due = self.partitions.iter().filter_map(|(place, partition)| {
            let (offset, due) = partition.back?;
            (due <= now).then(|| (place.clone(), partition.generation, partition.next, offset))
        });
        for (place, generation, next, offset) in due.collect::<Vec<_>>() {
            // A partition that was reassigned is where the group has left it.
            if self.generations.of(&place) == generation {
                let (again, at) = (Arc::clone(consumer), place.clone());
                let gone = spawn_blocking(move || {
                    if next > offset {
                        again.seek(&at.0, at.1, Offset::Offset(offset), ANSWER)?;
                    }
                    again.resume(&partitions([&at]))
                })
                .await;
                let doing = format!("going back to offset {offset} of {}/{}", place.0, place.1);
                let stopped = |_| Error::new(Kind::Unavailable, format!("{doing}: it was stopped"));
                if let Err(error) = gone.map_err(stopped)?
                    && self.generations.of(&place) == generation
                {
                    // Rejoining the group continues at the last committed offset.
                    self.leave();
                    return Err(failure(&doing, error));
                }
            }
            if let Some(partition) = self.partitions.get_mut(&place) {
                partition.back = None;
                partition.next = offset.min(partition.next);
            }
        }
        Ok(())
    }

    /// Leaves the group in another thread, because that can take a while.
    fn leave(&mut self) {
        if let Some(consumer) = self.consumer.take() {
            std::thread::spawn(move || drop(consumer));
        }
    }
}

impl Drop for Kafka {
    fn drop(&mut self) {
        self.leave();
    }
}

impl Source for Kafka {
    type Receipt = Receipt;

    fn name(&self) -> &str {
        &self.name
    }

    async fn check(&mut self) -> Result<()> {
        let (config, topics) = (self.config.clone(), self.topics.clone());
        let doing = format!("looking for the Kafka topics {}", topics.join(","));
        let looked = spawn_blocking(move || -> KafkaResult<()> {
            let consumer: BaseConsumer = config.create()?;
            for topic in &topics {
                let found = consumer.fetch_metadata(Some(topic), ANSWER)?;
                if let Some(error) = found.topics().iter().find_map(MetadataTopic::error) {
                    return Err(KafkaError::MetadataFetch(error.into()));
                }
            }
            Ok(())
        });
        let looked =
            looked.await.map_err(|error| Error::new(Kind::Unavailable, &doing[..]).with_source(error))?;
        looked.map_err(|error| failure(&doing, error))
    }

    async fn receive(&mut self, most: usize) -> Result<Vec<(Message, Receipt)>> {
        loop {
            let consumer = self.connect()?;
            self.commit()?;
            self.go_back(&consumer).await?;
            let due = self.partitions.values().filter_map(|partition| Some(partition.back?.1)).min();
            let troubles = self.troubles.clone();
            let first = tokio::select! { biased;
                message = consumer.recv() => message,
                () = sleep_until(due.unwrap_or_else(Instant::now)), if due.is_some() => continue,
                () = troubles.0.1.notified() => match &*troubles.last() {
                    Some(error) => {
                        let doing = format!("committing offsets of the Kafka topics {}", self.topics.join(","));
                        return Err(failure(&doing, error.clone()));
                    }
                    None => continue,
                },
            };
            let mut next = Some(first);
            let mut received = Vec::new();
            while let Some(message) = next {
                match message {
                    Ok(message) => {
                        let receipt =
                            self.track((message.topic().to_owned(), message.partition()), message.offset());
                        received.push((taken(&message), receipt));
                    }
                    // Return the messages received so far. If the error persists, the next call
                    // returns it.
                    Err(_) if !received.is_empty() => break,
                    Err(error) => {
                        if matches!(error, KafkaError::MessageConsumptionFatal(_)) {
                            self.leave();
                        }
                        return Err(failure(
                            &format!("receiving from the Kafka topics {}", self.topics.join(",")),
                            error,
                        ));
                    }
                }
                next = if received.len() < most { consumer.recv().now_or_never() } else { None };
            }
            return Ok(received);
        }
    }

    async fn acknowledge(&mut self, receipts: Vec<Receipt>) -> Result<()> {
        for receipt in receipts {
            if let Some(partition) = self.partition(&receipt) {
                partition.is_safe(receipt.offset);
            }
        }
        self.commit()
    }

    async fn refuse(&mut self, receipts: Vec<Receipt>, after: Duration) -> Result<()> {
        let due = Instant::now() + after;
        let mut standing = BTreeMap::new();
        for receipt in receipts {
            if let Some(partition) = self.partition(&receipt) {
                partition.refuse(receipt.offset, due);
                standing.insert(receipt.place, ());
            }
        }
        let Some(consumer) = &self.consumer else { return Ok(()) };
        let paused = consumer.pause(&partitions(standing.keys()));
        // If pausing fails, the partition is read again all the same.
        paused.map_err(|error| failure(&format!("pausing the Kafka topics {}", self.topics.join(",")), error))
    }
}

fn partitions<'a>(places: impl IntoIterator<Item = &'a Place>) -> TopicPartitionList {
    let mut list = TopicPartitionList::new();
    for (topic, partition) in places {
        list.add_partition(topic, *partition);
    }
    list
}

fn taken(message: &BorrowedMessage<'_>) -> Message {
    let lossy = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let mut taken = Message::new(message.payload().unwrap_or_default());
    for header in message.headers().into_iter().flat_map(rdkafka::message::Headers::iter) {
        if let Some(value) = header.value {
            taken = taken.with(header.key, lossy(value));
        }
    }
    if let Some(key) = message.key() {
        taken = taken.with("key", lossy(key));
    }
    if let Some(timestamp) = message.timestamp().to_millis() {
        taken = taken.with("timestamp", timestamp.to_string());
    }
    taken
        .with("topic", message.topic())
        .with("partition", message.partition().to_string())
        .with("offset", message.offset().to_string())
}

fn failure(doing: &str, error: KafkaError) -> Error {
    use RDKafkaErrorCode as Code;
    let kind = match error.rdkafka_error_code() {
        _ if matches!(error, KafkaError::ClientConfig(..)) => Kind::Invalid,
        Some(
            Code::TopicAuthorizationFailed
            | Code::GroupAuthorizationFailed
            | Code::Authentication
            | Code::InvalidTopic,
        ) => Kind::Invalid,
        _ => Kind::Unavailable,
    };
    Error::new(kind, doing).with_source(error)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_partition_moves_on_over_what_is_safe_and_stays_before_what_is_not() {
        let mut partition = Partition::default();
        // 7 was compacted away.
        for offset in [5, 6, 8, 9] {
            partition.give(offset);
        }
        partition.is_safe(6);
        assert_eq!(partition.safe, None);
        partition.is_safe(5);
        assert_eq!(partition.safe, Some(7));
        partition.is_safe(9);
        assert_eq!(partition.safe, Some(7));
        let now = Instant::now();
        partition.refuse(9, now);
        partition.refuse(8, now);
        assert_eq!(partition.back, Some((8, now)));
        // Messages behind the refused one are delivered again. They no longer count as safe, and
        // neither do those read in the meantime.
        partition.give(10);
        partition.is_safe(9);
        partition.is_safe(10);
        assert_eq!((partition.safe, partition.open.len()), (Some(7), 0));
    }

    #[test]
    fn what_was_read_before_a_partition_was_given_away_counts_no_more() {
        let mut kafka = Kafka::new("localhost", &["orders"], "group").unwrap();
        let place = ("orders".to_owned(), 0);
        let before = kafka.track(place.clone(), 3);
        assert!(kafka.partition(&before).is_some());
        *kafka.generations.all().entry(place.clone()).or_default() += 2;
        assert!(kafka.partition(&before).is_none());
        let after = kafka.track(place, 3);
        assert!(kafka.partition(&after).is_some() && kafka.partition(&before).is_none());
    }
}
