//! The model: a few workers, a store, a short log, and all their actions in any order.

use std::fmt;

use stateright::{Model, Property};

use crate::properties::properties;
use crate::store::{Answer, Commit, Guard, Lease, Store};
use crate::worker::{Run, Worker, settle};

/// A world that explores every possible sequence of actions.
///
/// There are no clocks: a lease may end at any time, and a worker that was paused for long is one
/// that others overtook. Reads come in any order, so each may be older than the other. A commit
/// whose response does not come is *stray*. It may arrive at any time or never, independently of
/// its worker.
#[derive(Clone, Copy, Debug)]
pub(crate) struct World {
    pub(crate) guard: Guard,
    /// `true` if a commit is one transaction. Otherwise it writes document by document, and the
    /// checkpoint last.
    pub(crate) transactions: bool,
    pub(crate) workers: usize,
    /// The number of events in the log. Each belongs to every document.
    pub(crate) events: u64,
    pub(crate) documents: usize,
    /// The maximum number of stray commits.
    pub(crate) strays: usize,
    /// The maximum number of claims, where epochs count them.
    pub(crate) claims: u64,
    /// `true` if workers that differ only in their names count as the same.
    pub(crate) anonymous: bool,
}

impl fmt::Display for World {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { guard, workers, documents, events, strays, .. } = self;
        let with = if self.transactions { "with" } else { "without" };
        write!(
            f,
            "{guard:?}, {workers} workers, {with} transactions, documents: {documents}, events: {events}, \
             stray commits: {strays}"
        )
    }
}

/// A state of the model.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct State {
    pub(crate) store: Store,
    pub(crate) workers: Vec<Worker>,
    /// The commits in flight that no worker waits for.
    pub(crate) stray: Vec<Commit>,
    /// The number of commits that ever became stray.
    pub(crate) strays: usize,
}

/// An action.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Action {
    /// The lease ends.
    End,
    /// A worker takes the lease and begins.
    Claim(usize),
    /// A working worker takes the lease again.
    Renew(usize),
    /// A worker reads the checkpoint.
    Read(usize),
    /// A worker loads the documents it lacks.
    Load(usize),
    /// A worker folds up to this event and sends the commit.
    Send(usize, u64),
    /// The store does the next part of a worker's commit. After the last part the worker has the
    /// response.
    Write(usize),
    /// No response comes. The worker repeats the same commit, and the first one becomes stray.
    Repeat(usize),
    /// A worker loses its memory. A commit it has sent becomes stray.
    Crash(usize),
    /// The store does the next part of a stray commit.
    Land(usize),
}

impl Model for World {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        let workers = vec![None; self.workers];
        vec![State { store: Store::new(self.documents), workers, stray: Vec::new(), strays: 0 }]
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        let State { store, workers, stray, strays } = state;
        if store.went_back || !store.documents.iter().all(|document| document.is_in_order()) {
            return; // The invariant is already violated.
        }
        if store.lease.as_ref().is_some_and(|lease| !lease.ended) {
            actions.push(Action::End);
        }
        let may_stray = *strays < self.strays;
        for (number, worker) in workers.iter().enumerate() {
            let free = store.is_free_for(number);
            let Some(run) = worker else {
                actions.extend(free.then_some(Action::Claim(number)));
                continue;
            };
            if free && !store.is_held_by(number) {
                actions.push(Action::Renew(number));
            }
            if run.checkpoint.is_none() {
                actions.push(Action::Read(number));
            }
            if run.lacks_documents() {
                actions.push(Action::Load(number));
            }
            if let Some(from) = run.ready_at() {
                actions.extend((from + 1..=self.events).map(|to| Action::Send(number, to)));
            }
            if run.sent.is_some() {
                actions.push(Action::Write(number));
                actions.extend(may_stray.then_some(Action::Repeat(number)));
            }
            if run.sent.is_none() || may_stray {
                actions.push(Action::Crash(number));
            }
        }
        actions.extend((0..stray.len()).map(Action::Land));
    }

    fn next_state(&self, state: &State, action: Action) -> Option<State> {
        let mut next = state.clone();
        self.act(&mut next, action)?;
        if self.anonymous {
            next.forget_names();
        }
        Some(next)
    }

    fn within_boundary(&self, state: &State) -> bool {
        state.store.epoch <= self.claims
    }

    fn properties(&self) -> Vec<Property<Self>> {
        properties(self)
    }
}

impl World {
    fn act(&self, state: &mut State, action: Action) -> Option<()> {
        let State { store, workers, stray, strays } = state;
        match action {
            Action::End => store.lease.as_mut()?.ended = true,
            Action::Claim(number) => {
                store.lease = Some(Lease { owner: number, ended: false });
                store.epoch += u64::from(self.guard == Guard::Epoch);
                workers[number] = Some(Run::new(store));
            }
            Action::Renew(number) => {
                // If others had the lease meanwhile, the epoch changes, and the worker still has
                // its old one.
                let lost = store.lease.as_ref().is_some_and(|lease| lease.owner != number);
                store.epoch += u64::from(lost && self.guard == Guard::Epoch);
                store.lease = Some(Lease { owner: number, ended: false });
            }
            Action::Read(number) => workers[number].as_mut()?.checkpoint = Some(store.checkpoint),
            Action::Load(number) => workers[number].as_mut()?.load(store),
            Action::Send(number, to) => {
                let run = workers[number].as_mut()?;
                run.sent = Some(run.fold(number, to));
            }
            Action::Write(number) => {
                let commit = workers[number].as_mut()?.sent.as_mut()?;
                if let Some(answer) = self.write(store, commit) {
                    settle(&mut workers[number], answer);
                }
            }
            Action::Repeat(number) => {
                let sent = workers[number].as_mut()?.sent.as_mut()?;
                let first = std::mem::replace(sent, sent.again());
                stray.push(self.unsigned(first));
                *strays += 1;
            }
            Action::Crash(number) => {
                if let Some(commit) = workers[number].take()?.sent {
                    stray.push(self.unsigned(commit));
                    *strays += 1;
                }
            }
            Action::Land(number) => {
                if self.write(store, &mut stray[number]).is_some() {
                    stray.remove(number);
                }
            }
        }
        stray.sort();
        Some(())
    }

    /// Does the next part of a commit in the store. A response means that it was the last part.
    pub(crate) fn write(&self, store: &mut Store, commit: &mut Commit) -> Option<Answer> {
        if self.transactions {
            Some(store.commit(self.guard, commit))
        } else {
            store.step(self.guard, commit)
        }
    }

    /// Removes the writer from a commit if nothing depends on it.
    fn unsigned(&self, commit: Commit) -> Commit {
        if self.guard == Guard::Position { Commit { writer: 0, ..commit } } else { commit }
    }
}

impl State {
    /// Renumbers the workers by their memory. The current or last owner of the lease becomes the
    /// last one.
    fn forget_names(&mut self) {
        let last = self.workers.len() - 1;
        if let Some(lease) = &mut self.store.lease {
            self.workers.swap(lease.owner, last);
            self.workers[..last].sort();
            lease.owner = last;
        }
        for (number, worker) in self.workers.iter_mut().enumerate() {
            if let Some(commit) = worker.as_mut().and_then(|run| run.sent.as_mut()) {
                commit.writer = number;
            }
        }
    }
}
