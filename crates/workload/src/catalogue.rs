//! Workloads by name: `uniform`, `zipf:0.99`, `etc:p-large=0.125,s-large=500k`, `ycsb-a`,
//! `twitter:cluster12`.
//!
//! ```text
//! text      = name [":" part {"," part}]
//! part      = parameter "=" value          any parameter fits any name
//! first part without "=": the exponent (zipf) or the cluster (twitter)
//! ```

use crate::{
    arrivals::Arrivals,
    items::Ttls,
    mix::{Kind, Mix},
    popularity_change::{Change, Pattern, Period},
    quantity,
    rank_sampler::Popularity,
    stepped_value::Phases,
    twitter::{Cluster, ClusterError, clusters},
    value_sizes::{SizeClass, Sizes},
    workload::{Large, Workload, WorkloadError},
};

/// The named workloads, and Twitter's clusters if their table was given.
#[derive(Clone, Debug, Default)]
pub struct Catalogue {
    clusters: Vec<Cluster>,
}

impl Catalogue {
    /// The workloads that need no data.
    pub fn new() -> Self {
        Self::default()
    }

    /// With the table of Twitter's clusters, given as the file's text.
    pub fn with_clusters(text: &str) -> Result<Self, ClusterError> {
        let clusters = clusters(text)?;
        Ok(Self { clusters })
    }

    /// The workload that a text describes, checked.
    pub fn workload(&self, text: &str) -> Result<Workload, WorkloadError> {
        let text = text.trim();
        let (name, rest) = text.split_once(':').unwrap_or((text, ""));
        let mut parts = rest.split(',').filter(|part| !part.is_empty()).peekable();
        let first = parts.next_if(|part| !part.contains('=')).unwrap_or("");
        let settings: Vec<(&str, &str)> = parts
            .map(|part| {
                part.split_once('=')
                    .ok_or_else(|| value(part, format!("{part:?} has no value (write it = value)")))
            })
            .collect::<Result<_, _>>()?;
        let mut workload = self.base(name, first, &settings)?;
        workload.name = text.into();
        for (parameter, given) in settings {
            set(&mut workload, parameter, given)?;
        }
        workload.check()?;
        Ok(workload)
    }

    fn base(
        &self,
        name: &str,
        first: &str,
        settings: &[(&str, &str)],
    ) -> Result<Workload, WorkloadError> {
        let base = match name {
            "zipf" => {
                let exponent = if first.is_empty() { "0.99" } else { first };
                let mut base = plain();
                set(&mut base, "zipf", exponent)?;
                return Ok(base);
            }
            "twitter" => return self.twitter(first, settings),
            "uniform" | "custom" => plain(),
            "etc" => etc(&[0.125]),
            "etc-dynamic" => etc(&[0.125, 0.25, 0.5, 0.75, 0.5, 0.25, 0.125]),
            "c4-uniform" => c4(1_600_000, 16, 512, 0.0, 0.5),
            "c4-tiny" => c4(102_400_000, 8, 8, 1.25, 0.05),
            "c4-medium" => c4(6_400_000, 16, 128, 1.25, 0.05),
            "c4-large" => c4(1_600_000, 16, 512, 1.25, 0.05),
            "switchkv" => switchkv(),
            "ycsb-a" => ycsb(&[(Kind::Get, 0.5), (Kind::Set, 0.5)]),
            "ycsb-b" => ycsb(&[(Kind::Get, 0.95), (Kind::Set, 0.05)]),
            "ycsb-c" => ycsb(&[(Kind::Get, 1.0)]),
            "ycsb-d" => ycsb(&[(Kind::Get, 0.95), (Kind::Insert, 0.05)]),
            "ycsb-e" => return Err(WorkloadError::NotApplicable(NO_SCANS)),
            "ycsb-f" => ycsb(&[(Kind::Get, 0.5), (Kind::ReadModifyWrite, 0.5)]),
            _ => return Err(WorkloadError::Name(name.into())),
        };
        if !first.is_empty() {
            return Err(value(
                name,
                format!("{first:?} is not written parameter=value"),
            ));
        }
        Ok(base)
    }

