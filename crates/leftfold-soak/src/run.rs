//! A run on one store.

use std::io::{IsTerminal as _, Write as _};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use leftfold_testbed::mongodb::Server;

use crate::arena::{Arena, Messages, Phase};
use crate::args::{Args, Store};
use crate::bystander::{self, Bystander};
use crate::clock::Clock;
use crate::daemon::{Daemon, free_address};
use crate::dice::Dice;
use crate::memory::{self, Meter};
use crate::operator::{self, Fatal, Operator};
use crate::plan::Plan;
use crate::report::Report;
use crate::requests;
use crate::scripts;

const BYSTANDERS: usize = 2;
const SPEAKERS: usize = 2;

/// Runs everything on one store. The daemon's files are in the directory.
pub(crate) fn run(
    args: &Args,
    store: Store,
    time: Duration,
    seed: u64,
    directory: &Path,
) -> Result<Report, Fatal> {
    let begun = Instant::now();
    let mut dice = Dice::new(seed);
    let plan = Plan::new(time, args.quick, &mut dice);
    // The server must live until the end of the run.
    let server = match store {
        Store::Sqlite => None,
        Store::Mongodb => Some(mongodb()?),
    };
    let url = match &server {
        None => "sqlite:leftfold.db".to_owned(),
        Some(server) => server.url().replacen("/?", "/soak?", 1),
    };
    let address = free_address(&mut dice).map_err(|error| format!("finding a free port: {error}"))?;
    scripts::write(directory).map_err(|error| format!("writing scripts: {error}"))?;
    let clock = if args.no_clocks || args.quick { None } else { Some(Clock::new(directory)?) };
    let binary = args.daemon.canonicalize();
    let binary = binary.map_err(|error| format!("the daemon {}: {error}", args.daemon.display()))?;
    let (arena, meter) = (Arena::new(address), Meter::new());
    let mut operator = Operator {
        arena: &arena,
        meter: &meter,
        store,
        daemon: Daemon::new(&binary, directory, clock),
        valid: scripts::configuration(&address.to_string(), &url),
        dice: dice.split(),
        tally: operator::Tally::default(),
        left: Vec::new(),
    };
    let over = AtomicBool::new(false);
    let mut tally = bystander::Tally::default();
    let mut hostile_time = (Duration::ZERO, Duration::ZERO);
    let parked = thread::scope(|scope| {
        scope.spawn(|| meter.run(&over));
        let mut bystanders = Vec::new();
        let done = operator.begin().and_then(|()| {
            for name in 0..BYSTANDERS {
                let bystander = Bystander::new(&arena, name, dice.split());
                bystanders.push(scope.spawn(|| bystander.run()));
            }
            let mut progress = Progress::new(store, time);
            let calm = Instant::now();
            while calm.elapsed() < plan.calm {
                progress.show(&arena);
                thread::sleep(Duration::from_millis(20));
            }
            arena.enter(Phase::Hostile);
            hostile_time.0 = meter.begun().elapsed();
            let all =
                [requests::append, requests::sit].into_iter().chain([requests::speak as Hostile; SPEAKERS]);
            for hostile in all {
                let (arena, dice) = (&arena, dice.split());
                scope.spawn(move || hostile(arena, dice));
            }
            operator.run(&plan, |arena| progress.show(arena))
        });
        hostile_time.1 = meter.begun().elapsed();
        let parked = operator.end();
        for bystander in bystanders {
            if let Ok(one) = bystander.join() {
                tally.add(&one);
            }
        }
        over.store(true, Ordering::Relaxed);
        done.map(|()| parked)
    })?;
    Ok(Report {
        store,
        seed,
        is_quick: args.quick,
        seconds: begun.elapsed().as_secs_f64(),
        bystander: tally,
        panics: panics(&operator.daemon),
        operator: operator.tally,
        failures: arena.failures(),
        wrong: arena.wrongs(),
        put_off: arena.all_put_off(),
        hostile: arena.answers(),
        windows: arena.windows.list(),
        peaks: memory::peaks(&meter.samples(), hostile_time.0, hostile_time.1),
        parked,
    })
}

type Hostile = fn(&Arena, Dice);

fn mongodb() -> Result<Server, Fatal> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|error| format!("starting the runtime: {error}"))?;
    runtime.block_on(Server::replica_set(1)).map_err(|error| error.to_string())
}

fn panics(daemon: &Daemon) -> Messages {
    let log = daemon.log_after(0);
    let first: Vec<_> = log.lines().filter(|line| line.contains("panicked")).map(str::to_owned).collect();
    Messages { count: first.len() as u64, first: first.into_iter().take(5).collect() }
}

/// A progress line, updated every second on a terminal and printed once a minute otherwise.
struct Progress {
    store: Store,
    time: Duration,
    shown: Instant,
}

impl Progress {
    fn new(store: Store, time: Duration) -> Self {
        Self { store, time, shown: Instant::now() }
    }

    fn show(&mut self, arena: &Arena) {
        let mut err = std::io::stderr();
        let (pause, begin, end) = if err.is_terminal() { (1, "\r", " ") } else { (60, "", "\n") };
        if self.shown.elapsed() < Duration::from_secs(pause) {
            return;
        }
        self.shown = Instant::now();
        let (seconds, all) = (arena.begun.elapsed().as_secs(), self.time.as_secs());
        let (requests, kills) = (arena.requests.load(Ordering::Relaxed), arena.windows.list().len());
        let failures = arena.failures().count + arena.wrongs().count;
        let store = self.store.name();
        // A failed write of the progress does not matter.
        let _ = write!(
            err,
            "{begin}{store}: {seconds}/{all} s, {requests} requests, {kills} kills, {failures} failures{end}"
        );
        let _ = err.flush();
    }
}
