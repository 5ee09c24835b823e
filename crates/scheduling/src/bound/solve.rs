//! Prices of resources that make the bound high: the equilibrium of a game.
//!
//! Each site spreads its price over the resources that it holds (`shares`: parts of 1), and each kind spreads its
//! copies over the sites that take it, wanting to pay little. What the copies pay together is the bound; sites raise
//! it, kinds lower it. Both sides learn by regret matching with prediction (Farina, Kroer, Sandholm 2021, "Faster game
//! solving via predictive Blackwell approachability"), whose weighted averages converge fast and which needs no
//! parameters. In each round kinds choose after they have seen the prices of that round, and averages begin anew
//! whenever the two sides have come nearer by a fifth: both make the bound converge several times faster. The number of
//! rounds is fixed by the size and by how near the sides are, so the result is the same on every run.

use model::Id;

use super::{Kind, KindId, Relaxation, Site};
use crate::tuning::{BOUND_ROUNDS, BOUND_WORK, NEAR_ENOUGH, RESTART_AT, ROUNDS_BETWEEN_LOOKS};

/// Fixed-point: prices of resources are in nano-dollars / 2³².
pub(super) const ONE: i128 = 1 << 32;

/// By site, by dimension: the price of a unit in nano-dollars / 2³². No site's machine costs more than its price.
pub(super) type ResourcePrices = Vec<Vec<i128>>;

/// One player's choice among a few options.
#[derive(Debug, Clone)]
struct Learner {
    regret: Vec<f64>,
    /// What is chosen, in these proportions.
    weights: Vec<f64>,
    /// Times a weight: the share.
    scale: f64,
    /// Weighted sum of the shares since averages last began anew.
    average: Vec<f64>,
}

/// The two results of the game.
#[derive(Debug)]
pub(super) struct Solution {
    /// The average since averages last began anew: the nearest to the highest bound, nearly always.
    pub(super) tight: ResourcePrices,
    /// The average over all rounds. Where many prices are equally good it lies between them, while `tight` may lie at
    /// one of their ends.
    pub(super) amid: ResourcePrices,
}

impl Learner {
    /// Begins with an even choice. Some options are never open.
    fn new(options: usize, closed: &[usize]) -> Self {
        let none = vec![0.0; options];
        let mut learner = Self { regret: none.clone(), weights: none.clone(), scale: 0.0, average: none };
        learner.choose_evenly(closed);
        learner
    }

    fn choose_evenly(&mut self, closed: &[usize]) {
        self.weights.fill(1.0);
        for &option in closed {
            if let Some(weight) = self.weights.get_mut(option) {
                *weight = 0.0;
            }
        }
        self.scale = 1.0 / (self.weights.len() - closed.len()).max(1) as f64;
    }

    fn shares(&self) -> impl Iterator<Item = f64> {
        self.weights.iter().map(|weight| weight * self.scale)
    }

    /// Notes what each option would have gained, and chooses anew: in proportion to the regret, with the prediction
    /// that the next round is like this one; evenly where no option is better than another.
    fn learn(&mut self, gains: &[f64], weight: f64, closed: &[usize]) {
        let got = self.scale * sum_of_products(&self.weights, gains);
        let counts = weight * self.scale;
        for (average, weight) in self.average.iter_mut().zip(&self.weights) {
            *average += counts * weight;
        }
        for ((regret, weight), gain) in self.regret.iter_mut().zip(&mut self.weights).zip(gains) {
            let more = gain - got;
            *regret = (*regret + more).max(0.0);
            *weight = (*regret + more).max(0.0);
        }
        let sum = sum(&self.weights);
        if sum > 0.0 {
            self.scale = 1.0 / sum;
        } else {
            self.choose_evenly(closed);
        }
    }
}

/// How many sums are taken side by side. In a single sum each addition waits for the one before.
const LANES: usize = 4;