    fn twitter(&self, name: &str, settings: &[(&str, &str)]) -> Result<Workload, WorkloadError> {
        if self.clusters.is_empty() {
            return Err(WorkloadError::NoClusters);
        }
        let named = |cluster: &&Cluster| {
            cluster.name == name || cluster.name.strip_prefix("cluster") == Some(name)
        };
        let Some(cluster) = self.clusters.iter().find(named) else {
            let reason = format!("the table has no cluster {name:?} (write twitter:cluster12)");
            return Err(WorkloadError::Cluster(reason));
        };
        let given = |parameter| settings.iter().any(|(name, _)| *name == parameter);
        of_cluster(cluster, given("zipf"))
    }
}

/// A workload with the statistics of a cluster. Without an exponent in the row, one has to be
/// `given` by hand.
fn of_cluster(cluster: &Cluster, given: bool) -> Result<Workload, WorkloadError> {
    let missing = |what: &str| {
        let name = &cluster.name;
        WorkloadError::Cluster(format!("the table does not say {what} of {name}"))
    };
    let key_bytes = cluster.key_bytes.ok_or_else(|| missing("the key size"))?;
    let value_bytes = cluster
        .value_bytes
        .ok_or_else(|| missing("the value size"))?;
    let mix = Mix::new(&cluster.commands).ok_or_else(|| missing("the operations"))?;
    let exponent = match cluster.zipf_exponent {
        Some(exponent) => exponent,
        None if given => 0.0,
        None => return Err(missing("the Zipf exponent (give one as zipf=)")),
    };
    Ok(Workload {
        keys: cluster.keys().unwrap_or(KEYS),
        key_bytes: key_bytes as usize,
        sizes: Sizes::constant(value_bytes),
        mix,
        popularity: zipf(exponent),
        ttls: Ttls::new(&cluster.ttls).unwrap_or_default(),
        ..plain()
    })
}

fn plain() -> Workload {
    Workload {
        name: String::new(),
        keys: KEYS,
        key_bytes: 16,
        sizes: Sizes::constant(64),
        large: None,
        mix: gets(0.95),
        popularity: Popularity::Uniform,
        change: None,
        ttls: Ttls::none(),
        arrivals: Arrivals::Poisson,
        rate: None,
        layout: 0,
    }
}

fn gets(share: f64) -> Mix {
    Mix::get_share(share).unwrap_or_else(|| unreachable!("{share} has been checked"))
}

fn of_kinds(shares: &[(Kind, f64)]) -> Mix {
    Mix::new(shares).unwrap_or_else(|| unreachable!("shares of a named workload sum to 1"))
}

fn zipf(exponent: f64) -> Popularity {
    if exponent == 0.0 {
        Popularity::Uniform
    } else {
        Popularity::Zipf { exponent }
    }
}

/// Minos' trimodal sizes after Facebook's ETC pool (NSDI 2019, section 5.3).
///
/// The mean length of what is asked for depends on the lengths that the few hottest keys happen to
/// have: 427 bytes with a standard deviation of 33 over data sets, which moves the shares of table
/// 1 by 2 points. `ETC_LAYOUT` is the data set whose mean is nearest to the expected one.
fn etc(percents: &[f64]) -> Workload {
    let tiny_and_small = [
        (SizeClass::Uniform(1, 13), 0.4),
        (SizeClass::Uniform(14, 1400), 0.6),
    ];
    Workload {
        keys: 16_000_000,
        key_bytes: 8,
        sizes: Sizes::new(tiny_and_small.into()).unwrap_or_else(|_| Sizes::constant(427)),
        large: Some(Large {
            percent: Phases::new(percents.into(), 20_000_000_000)
                .unwrap_or_else(|| Phases::fixed(0.125)),
            ..large()
        }),
        popularity: zipf(0.99),
        layout: ETC_LAYOUT,
        ..plain()
    }
}

fn large() -> Large {
    Large {
        keys: 10_000,
        percent: Phases::fixed(0.125),
        sizes: large_sizes(500_000),
    }
}

fn large_sizes(bytes_max: u32) -> Sizes {
    let class = SizeClass::Uniform(1500, bytes_max.max(1500));
    Sizes::new(vec![(class, 1.0)]).unwrap_or_else(|_| Sizes::constant(bytes_max))
}

