//! Leases: one process at a time follows a feed; all other processes stand by.

use std::time::Duration;

use crate::error::Result;
use crate::mutant;
use crate::react::reactor::Shared;
use crate::react::store::ReactionStore;

/// The length of a collection's lease after its last renewal.
pub(super) const LEASE: Duration = Duration::from_millis(3_500);

/// The age at which a lease is renewed: early enough for retries.
pub(super) const RENEW: Duration = Duration::from_millis(2_250);

impl<S: ReactionStore> Shared<S> {
    /// Runs `lead` while this process has the lease of this name, and stands by otherwise. Releases
    /// the lease at the end.
    pub(super) async fn while_leading<L: Future<Output = Result<()>>>(
        &self,
        name: &str,
        lead: impl Fn(u64) -> L,
    ) {
        let mut pauses = self.pauses();
        // Writes of an earlier lead that got no answer may still arrive.
        let mut is_in_doubt = false;
        while !self.is_stopping() {
            let taken = async {
                if is_in_doubt {
                    // They have no effect under a new lease number.
                    self.store.give_lease(name, &self.owner).await?;
                }
                let number = self.store.take_lease(name, &self.owner, LEASE).await?;
                if number.is_some() {
                    // The previous leader may have died after it saved tasks and before it woke the
                    // runners.
                    self.wake().await?;
                }
                Ok(number)
            };
            let ended = match taken.await {
                Ok(Some(number)) => {
                    is_in_doubt = false;
                    lead(number).await
                }
                Ok(None) => {
                    is_in_doubt = false;
                    self.wait(LEASE / 4).await;
                    continue;
                }
                Err(error) => Err(error),
            };
            match ended {
                Ok(()) => pauses = self.pauses(),
                Err(error) => {
                    is_in_doubt = true;
                    mutant!(SameLease => is_in_doubt = false);
                    self.failed(&error, "following changes");
                    self.wait(pauses.next().unwrap_or(LEASE)).await;
                }
            }
        }
        if let Err(error) = self.store.give_lease(name, &self.owner).await {
            tracing::warn!(%error, name, "could not release a lease; it expires");
        }
    }
}
