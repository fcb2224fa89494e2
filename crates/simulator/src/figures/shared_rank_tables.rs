//! The ranks of every exponent that a figure draws, so that its runs share them.

use curtail_workload::Ranks;

use crate::c4::C4Model;

/// Exponents and their ranks.
pub(super) struct Popularities(Vec<(f64, Ranks)>);

impl Popularities {
    /// Those of these models.
    pub(super) fn of_models<'a>(models: impl Iterator<Item = &'a C4Model>) -> Self {
        let mut all: Vec<(f64, Ranks)> = Vec::new();
        for C4Model { gamma, .. } in models {
            if all.iter().all(|(known, _)| known != gamma) {
                all.push((*gamma, C4Model::ranks(*gamma)));
            }
        }
        Self(all)
    }

    /// One model's; it must have been among the given ones.
    pub(super) fn of(&self, model: &C4Model) -> &Ranks {
        match self.0.iter().find(|(gamma, _)| *gamma == model.gamma) {
            Some((_, ranks)) => ranks,
            None => unreachable!("gamma {} was not prepared", model.gamma),
        }
    }
}
