//! Fig. 2: how often a client sends another kind of request soon after a set, which then waits in
//! the Ordered Queue until the set is executed.

use curtail_workload::WriteGaps;

use crate::{
    figures::{Choice, Figure, Parameter, Request},
    rows::Row,
};

pub(in crate::figures) const FIG2: Figure = Figure {
    name: "juneberry-fig2",
    title: "Juneberry, Fig. 2: clusters in which clients seldom wait for what they have just set",
    x: "requests, per cent",
    about: "clusters_below: the share of the clusters in which fewer than so many requests are a \
            set behind which the same client sends another kind of request within 2 seconds. \
            recorded counts that in traces (--twitter FILE,FILE: one file for each cluster, in \
            Twitter's format, of which the first million requests are read). The paper's number \
            is for recorded traces of 54 clusters. Without traces, modelled has so many alike, \
            independent clients send a cluster's requests (--clients), and sets counts every \
            set, so that its curve is the lowest that any clients have. Both need the published \
            table of clusters (--twitter FILE); built in are the four that the paper measures.",
    series: "sets modelled recorded",
    series_default: 2,
    parameters: &[
        Parameter::each(Choice::Clients, (1.0, 1e9), &[100.0, 1_000.0, 10_000.0])
            .whole()
            .only("modelled")
            .any(),
        Parameter::files(Choice::Twitter).any(),
    ],
    run: fig2,
};

fn fig2(request: &Request<'_>) -> Vec<Row> {
    let given = &request.options.twitter;
    let known: Vec<WriteGaps> = match given.is_empty() {
        true => BUILT_IN.map(built_in).into(),
        false => given.iter().flat_map(|file| file.costs.clone()).collect(),
    };
    let mut rows = Vec::new();
    for series in &request.series {
        match *series {
            "modelled" => {
                for clients in request.numbers(Choice::Clients) {
                    let params = format!("clients={clients};");
                    let of = |one: &WriteGaps| one.modelled(clients);
                    rows.extend(curve(request, (series, &params), &known, of));
                }
            }
            "recorded" => {
                rows.extend(curve(request, (series, ANY_CLIENTS), &known, |one| {
                    one.recorded
                }));
            }
            _ => rows.extend(curve(request, (series, ANY_CLIENTS), &known, |one| {
                Some(one.sets)
            })),
        }
    }
    rows
}

/// The share of the clusters that are below each percentage.
fn curve(
    request: &Request<'_>,
    (series, params): (&str, &str),
    known: &[WriteGaps],
    of: impl Fn(&WriteGaps) -> Option<f64>,
) -> Vec<Row> {
    let shares: Vec<f64> = known.iter().filter_map(of).collect();
    if shares.is_empty() {
        return Vec::new();
    }
    let mut params: String = params.into();
    params += &format!("clusters={}", shares.len());
    let row = |percent: f64| {
        let below = shares.iter().filter(|share| 100.0 * **share < percent);
        let below = below.count() as f64 / shares.len() as f64;
        let is_papers = series == "recorded" && shares.len() == 54 && percent == 10.0;
        let paper = is_papers.then_some(0.852);
        request.row(
            (series, &params),
            percent,
            ("clusters_below", Some(below)),
            paper,
        )
    };
    PERCENTAGES.into_iter().map(row).collect()
}

/// Requests per second and sets, from the table that Yang, Yue and Rashmi published (OSDI 2020).
fn built_in((requests_per_s, sets): (f64, f64)) -> WriteGaps {
    WriteGaps {
        requests_per_s: Some(requests_per_s),
        sets,
        recorded: None,
    }
}

const ANY_CLIENTS: &str = "clients=any;";
/// Clusters 12, 19, 27 and 31, whose workloads Figs. 7 and 8 use.
const BUILT_IN: [(f64, f64); 4] = [
    (4_360.0, 0.80),
    (3_310.0, 0.25),
    (24_550.0, 0.15),
    (2_520.0, 0.94),
];
const PERCENTAGES: [f64; 15] = [
    0.1, 1.0, 2.0, 5.0, 10.0, 15.0, 20.0, 25.0, 30.0, 40.0, 50.0, 60.0, 80.0, 90.0, 100.0,
];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        figures::{Given, Options},
        parallel_points::Threads,
    };

    fn below(options: &Options, series: &str, percent: f64) -> Option<f64> {
        let rows = FIG2.rows(options, &Threads::new(1)).ok()?;
        let found = rows
            .iter()
            .find(|row| row.series == series && row.x == percent)?;
        found.value
    }

    #[test]
    fn traces_are_clusters() {
        let file = |path: &str, text: &str| Given {
            path: path.into(),
            costs: WriteGaps::read(text).unwrap(),
        };
        let options = Options {
            twitter: vec![
                file(
                    "one.csv",
                    "0,a,1,5,1,set,0\n1,a,1,5,1,get,0\n1,a,1,5,1,get,0\n1,a,1,5,1,get,0",
                ),
                file("two.csv", "0,a,1,5,1,set,0\n9,a,1,5,1,get,0"),
            ],
            series: vec!["recorded".into()],
            ..Options::default()
        };
        let at = |percent| below(&options, "recorded", percent);
        assert_eq!([at(20.0), at(30.0)], [Some(0.5), Some(1.0)]);
        assert_eq!(below(&Options::default(), "recorded", 10.0), None);
    }

    #[test]
    fn fewer_clients_are_nearer_to_all_sets() {
        let at = |clients| {
            let options = Options {
                clients: vec![clients],
                ..Options::default()
            };
            let [sets, modelled] =
                ["sets", "modelled"].map(|series| below(&options, series, 10.0).unwrap());
            assert!(sets <= modelled);
            modelled
        };
        assert_eq!(at(1), 0.0);
        assert_eq!(at(1_000_000), 1.0);
    }
}
