//! The other clients: a reader and two operators.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use leftfold::{App, Bookmark, ReadError};
use tokio::sync::watch;
use tokio::time::{sleep, timeout};

use super::responses::Responses;
use crate::dice::Dice;
use crate::faults::Fault;
use crate::notes::{BY_CONTENT, BY_STREAM, FoldedEvents};
use crate::store::SimStore;

/// Reads documents that must include the reader's own write.
pub(crate) async fn read(
    app: App<SimStore>,
    dice: Dice,
    responses: Arc<Responses>,
    faults_ended: watch::Receiver<bool>,
) {
    while !*faults_ended.borrow() {
        sleep(dice.time(Duration::from_secs(3))).await;
        let bookmark = dice.pick(&responses.acknowledged()).cloned();
        let Some(bookmark) = bookmark else { continue };
        let document =
            if dice.happens(500) { bookmark.stream.to_string() } else { format!("d{}", dice.below(4)) };
        read_own(&app, &document, bookmark, &responses).await;
    }
}

/// Checks that a read at least at a bookmark lists its event, if the event belongs to the document.
pub(crate) async fn read_own(app: &App<SimStore>, document: &str, bookmark: Bookmark, responses: &Responses) {
    let projection = if document == bookmark.stream.as_str() { BY_STREAM } else { BY_CONTENT };
    let store = app.store();
    let checker = &store.shared().checker;
    let own = format!("{}@{}", bookmark.stream, bookmark.revision);
    match app.get_as::<FoldedEvents>(projection, document).at_least(bookmark.clone()).await {
        Ok(seen) => {
            responses.waited_reads.fetch_add(1, Ordering::Relaxed);
            let listed = seen.is_some_and(|seen| seen.events.contains(&own));
            let must = checker.must_list(store.inner(), projection, document, &bookmark).await;
            if !listed && must.unwrap_or(false) {
                let violation =
                    format!("I11: a read of {document} at least at {bookmark} does not contain its event");
                store.shared().trace.note(|| violation.clone());
                checker.violated(violation);
            }
        }
        Err(ReadError::Parked { .. }) => {
            responses.parked_reads.fetch_add(1, Ordering::Relaxed);
        }
        Err(ReadError::Unknown { .. }) => {
            checker.violated(format!("I11: {bookmark} was acknowledged, and a read reports it as unknown"));
        }
        Err(_) => {}
    }
}

/// Retries and refolds beside the workers.
pub(crate) async fn operate(app: App<SimStore>, dice: Dice, faults_ended: watch::Receiver<bool>) {
    while !*faults_ended.borrow() {
        sleep(dice.time(Duration::from_secs(3))).await;
        if !app.store().shared().faults.strikes(Fault::Meddling) {
            continue;
        }
        let name = if dice.happens(500) { BY_STREAM } else { BY_CONTENT };
        // The documents show the result.
        if dice.happens(500) {
            let _ = app.retry_all(name, dice.happens(100), |_, _| ()).await;
        } else {
            let id = format!("{}{}", if name == BY_STREAM { "s" } else { "d" }, dice.below(5));
            let _ = app.refold(name, &id).await;
        }
    }
}

/// Rebuilds beside the workers. Then switches to the new generation, leaves it half built, discards
/// it, or undoes the last switch.
pub(crate) async fn rebuild(
    app: App<SimStore>,
    dice: Dice,
    responses: Arc<Responses>,
    faults_ended: watch::Receiver<bool>,
) {
    /// The timeout. Other actors continue an operation that is left unfinished.
    const PATIENCE: Duration = Duration::from_secs(6);
    while !*faults_ended.borrow() {
        sleep(dice.time(Duration::from_secs(3))).await;
        if !app.store().shared().faults.strikes(Fault::Rebuilding) {
            continue;
        }
        let name = if dice.happens(500) { BY_STREAM } else { BY_CONTENT };
        if dice.happens(250) {
            if let Ok(Ok(())) = timeout(PATIENCE, app.undo(name)).await {
                responses.undone.fetch_add(1, Ordering::Relaxed);
            }
            continue;
        }
        let Ok(rebuild) = app.rebuild(name).await else { continue };
        let built = timeout(dice.time(PATIENCE), rebuild.built()).await;
        if dice.happens(100) {
            let _ = timeout(PATIENCE, rebuild.cancel()).await;
        } else if (matches!(built, Ok(Ok(()))) || dice.happens(300))
            && let Ok(Ok(())) = timeout(PATIENCE, rebuild.switch()).await
        {
            responses.switched.fetch_add(1, Ordering::Relaxed);
        }
    }
}