/// C-4's data sets of 819 MB of values each (ASPLOS 2023, sections 6 and 7.3).
fn c4(keys: u64, key_bytes: usize, value_bytes: u32, exponent: f64, writes: f64) -> Workload {
    Workload {
        keys,
        key_bytes,
        sizes: Sizes::constant(value_bytes),
        mix: gets(1.0 - writes),
        popularity: zipf(exponent),
        ..plain()
    }
}

/// SwitchKV's (Li 2016, section 2.7): 10^10 keys, read only.
fn switchkv() -> Workload {
    Workload {
        keys: 10_000_000_000,
        sizes: Sizes::constant(128),
        mix: gets(1.0),
        popularity: zipf(0.99),
        ..plain()
    }
}

/// The mixes of YCSB (Cooper et al., "Benchmarking cloud serving systems with YCSB", SoCC 2010):
/// records of ten fields of 100 bytes, keys of 23; with inserts, the latest records are popular.
fn ycsb(shares: &[(Kind, f64)]) -> Workload {
    let inserts = shares.iter().any(|(kind, _)| *kind == Kind::Insert);
    let exponent = 0.99;
    Workload {
        key_bytes: 23,
        sizes: Sizes::constant(1000),
        mix: of_kinds(shares),
        popularity: if inserts {
            Popularity::Latest { exponent }
        } else {
            Popularity::Zipf { exponent }
        },
        ..plain()
    }
}

fn set(workload: &mut Workload, parameter: &str, given: &str) -> Result<(), WorkloadError> {
    let wrong = |reason| value(parameter, reason);
    match parameter {
        "keys" => workload.keys = quantity::count(given).map_err(wrong)?,
        "key" => workload.key_bytes = quantity::bytes(given).map_err(wrong)? as usize,
        "value" => workload.sizes = given.parse().map_err(wrong)?,
        "get" => workload.mix = gets(quantity::share(given).map_err(wrong)?),
        "writes" => workload.mix = gets(1.0 - quantity::share(given).map_err(wrong)?),
        "mix" => workload.mix = given.parse().map_err(wrong)?,
        "zipf" => workload.popularity = zipf(quantity::number(given).map_err(wrong)?),
        "latest" => {
            let exponent = quantity::number(given).map_err(wrong)?;
            workload.popularity = Popularity::Latest { exponent };
        }
        "change" => workload.change = change(given).map_err(wrong)?,
        "ttl" => workload.ttls = given.parse().map_err(wrong)?,
        "rate" => workload.rate = Some(phases(given).map_err(wrong)?),
        "arrivals" => workload.arrivals = arrivals(given).map_err(wrong)?,
        "layout" => workload.layout = quantity::count(given).map_err(wrong)?,
        "p-large" | "s-large" | "large-keys" | "large-value" => {
            let large = workload.large.get_or_insert_with(large);
            match parameter {
                "p-large" => large.percent = phases(given).map_err(wrong)?,
                "s-large" => large.sizes = up_to(given).map_err(wrong)?,
                "large-keys" => large.keys = quantity::count(given).map_err(wrong)?,
                _ => large.sizes = given.parse().map_err(wrong)?,
            }
        }
        _ => return Err(WorkloadError::Parameter(parameter.into())),
    }
    Ok(())
}

fn value(parameter: &str, reason: String) -> WorkloadError {
    WorkloadError::Value {
        parameter: parameter.into(),
        reason,
    }
}

fn up_to(given: &str) -> Result<Sizes, String> {
    let bytes = quantity::bytes(given)?;
    if bytes < 1500 {
        return Err(format!("large values begin at 1500 bytes, above {given}"));
    }
    Sizes::new(vec![(SizeClass::Uniform(1500, bytes), 1.0)])
}

/// `0.5`, `0.125/0.25/0.5@20s`.
fn phases(given: &str) -> Result<Phases, String> {
    let (values, phase) = given.split_once('@').unwrap_or((given, ""));
    let values: Vec<f64> = values
        .split('/')
        .map(quantity::number)
        .collect::<Result<_, _>>()?;
    let phase_ns = match (values.len(), phase) {
        (1, "") => 1,
        (_, "") => return Err(format!("{given:?} needs the time of a phase: a/b/c@20s")),
        _ => quantity::ns(phase)?,
    };
    Phases::new(values, phase_ns).ok_or_else(|| format!("{given:?} has a phase without time"))
}

