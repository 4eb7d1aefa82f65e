//! The tasks that work on one projection of an application.

use std::sync::Arc;

use tokio::sync::watch;
use tokio::task::JoinSet;

use crate::fold::{WorkerContext, run_live, stopped};
use crate::inspect::InspectProjection;
use crate::rebuild;
use crate::store::Store;

/// The tasks that work on one projection. They stop when told to, and are aborted when this is
/// dropped.
pub(super) struct Worker<S> {
    pub(super) projection: Arc<dyn InspectProjection<S>>,
    pub(super) stop: watch::Sender<bool>,
    pub(super) tasks: JoinSet<()>,
    is_rebuilding: bool,
}

impl<S: Store> Worker<S> {
    /// Folds the live documents of a projection.
    pub(super) fn start(projection: Arc<dyn InspectProjection<S>>, context: WorkerContext<S>) -> Self {
        let (stop, is_stopped) = watch::channel(false);
        let mut tasks = JoinSet::new();
        tasks.spawn(run_live(projection.clone(), context, rebuild::complete_switch, is_stopped));
        Self { projection, stop, tasks, is_rebuilding: false }
    }

    /// Also rebuilds the documents, once, if code of another version built them.
    pub(super) fn rebuild_if_changed(&mut self, context: WorkerContext<S>) {
        if std::mem::replace(&mut self.is_rebuilding, true) {
            return;
        }
        let (projection, mut stop) = (self.projection.clone(), self.stop.subscribe());
        self.tasks.spawn(async move {
            tokio::select! { biased;
                () = stopped(&mut stop) => {}
                () = rebuild::rebuild_if_changed(projection, context) => {}
            }
        });
    }
}
