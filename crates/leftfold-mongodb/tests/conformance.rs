//! The conformance tests of stores: a replica set with transactions, and a standalone server
//! without.

mod common;

use common::{Guard, REPLICA_SET, STANDALONE};
use leftfold::{Memory, SplitStore};
use leftfold_mongodb::Mongo;

async fn replica_set(partitions: u16) -> (Mongo, Guard) {
    REPLICA_SET.guarded(Mongo::options().partitions(partitions)).await
}

/// Pairs a standalone server with a log in memory, because it can't hold a log.
async fn standalone(partitions: u16) -> (SplitStore<Memory, Mongo>, Guard) {
    let (documents, guard) = STANDALONE.guarded(Mongo::options()).await;
    (SplitStore { log: Memory::new(partitions), documents }, guard)
}

async fn documents_alone(_: u16) -> (Mongo, Guard) {
    STANDALONE.guarded(Mongo::options()).await
}

mod one_partition {
    leftfold::conformance!(super::replica_set, partitions: 1);
    leftfold::conformance_of_sequences!(super::replica_set, partitions: 1);
    leftfold::conformance_of_generations!(super::replica_set, partitions: 1);
    leftfold::conformance_of_counters!(super::replica_set);
    leftfold::conformance_of_reactive!(super::replica_set);
    leftfold::conformance_of_contents!(super::replica_set);
}

mod three_partitions {
    leftfold::conformance!(super::replica_set, partitions: 3);
    leftfold::conformance_of_sequences!(super::replica_set, partitions: 3);
    leftfold::conformance_of_generations!(super::replica_set, partitions: 3);
}

mod without_transactions {
    leftfold::conformance!(super::standalone, partitions: 1, atomic: No);
    leftfold::conformance_of_generations!(super::standalone, partitions: 1, reactive: No);
    leftfold::conformance_of_counters!(super::standalone);
    leftfold::conformance_of_contents!(super::documents_alone, reactive: No);
}