/// `none`, `hot-in@200/10s`, `hot-out@200/1s`, `random@200of10000/50000requests`.
fn change(given: &str) -> Result<Option<Change>, String> {
    if given == "none" {
        return Ok(None);
    }
    let forms =
        || format!("{given:?} is not none, hot-in@N/TIME, hot-out@N/TIME or random@NofK/TIME");
    let (what, period) = given.split_once('/').ok_or_else(forms)?;
    let (name, keys) = what.split_once('@').ok_or_else(forms)?;
    let pattern = match (name, keys.split_once("of")) {
        ("hot-in", None) => Pattern::HotIn {
            keys: quantity::count(keys)?,
        },
        ("hot-out", None) => Pattern::HotOut {
            keys: quantity::count(keys)?,
        },
        ("random", Some((keys, top))) => Pattern::Random {
            keys: quantity::count(keys)?,
            top: quantity::count(top)?,
        },
        _ => return Err(forms()),
    };
    let period = match period.strip_suffix("requests") {
        Some(count) => Period::Requests {
            count: quantity::count(count)?,
        },
        None => Period::Time {
            ns: quantity::ns(period)?,
        },
    };
    Ok(Some(Change { pattern, period }))
}

impl std::str::FromStr for Change {
    type Err = String;

    /// As in a workload: `hot-in@200/10s`.
    fn from_str(text: &str) -> Result<Self, String> {
        change(text)?.ok_or_else(|| "none is no change".to_string())
    }
}

fn arrivals(given: &str) -> Result<Arrivals, String> {
    match given {
        "poisson" => Ok(Arrivals::Poisson),
        "constant" => Ok(Arrivals::Constant),
        "closed" => Ok(Arrivals::Closed { think_ns: 0 }),
        _ => match given.strip_prefix("closed:") {
            Some(think) => Ok(Arrivals::Closed {
                think_ns: quantity::ns(think)?,
            }),
            None => Err(format!(
                "{given:?} is not poisson, constant, closed or closed:TIME"
            )),
        },
    }
}

/// Keys where nothing says how many.
const KEYS: u64 = 1_000_000;
/// The nearest of 0..200.
const ETC_LAYOUT: u64 = 118;
const NO_SCANS: &str = "YCSB E scans ranges of keys; a store of keys without order has none";

/// Every named workload.
pub(crate) const NAMES: &[&str] = &[
    "uniform",
    "zipf",
    "etc",
    "etc-dynamic",
    "c4-uniform",
    "c4-tiny",
    "c4-medium",
    "c4-large",
    "switchkv",
    "ycsb-a",
    "ycsb-b",
    "ycsb-c",
    "ycsb-d",
    "ycsb-f",
    "twitter",
    "custom",
];

