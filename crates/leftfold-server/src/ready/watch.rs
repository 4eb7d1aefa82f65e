//! The task that checks readiness.

use std::collections::BTreeMap;
use std::sync::{Arc, Weak};
use std::time::Duration;

use leftfold::Mark;
use leftfold::fold::Activity;
use leftfold::inspect::Vitals;
use tokio::time::{Instant, interval, timeout};

use super::{Trouble, TroubleKind};
use crate::{Backend, Service, Shared};

/// The interval between checks of the store, and their timeout. Their sum is below the maximum age
/// of a verdict.
const EVERY: Duration = Duration::from_millis(200);
const PATIENCE: Duration = Duration::from_millis(600);
/// The interval between checks of the projections.
const PROJECTIONS_EVERY: Duration = Duration::from_secs(1);
/// The time after which a projection that is behind, or a feed of reactions, counts as stuck.
const STUCK: Duration = Duration::from_secs(30);

/// Runs the checks until the service stops or is dropped.
pub(crate) fn watch<S: Backend>(shared: &Shared<S>) -> impl Future<Output = ()> + Send + use<S> {
    let (service, mut stop) = (Arc::downgrade(shared), shared.stop.subscribe());
    async move {
        tokio::select! {
            () = check_store(&service) => {}
            () = check_projections(&service) => {}
            _ = stop.wait_for(|stops| *stops) => {}
        }
    }
}

async fn check_store<S: Backend>(service: &Weak<Service<S>>) {
    let mut tick = interval(EVERY);
    let mut was_refused = false;
    while let Some(shared) = service.upgrade() {
        let refusal = match timeout(PATIENCE, shared.app.store().probe()).await {
            Ok(Ok(())) => None,
            Ok(Err(error)) => Some(error.to_string()),
            Err(_) => Some(format!("the store did not answer within {} ms", PATIENCE.as_millis())),
        };
        match &refusal {
            Some(reason) if !was_refused => tracing::warn!(%reason, "requests can't be served"),
            None if was_refused => tracing::info!("requests can be served again"),
            _ => {}
        }
        was_refused = refusal.is_some();
        shared.readiness.judge(refusal);
        drop(shared);
        tick.tick().await;
    }
}

async fn check_projections<S: Backend>(service: &Weak<Service<S>>) {
    let mut tick = interval(PROJECTIONS_EVERY);
    let mut moved = Moved::default();
    loop {
        tick.tick().await;
        let Some(shared) = service.upgrade() else { return };
        // If the store does not respond, requests can't be served anyway.
        let Ok(vitals) = shared.app.vitals().await else { continue };
        let mut troubles: Vec<_> =
            vitals.iter().filter_map(|one| judge(one, moved.still_for(one, Instant::now()))).collect();
        let lags = shared.app.reacting().map(leftfold::react::ReactorHandle::feed_lags).unwrap_or_default();
        troubles.extend(lags.into_iter().filter(|(_, lag)| *lag >= STUCK).map(|(on, lag)| Trouble {
            kind: TroubleKind::Feed,
            name: on.to_string(),
            reason: format!("the planner has not read its changes for {} s", lag.as_secs()),
        }));
        shared.readiness.report(troubles);
    }
}

/// The last observed position of each projection, and when it was reached.
#[derive(Default)]
struct Moved(BTreeMap<String, (Mark, Instant)>);

impl Moved {
    /// Returns how long a projection has made no progress although it is behind.
    fn still_for(&mut self, vitals: &Vitals, now: Instant) -> Duration {
        let (mark, since) =
            self.0.entry(vitals.projection.clone()).or_insert_with(|| (vitals.position.clone(), now));
        if vitals.lag == 0 || *mark != vitals.position {
            (*mark, *since) = (vitals.position.clone(), now);
        }
        now.duration_since(*since)
    }
}

/// Returns the problem of a projection, if it has any.
fn judge(vitals: &Vitals, still_for: Duration) -> Option<Trouble> {
    let error = || vitals.last_error.clone().unwrap_or_else(|| "the cause is unknown".to_owned());
    let (kind, reason) = if vitals.activity == Activity::Failing {
        (TroubleKind::Failing, format!("folding fails: {}", error()))
    } else if still_for >= STUCK {
        let (lag, seconds) = (vitals.lag, still_for.as_secs());
        (TroubleKind::Stuck, format!("{lag} events behind, and no progress for {seconds} s"))
    } else if vitals.is_parked {
        let name = &vitals.projection;
        let reason = format!("documents or streams are parked; see `leftfold parked list {name}`");
        (TroubleKind::Parked, reason)
    } else {
        return None;
    };
    Some(Trouble { kind, name: vitals.projection.clone(), reason })
}

#[cfg(test)]
mod tests {
    use leftfold::Partition;

    use super::*;

    fn vitals(position: u64, lag: u64) -> Vitals {
        Vitals {
            projection: "carts".to_owned(),
            activity: Activity::Live,
            last_error: None,
            position: Mark::from_iter([(Partition(0).into(), position)]),
            lag,
            is_parked: false,
        }
    }

    #[test]
    fn a_projection_that_is_behind_must_move() {
        let (mut moved, begun) = (Moved::default(), Instant::now());
        let mut at = |seconds, position, lag| {
            moved.still_for(&vitals(position, lag), begun + Duration::from_secs(seconds)).as_secs()
        };
        assert_eq!(at(0, 1, 5), 0);
        assert_eq!(at(20, 1, 5), 20);
        assert_eq!(at(21, 2, 9), 0, "it moves, also if it falls behind");
        assert_eq!(at(60, 2, 0), 0, "it has nothing to do");
        assert_eq!(at(61, 2, 1), 1, "it is behind since the last check");
    }

    #[test]
    fn a_projection_that_fails_is_stuck_or_is_parked_is_trouble() {
        let kind = |vitals: &Vitals, still| judge(vitals, still).map(|trouble| trouble.kind);
        assert_eq!(kind(&vitals(1, 1), Duration::ZERO), None);
        assert_eq!(kind(&vitals(1, 1), STUCK), Some(TroubleKind::Stuck));
        let parked = Vitals { is_parked: true, ..vitals(1, 0) };
        assert_eq!(kind(&parked, Duration::ZERO), Some(TroubleKind::Parked));
        let failing =
            Vitals { activity: Activity::Failing, last_error: Some("no disk".to_owned()), ..parked };
        let shown = judge(&failing, Duration::ZERO).unwrap().to_string();
        assert_eq!(shown, "carts: folding fails: no disk");
    }
}
