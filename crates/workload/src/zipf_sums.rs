//! Zipf's law: rank r is asked for with a probability proportional to 1 / r^exponent. Its exact
//! sums; [`crate::Ranks`] draws from it.

/// Sum of 1 / r^exponent over the ranks 1..=`count`: what the probabilities are divided by. Exact
/// to about 12 digits for every count, by the Euler-Maclaurin formula past the first terms.
pub fn harmonic(count: u64, exponent: f64) -> f64 {
    let summed = count.min(SUMMED);
    // From the smallest on, so that no term is lost in a larger sum.
    let head: f64 = (1..=summed).rev().map(|r| term(r, exponent)).sum();
    if count <= SUMMED {
        return head;
    }
    head + sum_past(SUMMED, count, exponent)
}

/// The same sum over the ranks past `from` up to `to`, by the Euler-Maclaurin formula, with the
/// relative error of `harmonic` however small the sum; `from` is at least `SUMMED`.
pub(crate) fn sum_past(from: u64, to: u64, exponent: f64) -> f64 {
    let (from, to) = (from as f64, to as f64);
    let third = exponent * (exponent + 1.0) * (exponent + 2.0);
    let edge = |x: f64| {
        x.powf(-exponent) / 2.0 - exponent * x.powf(-exponent - 1.0) / 12.0
            + third * x.powf(-exponent - 3.0) / 720.0
    };
    stretch(from, to, 1.0 - exponent) + edge(to) - edge(from)
}

/// The integral of x^(power - 1) between two points.
fn stretch(from: f64, to: f64, power: f64) -> f64 {
    let ratio = (to / from).ln();
    from.powf(power) * ratio * growth(power * ratio)
}

/// Probability that one of the `top` most popular ranks among `count` is drawn.
pub fn top_share(top: u64, count: u64, exponent: f64) -> f64 {
    harmonic(top.min(count), exponent) / harmonic(count, exponent)
}

fn term(rank: u64, exponent: f64) -> f64 {
    (rank as f64).powf(-exponent)
}

/// (e^x - 1) / x, also at 0.
fn growth(x: f64) -> f64 {
    if x.abs() < 1e-9 {
        1.0 + x / 2.0
    } else {
        x.exp_m1() / x
    }
}

/// Larger exponents leave nothing but the first rank.
pub(crate) const EXPONENT_MAX: f64 = 20.0;
/// Every rank must be a different floating-point number.
pub(crate) const COUNT_MAX: u64 = 1 << 51;
/// Terms that `harmonic` adds one by one.
pub(crate) const SUMMED: u64 = 100;

#[cfg(test)]
mod tests;