fn sum(numbers: &[f64]) -> f64 {
    let mut sums = [0.0; LANES];
    let (lanes, rest) = numbers.as_chunks::<LANES>();
    for numbers in lanes {
        sums.iter_mut().zip(numbers).for_each(|(sum, number)| *sum += number);
    }
    sums.iter().chain(rest).sum()
}

fn sum_of_products(numbers: &[f64], factors: &[f64]) -> f64 {
    let mut sums = [0.0; LANES];
    let (lanes, rest) = numbers.as_chunks::<LANES>();
    let (of_lanes, of_rest) = factors.as_chunks::<LANES>();
    for (numbers, factors) in lanes.iter().zip(of_lanes) {
        sums.iter_mut().zip(numbers).zip(factors).for_each(|((sum, number), factor)| *sum += number * factor);
    }
    let rest: f64 = rest.iter().zip(of_rest).map(|(number, factor)| number * factor).sum();
    sums.iter().sum::<f64>() + rest
}

impl Relaxation {
    /// How many rounds the game takes: fewer for a larger one, so that all rounds are about [`BOUND_WORK`] steps.
    pub(super) fn rounds(&self) -> usize {
        let options: usize = self.sites.iter().map(|site| site.takes.count()).sum();
        (BOUND_WORK / (options * self.binding.len() * 2).max(1)).clamp(BOUND_ROUNDS.0, BOUND_ROUNDS.1)
    }

    pub(super) fn resource_prices(&self) -> Solution {
        // Only those that bind, in this order.
        let dimensions = self.binding.len();
        // What a unit costs if a site puts its whole price on that dimension.
        let scales: Vec<Vec<f64>> = self.sites.iter().map(|site| site.scales(&self.binding)).collect();
        let buyers: Vec<Buyer> = self.weighed.iter_enumerated().map(|(id, kind)| self.buyer(id, kind)).collect();
        let mut sites: Vec<Learner> = self.sites.iter().map(|_| Learner::new(dimensions, &[])).collect();
        let mut kinds: Vec<Learner> = buyers.iter().map(|buyer| Learner::new(buyer.options(), &buyer.closed)).collect();
        let rounds = self.rounds();
        let mut prices = Table::new(dimensions, self.sites.len());
        let mut loads = prices.clone();
        let mut gains: Vec<f64> = Vec::new();
        let mut over_all: Vec<Vec<f64>> = vec![vec![0.0; dimensions]; sites.len()];
        let (mut begun, mut distance) = (0, f64::INFINITY);
        for round in 1..=rounds {
            let weight_of_all = (round * round) as f64;
            let weight = ((round - begun) * (round - begun)) as f64;
            for (index, ((site, scales), over_all)) in sites.iter().zip(&scales).zip(&mut over_all).enumerate() {
                over_all.iter_mut().zip(site.shares()).for_each(|(sum, share)| *sum += weight_of_all * share);
                prices.set(index, site.shares().zip(scales).map(|(share, scale)| share * scale));
            }
            loads.clear();
            for (buyer, learner) in buyers.iter().zip(&mut kinds) {
                buyer.gains(&prices, &mut gains);
                learner.learn(&gains, weight, &buyer.closed);
                buyer.load(&learner.weights, learner.scale, &mut loads);
            }
            for (index, (site, scales)) in sites.iter_mut().zip(&scales).enumerate() {
                gains.clear();
                gains.extend(loads.of(index).zip(scales).map(|(load, scale)| load * scale));
                site.learn(&gains, weight, &[]);
            }
            if round % ROUNDS_BETWEEN_LOOKS == 0 && round < rounds {
                let now = self.distance(&sites, &kinds, &scales, &buyers);
                if now <= NEAR_ENOUGH {
                    break;
                }
                if now <= distance * RESTART_AT {
                    (begun, distance) = (round, now);
                    sites.iter_mut().chain(&mut kinds).for_each(|learner| learner.average.fill(0.0));
                }
            }
        }
        let prices_by = |(site, shares): (&Site, &Vec<f64>)| site.prices(&self.binding, shares);
        Solution {
            tight: self.sites.iter().zip(sites.iter().map(|learner| &learner.average)).map(prices_by).collect(),
            amid: self.sites.iter().zip(&over_all).map(prices_by).collect(),
        }
    }

