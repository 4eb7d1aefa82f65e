//! Properties that must hold in every state, and properties that must hold in some state, or else
//! the check shows nothing.

use stateright::Property;

use crate::store::{Answer, Commit, Lease, Store};
use crate::worker::Run;
use crate::world::{State, World};

/// A document has each event once and in order, without a gap.
pub(crate) const IN_ORDER: &str = "each event is in the document once, in order, and none is missing";
/// Marks and checkpoints never decrease.
pub(crate) const NEVER_BACK: &str = "marks and checkpoints never decrease";
/// The checkpoint is true.
pub(crate) const NONE_PASSED: &str = "the checkpoint passes no event that a document lacks";
/// The work can always be completed.
const REPAIRABLE: &str = "a worker that starts now and meets no faults folds the rest";

const REPLACED: &str = "a worker is replaced while it works";
const ZOMBIE_REFUSED: &str = "a zombie's commit is refused";
const ALL_FOLDED: &str = "everything is folded";
const STRAY_LANDS: &str = "a stray commit lands";
const STRAY_REFUSED: &str = "a stray commit is refused";

pub(crate) fn properties(world: &World) -> Vec<Property<World>> {
    let mut properties = vec![
        Property::always(IN_ORDER, |_, State { store, .. }| {
            store.documents.iter().all(|document| document.is_in_order())
        }),
        Property::always(NEVER_BACK, |_, State { store, .. }| !store.went_back),
        Property::always(NONE_PASSED, |_, State { store, .. }| {
            let folded = |event| store.documents.iter().all(|document| document.has(event));
            (1..=store.checkpoint).all(folded)
        }),
        Property::always(REPAIRABLE, |world, state| repairs(world, state.store.clone())),
        Property::sometimes(REPLACED, |_, state| zombies(state).next().is_some()),
        Property::sometimes(ZOMBIE_REFUSED, |world, state| {
            let mut sent = zombies(state).filter_map(|run| run.sent.as_ref());
            sent.any(|commit| is_refused(next(world, state, commit)))
        }),
        Property::sometimes(ALL_FOLDED, |world: &World, state: &State| {
            state.store.checkpoint == world.events
        }),
    ];
    if world.strays > 0 {
        properties.extend([
            Property::sometimes(STRAY_LANDS, |world: &World, state: &State| {
                state.stray.iter().any(|commit| next(world, state, commit) == Some(Answer::Applied))
            }),
            Property::sometimes(STRAY_REFUSED, |world: &World, state: &State| {
                state.stray.iter().any(|commit| is_refused(next(world, state, commit)))
            }),
        ]);
    }
    properties
}

/// Returns the workers that work while another one has the lease.
fn zombies(state: &State) -> impl Iterator<Item = &Run> {
    let lease = state.store.lease.as_ref().filter(|lease| !lease.ended);
    let others = lease.into_iter().flat_map(|lease| {
        let numbered = (0..).zip(&state.workers);
        numbered.filter(move |(number, _)| *number != lease.owner)
    });
    others.filter_map(|(_, worker)| worker.as_ref())
}

/// Returns the response if the store did the next part of this commit now and that was the last
/// one. Looking ahead keeps the past out of the state, which would otherwise multiply the states.
fn next(world: &World, state: &State, commit: &Commit) -> Option<Answer> {
    world.write(&mut state.store.clone(), &mut commit.clone())
}

fn is_refused(answer: Option<Answer>) -> bool {
    answer.is_some_and(|answer| answer != Answer::Applied)
}

/// Returns whether a single undisturbed worker would finish the work from here.
fn repairs(world: &World, mut store: Store) -> bool {
    store.lease = Some(Lease { owner: 0, ended: false });
    let mut run = Run::new(&store);
    run.checkpoint = Some(store.checkpoint);
    run.load(&store);
    let mut commit = run.fold(0, world.events);
    let answer = std::iter::repeat_with(|| world.write(&mut store, &mut commit)).find_map(|answer| answer);
    answer == Some(Answer::Applied) && store.documents.iter().all(|document| document.mark == world.events)
}
