//! Runs the handler of a claimed task, and reports how the run ended.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{mpsc, watch};
use tokio::task::{JoinError, JoinSet};
use tokio::time::Instant;
use tracing::{Instrument as _, Span};

use super::event::next_event;
use super::finish::Finished;
use super::loader::Loader;
use crate::react::define::Definition;
use crate::react::handler::{Attempt, HandlerAccess, HandlerError, Report};
use crate::react::reactor::Shared;
use crate::react::store::ReactionStore;
use crate::react::task::{RunOutcome, Task};

/// Runs the handler of a claimed task. Sends the outcome, unless the claim is lost.
pub(super) async fn handle<S: ReactionStore>(
    shared: Arc<Shared<S>>,
    definition: Arc<Definition>,
    task: Task,
    loader: Loader,
    finish: mpsc::Sender<Finished>,
) {
    let (key, epoch) = (task.key.clone(), task.epoch);
    let event = match next_event(&shared.store, &definition, &task).await {
        Ok(event) => event,
        Err(error) => {
            let outcome = RunOutcome::Failed(error.to_string());
            let (completes, unseen, took) = (false, false, Duration::ZERO);
            let finished = Finished { key, epoch, outcome, completes, unseen, took };
            let _ = finish.send(finished).await;
            return;
        }
    };
    // If there is none, another run has replaced this one: the claim was lost before the run began.
    let Some(cancelled) = shared.running.cancellation(&key, epoch) else { return };
    let attempt = Arc::new(Attempt {
        definition,
        task,
        loader,
        store: Arc::new(HandlerAccess(Arc::clone(&shared))),
        cancelled,
        owner: shared.owner.clone(),
        event,
        report: Report::default(),
    });
    let begun = Instant::now();
    let span = tracing::info_span!(
        "task",
        reaction = key.reaction,
        document = %key.document,
        epoch,
        attempt = attempt.task.attempts,
    );
    tracing::debug!(parent: &span, "run begins");
    let Some(result) = run_or_cancel(&attempt, &span).await else {
        shared.running.lose(&key, epoch);
        shared.count(|counts| counts.lost += 1);
        return;
    };
    let outcome = outcome(&attempt, result);
    let report = &attempt.report;
    if report.throttles.is_set() {
        shared.count(|counts| counts.throttled += 1);
    }
    let took = begun.elapsed();
    match &outcome {
        RunOutcome::Failed(error) => tracing::warn!(parent: &span, ?took, error, "run failed"),
        outcome => tracing::debug!(parent: &span, ?took, ?outcome, "run ended"),
    }
    let completes = report.completes.is_set();
    let unseen = attempt.definition.on.is_some() && !report.current.is_set();
    shared.running.ends(&key, epoch);
    let finished = Finished { key, epoch, outcome, completes, unseen, took };
    // The receiver lives for as long as handlers run.
    let _ = finish.send(finished).await;
}

type HandlerResult = Result<Result<(), HandlerError>, JoinError>;

/// Runs the handler. Ends it, and returns `None`, if its claim is lost.
async fn run_or_cancel(attempt: &Arc<Attempt>, span: &Span) -> Option<HandlerResult> {
    // A handler that panics or is aborted has failed.
    let mut running = JoinSet::new();
    running.spawn(attempt.definition.handle(Arc::clone(attempt)).instrument(span.clone()));
    let mut cancelled = attempt.cancelled.clone();
    let result = tokio::select! { biased;
        result = running.join_next() => result,
        () = is_cancelled(&mut cancelled) => None,
    };
    if result.is_none() {
        // Another worker has the claim. The handler was notified, and is aborted here. Until it has
        // ended, it may still have effects.
        tracing::warn!(parent: span, "claim lost to another worker; the handler is aborted");
        running.shutdown().await;
    }
    result
}

async fn is_cancelled(cancelled: &mut watch::Receiver<bool>) {
    let _ = cancelled.wait_for(|cancelled| *cancelled).await;
}

fn outcome(attempt: &Attempt, result: HandlerResult) -> RunOutcome {
    match result {
        Ok(_) if attempt.report.stale.is_set() => RunOutcome::Stale,
        Ok(Ok(())) => match (attempt.report.take_deferred(), &attempt.event) {
            (Some(until), _) => RunOutcome::Deferred(until),
            (None, Some(event)) => RunOutcome::Handled(event.revision.0),
            (None, None) => RunOutcome::Done,
        },
        Ok(Err(error)) => RunOutcome::Failed(error.to_string()),
        Err(error) if error.is_panic() => RunOutcome::Failed(panic_message(error)),
        Err(error) => RunOutcome::Failed(format!("the handler was aborted: {error}")),
    }
}

fn panic_message(error: JoinError) -> String {
    let panic = error.into_panic();
    let message = panic.downcast_ref::<&str>().map(ToString::to_string);
    let message = message.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_default();
    format!("the handler panicked: {message}")
}
