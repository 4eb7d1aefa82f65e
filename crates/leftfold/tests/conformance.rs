//! Runs the conformance suite on the store in memory.

use leftfold::Memory;

#[expect(clippy::unused_async, reason = "other stores need to wait")]
async fn make(partitions: u16) -> (Memory, ()) {
    (Memory::new(partitions), ())
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
