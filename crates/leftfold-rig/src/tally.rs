//! The counts of a run, and their output.

use std::collections::BTreeMap;
use std::io::{self, Write as _};

use serde::Serialize;

use crate::messages::ReactorCounts;
use crate::react::Done;
use crate::store::Kind;

/// The counts of a run.
#[derive(Clone, Debug, Default, Serialize)]
pub(crate) struct Tally {
    pub(crate) seed: u64,
    pub(crate) store: Kind,
    pub(crate) rounds: u64,
    pub(crate) seconds: f64,
    pub(crate) kills: u64,
    pub(crate) kills_at: BTreeMap<&'static str, u64>,
    pub(crate) kills_at_any_moment: u64,
    pub(crate) kills_while_stopped: u64,
    pub(crate) servers_killed: u64,
    /// Servers killed just after a process was released to commit.
    pub(crate) servers_killed_at_commit: u64,
    /// Workers stopped with a batch ready, replaced, and resumed.
    pub(crate) zombies_with_a_batch: u64,
    /// Workers stopped at a random moment, replaced, and resumed.
    pub(crate) zombies: u64,
    /// Workers stopped with a lock, so that they could not be replaced.
    pub(crate) stopped_with_a_lock: u64,
    pub(crate) takeovers: u64,
    pub(crate) reactors_killed: u64,
    pub(crate) reactors_killed_at_any_moment: u64,
    /// Planners stopped with changes read, replaced, and resumed.
    pub(crate) zombies_that_plan: u64,
    /// Runners stopped before an effect, replaced, and resumed.
    pub(crate) zombies_that_run: u64,
    /// For each process that the deadly document has killed, the number of handlers that died
    /// beside it.
    pub(crate) falls: Vec<u64>,
    /// Writes of a document with a large watched value.
    pub(crate) enlarged: u64,
    /// Writes of a document that can't be read.
    pub(crate) garbled: u64,
    /// Lost claims in the tasks' histories.
    pub(crate) claims_lost: u64,
    /// Tasks that lost a claim with its process.
    pub(crate) suspects: u64,
    /// Tasks among the suspects that ran in the same reaction as the deadly document.
    pub(crate) neighbours: u64,
    /// The longest time in seconds from a kill until another process planned. `run_after` is that
    /// until another process ran a task.
    pub(crate) planned_after: f64,
    pub(crate) run_after: f64,
    /// The counts that reactors reported.
    pub(crate) did: ReactorCounts,
    /// Writes of items.
    pub(crate) items: u64,
    /// Effects in transactions, each exactly once.
    pub(crate) recorded: u64,
    /// Events handled in order, each exactly once.
    pub(crate) events_handled: u64,
    /// Effects outside the store. `effects_again` counts their repetitions.
    pub(crate) effects: u64,
    pub(crate) effects_again: u64,
    pub(crate) events: u64,
    pub(crate) appends: u64,
    pub(crate) appends_repeated: u64,
    /// Events delivered by feeds.
    pub(crate) delivered: u64,
    /// Deliveries that were held.
    pub(crate) held: u64,
    /// Deliveries that were duplicates.
    pub(crate) delivered_again: u64,
    /// The longest time in seconds in which a projection made no progress during the faults.
    pub(crate) longest_stall: f64,
    pub(crate) snapshots: u64,
    pub(crate) reads: u64,
    pub(crate) conflicts: u64,
    pub(crate) parked: u64,
    pub(crate) set_aside: u64,
    pub(crate) retried: u64,
    pub(crate) skipped: u64,
}

impl Tally {
    /// Returns the coverage that this run lacks. A complete run must have all of it to prove much.
    pub(crate) fn missing(&self) -> Vec<String> {
        let mut missing: Vec<_> = self
            .store
            .places()
            .iter()
            .filter(|place| !self.kills_at.contains_key(place.name))
            .map(|place| format!("no kill at {:?}", place.name))
            .collect();
        let mut must = vec![
            ("kill at any moment", self.kills_at_any_moment),
            ("kill while stopped", self.kills_while_stopped),
            ("zombie with a batch", self.zombies_with_a_batch),
            ("zombie", self.zombies),
            ("takeover", self.takeovers),
            ("repeated append", self.appends_repeated),
            ("delivery held", self.held),
            ("delivery repeated", self.delivered_again),
            ("snapshot", self.snapshots),
            ("document parked", self.parked),
            ("kill of a reactor at any moment", self.reactors_killed_at_any_moment),
            ("zombie that plans", self.zombies_that_plan),
            ("zombie that runs", self.zombies_that_run),
            ("process killed by the deadly document", self.killed_by_deadly()),
            ("process with several handlers killed by the deadly document", self.killed_beside_others()),
            ("healthy task lost with the deadly document", self.neighbours),
            ("write of a large document", self.enlarged),
            ("claim taken over", self.did.takeovers),
            ("stale run", self.did.stale),
            ("retried run", self.did.retried),
            ("effect in a transaction", self.recorded),
            ("event handled", self.events_handled),
            ("effect outside the store", self.effects),
        ];
        if self.store.has_unreadable() {
            must.push(("write of a document that can't be read", self.garbled));
        }
        if self.store.has_servers() {
            must.push(("kill of a server", self.servers_killed));
            must.push(("kill of a server at a commit", self.servers_killed_at_commit));
        }
        missing.extend(must.iter().filter(|(_, count)| *count == 0).map(|(name, _)| format!("no {name}")));
        missing
    }