    fn buyer(&self, id: KindId, kind: &Kind) -> Buyer {
        let takes = |&site: &usize| self.sites.get(site).is_some_and(|site| site.takes.contains(id));
        let (open, closed): (Vec<usize>, Vec<usize>) = (0..self.sites.len()).partition(takes);
        let is_dense = closed.len() <= open.len();
        let amounts = self.binding.iter().filter_map(|&dimension| kind.requests.get(dimension));
        Buyer {
            requests: amounts.map(|&amount| amount as f64).collect(),
            copies: kind.copies as f64,
            sites: if is_dense { Sites::All(self.sites.len()) } else { Sites::Some(open) },
            closed: if is_dense { closed } else { Vec::new() },
        }
    }

    /// How much more machines cost at the kinds' average choice than what copies pay at the sites' average prices, as a
    /// part of the latter.
    fn distance(&self, sites: &[Learner], kinds: &[Learner], scales: &[Vec<f64>], buyers: &[Buyer]) -> f64 {
        let shares = |learner: &Learner| {
            let sum: f64 = learner.average.iter().sum();
            learner.average.iter().map(|share| share / sum).collect::<Vec<f64>>()
        };
        let mut prices = Table::new(self.binding.len(), self.sites.len());
        for (index, (site, scales)) in sites.iter().zip(scales).enumerate() {
            prices.set(index, shares(site).into_iter().zip(scales).map(|(share, scale)| share * scale));
        }
        let mut loads = Table::new(self.binding.len(), self.sites.len());
        let mut paid = 0.0;
        let mut gains: Vec<f64> = Vec::new();
        for (buyer, learner) in buyers.iter().zip(kinds) {
            buyer.gains(&prices, &mut gains);
            paid -= buyer.copies * gains.iter().copied().max_by(f64::total_cmp).unwrap_or(0.0);
            buyer.load(&shares(learner), 1.0, &mut loads);
        }
        let machines = |(index, scales): (usize, &Vec<f64>)| {
            loads.of(index).zip(scales).map(|(load, scale)| load * scale).fold(0.0, f64::max)
        };
        let bought: f64 = scales.iter().enumerate().map(machines).sum();
        if paid > 0.0 {
            bought / paid - 1.0
        } else if bought > 0.0 {
            f64::INFINITY
        } else {
            0.0
        }
    }

    /// The dual price of a copy of each kind: what it would pay at the site where it pays least.
    pub(super) fn worth(&self, prices: &ResourcePrices) -> Vec<i64> {
        let worth = |(id, kind): (KindId, &Kind)| {
            let paid = |(_, prices): (&Site, &Vec<i128>)| pays(&kind.requests, prices) / ONE;
            let takes = self.sites.iter().zip(prices).filter(|(site, _)| site.takes.contains(id));
            takes.map(paid).min().map_or(0, |least| i64::try_from(least).unwrap_or(i64::MAX))
        };
        self.kinds.iter_enumerated().map(worth).collect()
    }
}

/// A kind that looks for sites.
struct Buyer {
    /// Of a copy, by binding dimension.
    requests: Vec<f64>,
    copies: f64,
    sites: Sites,
    /// The options that do not take it.
    closed: Vec<usize>,
}

/// Which sites a kind's options are.
enum Sites {
    /// All of so many sites. Most take the kind, and contiguous numbers are faster than a list of indexes.
    All(usize),
    Some(Vec<usize>),
}

/// The gain of an option that nobody chooses. It is finite because it is multiplied with a share of 0.
const NEVER: f64 = -1e200;

impl Buyer {
    fn options(&self) -> usize {
        match &self.sites {
            Sites::All(sites) => *sites,
            Sites::Some(sites) => sites.len(),
        }
    }

