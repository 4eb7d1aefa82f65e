//! Leftfold's engine in a simulated world that breaks, deterministically, by seed.

use std::process::ExitCode;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use clap::Parser;
use indicatif::{ProgressBar, ProgressStyle};

use leftfold_sim::faults::Fault;
use leftfold_sim::world::{self, Run};

/// Runs the engine in many simulated worlds, each decided by its seed, and checks that every document comes right.
#[derive(Parser)]
struct Args {
    /// How many seeds to run.
    #[arg(long, default_value_t = 2_000)]
    seeds: u64,
    /// The first of them; a random one if left out.
    #[arg(long)]
    first_seed: Option<u64>,
    /// Runs this seed alone.
    #[arg(long)]
    seed: Option<u64>,
    /// With `--seed`: prints what happened, line by line.
    #[arg(long)]
    trace: bool,
    /// How many run at the same time; as many as there are cores if left out.
    #[arg(long)]
    threads: Option<u64>,
}

fn main() -> ExitCode {
    let args = Args::parse();
    let outcome = match args.seed {
        Some(seed) => one(seed, args.trace),
        None => many(&args),
    };
    match outcome {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::from(2)
        }
    }
}

fn one(seed: u64, trace: bool) -> Result<bool, std::io::Error> {
    let run = world::run(seed)?;
    if trace {
        run.trace.iter().for_each(|line| eprintln!("{line}"));
    }
    Ok(report(seed, &run))
}

/// Says what was violated, if anything was.
fn report(seed: u64, run: &Run) -> bool {
    const TAIL: usize = 15;
    if run.violations.is_empty() {
        return true;
    }
    eprintln!("seed {seed} failed:");
    run.violations.iter().take(5).for_each(|violation| eprintln!("  {violation}"));
    eprintln!("  the last that happened:");
    let earlier = run.trace.len().saturating_sub(TAIL);
    run.trace[earlier..].iter().for_each(|line| eprintln!("  {line}"));
    eprintln!("  again: cargo run --release -p leftfold-sim -- --seed {seed} --trace");
    false
}

fn many(args: &Args) -> Result<bool, std::io::Error> {
    let first = args.first_seed.unwrap_or_else(|| leftfold::Env::random(&leftfold::System) >> 16);
    let cores = std::thread::available_parallelism().map_or(1, |cores| cores.get() as u64);
    let threads = args.threads.unwrap_or(cores).max(1);
    eprintln!("seeds {first} to {}", first + args.seeds.saturating_sub(1));
    let bar = ProgressBar::new(args.seeds);
    if let Ok(style) = ProgressStyle::with_template("{bar:40} {pos}/{len} seeds, {per_sec}, {eta} left") {
        bar.set_style(style);
    }
    let (next, failed) = (AtomicU64::new(0), AtomicU64::new(0));
    let began = Instant::now();
    let totals = std::thread::scope(|scope| {
        let workers: Vec<_> = (0..threads)
            .map(|_| {
                scope.spawn(|| {
                    let mut totals = Totals::default();
                    loop {
                        let seed = next.fetch_add(1, Ordering::Relaxed);
                        if seed >= args.seeds {
                            return Ok(totals);
                        }
                        let run = world::run(first + seed)?;
                        totals.add(&run);
                        if !bar.suspend(|| report(first + seed, &run)) {
                            failed.fetch_add(1, Ordering::Relaxed);
                        }
                        bar.inc(1);
                    }
                })
            })
            .collect();
        let mut totals = Totals::default();
        for worker in workers {
            let part: Result<Totals, std::io::Error> = worker
                .join()
                .unwrap_or_else(|_| Err(std::io::Error::other("a thread of the simulation panicked")));
            totals.merge(&part?);
        }
        Ok::<_, std::io::Error>(totals)
    })?;
    bar.finish_and_clear();
    let failed = failed.into_inner();
    totals.print(args.seeds, began.elapsed().as_secs_f64());
    eprintln!("{failed} of {} seeds failed", args.seeds);
    Ok(failed == 0)
}

/// What all seeds together met and reached.
#[derive(Default)]
struct Totals {
    met: [u64; Fault::ALL.len()],
    events: u64,
    /// In how many seeds it happened, and how often in all.
    sometimes: [(u64, u64); 6],
}

const SOMETIMES: [&str; 6] =
    ["conflicts", "parked", "set aside", "skipped as folded before", "retried", "reads that waited"];

impl Totals {
    fn add(&mut self, run: &Run) {
        let reached = &run.reached;
        self.events += reached.events;
        self.met.iter_mut().zip(run.met).for_each(|(sum, met)| *sum += met);
        let counts = [
            reached.conflicts,
            reached.parked,
            reached.set_aside,
            reached.skipped,
            reached.retried,
            reached.waited_reads,
        ];
        for ((seeds, sum), count) in self.sometimes.iter_mut().zip(counts) {
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

    #[expect(clippy::cast_precision_loss, reason = "a rate for people to read")]
    fn print(&self, seeds: u64, seconds: f64) {
        eprintln!(
            "{seeds} seeds in {seconds:.1} s, {:.0} a second; {} events",
            seeds as f64 / seconds,
            self.events
        );
        for (fault, met) in Fault::ALL.iter().zip(self.met) {
            eprintln!("  fault {fault:?}: {met}");
        }
        for (name, (seeds, sum)) in SOMETIMES.iter().zip(self.sometimes) {
            eprintln!("  {name}: in {seeds} seeds, {sum} times");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// With all faults off, the simulated store does what every store must do.
    mod conformance {
        use leftfold_sim::dice::Dice;
        use leftfold_sim::faults::Faults;
        use leftfold_sim::store::SimStore;

        #[expect(clippy::unused_async, reason = "other stores need to wait")]
        async fn make(partitions: u16) -> (SimStore, ()) {
            let faults = Faults::drawn(&Dice::new(1));
            faults.heal();
            (SimStore::new(partitions, true, faults), ())
        }

        mod one_partition {
            leftfold::conformance!(super::make, partitions: 1);
        }

        mod three_partitions {
            leftfold::conformance!(super::make, partitions: 3);
        }
    }

    #[test]
    fn seeds_that_failed_once_hold() {
        let seeds =
            include_str!("../seeds.txt").lines().filter(|line| !line.is_empty() && !line.starts_with('#'));
        for seed in seeds {
            let seed = seed.parse().expect("a line of seeds.txt is a number or begins with #");
            let run = world::run(seed).expect("a runtime");
            assert!(run.violations.is_empty(), "seed {seed}: {:?}", run.violations);
        }
    }

    #[test]
    fn the_same_seed_gives_the_same_trace() {
        for seed in 0..100 {
            let (first, second) =
                (world::run(seed).expect("a runtime"), world::run(seed).expect("a runtime"));
            assert_eq!(first.trace, second.trace, "seed {seed}");
            assert!(first.violations.is_empty(), "seed {seed}: {:?}", first.violations);
        }
    }
}
