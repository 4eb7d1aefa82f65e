//! Without faults, the simulated store passes the conformance tests of every store.

use leftfold_sim::faults::Faults;
use leftfold_sim::store::SimStore;

#[expect(clippy::unused_async, reason = "other stores need to wait")]
async fn make(partitions: u16) -> (SimStore, ()) {
    (SimStore::new(partitions, true, Faults::none(), false), ())
}

mod one_partition {
    leftfold::conformance!(super::make, partitions: 1);
    leftfold::conformance_of_sequences!(super::make, partitions: 1);
    leftfold::conformance_of_reactive!(super::make);
    leftfold::conformance_of_contents!(super::make);
}

mod three_partitions {
    leftfold::conformance!(super::make, partitions: 3);
    leftfold::conformance_of_sequences!(super::make, partitions: 3);
}

mod without_transactions {
    use super::{Faults, SimStore};

    #[expect(clippy::unused_async, reason = "other stores need to wait")]
    async fn make(partitions: u16) -> (SimStore, ()) {
        (SimStore::new(partitions, false, Faults::none(), false), ())
    }

    leftfold::conformance!(make, partitions: 1, atomic: No);
}
