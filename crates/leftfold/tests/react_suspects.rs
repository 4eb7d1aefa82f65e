//! Documents that kill the process that handles them, on a store in memory: they fail in the end,
//! and harm no other document.

#![allow(clippy::unwrap_used, reason = "a step that fails fails the test")]

#[path = "common/held.rs"]
mod held;

use std::collections::BTreeMap;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use held::Held;
use leftfold::react::{
    Draft, ExternalCollection, Reaction, ReactionStore, Reactor, ReactorHandle, Retry, State, Suspicion,
    Task, TaskKey,
};
use leftfold::{DocumentId, Json, Memory};
use serde_json::{Value, json};
use tokio::sync::watch;
use tokio::time::{sleep, timeout};

const DEADLY: &str = "deadly";
const LONG: Duration = Duration::from_hours(1);

/// The work of all handlers, and the number of runs of the deadly document.
#[derive(Clone)]
struct Scene {
    handled: Arc<Mutex<BTreeMap<String, usize>>>,
    /// The largest number of handlers that ran at the same time as the deadly one, in each of its
    /// runs.
    beside: Arc<Mutex<Vec<usize>>>,
    running: Arc<Mutex<usize>>,
    deaths: Arc<watch::Sender<usize>>,
}

impl Scene {
    fn new() -> Self {
        Self {
            handled: Arc::default(),
            beside: Arc::default(),
            running: Arc::default(),
            deaths: Arc::new(watch::Sender::new(0)),
        }
    }

    /// Returns a reaction whose handler takes this long, and never returns for the deadly document.
    fn reaction(&self, takes: Duration) -> Reaction {
        let scene = self.clone();
        draft().run(move |ctx| {
            let scene = scene.clone();
            async move {
                let id = ctx.document().await.map(|_| ctx.id().to_string())?;
                *scene.running.lock().unwrap() += 1;
                if id == DEADLY {
                    // Let all others of the same batch begin.
                    sleep(Duration::from_millis(1)).await;
                    scene.beside.lock().unwrap().push(*scene.running.lock().unwrap() - 1);
                    scene.deaths.send_modify(|deaths| *deaths += 1);
                    std::future::pending::<()>().await;
                }
                sleep(takes).await;
                *scene.running.lock().unwrap() -= 1;
                *scene.handled.lock().unwrap().entry(id).or_default() += 1;
                Ok(())
            }
        })
    }

    fn handled(&self) -> usize {
        self.handled.lock().unwrap().len()
    }

    /// Runs processes, each until it dies, until nothing is left to do. Returns the number of
    /// deaths.
    async fn play(&self, store: &Memory, takes: Duration) -> usize {
        for round in 0..50 {
            *self.running.lock().unwrap() = 0;
            let process = start(store, &format!("round {round}"), self.reaction(takes)).await;
            let mut deaths = self.deaths.subscribe();
            deaths.mark_unchanged();
            tokio::select! {
                idle = process.idle_within(LONG) => {
                    idle.unwrap();
                    return round;
                }
                _ = deaths.changed() => drop(process),
            }
        }
        panic!("processes die and die");
    }
}

fn draft() -> Draft<Value> {
    Reaction::on_plain("orders", "mail").retry(Retry::fixed(Duration::from_secs(1)).attempts(3))
}

async fn start<S: ReactionStore>(store: &S, worker: &str, reaction: Reaction) -> ReactorHandle<S> {
    Reactor::on(store.clone()).worker(worker).reaction(reaction).start().await.unwrap()
}

fn put(store: &Memory, id: &str) {
    let body = Json::of(&json!({ "paid": true })).unwrap();
    store.write_plain(&ExternalCollection::new("orders").unwrap(), DocumentId::new(id).unwrap(), Some(body));
}

fn key(id: &str) -> TaskKey {
    TaskKey { reaction: "mail".to_owned(), document: DocumentId::new(id).unwrap() }
}

async fn task_in<S: ReactionStore>(store: &S, id: &str) -> Option<Task> {
    store.load_tasks(vec![key(id)]).await.unwrap().pop()
}

async fn until(what: &str, mut is_so: impl AsyncFnMut() -> bool) {
    let wait = async {
        while !is_so().await {
            sleep(Duration::from_millis(5)).await;
        }
    };
    timeout(LONG, wait).await.unwrap_or_else(|_| panic!("{what}"));
}