    /// What a copy gains, by option: less than nothing, since it pays.
    fn gains(&self, prices: &Table, gains: &mut Vec<f64>) {
        gains.clear();
        gains.resize(self.options(), 0.0);
        for (amount, prices) in self.requests.iter().zip(&prices.rows).filter(|(amount, _)| **amount > 0.0) {
            match &self.sites {
                Sites::All(_) => gains.iter_mut().zip(prices).for_each(|(gain, price)| *gain -= amount * price),
                Sites::Some(sites) => {
                    for (gain, &site) in gains.iter_mut().zip(sites) {
                        *gain -= amount * prices.get(site).copied().unwrap_or(0.0);
                    }
                }
            }
        }
        for &option in &self.closed {
            if let Some(gain) = gains.get_mut(option) {
                *gain = NEVER;
            }
        }
    }

    /// Adds what its copies, shared out over the options by weights times a scale, need of the sites.
    fn load(&self, weights: &[f64], scale: f64, loads: &mut Table) {
        for (amount, loads) in self.requests.iter().zip(&mut loads.rows).filter(|(amount, _)| **amount > 0.0) {
            let amount = amount * self.copies * scale;
            match &self.sites {
                Sites::All(_) => loads.iter_mut().zip(weights).for_each(|(load, weight)| *load += weight * amount),
                Sites::Some(sites) => {
                    for (&site, weight) in sites.iter().zip(weights) {
                        if let Some(load) = loads.get_mut(site) {
                            *load += weight * amount;
                        }
                    }
                }
            }
        }
    }
}

/// A number for each dimension of each site; those of one dimension side by side, so that one instruction takes
/// several.
#[derive(Clone)]
struct Table {
    rows: Vec<Vec<f64>>,
}

impl Table {
    fn new(dimensions: usize, sites: usize) -> Self {
        Self { rows: vec![vec![0.0; sites]; dimensions] }
    }

    fn clear(&mut self) {
        self.rows.iter_mut().for_each(|row| row.fill(0.0));
    }

    /// Of one site, by dimension.
    fn of(&self, site: usize) -> impl Iterator<Item = f64> {
        self.rows.iter().filter_map(move |row| row.get(site).copied())
    }

    fn set(&mut self, site: usize, numbers: impl Iterator<Item = f64>) {
        for (row, number) in self.rows.iter_mut().zip(numbers) {
            if let Some(slot) = row.get_mut(site) {
                *slot = number;
            }
        }
    }
}

/// What so much costs at these prices, in nano-dollars / 2³².
pub(super) fn pays(amounts: &[i64], prices: &[i128]) -> i128 {
    let costs = amounts.iter().zip(prices).map(|(&amount, price)| price.saturating_mul(i128::from(amount)));
    costs.fold(0, i128::saturating_add)
}

impl Site {
    fn scales(&self, dimensions: &[usize]) -> Vec<f64> {
        let scale = |holds: i64| if holds > 0 { self.price.0.max(0) as f64 / holds as f64 } else { 0.0 };
        dimensions.iter().map(|&dimension| scale(self.has(dimension))).collect()
    }

    /// The site's price, spread over these dimensions in these proportions; what rounding leaves is given away.
    fn prices(&self, dimensions: &[usize], weights: &[f64]) -> Vec<i128> {
        let sum: f64 = weights.iter().sum();
        let share = |weight: f64| if sum > 0.0 { (weight / sum * ONE as f64) as i128 } else { 0 };
        let mut left = ONE;
        let mut prices = vec![0; self.holds.len()];
        for (&weight, &dimension) in weights.iter().zip(dimensions) {
            let share = share(weight).clamp(0, left);
            left -= share;
            let holds = i128::from(self.has(dimension));
            if let Some(price) = prices.get_mut(dimension).filter(|_| holds > 0) {
                *price = share * i128::from(self.price.0.max(0)) / holds;
            }
        }
        prices
    }
}

/// Its place among the kinds.
pub(super) fn at<T>(values: &[T], kind: KindId) -> Option<&T> {
    values.get(kind.index())
}
