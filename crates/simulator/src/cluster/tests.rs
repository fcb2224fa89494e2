//! Planted errors, which a small campaign must find.

use curtail_consistency::replica::{Model, ReplicaMutant};

use super::{ClusterRun, MemoryFull, Mutant};

fn run(nodes: u8, replicas: usize, model: Model, seed: u64) -> ClusterRun {
    ClusterRun {
        nodes,
        replicas,
        ..ClusterRun::new(seed, model)
    }
}

/// Goal: the judges judge. Method: each planted error fails for some seed for which there is none
/// without it.
#[test]
fn planted_errors_are_found() {
    let mut missed = Vec::new();
    for mutant in PLANTED {
        let fails = |seed: &u64| {
            let (nodes, replicas) = (3 + (seed % 2) as u8, 2 + (seed / 2 % 2) as usize);
            let memory_full = (mutant == Mutant::Replica(ReplicaMutant::RoomIgnored))
                .then_some(MemoryFull::Refuse);
            let right = ClusterRun {
                memory_full,
                ..run(nodes, replicas, Model::Lin, *seed)
            };
            let mutant = Some(mutant);
            ClusterRun { mutant, ..right }.run().failure.is_some() && right.run().failure.is_none()
        };
        let found = (1..=MUTANT_SEEDS).find(fails);
        println!("{mutant}: seed {found:?}");
        missed.extend(found.is_none().then_some(mutant));
    }
    assert!(missed.is_empty(), "{missed:?} live");
}

const MUTANT_SEEDS: u64 = 120;

/// What is planted.
const PLANTED: [Mutant; 12] = [
    Mutant::Unfenced,
    Mutant::ReadsForSet,
    Mutant::Replica(ReplicaMutant::AnswersAtOnce),
    Mutant::Replica(ReplicaMutant::EnteringUncounted),
    Mutant::Replica(ReplicaMutant::OrderIgnored),
    Mutant::Replica(ReplicaMutant::RoomIgnored),
    Mutant::Replica(ReplicaMutant::EvictsAlone),
    Mutant::Replica(ReplicaMutant::EntersEarly),
    Mutant::Replica(ReplicaMutant::LiveUnsent),
    Mutant::Replica(ReplicaMutant::FlushesAlone),
    Mutant::Replica(ReplicaMutant::HiddenLate),
    Mutant::Replica(ReplicaMutant::GuardedLate),
];
