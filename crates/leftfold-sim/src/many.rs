//! Many runs on all cores, and their totals.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use indicatif::{ProgressBar, ProgressStyle};
use leftfold_sim::crashes;
use leftfold_sim::faults::Fault;
use leftfold_sim::world::{self, SOMETIMES, WorldRun};

use crate::report;

type Result<T> = std::result::Result<T, std::io::Error>;

/// The number of seeds in which each fault and each property that sometimes holds must occur.
const ENOUGH: u64 = 1_000;

/// Runs seeds. Returns whether all passed.
pub(crate) fn seeds(first: u64, count: u64, threads: usize) -> Result<bool> {
    eprintln!("seeds {first} to {}", first + count.saturating_sub(1));
    let (bar, failed, began) = (progress(count, "seeds"), AtomicU64::new(0), Instant::now());
    let parts = on_all(threads, count, |at, totals: &mut Totals| {
        let run = world::run(first + at, false)?;
        totals.add(&run);
        if !run.violations.is_empty() {
            failed.fetch_add(1, Ordering::Relaxed);
            let (seed, mut again) = (first + at, world::run(first + at, true)?);
            if again.violations.is_empty() {
                again.violations.push("the second run had no violation; the first had:".to_owned());
                again.violations.extend(run.violations);
            }
            bar.suspend(|| report(&format!("seed {seed}"), &format!("--seed {seed} --trace"), &again));
        }
        bar.inc(1);
        Ok(true)
    })?;
    bar.finish_and_clear();
    let mut totals = Totals::default();
    for part in &parts {
        totals.merge(part);
    }
    totals.print(count, began.elapsed().as_secs_f64());
    let failed = failed.into_inner();
    eprintln!("{failed} of {count} seeds failed");
    let missed = totals.missed();
    if count >= ENOUGH && !missed.is_empty() {
        eprintln!("too little was tested; these never occurred: {}", missed.join(", "));
        return Ok(false);
    }
    Ok(failed == 0)
}

/// Crashes the victim at every point of every story. Returns whether all passed.
pub(crate) fn crashes(threads: usize) -> Result<bool> {
    let mut all = true;
    for story in crashes::stories() {
        let points = story.points()?;
        let (bar, failed, began) = (progress(points, "points"), AtomicU64::new(0), Instant::now());
        on_all(threads, points, |point, (): &mut ()| {
            let (_, run) = story.run(point, false)?;
            if !run.violations.is_empty() {
                failed.fetch_add(1, Ordering::Relaxed);
                let (_, run) = story.run(point, true)?;
                bar.suspend(|| report(&format!("{story:?}, dead at point {point},"), "--crashes", &run));
            }
            bar.inc(1);
            Ok(true)
        })?;
        bar.finish_and_clear();
        let (failed, seconds) = (failed.into_inner(), began.elapsed().as_secs_f64());
        eprintln!("{story:?}: {failed} of {points} points failed, {seconds:.1} s");
        all &= failed == 0;
    }
    Ok(all)
}

/// Plants each bug in turn. Returns whether all were caught.
#[cfg(feature = "planted")]
pub(crate) fn bugs(first: u64, threads: usize) -> Result<bool> {
    use std::sync::Mutex;

    use leftfold::planted::{Bug, plant};

    /// The number of seeds within which each bug must be caught.
    const SEEDS: u64 = 20_000;
    let mut missed = Vec::new();
    for bug in Bug::ALL {
        plant(Some(*bug));
        let (began, caught) = (Instant::now(), Mutex::new(None));
        on_all(threads, SEEDS, |at, (): &mut ()| {
            let run = world::run(first + at, false)?;
            if let Some(violation) = run.violations.first() {
                let mut caught = caught.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
                caught.get_or_insert_with(|| (at, violation.clone()));
                return Ok(false);
            }
            Ok(true)
        })?;
        let seconds = began.elapsed().as_secs_f64();
        let caught = caught.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner);
        if let Some((at, violation)) = caught {
            let violation: String = violation.chars().take(70).collect();
            eprintln!("{:<26} caught by seed {:<5} {seconds:>5.1} s  {violation}", bug.name(), first + at);
        } else {
            eprintln!("{:<26} NOT caught within {SEEDS} seeds, {seconds:.1} s", bug.name());
            missed.push(bug.name());
        }
    }
    plant(None);
    eprintln!("{} of {} bugs caught", Bug::ALL.len() - missed.len(), Bug::ALL.len());
    Ok(missed.is_empty())
}

