//! A member of a consumer group.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt as _;
use leftfold::{Error, Invalid, Kind, Result};
use rdkafka::config::ClientConfig;
use rdkafka::consumer::{BaseConsumer, CommitMode, Consumer as _, StreamConsumer};
use rdkafka::error::{KafkaError, KafkaResult};
use rdkafka::message::Message as _;
use rdkafka::metadata::MetadataTopic;
use rdkafka::{Offset, TopicPartitionList};
use tokio::task::spawn_blocking;
use tokio::time::{Instant, sleep_until};

use super::TopicPartition;
use super::context::{CommitFailure, Context, Generations};
use super::message::{failure, message_of};
use super::partition::Partition;
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
    commit_failure: CommitFailure,
    partitions: BTreeMap<TopicPartition, Partition>,
}

/// Identifies a message.
#[derive(Clone, Debug)]
pub struct Receipt {
    place: TopicPartition,
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
                return Err(Invalid::new(what, text, "a list without empty parts").into());
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
            commit_failure: CommitFailure::default(),
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
            let expected = "another option: the feed acknowledges messages itself";
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
        (self.generations, self.commit_failure) =
            (context.generations.clone(), context.commit_failure.clone());
        let doing = format!("subscribing to the Kafka topics {}", self.topics.join(","));
        let made = self.config.create_with_context(context);
        let consumer: StreamConsumer<Context> = made.map_err(|error| failure(&doing, error))?;
        let topics: Vec<_> = self.topics.iter().map(String::as_str).collect();
        consumer.subscribe(&topics).map_err(|error| failure(&doing, error))?;
        Ok(Arc::clone(self.consumer.insert(Arc::new(consumer))))
    }

    /// Tracks a message that the feed receives.
    fn track(&mut self, place: TopicPartition, offset: i64) -> Receipt {
        let generation = self.generations.of(&place);
        let partition = self.partitions.entry(place.clone()).or_default();
        if partition.generation != generation {
            *partition = Partition { generation, ..Partition::default() };
        }
        partition.track(offset);
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
        if self.commit_failure.take().is_some() {
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
    async fn seek_back(&mut self, consumer: &Arc<StreamConsumer<Context>>) -> Result<()> {
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
                let doing = format!("seeking back to offset {offset} of {}/{}", place.0, place.1);
                let stopped = |_| Error::new(Kind::Unavailable, format!("{doing}: the process is stopping"));
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
        let doing = format!("checking the Kafka topics {}", topics.join(","));
        let checked = spawn_blocking(move || -> KafkaResult<()> {
            let consumer: BaseConsumer = config.create()?;
            for topic in &topics {
                let found = consumer.fetch_metadata(Some(topic), ANSWER)?;
                if let Some(error) = found.topics().iter().find_map(MetadataTopic::error) {
                    return Err(KafkaError::MetadataFetch(error.into()));
                }
            }
            Ok(())
        });
        let checked =
            checked.await.map_err(|error| Error::new(Kind::Unavailable, &doing[..]).with_source(error))?;
        checked.map_err(|error| failure(&doing, error))
    }

    async fn receive(&mut self, most: usize) -> Result<Vec<(Message, Receipt)>> {
        loop {
            let consumer = self.connect()?;
            self.commit()?;
            self.seek_back(&consumer).await?;
            let due = self.partitions.values().filter_map(|partition| Some(partition.back?.1)).min();
            let commit_failure = self.commit_failure.clone();
            let first = tokio::select! { biased;
                message = consumer.recv() => message,
                () = sleep_until(due.unwrap_or_else(Instant::now)), if due.is_some() => continue,
                () = commit_failure.notified() => match &*commit_failure.last() {
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
                        received.push((message_of(&message), receipt));
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
                partition.acknowledge(receipt.offset);
            }
        }
        self.commit()
    }

    async fn refuse(&mut self, receipts: Vec<Receipt>, after: Duration) -> Result<()> {
        let due = Instant::now() + after;
        let mut paused_partitions = BTreeSet::new();
        for receipt in receipts {
            if let Some(partition) = self.partition(&receipt) {
                partition.refuse(receipt.offset, due);
                paused_partitions.insert(receipt.place);
            }
        }
        let Some(consumer) = &self.consumer else { return Ok(()) };
        let paused = consumer.pause(&partitions(paused_partitions.iter()));
        // If pausing fails, the partition is read again all the same.
        paused.map_err(|error| failure(&format!("pausing the Kafka topics {}", self.topics.join(",")), error))
    }
}

fn partitions<'a>(places: impl IntoIterator<Item = &'a TopicPartition>) -> TopicPartitionList {
    let mut list = TopicPartitionList::new();
    for (topic, partition) in places {
        list.add_partition(topic, *partition);
    }
    list
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_read_before_a_partition_was_reassigned_no_longer_count() {
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