/// What every name may be followed by.
pub(crate) const PARAMETERS: &[&str] = &[
    "keys",
    "key",
    "value",
    "get",
    "writes",
    "mix",
    "zipf",
    "latest",
    "change",
    "ttl",
    "p-large",
    "s-large",
    "large-keys",
    "large-value",
    "rate",
    "arrivals",
    "layout",
];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{generator::Stream, random::Random, twitter::tests::table};

    fn error(text: &str) -> WorkloadError {
        Catalogue::new().workload(text).unwrap_err()
    }

    #[test]
    fn every_name_in_the_list_is_a_workload() {
        let catalogue = Catalogue::with_clusters(&table()).unwrap();
        for name in NAMES {
            let text = match *name {
                "twitter" => "twitter:cluster12",
                name => name,
            };
            let workload = catalogue.workload(text).unwrap();
            assert_eq!(workload.name, text);
            let request = workload.generator(1, Stream::ONLY).draw(0);
            assert!(
                request.key < workload.keys || request.kind == Kind::Insert,
                "{text}"
            );
        }
    }

    #[test]
    fn every_parameter_in_the_list_is_taken() {
        let examples = [
            "keys=2m",
            "key=8",
            "value=1..9",
            "get=0.5",
            "writes=0.5",
            "mix=get@0.5+add@0.5",
            "zipf=1.4",
            "latest=0.9",
            "change=hot-out@2/1s",
            "ttl=1d",
            "p-large=0.5",
            "s-large=250k",
            "large-keys=5k",
            "large-value=2k..3k",
            "rate=5k",
            "arrivals=closed",
            "layout=3",
        ];
        let plain = Catalogue::new().workload("uniform").unwrap();
        for (example, name) in examples.iter().zip(PARAMETERS) {
            assert!(example.starts_with(name), "{example} {name}");
            let workload = Catalogue::new()
                .workload(&format!("uniform:{example}"))
                .unwrap();
            assert_ne!(
                workload.to_string(),
                plain.to_string(),
                "{example} changed nothing"
            );
        }
        assert_eq!(examples.len(), PARAMETERS.len());
    }

    #[test]
    fn clusters_become_workloads() {
        let catalogue = Catalogue::with_clusters(&table()).unwrap();
        let workload = catalogue.workload("twitter:12").unwrap();
        assert_eq!(
            workload.to_string(),
            catalogue.workload("twitter:cluster12").unwrap().to_string()
        );
        assert_eq!((workload.keys, workload.key_bytes), (918_063, 44));
        assert!((workload.mix.write_share() - 0.8).abs() < 1e-12);
        assert_eq!(workload.popularity, Popularity::Zipf { exponent: 0.3048 });
        assert_eq!(workload.ttls.shares(), [(300, 0.98), (299, 0.02)]);
        let says = |text| catalogue.workload(text).unwrap_err().to_string();
        assert_eq!(
            says("twitter:cluster5"),
            "the table does not say the key size of cluster5"
        );
        assert!(says("twitter:cluster43").contains("zipf="));
        assert!(catalogue.workload("twitter:cluster43,zipf=0.9").is_ok());
        assert!(says("twitter:cluster99").contains("no cluster \"cluster99\""));
        assert!(says("twitter").contains("no cluster"));
        assert_eq!(error("twitter:cluster12"), WorkloadError::NoClusters);
    }

    #[test]
    fn what_is_wrong_is_said() {
        assert!(matches!(error("ycsb-e"), WorkloadError::NotApplicable(_)));
        assert_eq!(error("yscb-a"), WorkloadError::Name("yscb-a".into()));
        assert!(
            error("")
                .to_string()
                .contains("there are uniform, zipf, etc")
        );
        assert_eq!(
            error("zipf:0.99,skew=2"),
            WorkloadError::Parameter("skew".into())
        );
        let parameters = [
            ("zipf:steep", "zipf"),
            ("etc:0.5", "etc"),
            ("etc:keys=1k,0.5", "0.5"),
            ("etc:p-large=0.1/0.2", "p-large"),
            ("etc:s-large=1k", "s-large"),
            ("uniform:get=1.5", "get"),
            ("uniform:change=hot-in@5", "change"),
            ("uniform:change=random@5/1s", "change"),
            ("uniform:arrivals=sometimes", "arrivals"),
            ("uniform:ttl=5", "ttl"),
            ("uniform:rate=-1", "rate"),
        ];
        for (text, name) in parameters {
            match error(text) {
                WorkloadError::Value { parameter, .. } => assert_eq!(parameter, name, "{text}"),
                other => panic!("{text}: {other}"),
            }
        }
    }

    /// Goal: no text panics, and what is taken can be driven. Method: 3,000 mutations of texts with
    /// every form.
    #[test]
    fn mutated_texts_do_not_panic() {
        let sample = "etc:keys=20k,p-large=0.1/0.5@20s,value=1..13@0.4+lognormal:9:1@0.6,\
                      change=random@2of10/1s,ttl=1h,arrivals=closed:5us,zipf=0.9";
        let mut random = Random::new(17);
        for _ in 0..3_000 {
            let mut bytes = sample.as_bytes().to_vec();
            for _ in 0..=random.below(2) {
                let at = random.below(bytes.len() as u64) as usize;
                bytes[at] = b"0159.,:=@+/kms-nao\xff"[random.below(19) as usize];
            }
            let text = String::from_utf8_lossy(&bytes);
            if let Ok(workload) = Catalogue::new().workload(&text) {
                assert!(workload.check().is_ok());
                assert!(
                    workload.to_string().parse::<Workload>().is_ok(),
                    "{workload}"
                );
            }
        }
    }
}
