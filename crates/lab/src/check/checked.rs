//! The kinds of models: of slices on the replica machine, and of a cache in front of a back end.

use std::ops::ControlFlow;

use curtail_checker::{
    Limits, Outcome, Progress, RULE_MODELS, ReplicaMutant, RuleMutant, RuleSetup, SLICE_MODELS,
    SliceSetup, TIER_MODELS, TierModelMutant, TierSetup, search,
};

/// A model.
#[derive(Clone, Copy, Debug)]
pub(super) enum Checked {
    Slices(&'static SliceSetup),
    Tier(&'static TierSetup),
    Rules(&'static RuleSetup),
}

/// An error that a search must find.
#[derive(Clone, Copy, Debug)]
pub(super) enum Planted {
    Slices(ReplicaMutant),
    Tier(TierModelMutant),
    Rules(RuleMutant),
}

impl Checked {
    pub(super) fn all() -> impl Iterator<Item = Self> {
        let slices = SLICE_MODELS.iter().map(Self::Slices);
        let tiers = TIER_MODELS.iter().map(Self::Tier);
        let rules = RULE_MODELS.iter().map(Self::Rules);
        slices.chain(tiers).chain(rules)
    }

    pub(super) const fn name(&self) -> &'static str {
        match self {
            Self::Slices(setup) => setup.name,
            Self::Tier(setup) => setup.name,
            Self::Rules(setup) => setup.name,
        }
    }

    pub(super) const fn is_deep(&self) -> bool {
        match self {
            Self::Slices(setup) => setup.is_deep,
            Self::Tier(setup) => setup.is_deep,
            Self::Rules(_) => false,
        }
    }

    pub(super) fn bound(&self) -> String {
        match self {
            Self::Slices(setup) => setup.bound(),
            Self::Tier(setup) => setup.bound(),
            Self::Rules(setup) => setup.bound(),
        }
    }

    /// The things that it must see and did not.
    pub(super) fn unseen(&self, outcome: &Outcome) -> Vec<String> {
        match self {
            Self::Slices(setup) => setup.unseen(outcome),
            Self::Tier(setup) => setup.unseen(outcome),
            Self::Rules(setup) => setup.unseen(outcome),
        }
    }

    /// Searches it; an error of the other kind of models changes nothing in it.
    pub(super) fn search(
        &self,
        mutant: Option<Planted>,
        limits: Limits,
        report: &mut dyn FnMut(Progress) -> ControlFlow<()>,
    ) -> Outcome {
        match *self {
            Self::Slices(&setup) => {
                let mutant = match mutant {
                    Some(Planted::Slices(mutant)) => Some(mutant),
                    _ => None,
                };
                search(&SliceSetup { mutant, ..setup }, limits, report)
            }
            Self::Tier(&setup) => {
                let mutant = match mutant {
                    Some(Planted::Tier(mutant)) => Some(mutant),
                    _ => None,
                };
                search(&TierSetup { mutant, ..setup }, limits, report)
            }
            Self::Rules(&setup) => {
                let mutant = match mutant {
                    Some(Planted::Rules(mutant)) => Some(mutant),
                    _ => None,
                };
                search(&RuleSetup { mutant, ..setup }, limits, report)
            }
        }
    }
}

impl Planted {
    /// All of them, with their names.
    pub(super) fn all() -> impl Iterator<Item = (Self, String)> {
        let slices = SliceSetup::mutants().map(|(mutant, name)| (Self::Slices(mutant), name));
        let tiers = TierSetup::mutants().map(|(mutant, name)| (Self::Tier(mutant), name));
        let rules = RuleSetup::mutants().map(|(mutant, name)| (Self::Rules(mutant), name));
        slices.chain(tiers).chain(rules)
    }
}