/// Regression: every lost claim counted as an attempt. Healthy tasks that were claimed beside a
/// deadly one three times then failed without ever running.
#[tokio::test(start_paused = true)]
async fn a_document_that_kills_its_process_fails_alone_and_the_others_are_handled() {
    let (store, scene) = (Memory::default(), Scene::new());
    put(&store, DEADLY);
    for number in 0..60 {
        put(&store, &format!("healthy-{number}"));
    }
    let deaths = scene.play(&store, Duration::from_secs(1)).await;
    assert_eq!(scene.handled(), 60);
    let deadly = task_in(&store, DEADLY).await.unwrap();
    assert_eq!((deadly.state, deadly.attempts), (State::Failed, 3));
    assert!(deadly.error.as_ref().unwrap().contains("process ended"), "{:?}", deadly.error);
    // Three times beside others, in ever smaller groups, then three times alone.
    let beside = scene.beside.lock().unwrap().clone();
    assert_eq!((deaths, beside.len()), (6, 6));
    assert!(beside[1] < 64 && beside[2] < 8 && beside[3..] == [0, 0, 0], "{beside:?}");
}

/// The death of a process with many claims neither runs its tasks one by one nor delays others.
#[tokio::test(start_paused = true)]
async fn a_process_that_dies_with_a_thousand_claims_holds_up_nobody() {
    let (store, scene) = (Memory::default(), Scene::new());
    for number in 0..1_000 {
        put(&store, &format!("old-{number}"));
    }
    let dies = Reactor::on(store.clone()).concurrency(1_000).worker("dies");
    let dies =
        dies.reaction(draft().concurrency(1_000).run(|_| std::future::pending())).start().await.unwrap();
    until("it has them all", async || dies.counts().claimed == 1_000).await;
    drop(dies);
    // One process has to do both: half of its time is for tasks without suspicion.
    let lives = start(&store, "lives", scene.reaction(Duration::from_millis(100))).await;
    until("the claims are lost", async || lives.counts().takeovers == 1_000).await;
    let begun = tokio::time::Instant::now();
    let mut slowest = Duration::ZERO;
    for number in 0..100 {
        put(&store, &format!("new-{number}"));
        let asked = tokio::time::Instant::now();
        let id = format!("new-{number}");
        until("it is handled", async || scene.handled.lock().unwrap().contains_key(&id)).await;
        slowest = slowest.max(asked.elapsed());
    }
    lives.idle_within(LONG).await.unwrap();
    assert_eq!(scene.handled(), 1_100);
    assert!(scene.handled.lock().unwrap().values().all(|times| *times == 1));
    // In groups of 64, of 100 ms each, the thousand take 1.6 s; beside the others twice that, and
    // a second more for each turn that begins late.
    assert!(begun.elapsed() < Duration::from_secs(40), "{:?}", begun.elapsed());
    assert!(slowest < Duration::from_secs(3), "{slowest:?}");
}

/// A worker that could not reach the store for a while is alive, so its tasks are not suspects.
#[tokio::test(start_paused = true)]
async fn a_worker_that_is_alive_and_loses_its_claim_makes_no_suspect() {
    let store = Memory::default();
    put(&store, "a");
    let hangs = start(&store, "hangs", draft().run(|_| std::future::pending())).await;
    let running = async || task_in(&store, "a").await.is_some_and(|task| task.state == State::Running);
    until("it runs", running).await;
    // The claim is ended early; the worker keeps sending heartbeats.
    let task = task_in(&store, "a").await.unwrap();
    let now = store.time().await.unwrap();
    let ended = Task { due: Some(now), version: 1, ..task.clone() };
    let change = leftfold::react::TaskChange::Update(task.version, ended);
    assert_eq!(store.save_tasks(vec![change]).await.unwrap(), []);
    let scene = Scene::new();
    let lives = start(&store, "lives", scene.reaction(Duration::ZERO)).await;
    until("it is handled", async || lives.counts().done + hangs.counts().claimed >= 2).await;
    let task = task_in(&store, "a").await.unwrap();
    assert_eq!(task.suspicion, Suspicion::None);
    assert!(task.history[0].error.as_ref().unwrap().contains("could not renew"), "{:?}", task.history);
}