/// Calls `each` for the numbers below `count`, on several threads, until a call asks to stop.
/// Returns the result of each thread.
fn on_all<T: Default + Send>(
    threads: usize,
    count: u64,
    each: impl Fn(u64, &mut T) -> Result<bool> + Sync,
) -> Result<Vec<T>> {
    let next = AtomicU64::new(0);
    std::thread::scope(|scope| {
        let workers: Vec<_> = (0..threads)
            .map(|_| {
                scope.spawn(|| {
                    let mut gathered = T::default();
                    loop {
                        let at = next.fetch_add(1, Ordering::Relaxed);
                        if at >= count {
                            return Ok(gathered);
                        }
                        if !each(at, &mut gathered)? {
                            next.store(count, Ordering::Relaxed);
                        }
                    }
                })
            })
            .collect();
        let panicked = |_| Err(std::io::Error::other("a thread of the simulation panicked"));
        workers.into_iter().map(|worker| worker.join().unwrap_or_else(panicked)).collect()
    })
}

fn progress(count: u64, unit: &str) -> ProgressBar {
    let bar = ProgressBar::new(count);
    let template = format!("{{bar:40}} {{pos}}/{{len}} {unit}, {{per_sec}}, {{eta}} left");
    ProgressStyle::with_template(&template).map(|style| bar.clone().with_style(style)).unwrap_or(bar)
}

/// The faults and properties of all seeds together.
struct Totals {
    met: [u64; Fault::ALL.len()],
    events: u64,
    /// The number of seeds in which each occurred, and the total number of occurrences.
    sometimes: [(u64, u64); SOMETIMES.len()],
}

impl Default for Totals {
    fn default() -> Self {
        Self { met: [0; Fault::ALL.len()], events: 0, sometimes: [(0, 0); SOMETIMES.len()] }
    }
}

impl Totals {
    fn add(&mut self, run: &WorldRun) {
        self.events += run.events;
        self.met.iter_mut().zip(run.met).for_each(|(sum, met)| *sum += met);
        for ((seeds, sum), count) in self.sometimes.iter_mut().zip(run.sometimes) {
            *seeds += u64::from(count > 0);
            *sum += count;
        }
    }

    fn merge(&mut self, other: &Self) {
        self.events += other.events;
        self.met.iter_mut().zip(other.met).for_each(|(sum, met)| *sum += met);
        for ((seeds, sum), (more, count)) in self.sometimes.iter_mut().zip(other.sometimes) {
            *seeds += more;
            *sum += count;
        }
    }

    /// Returns the faults and properties that never occurred.
    fn missed(&self) -> Vec<String> {
        let faults = Fault::ALL.iter().zip(self.met).filter(|(_, met)| *met == 0);
        let sometimes = SOMETIMES.iter().zip(self.sometimes).filter(|(_, (seeds, _))| *seeds == 0);
        faults
            .map(|(fault, _)| format!("fault {fault:?}"))
            .chain(sometimes.map(|(name, _)| (*name).to_owned()))
            .collect()
    }

    #[expect(clippy::cast_precision_loss, reason = "a rate for people to read")]
    fn print(&self, seeds: u64, seconds: f64) {
        let rate = seeds as f64 / seconds;
        eprintln!("{seeds} seeds in {seconds:.1} s, {rate:.0} a second; {} events", self.events);
        for (fault, met) in Fault::ALL.iter().zip(self.met) {
            eprintln!("  fault {fault:?}: {met}");
        }
        for (name, (seeds, sum)) in SOMETIMES.iter().zip(self.sometimes) {
            eprintln!("  {name}: in {seeds} seeds, {sum} times");
        }
    }
}
