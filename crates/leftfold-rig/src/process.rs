//! The processes that are killed: workers, producers and an operator. Feeders have their own
//! module.

use std::io::{self, BufRead as _};
use std::time::Duration;

use leftfold::fold::FoldOptions;
use leftfold::{App, AppendError, Appended, Backoff, Expected, Leftfold, NewEvent, Revision};
use leftfold_sim::dice::Dice;
use leftfold_sim::notes::{BY_CONTENT, BY_STREAM, Happened, Notes};
use tokio::sync::watch;
use tokio::time::{sleep, timeout};

use crate::args::Process;
use crate::failure::Failure;
use crate::messages::{Message, send};
use crate::points;
use crate::store::{TestedStore, patiently};

/// The lease of a worker: the time that a silent worker keeps others from taking over.
pub(crate) const LEASE: Duration = Duration::from_millis(400);
/// The time limit for a process to end.
pub(crate) const GRACE: Duration = Duration::from_secs(20);
/// The number of streams, `s0` and so on.
const STREAMS: u64 = 8;
/// The longest pause between two appends. `MEND_PAUSE` is that between two steps of the operator.
const APPEND_PAUSE: Duration = Duration::from_millis(100);
const MEND_PAUSE: Duration = Duration::from_millis(250);

/// Folds until the input ends.
pub(crate) async fn work<S: TestedStore>(args: &Process) -> Result<(), Failure> {
    let mut orders = orders(args)?;
    let app = patiently::<S, _, _>(|| async { app::<S>(args).await?.start().await }).await?;
    ended(&mut orders).await;
    let late = |_| Failure::rig(format!("stopping {}", args.name), "it did not end in time");
    timeout(GRACE, app.stop()).await.map_err(late)
}

/// Builds the application that all parts of the rig use.
pub(crate) async fn app<S: TestedStore>(args: &Process) -> leftfold::Result<Leftfold<S>> {
    let dice = Dice::new(args.seed);
    let between = |least: usize, most: u64| least + usize::try_from(dice.below(most)).unwrap_or(0);
    let options = FoldOptions {
        cache_bytes: between(500, 20_000),
        batch_bytes: between(500, 20_000),
        batch_time: Duration::from_millis(50),
        page_bytes: between(200, 4_000),
        retry: Backoff::default()
            .first(Duration::from_millis(2))
            .most(Duration::from_millis(20))
            .limit(between(1, 4)),
        lease: LEASE,
        ..FoldOptions::default()
    };
    let notes = [Notes::new(true), Notes::new(false)];
    if args.fixed {
        notes.iter().for_each(Notes::fix);
    }
    let [streams, contents] = notes;
    let app = Leftfold::on(S::at(&args.place).await?).worker(&args.name).options(options);
    Ok(app.projection(streams).projection(contents))
}

/// Reports that this process is ready and starts to read orders, even while the store is away. The
/// returned value changes when the input ends.
pub(crate) fn orders(args: &Process) -> Result<watch::Receiver<bool>, Failure> {
    points::watch(args.store.points()).map_err(|error| Failure::rig("watching failpoints", error))?;
    let (end, ended) = watch::channel(false);
    std::thread::spawn(move || {
        for line in io::stdin().lock().lines().map_while(Result::ok) {
            if let Ok(order) = serde_json::from_str(&line) {
                points::obey(order);
            }
        }
        end.send_replace(true);
    });
    send(&Message::Ready).map_err(|error| Failure::rig("reporting that it is ready", error))?;
    Ok(ended)
}

pub(crate) async fn ended(orders: &mut watch::Receiver<bool>) {
    // An error means that the thread that reads orders is gone, which has the same effect.
    let _ = orders.wait_for(|end| *end).await;
}

