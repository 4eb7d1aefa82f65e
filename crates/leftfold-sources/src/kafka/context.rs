//! Reports of the Kafka client from its own threads: rebalances, and failed commits.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rdkafka::consumer::{BaseConsumer, ConsumerContext, Rebalance};
use rdkafka::error::{KafkaError, KafkaResult};
use rdkafka::{ClientContext, TopicPartitionList};
use tokio::sync::Notify;

use super::TopicPartition;

/// The number of times each partition was assigned to this member or revoked. Messages read before
/// a reassignment no longer count.
#[derive(Clone, Default)]
pub(super) struct Generations(Arc<Mutex<BTreeMap<TopicPartition, u64>>>);

impl Generations {
    pub(super) fn all(&self) -> MutexGuard<'_, BTreeMap<TopicPartition, u64>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn of(&self, partition: &TopicPartition) -> u64 {
        self.all().get(partition).copied().unwrap_or_default()
    }
}

/// The error of the last commit, if it failed.
#[derive(Clone, Default)]
pub(super) struct CommitFailure(Arc<(Mutex<Option<KafkaError>>, Notify)>);

impl CommitFailure {
    pub(super) fn take(&self) -> Option<KafkaError> {
        self.last().take()
    }

    /// Waits until a commit has failed.
    pub(super) async fn notified(&self) {
        self.0.1.notified().await;
    }

    pub(super) fn last(&self) -> MutexGuard<'_, Option<KafkaError>> {
        self.0.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The state that the client's threads share with the consumer.
#[derive(Clone, Default)]
pub(super) struct Context {
    pub(super) generations: Generations,
    pub(super) commit_failure: CommitFailure,
}

impl ClientContext for Context {
    fn error(&self, error: KafkaError, reason: &str) {
        tracing::warn!(%error, reason, "the Kafka client reported an error, and recovers by itself");
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
            *self.commit_failure.last() = Some(error);
            self.commit_failure.0.1.notify_one();
        }
    }
}
