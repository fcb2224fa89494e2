//! What every figure keeps: it takes what it declares and nothing else, never panics, names every
//! parameter in its rows, and shows a number of the paper only where all parameters are the
//! paper's.

use std::collections::BTreeSet;

use super::{parameters::Value, *};

/// Options with what a figure takes of these: a small run.
fn small(figure: &Figure, requests: u64) -> Options {
    let takes = |choice| figure.parameter(choice).is_some();
    Options {
        requests: takes(Choice::Requests).then_some(requests),
        ..Options::default()
    }
}

/// The same with one point of everything that is swept.
fn one_point(figure: &Figure, requests: u64) -> Options {
    let mut options = small(figure, requests);
    let given = [
        (Choice::Load, 0.3),
        (Choice::Writes, 50.0),
        (Choice::Gamma, 0.99),
        (Choice::K, 10.0),
        (Choice::Cores, 4.0),
        (Choice::Limit, 10.0),
        (Choice::LargeFraction, 0.75),
        (Choice::LargeMaxKb, 250.0),
        (Choice::Cluster, 12.0),
        (Choice::ValueBytes, 40.0),
        (Choice::Nodes, 5.0),
    ];
    for (choice, value) in given {
        let takes = figure.parameter(choice).is_some();
        if takes && !(choice == Choice::Load && figure.name.starts_with("juneberry")) {
            options.set(choice, value);
        }
    }
    options
}

/// What a figure draws by default, of which runs with queues in memory are reduced to a workload
/// and the series that the paper compares.
fn reduced(figure: &Figure) -> Options {
    let mut options = small(figure, 60);
    match figure.name {
        "cckvs-fig14" | "cckvs-fig15" => {
            options.nodes = vec![5, 9];
            return options;
        }
        "juneberry-fig7" => options.cluster = vec![19],
        "juneberry-fig9" => options.writes = vec![100.0],
        "juneberry-fig11" => options.value_bytes = vec![100],
        _ => return options,
    }
    options.series = vec!["raw-rpc".into(), "oq-paper".into()];
    options
}

fn drawn() -> impl Iterator<Item = &'static Figure> {
    let all = figures().iter();
    all.filter(|figure| figure.name != "reference-points")
}

/// Series, parameters, place and metric name one number.
fn assert_keys_differ(rows: &[Row], context: &str) {
    let key = |row: &Row| {
        let params = row.params.as_str();
        (
            row.series.clone(),
            params.to_owned(),
            row.x.to_bits(),
            row.metric,
        )
    };
    let mut keys = BTreeSet::new();
    for row in rows {
        assert!(keys.insert(key(row)), "{context}: two of {row:?}");
    }
}

/// Goal: every figure gives its series, whatever the number of threads, and every number has a key
/// of its own. Method: one small point of each.
#[test]
fn every_figure_answers() {
    for figure in drawn() {
        let options = one_point(figure, 2_000);
        let rows = figure.rows(&options, &Threads::new(2)).unwrap();
        for series in &figure.series_names()[..figure.series_default] {
            let has = |row: &Row| row.series == *series && row.value.is_some();
            assert!(rows.iter().any(has), "{} {series}", figure.name);
        }
        assert_keys_differ(&rows, figure.name);
        assert_eq!(rows, figure.rows(&options, &Threads::new(1)).unwrap());
    }
}

/// Goal: whatever numbers the options have, a figure draws at least one row, with keys that differ,
/// or says what it takes. Method: the ends of each range, what lies just outside, and options that
/// it does not take, one at a time.
#[test]
fn extreme_values_are_drawn_or_refused() {
    for figure in drawn() {
        for &choice in Choice::ALL {
            let declared = figure.parameter(choice);
            let ends = declared.map(Parameter::extremes).unwrap_or_default();
            let ends = if ends.is_empty() { vec![1.0] } else { ends };
            // A run of 10^12 requests would end some day.
            let ends = ends.into_iter();
            for value in ends.filter(|value| choice != Choice::Requests || *value < 1e10) {
                let mut options = one_point(figure, 150);
                let series = figure.series_names();
                options.series = match figure.name.starts_with("juneberry") {
                    // Of those with queues in memory one and one without.
                    true => vec![series[0], series[series.len() / 2]],
                    false => series,
                }
                .into_iter()
                .map(String::from)
                .collect();
                if figure.parameter(Choice::Load).is_some() {
                    // Without the search for a peak.
                    options.load = vec![0.3];
                }
                options.set(choice, value);
                let context = format!("{} {} {value}", figure.name, choice.flag());
                match figure.rows(&options, &Threads::new(2)) {
                    Ok(rows) => {
                        assert!(
                            declared.is_some(),
                            "{context}: taken without being declared"
                        );
                        assert!(!rows.is_empty(), "{context}: no rows");
                        assert_keys_differ(&rows, &context);
                    }
                    Err(error) => {
                        let text = error.to_string();
                        assert!(text.contains(figure.name), "{context}: {text}");
                        assert!(text.contains(choice.flag()), "{context}: {text}");
                    }
                }
            }
        }
    }
}