/// Appends until the input ends. The content of an append follows from its number, so an append
/// without a known result is repeated unchanged.
pub(crate) async fn produce<S: TestedStore>(args: &Process) -> Result<(), Failure> {
    let mut orders = orders(args)?;
    let app = patiently::<S, _, _>(|| async { app::<S>(args).await?.open().await }).await?;
    for append in args.from.. {
        let dice = Dice::new(args.seed.wrapping_add(append));
        tokio::select! { biased;
            () = ended(&mut orders) => break,
            // Slow down over time: a long run must not accumulate more repairs than it has time
            // for.
            () = sleep(dice.time(APPEND_PAUSE) * slower(append, 400)) => {}
        }
        let count = 1 + dice.below(3);
        let ids: Vec<_> = (0..count).map(|at| format!("{}-{append}-{at}-{count}", args.name)).collect();
        let events = ids.iter().map(|id| Happened::any(&dice, id)).collect::<Result<Vec<_>, _>>()?;
        let stream = format!("s{}", dice.below(STREAMS));
        let expected =
            if dice.happens(100) { Expected::Revision(Revision(dice.below(30))) } else { Expected::Any };
        for again in [false, true] {
            if again && !dice.happens(100) {
                break;
            }
            let mut refused = false;
            let message = match append_events(&app, &stream, expected, &events).await {
                Ok(appended) => {
                    let again = matches!(appended, Appended::Duplicate(_));
                    let (ids, bookmark) = (ids.clone(), appended.into_bookmark().to_string());
                    Message::Acknowledged { append, ids, bookmark, again }
                }
                Err(AppendError::WrongRevision { .. }) => {
                    refused = true;
                    Message::Refused { append, ids: ids.clone() }
                }
                Err(error) => Message::Wrong(format!("I11: append {append} of {}: {error}", args.name)),
            };
            send(&message).map_err(|error| Failure::rig("reporting the result of an append", error))?;
            // A second attempt might be accepted, and the reported rejection would look wrong.
            if refused {
                break;
            }
        }
    }
    Ok(())
}

/// Returns the factor for pauses after `step` steps: two, three and so on.
pub(crate) fn slower(step: u64, every: u64) -> u32 {
    u32::try_from(1 + step / every).unwrap_or(u32::MAX)
}

/// Appends, and retries while the store is busy or the outcome is unknown.
async fn append_events<S: TestedStore>(
    app: &App<S>,
    stream: &str,
    expected: Expected,
    events: &[NewEvent],
) -> Result<Appended, AppendError> {
    let mut delays = Backoff::default().first(Duration::from_millis(20)).limit(10).delays(1);
    loop {
        match app.append_events(stream, expected, events.to_vec()).await {
            Err(AppendError::Store(error)) if error.is_transient() => match delays.next() {
                Some(delay) => sleep(delay).await,
                None => return Err(error.into()),
            },
            answer => return answer,
        }
    }
}

/// Retries parked documents and refolds documents, beside the workers, until the input ends.
pub(crate) async fn operate<S: TestedStore>(args: &Process) -> Result<(), Failure> {
    let mut orders = orders(args)?;
    let app = patiently::<S, _, _>(|| async { app::<S>(args).await?.open().await }).await?;
    let dice = Dice::new(args.seed);
    loop {
        tokio::select! { biased;
            () = ended(&mut orders) => return Ok(()),
            () = sleep(dice.time(MEND_PAUSE)) => {}
        }
        let (name, id) = if dice.happens(500) {
            (BY_STREAM, format!("s{}", dice.below(STREAMS)))
        } else {
            (BY_CONTENT, format!("d{}", dice.below(4)))
        };
        // The documents show the result. A conflict with a worker is no failure.
        let mends = async {
            if dice.happens(800) {
                let _ = app.retry_all(name, false, |_, _| ()).await;
            } else {
                let _ = app.refold(name, &id).await;
            }
        };
        // With many parked documents this takes long.
        tokio::select! { biased;
            () = ended(&mut orders) => return Ok(()),
            () = mends => {}
        }
    }
}
