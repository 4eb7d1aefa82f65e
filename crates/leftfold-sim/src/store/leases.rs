//! Leases. A fault ends a valid lease early, without a message to its owner.

use std::sync::PoisonError;
use std::time::Duration;

use leftfold::documents::Claim;
use leftfold::react::ReactionStore as _;
use leftfold::{Collection, Documents as _, Result};

use super::handle::SimStore;
use super::sabotage;
use crate::faults::Fault;

impl SimStore {
    /// Claims a projection. If another worker has the lease, a fault may end it.
    pub(super) async fn claim_or_steal(
        &self,
        projection: &Collection,
        owner: &str,
        lease: Duration,
    ) -> Result<Claim> {
        let mut claim = self.inner().claim(projection, owner, lease).await?;
        if claim != Claim::Ours && self.strikes(Fault::Lease) {
            let holder = {
                let holders = self.shared.holders.lock().unwrap_or_else(PoisonError::into_inner);
                holders.get(projection).cloned()
            };
            if let Some(holder) = holder {
                self.inner().release(projection, &holder).await?;
            }
            claim = self.inner().claim(projection, owner, lease).await?;
        }
        if claim == Claim::Ours {
            let mut holders = self.shared.holders.lock().unwrap_or_else(PoisonError::into_inner);
            holders.insert(projection.clone(), owner.into());
        }
        Ok(claim)
    }

    /// Takes another lease and returns its number. If another worker has it, a fault may end it.
    pub(super) async fn take_or_steal_lease(
        self,
        name: String,
        owner: String,
        length: Duration,
    ) -> Result<Option<u64>> {
        let mut number = self.inner().take_lease(&name, &owner, length).await?;
        if number.is_none() && self.strikes(Fault::Lease) {
            let holder = {
                let holders = self.shared.lease_holders.lock().unwrap_or_else(PoisonError::into_inner);
                holders.get(&name).cloned()
            };
            if let Some(holder) = holder {
                let node = holder.split(' ').next().unwrap_or_default();
                self.shared.ledger.robbed(node, &name);
                self.inner().give_lease(&name, &holder).await?;
            }
            number = self.inner().take_lease(&name, &owner, length).await?;
        }
        if number.is_some() {
            let mut holders = self.shared.lease_holders.lock().unwrap_or_else(PoisonError::into_inner);
            let before = holders.insert(name.clone(), owner.clone());
            if before.is_some_and(|before| before != owner) {
                self.shared.trace.note(|| format!("{owner} has the lease {name:?} now, number {number:?}"));
                self.shared.ledger.lease_taken_over(&name);
            }
        }
        Ok(sabotage::lease_number(&name, number))
    }
}
