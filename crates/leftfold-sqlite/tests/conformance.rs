//! The conformance tests of stores.

#![allow(clippy::unwrap_used, reason = "a step that fails fails the test")]

use leftfold_sqlite::Sqlite;
use tempfile::TempDir;

async fn make(partitions: u16) -> (Sqlite, TempDir) {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("store.db");
    (Sqlite::options().partitions(partitions).open(path).await.unwrap(), directory)
}

mod one_partition {
    leftfold::conformance!(super::make, partitions: 1);
    leftfold::conformance_of_sequences!(super::make, partitions: 1);
    leftfold::conformance_of_generations!(super::make, partitions: 1);
    leftfold::conformance_of_counters!(super::make);
    leftfold::conformance_of_reactive!(super::make);
    leftfold::conformance_of_contents!(super::make);
}

mod three_partitions {
    leftfold::conformance!(super::make, partitions: 3);
    leftfold::conformance_of_sequences!(super::make, partitions: 3);
    leftfold::conformance_of_generations!(super::make, partitions: 3);
}
