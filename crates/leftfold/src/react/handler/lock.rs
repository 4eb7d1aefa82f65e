//! Locks that handlers take across processes.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;

use super::access::StoreAccess;
use crate::error::Result;
use crate::mutant;

/// The time after which the lock of a dead process expires.
const LENGTH: Duration = Duration::from_secs(5);

/// A lock that excludes all other processes while it is held. Dropping it releases it.
pub struct Lock {
    number: u64,
    lost: watch::Receiver<bool>,
    _keeper: watch::Sender<()>,
}

impl Lock {
    pub(super) async fn take(
        store: Arc<dyn StoreAccess>,
        name: String,
        owner: String,
    ) -> Result<Option<Self>> {
        let Some(number) = store.take_lease(name.clone(), owner.clone(), LENGTH).await? else {
            return Ok(None);
        };
        let (keeper, mut kept) = watch::channel(());
        let (is_gone, lost) = watch::channel(false);
        tokio::spawn(async move {
            // The sender is dropped with the lock.
            while let Err(_elapsed) = tokio::time::timeout(LENGTH / 3, kept.changed()).await {
                mutant!(LockUnkept => continue);
                match store.take_lease(name.clone(), owner.clone(), LENGTH).await {
                    Ok(Some(still)) if still == number => {}
                    Ok(_) => {
                        is_gone.send_replace(true);
                        return;
                    }
                    Err(error) => tracing::warn!(%error, name, "could not renew a lock; trying again"),
                }
            }
            if let Err(error) = store.give_lease(name.clone(), owner).await {
                tracing::warn!(%error, name, "could not release a lock; it expires");
            }
        });
        Ok(Some(Self { number, lost, _keeper: keeper }))
    }

    /// Returns the fencing token: a number higher than that of every previous owner. External
    /// systems can reject writes with a lower number.
    pub fn number(&self) -> u64 {
        self.number
    }

    /// Returns whether the lock was lost to another owner.
    pub fn is_lost(&self) -> bool {
        *self.lost.borrow()
    }
}