/// Goal: of a list every value is drawn, with keys that differ, or the list is refused. Method: two
/// values of every parameter that has numbers.
#[test]
fn lists_are_swept_or_refused() {
    for figure in drawn() {
        for parameter in figure.parameters {
            let mut options = one_point(figure, 150);
            match parameter.choice {
                Choice::Cores => options.cores = vec![2, 4],
                Choice::Load => options.load = vec![0.2, 0.4],
                Choice::Writes => options.writes = vec![10.0, 60.0],
                Choice::Gamma => options.gamma = vec![0.5, 0.9],
                Choice::K => options.k = vec![3, 9],
                Choice::LargeFraction if figure.name != "minos-fig10" => {
                    options.large_fraction = vec![0.5, 1.0];
                }
                Choice::LargeMaxKb => options.large_max_kb = vec![100.0, 300.0],
                Choice::Limit => options.limit = vec![10, 30],
                Choice::Cluster => options.cluster = vec![19, 31],
                Choice::ValueBytes => options.value_bytes = vec![64, 100],
                Choice::Nodes => options.nodes = vec![3, 6],
                _ => continue,
            }
            let context = format!("{} {}", figure.name, parameter.choice.flag());
            match figure.rows(&options, &Threads::new(2)) {
                Ok(rows) => {
                    assert_keys_differ(&rows, &context);
                    let mut single = options.clone();
                    let first = options.given(parameter.choice).swap_remove(0);
                    let Value::Number(first) = first else {
                        continue;
                    };
                    if parameter.is_together() {
                        let both = rows.iter().all(|row| row.params.contains("=0.2/0.4"));
                        assert!(both, "{context}: {}", rows[0].params);
                        continue;
                    }
                    single.set(parameter.choice, first);
                    let alone = figure.rows(&single, &Threads::new(2)).unwrap();
                    assert!(rows.len() > alone.len(), "{context}: values were lost");
                }
                Err(error) => {
                    let text = error.to_string();
                    assert!(text.contains("not a list"), "{context}: {text}");
                }
            }
        }
    }
}

/// Goal: a number of the paper stands only where every parameter is the paper's. Method: each
/// figure as it is by default, then with one parameter changed at a time; a figure that shows
/// numbers of the paper by default shows none then.
#[test]
fn the_papers_numbers_stand_beside_its_parameters_only() {
    let threads = Threads::new(2);
    let mut with_numbers = BTreeSet::new();
    for figure in drawn() {
        let as_it_is = figure.rows(&reduced(figure), &threads).unwrap();
        if as_it_is.iter().all(|row| row.paper.is_none()) {
            continue;
        }
        with_numbers.insert(figure.name);
        for parameter in figure.parameters.iter().filter(|one| !one.is_any()) {
            let numbers = parameter.extremes();
            let other = |value: &f64| {
                let mut options = reduced(figure);
                options.set(parameter.choice, *value);
                figure.check(&options, &figure.series_names()).is_ok()
            };
            let usual = [3.0, 4.0, 70.0, 300.0, 0.25];
            let changed = usual.iter().chain(&numbers).find(|value| other(value));
            let Some(value) = changed
                .copied()
                .or_else(|| numbers.is_empty().then_some(1.0))
            else {
                continue;
            };
            let mut options = reduced(figure);
            options.set(parameter.choice, value);
            let rows = figure.rows(&options, &threads).unwrap();
            let shown = rows.iter().find(|row| row.paper.is_some());
            assert!(shown.is_none(), "{} {shown:?}", parameter.choice.flag());
        }
    }
    for name in [
        "c4-fig3",
        "c4-fig9",
        "c4-table2",
        "minos-fig3",
        "minos-fig6",
        "cckvs-fig8",
    ] {
        assert!(with_numbers.contains(name), "{name} has lost its numbers");
    }
    for name in [
        "cckvs-fig10",
        "juneberry-fig7",
        "juneberry-fig9",
        "juneberry-fig11",
    ] {
        assert!(with_numbers.contains(name), "{name} has lost its numbers");
    }
}

/// Goal: a row names its run completely. Method: every parameter of every figure that has a number
/// or a name is in the row's parameters, or is its place.
#[test]
fn rows_name_every_parameter() {
    for figure in drawn() {
        let rows = figure
            .rows(&one_point(figure, 150), &Threads::new(2))
            .unwrap();
        for parameter in figure.parameters {
            let named = rows.iter().all(|row| parameter.is_named_in(row));
            assert!(
                named,
                "{} {}: {:?}",
                figure.name,
                parameter.choice.flag(),
                rows[0]
            );
        }
    }
}
