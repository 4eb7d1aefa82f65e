//! Crashes at every point: a fixed story runs again and again, and each time the victim dies one
//! step later. The others must always be able to continue.

use std::time::Duration;

use leftfold::fold::FoldOptions;
use leftfold::{App, Backoff, Expected, NewEvent, Result};

use crate::dice::Dice;
use crate::faults::Faults;
use crate::notes::{BY_CONTENT, BY_STREAM, Happened};
use crate::store::SimStore;
use crate::world::{World, WorldRun, in_own_time, read_own};

/// The actor that dies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Victim {
    /// The worker that folds.
    Worker,
    /// The operator that retries and refolds.
    Operator,
    /// The producer that appends.
    Producer,
}

/// A story with one kind of store and one victim.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Story {
    /// The actor that dies.
    pub victim: Victim,
    /// The number of partitions of the log.
    pub partitions: u16,
    /// `true` if a commit is one transaction.
    pub atomic: bool,
}

/// Returns all stories.
pub fn stories() -> impl Iterator<Item = Story> {
    [Victim::Worker, Victim::Operator, Victim::Producer].into_iter().flat_map(|victim| {
        [(1, true), (1, false), (3, true), (3, false)].map(|(partitions, atomic)| Story {
            victim,
            partitions,
            atomic,
        })
    })
}

impl Story {
    /// Returns the number of points at which the victim can die.
    pub fn points(self) -> Result<u64, std::io::Error> {
        self.run(u64::MAX, false).map(|(points, _)| points)
    }

    /// Runs the story with a victim that dies at a point. Returns the number of points passed, and
    /// the run.
    pub fn run(self, dies_at: u64, trace: bool) -> Result<(u64, WorldRun), std::io::Error> {
        in_own_time(async move {
            let store = SimStore::new(self.partitions, self.atomic, Faults::none(), trace);
            let options = FoldOptions {
                // Small sizes give several pages and batches.
                page_bytes: 300,
                batch_bytes: 3_000,
                retry: Backoff::default().first(Duration::from_millis(5)).limit(2),
                lease: Duration::from_millis(500),
                ..FoldOptions::default()
            };
            let running = StoryRun { world: World::new(Dice::new(1), store, options), story: self, dies_at };
            let points = match running.run().await {
                Ok(points) => points,
                Err(error) => {
                    running.world.store.shared().checker.violated(format!("I10: {error}"));
                    0
                }
            };
            (points, running.world.end().await)
        })
    }
}

struct StoryRun {
    world: World,
    story: Story,
    dies_at: u64,
}

impl StoryRun {
    async fn run(&self) -> Result<u64> {
        let world = &self.world;
        let (mut producer, mut operator) = (self.victim(Victim::Producer), self.victim(Victim::Operator));
        let mut worker = Worker { store: self.victim(Victim::Worker), app: None };
        for half in 0..2 {
            for number in 0..14 {
                let append = |store| self.append(store, half * 14 + number);
                unless_dead(world, &mut producer, append).await?;
            }
            worker.catch_up(world).await?;
            if half == 0 {
                world.fix_code();
                unless_dead(world, &mut operator, |store| self.retry(store)).await?;
                unless_dead(world, &mut operator, |store| self.refold(store)).await?;
                unless_dead(world, &mut operator, |store| self.rebuild(store)).await?;
            }
        }
        let fuse = match self.story.victim {
            Victim::Worker => worker.store.fuse(),
            Victim::Operator => operator.fuse(),
            Victim::Producer => producer.fuse(),
        };
        let points = fuse.polls();
        fuse.put_out();
        world.recover().await?;
        if let Some(app) = worker.app {
            app.stop().await;
        }
        world.check().await?;
        Ok(points)
    }

    /// Returns a store handle for an actor, which dies if it is the victim.
    fn victim(&self, actor: Victim) -> SimStore {
        let store = self.world.store.worker(&format!("{actor:?}"));
        if actor == self.story.victim && self.dies_at < u64::MAX {
            store.fuse().light(self.dies_at);
        }
        store
    }

    /// Appends an event of the story. Some events can't be folded or decoded before the code is
    /// fixed.
    async fn append(&self, store: SimStore, number: u64) -> Result<()> {
        let to = vec![format!("d{}", number % 3), format!("d{}", number % 2)];
        let event = match number {
            3 => NewEvent::encode(&Happened::Poison { to })?,
            6 => NewEvent::new("noted", leftfold::Json::of(&serde_json::json!({ "garbled": to }))?)?,
            9 => NewEvent::encode(&Happened::Flaky { to })?,
            11 if self.story.partitions == 1 => NewEvent::encode(&Happened::Cleared { to })?,
            _ => NewEvent::encode(&Happened::Noted { to })?,
        };
        let event = event.with_id(format!("e{number}"))?;
        let app = self.world.app(&store, "producer").open().await?;
        let stream = format!("s{}", number % 4);
        let bookmark = app.append_events(&stream, Expected::Any, vec![event]).await;
        let bookmark =
            bookmark.map_err(|error| leftfold::Error::new(leftfold::Kind::Store, error.to_string()))?;
        self.world.responses.acknowledged().push(bookmark.into_bookmark());
        Ok(())
    }

    async fn retry(&self, store: SimStore) -> Result<()> {
        let app = self.world.app(&store, "operator").open().await?;
        for name in [BY_STREAM, BY_CONTENT] {
            app.retry_all(name, false, |_, _| ()).await?;
        }
        let bookmark = self.world.responses.acknowledged().first().cloned();
        if let Some(bookmark) = bookmark {
            read_own(&app, bookmark.stream.clone().as_str(), bookmark, &self.world.responses).await;
        }
        Ok(())
    }

    /// Rebuilds everything, and undoes a part of it.
    async fn rebuild(&self, store: SimStore) -> Result<()> {
        let app = self.world.app(&store, "operator").open().await?;
        for name in [BY_STREAM, BY_CONTENT] {
            app.rebuild(name).await?.finish(0).await?;
        }
        app.undo(BY_CONTENT).await
    }

    async fn refold(&self, store: SimStore) -> Result<()> {
        let app = self.world.app(&store, "operator").open().await?;
        app.refold(BY_STREAM, "s1").await?;
        app.refold(BY_CONTENT, "d0").await.map(drop)
    }
}

/// Runs `work`. If its actor dies, a new one repeats it.
async fn unless_dead<F: Future<Output = Result<()>>>(
    world: &World,
    store: &mut SimStore,
    work: impl Fn(SimStore) -> F,
) -> Result<()> {
    let dead = {
        let fuse = store.fuse();
        tokio::select! { biased;
            () = fuse.blown() => true,
            done = work(store.clone()) => { done?; false }
        }
    };
    if dead {
        world.store.shared().trace.note(|| format!("{} is dead", store.name));
        *store = world.store.worker("successor");
        return work(store.clone()).await;
    }
    Ok(())
}

/// The worker of a story, started on demand.
struct Worker {
    store: SimStore,
    app: Option<App<SimStore>>,
}

impl Worker {
    async fn catch_up(&mut self, world: &World) -> Result<()> {
        loop {
            let watcher = world.app(&world.store, "watcher").open().await?;
            let fuse = self.store.fuse();
            let caught_up = async {
                if self.app.is_none() {
                    self.app = Some(world.app(&self.store, &self.store.name).start().await?);
                }
                watcher.caught_up().await
            };
            tokio::select! { biased;
                () = fuse.blown() => {}
                done = caught_up => return done,
            }
            world.store.shared().trace.note(|| format!("{} is dead", self.store.name));
            self.app = None;
            self.store = world.store.worker("successor");
        }
    }
}
