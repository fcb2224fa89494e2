//! The model against the numbers that its constants must give.

use curtail_consistency::replica::Model;

use super::*;
use crate::costs::CostsError;

const PAPER: HotCopies = HotCopies {
    nodes: 9,
    hit_ratio: 0.65,
    write_ratio: 0.01,
};

fn without_cache(load: HotCopies) -> HotCopies {
    HotCopies {
        hit_ratio: 0.0,
        ..load
    }
}

fn mrps(load: &HotCopies, model: Model) -> f64 {
    let traffic = load.traffic(&MessageBytes::paper(40), model);
    load.throughput_mrps(&Link::PAPER, traffic)
}

/// Goal: the equations are the paper's. Method: CC-55's table, to the last digit it has.
#[test]
fn equations_give_the_table_of_their_constants() {
    let table = [
        (5, 149.0, 398.0, 369.0),
        (9, 241.0, 613.0, 541.0),
        (10, 264.0, 664.0, 580.0),
        (20, 501.0, 1124.0, 893.0),
        (30, 738.0, 1496.0, 1109.0),
        (40, 976.0, 1804.0, 1265.0),
    ];
    for (nodes, uniform, sc, lin) in table {
        let cached = HotCopies { nodes, ..PAPER };
        assert_eq!(mrps(&without_cache(cached), Model::Sc).round(), uniform);
        assert_eq!(mrps(&cached, Model::Sc).round(), sc);
        assert_eq!(mrps(&cached, Model::Lin).round(), lin);
    }
}

/// Goal: the two numbers that the text gives for its model, 628 and 554, belong to a hit ratio of
/// 66 % (the latter to 66.16 %).
#[test]
fn the_texts_numbers_need_66_percent_of_hits() {
    let load = HotCopies {
        hit_ratio: 0.66,
        ..PAPER
    };
    assert_eq!(mrps(&load, Model::Sc).round(), 628.0);
    assert_eq!(mrps(&load, Model::Lin).round(), 552.0);
}

/// Goal: the closed form is where both throughputs meet, whatever the hit ratio. Method: put it
/// into the equations.
#[test]
fn break_even_is_where_both_meet() {
    let bytes = MessageBytes::paper(40);
    for model in [Model::Sc, Model::Lin] {
        for (nodes, hit_ratio) in [(5, 0.65), (20, 0.3), (40, 0.9)] {
            let cached = HotCopies {
                nodes,
                hit_ratio,
                write_ratio: break_even(nodes, &bytes, model),
            };
            let ratio = mrps(&cached, model) / mrps(&without_cache(cached), model);
            assert!((ratio - 1.0).abs() < 1e-9, "{model:?} {nodes}: {ratio}");
        }
    }
    let percent = |nodes, model| (break_even(nodes, &bytes, model) * 1000.0).round() / 10.0;
    assert_eq!(percent(5, Model::Sc), 27.2);
    assert_eq!(percent(40, Model::Lin), 1.5);
}

/// Goal: a key gets as many copies as its write ratio pays for, one more does not pay.
#[test]
fn copies_are_the_most_that_pay() {
    let bytes = MessageBytes::datagrams(40);
    for model in [Model::Sc, Model::Lin] {
        for percent in 0..100 {
            let write_ratio = f64::from(percent) / 100.0;
            let copies = copies_worth(write_ratio, 40, &bytes, model);
            let pays = |copies| write_ratio < break_even(copies, &bytes, model);
            assert!(copies == 1 || pays(copies));
            assert!(copies == 40 || !pays(copies + 1));
        }
    }
    assert_eq!(copies_worth(0.0, 40, &bytes, Model::Lin), 40);
    assert_eq!(copies_worth(0.9, 40, &bytes, Model::Lin), 1);
}

/// CC-57's sums.
#[test]
fn our_datagrams_have_the_lengths_that_were_counted() {
    let bytes = MessageBytes::datagrams(40);
    assert_eq!(bytes.remote(), 228.0);
    assert_eq!(bytes.hot_write(Model::Sc), 138.0);
    assert_eq!(bytes.hot_write(Model::Lin), 334.0);
    let paper = MessageBytes::paper(40);
    assert_eq!(paper.remote(), 113.0);
    assert_eq!(paper.hot_write(Model::Sc), 83.0);
    assert_eq!(paper.hot_write(Model::Lin), 183.0);
}

/// CC-45's exact ratios.
#[test]
fn hit_ratios_are_exact() {
    let percent = |exponent| (exact_hit_ratio(exponent, CACHED_SHARE) * 1000.0).round() / 10.0;
    assert_eq!([0.90, 0.99, 1.01].map(percent), [42.2, 63.0, 67.5]);
    assert_eq!(exact_hit_ratio(0.99, 0.0), 0.0);
}

/// Goal: placing the popular keys one by one loses no load.
#[test]
fn shares_sum_to_one() {
    let shards = Shards::draw(0.99, 128, 3);
    let sum: f64 = shards.shares().iter().sum();
    assert!((sum - 1.0).abs() < 1e-9, "{sum}");
    assert_eq!(shards.shares().len(), 128);
    let even = Shards::hottest(0.0, 9, 1);
    assert!((even * 9.0 - 1.0).abs() < 0.001, "{even}");
}

/// Goal: processors in the place of links give the same break-even form, and a file is checked.
#[test]
fn processors_break_even_like_links() {
    let costs = *ClusterCosts::built_in();
    let cpu = SharedCpu { cores: 2.0, costs };
    for model in [Model::Sc, Model::Lin] {
        let cached = HotCopies {
            write_ratio: costs.break_even(4, model),
            nodes: 4,
            ..PAPER
        };
        let none = without_cache(cached);
        let ratio = cpu.throughput_krps(&cached, model) / cpu.throughput_krps(&none, model);
        assert!((ratio - 1.0).abs() < 1e-9, "{ratio}");
    }
    let text = "hit_ns = 0\nremote_ns = 1\nupdate_ns = 1\nlin_ns = 1";
    assert_eq!(
        ClusterCosts::parse(text),
        Err(CostsError::Number("hit_ns".into()))
    );
    assert!(ClusterCosts::parse("hit_ns = 1").is_err());
}