/// A worker that stood still for long counted as dead. When it resumes, its heartbeat shows that it
/// is alive.
#[tokio::test(start_paused = true)]
async fn a_worker_that_stood_still_lifts_the_suspicion_when_it_goes_on() {
    let store = Held::default();
    put(&store.memory, "a");
    let stands = start(&store, "stands still", draft().run(|_| std::future::pending())).await;
    let running = async || task_in(&store.memory, "a").await.is_some_and(|task| task.state == State::Running);
    until("it runs", running).await;
    store.stands_still.store(true, Ordering::Relaxed);
    // No worker runs it meanwhile: this one only takes the lost claim away.
    let other = Reactor::on(store.memory.clone()).worker("other").plans(false).concurrency(1);
    let other = other.reaction(draft().run(|_| std::future::pending())).start().await.unwrap();
    let suspected =
        async || task_in(&store.memory, "a").await.is_some_and(|task| task.suspicion == Suspicion::Many);
    until("it is suspected", suspected).await;
    store.stands_still.store(false, Ordering::Relaxed);
    let cleared =
        async || task_in(&store.memory, "a").await.is_some_and(|task| task.suspicion == Suspicion::None);
    until("the suspicion is lifted", cleared).await;
    drop((stands, other));
}

/// A process that restarts under its old name is another worker: its earlier claims are lost with
/// the old process.
#[tokio::test(start_paused = true)]
async fn a_process_that_starts_again_under_its_name_does_not_vouch_for_its_predecessor() {
    let (store, scene) = (Memory::default(), Scene::new());
    put(&store, "a");
    let dies = start(&store, "pod-0", draft().run(|_| std::future::pending())).await;
    until("it runs", async || dies.counts().claimed == 1).await;
    drop(dies);
    let again = start(&store, "pod-0", scene.reaction(Duration::ZERO)).await;
    again.idle_within(LONG).await.unwrap();
    let task = task_in(&store, "a").await.unwrap();
    assert_eq!((task.state, task.attempts), (State::Done, 1));
    assert!(task.history[0].error.as_ref().unwrap().contains("process ended"), "{:?}", task.history);
}

/// Suspects take at most half of the workers: the others continue with tasks without suspicion.
#[tokio::test(start_paused = true)]
async fn suspects_run_in_at_most_half_of_the_workers() {
    let store = Memory::default();
    for number in 0..120 {
        put(&store, &format!("old-{number}"));
    }
    let dies = Reactor::on(store.clone()).concurrency(120).worker("dies");
    let dies = dies.reaction(draft().concurrency(120).run(|_| std::future::pending())).start().await.unwrap();
    until("it has them all", async || dies.counts().claimed == 120).await;
    drop(dies);
    // The workers that run suspects now, and the largest number of them at any time.
    let running: Arc<Mutex<(BTreeMap<usize, usize>, usize)>> = Arc::default();
    let mut workers = Vec::new();
    for worker in 0..4 {
        let running = Arc::clone(&running);
        let reaction = draft().concurrency(4).run(move |ctx| {
            let running = Arc::clone(&running);
            async move {
                let is_suspect = ctx.task().suspicion != Suspicion::None;
                if is_suspect {
                    let (now, most) = &mut *running.lock().unwrap();
                    *now.entry(worker).or_default() += 1;
                    *most = now.values().filter(|runs| **runs > 0).count().max(*most);
                }
                sleep(Duration::from_millis(50)).await;
                if is_suspect {
                    *running.lock().unwrap().0.entry(worker).or_default() -= 1;
                }
                Ok(())
            }
        });
        workers.push(start(&store, &format!("worker-{worker}"), reaction).await);
    }
    // There is always a task without suspicion, so all four workers are alive.
    for number in 0.. {
        put(&store, &format!("new-{number}"));
        sleep(Duration::from_millis(10)).await;
        let old = store.load_tasks((0..120).map(|number| key(&format!("old-{number}"))).collect());
        if old.await.unwrap().iter().all(|task| task.state == State::Done) {
            break;
        }
    }
    for worker in &workers {
        worker.idle_within(LONG).await.unwrap();
    }
    let most = running.lock().unwrap().1;
    assert!((1..=2).contains(&most), "{most} of 4 workers ran suspects at the same time");
}
