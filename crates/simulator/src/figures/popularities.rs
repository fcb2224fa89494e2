//! The ranks of every exponent that a figure draws, so that its runs share them.

use curtail_workload::Ranks;

use crate::balanced::Balanced;

/// Exponents and their ranks.
pub(super) struct Popularities(Vec<(f64, Ranks)>);

impl Popularities {
    /// Those of these models.
    pub(super) fn of_models<'a>(models: impl Iterator<Item = &'a Balanced>) -> Self {
        let mut all: Vec<(f64, Ranks)> = Vec::new();
        for Balanced { gamma, .. } in models {
            if all.iter().all(|(known, _)| known != gamma) {
                all.push((*gamma, Balanced::ranks(*gamma)));
            }
        }
        Self(all)
    }

    /// One model's; it must have been among the given ones.
    pub(super) fn of(&self, model: &Balanced) -> &Ranks {
        match self.0.iter().find(|(gamma, _)| *gamma == model.gamma) {
            Some((_, ranks)) => ranks,
            None => unreachable!("gamma {} was not prepared", model.gamma),
        }
    }
}
