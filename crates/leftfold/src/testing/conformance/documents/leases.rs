//! The lease of a projection.

use std::time::Duration;

use super::fixtures::{applied, cart, commit, step};
use crate::documents::{Claim, Collection};
use crate::store::Store;
use crate::testing::conformance::soon;

/// One owner holds the lease until it ends or is released; the owner can always renew it.
pub async fn a_lease_is_claimed_renewed_released_and_ends<S: Store>(store: S) {
    let long = Duration::from_mins(10);
    let short = Duration::from_millis(40);
    store.prepare(&cart()).await.unwrap();
    let claim = async |owner: &str, lease| store.claim(&cart(), owner, lease).await.unwrap();
    assert_eq!(claim("ann", long).await, Claim::Ours);
    assert_eq!(claim("ann", long).await, Claim::Ours, "renewed");
    let Claim::Theirs { ends_in } = claim("bob", long).await else { panic!("ann has it") };
    assert!(ends_in > Duration::from_secs(500) && ends_in <= long, "{ends_in:?}");
    store.release(&cart(), "bob").await.unwrap();
    assert!(matches!(claim("bob", long).await, Claim::Theirs { .. }), "bob can't release the lease of ann");
    let elsewhere = store.claim(&Collection::new("other").unwrap(), "bob", long).await.unwrap();
    assert_eq!(elsewhere, Claim::Ours, "each projection has its own");

    assert_eq!(claim("ann", short).await, Claim::Ours, "renewed for less");
    let taken = soon(async {
        loop {
            match claim("bob", long).await {
                Claim::Ours => break,
                Claim::Theirs { ends_in } => {
                    assert!(ends_in <= short && !ends_in.is_zero(), "{ends_in:?}");
                    tokio::time::sleep(ends_in).await;
                }
            }
        }
    });
    taken.await;
    assert!(matches!(claim("ann", long).await, Claim::Theirs { .. }), "it is bob's now");
    store.release(&cart(), "bob").await.unwrap();
    assert_eq!(claim("ann", long).await, Claim::Ours);

    applied(&commit(&store, Some(step(0, 1)), vec![]).await);
    assert!(matches!(claim("bob", long).await, Claim::Theirs { .. }), "a step leaves the lease as it is");
    store.release(&cart(), "ann").await.unwrap();
    assert_eq!(
        store.checkpoint(&cart()).await.unwrap(),
        step(0, 1).to,
        "a lease leaves the checkpoint as it is"
    );
}
