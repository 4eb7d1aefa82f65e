//! Folds of a page that a projection computes many at a time, for the core to use one by one.

use std::collections::HashSet;
use std::time::Duration;

use foldhash::fast::RandomState;

use super::batch::FoldState;
use super::folder::Folder;
use super::projection::{Folded, Projection, Upcoming};
use super::routed::Step;
use crate::event::DocumentId;
use crate::mark::Lane;

/// Computed folds, in the order in which the core asks for them.
pub(super) struct Ahead<D> {
    /// The step, and the index among its documents, of each fold.
    planned: Vec<(usize, usize)>,
    computed: std::vec::IntoIter<Option<Folded<D>>>,
    next: usize,
    /// Documents that the core skipped although a fold was computed for them. Their later folds
    /// were computed from another document than the core has.
    diverged: HashSet<DocumentId, RandomState>,
}

impl<D> Ahead<D> {
    /// Returns an empty value: nothing is computed ahead.
    pub(super) fn none() -> Self {
        let diverged = HashSet::with_hasher(RandomState::default());
        Self { planned: Vec::new(), computed: Vec::new().into_iter(), next: 0, diverged }
    }

    /// Returns the fold of a step into one of its documents, if it is computed.
    pub(super) fn take<E>(&mut self, steps: &[Step<E>], step: usize, nth: usize) -> Option<Folded<D>> {
        while let Some(&(planned_step, planned_nth)) = self.planned.get(self.next) {
            if (planned_step, planned_nth) > (step, nth) {
                return None;
            }
            self.next += 1;
            let computed = self.computed.next().flatten();
            let id = id(steps, planned_step, planned_nth)?;
            if (planned_step, planned_nth) == (step, nth) {
                return computed.filter(|_| !self.diverged.contains(id));
            }
            self.diverged.insert(id.clone());
        }
        None
    }
}

fn id<E>(steps: &[Step<E>], step: usize, nth: usize) -> Option<&DocumentId> {
    match steps.get(step)? {
        Step::Fold(_, ids, _) => ids.as_slice().get(nth),
        Step::Broken(..) => None,
    }
}

impl<P: Projection> Folder<P> {
    /// Computes folds from a step on, if the projection can compute many at a time. Also returns
    /// the step up to which all are computed: at least the first.
    pub(super) fn compute_ahead(
        &self,
        state: &FoldState<P::Document>,
        lane: &Lane,
        steps: &[Step<P::Event>],
        from: usize,
        time: Duration,
    ) -> (Ahead<P::Document>, usize) {
        /// The maximum number of folds to compute before the first is used.
        const MOST: usize = 4_096;
        let Some(bulk) = self.projection.bulk() else { return (Ahead::none(), from + 1) };
        let (mut planned, mut upcoming, mut least) = (Vec::new(), Vec::new(), 0);
        for (step, number) in steps.iter().zip(0..).skip(from) {
            if upcoming.len() >= MOST {
                break;
            }
            let Step::Fold(event, ids, _) = step else { continue };
            for (id, nth) in ids.as_slice().iter().zip(0..) {
                let slot = state.documents.get(id);
                if let Some(slot) = slot.filter(|slot| slot.would_fold(lane, event.position.0)) {
                    let document = slot.document();
                    planned.push((number, nth));
                    upcoming.push(Upcoming { id, document, event });
                }
            }
            if number == from {
                least = upcoming.len();
            }
        }
        if upcoming.is_empty() {
            return (Ahead::none(), steps.len());
        }
        let computed = super::Error::catch("the fold", || Ok(bulk.fold(&upcoming, least, time)));
        // Folds that are not computed here are done one by one, and fail there if they must.
        let computed = computed.unwrap_or_default();
        let until = match planned.get(computed.len()) {
            Some((step, _)) => (*step).max(from + 1),
            None => planned.last().map_or(from, |(step, _)| step + 1).max(from + 1),
        };
        let ahead = Ahead { planned, computed: computed.into_iter(), ..Ahead::none() };
        (ahead, until)
    }
}