    /// Adds the results of reactions.
    pub(crate) fn reacted(&mut self, done: &Done, did: ReactorCounts, items: u64) {
        self.did += did;
        self.items += items;
        self.recorded += done.recorded;
        self.events_handled += done.events;
        self.effects += done.outside;
        self.effects_again += done.doubled;
        self.claims_lost += done.claims_lost;
        self.suspects += done.suspects;
        self.neighbours += done.neighbours;
    }

    fn killed_by_deadly(&self) -> u64 {
        self.falls.len() as u64
    }

    fn killed_beside_others(&self) -> u64 {
        self.falls.iter().filter(|beside| **beside > 0).count() as u64
    }

    /// Prints the counts for people.
    pub(crate) fn print(&self) {
        let Self { seed, rounds, seconds, kills, .. } = self;
        eprintln!("seed {seed}: {kills} kills in {seconds:.1} s, on {rounds} stores");
        for (place, count) in &self.kills_at {
            eprintln!("  {count:>5}  killed at {place:?}");
        }
        let rest = [
            (self.kills_at_any_moment, "killed at any moment"),
            (self.kills_while_stopped, "killed while stopped"),
            (self.servers_killed, "servers killed"),
            (self.servers_killed_at_commit, "of them just after a process was released to commit"),
            (self.zombies_with_a_batch, "zombies with a batch ready: stopped, replaced, resumed"),
            (self.zombies, "zombies stopped at any moment, replaced, resumed"),
            (
                self.stopped_with_a_lock,
                "stopped with a lock on the store, so no other process could take over",
            ),
            (self.takeovers, "leases taken over"),
            (self.events, "events"),
            (self.appends, "appends and deliveries acknowledged"),
            (self.appends_repeated, "repeated appends detected"),
            (self.delivered, "events delivered by feeds, each in the log once and in order"),
            (self.held, "early deliveries held"),
            (self.delivered_again, "repeated deliveries detected"),
            (self.snapshots, "snapshots checked"),
            (self.reads, "reads that waited for a write"),
            (self.conflicts, "conflicts"),
            (self.parked, "times parked"),
            (self.set_aside, "applications parked"),
            (self.retried, "folds retried"),
            (self.skipped, "applications skipped as folded before"),
            (self.reactors_killed, "reactors killed, in addition"),
            (self.reactors_killed_at_any_moment, "of them at any moment"),
            (self.zombies_that_plan, "zombies that plan: stopped with changes read, replaced, resumed"),
            (self.zombies_that_run, "zombies that run: stopped before an effect, replaced, resumed"),
            (self.killed_by_deadly(), "reactors killed by the deadly document before its task was given up"),
            (self.killed_beside_others(), "of them while they ran other handlers"),
            (self.neighbours, "healthy tasks of its reaction lost with it, and handled later"),
            (self.enlarged, "writes of a document with a large watched value"),
            (self.garbled, "writes of a document that can't be read"),
            (self.items, "writes of documents that belong to no read model"),
            (self.did.planned, "times planned, as reported by reactors"),
            (self.did.claimed, "runs started"),
            (self.did.done, "runs done"),
            (self.did.stale, "runs stale"),
            (self.did.retried, "runs failed and retried"),
            (self.did.failed, "tasks given up"),
            (self.claims_lost, "lost claims in the histories of tasks"),
            (self.suspects, "suspected tasks: their claim was lost with its process"),
            (self.did.takeovers, "claims taken over, as reported by reactors"),
            (self.did.lost, "claims that a live reactor lost to another"),
            (self.recorded, "effects in transactions, each once"),
            (self.events_handled, "events handled in transactions, each once and in order"),
            (self.effects, "effects outside the store"),
            (self.effects_again, "repetitions of these effects"),
        ];
        for (count, label) in rest {
            eprintln!("  {count:>5}  {label}");
        }
        eprintln!(
            "  {:>5.1}  seconds at most from the kill of a planner until another planned",
            self.planned_after
        );
        eprintln!(
            "  {:>5.1}  seconds at most from the kill of a runner until another ran its task",
            self.run_after
        );
        eprintln!("  {:>5.1}  seconds at most without progress of a projection", self.longest_stall);
    }

    /// Prints the counts and the violations as JSON.
    pub(crate) fn print_json(&self, holds: bool, violations: &[String]) -> io::Result<()> {
        let summary = serde_json::json!({ "holds": holds, "violations": violations, "run": self });
        let mut out = io::stdout().lock();
        serde_json::to_writer_pretty(&mut out, &summary)?;
        writeln!(out)
    }
}
