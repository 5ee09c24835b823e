//! Prices of resources that make the bound high: the equilibrium of a game.
//!
//! Each site spreads its price over the resources that it holds (`shares`: parts of 1), and each kind spreads its copies
//! over the sites that take it, wanting to pay little. What the copies pay together is the bound; sites raise it, kinds
//! lower it. Both sides learn by regret matching with prediction (Farina, Kroer, Sandholm 2021, "Faster game solving via
//! predictive Blackwell approachability"), whose weighted averages converge fast and which needs no parameters. The
//! number of rounds is fixed by the size, so the result is the same on every run.

use model::Id;

use super::{Kind, KindId, Relaxation, Site};

/// Fixed-point: prices of resources are in nano-dollars / 2³².
pub(super) const ONE: i128 = 1 << 32;

/// Multiplications that may be spent, and bounds of the rounds that this gives.
const WORK: usize = 20_000_000;
pub(super) const ROUNDS: (usize, usize) = (30, 600);

/// By site, by dimension: the price of a unit in nano-dollars / 2³². No site's machine costs more than its price.
pub(super) type ResourcePrices = Vec<Vec<i128>>;

/// One player's choice among a few options.
#[derive(Debug, Clone)]
struct Learner {
    regret: Vec<f64>,
    predicted: Vec<f64>,
    chosen: Vec<f64>,
    average: Vec<f64>,
}

impl Learner {
    fn new(options: usize) -> Self {
        let even = 1.0 / options.max(1) as f64;
        Self {
            regret: vec![0.0; options],
            predicted: vec![0.0; options],
            chosen: vec![even; options],
            average: vec![0.0; options],
        }
    }

    fn choose(&mut self) {
        let mut sum = 0.0;
        for ((chosen, regret), predicted) in self.chosen.iter_mut().zip(&self.regret).zip(&self.predicted) {
            *chosen = (regret + predicted).max(0.0);
            sum += *chosen;
        }
        let even = 1.0 / self.chosen.len().max(1) as f64;
        for chosen in &mut self.chosen {
            *chosen = if sum > 0.0 { *chosen / sum } else { even };
        }
    }

    /// Takes note of what each option would have gained.
    fn learn(&mut self, gains: &[f64], weight: f64) {
        let got: f64 = self.chosen.iter().zip(gains).map(|(chosen, gain)| chosen * gain).sum();
        for (index, gain) in gains.iter().enumerate() {
            if let (Some(regret), Some(predicted)) = (self.regret.get_mut(index), self.predicted.get_mut(index)) {
                *predicted = gain - got;
                *regret = (*regret + *predicted).max(0.0);
            }
        }
        for (average, chosen) in self.average.iter_mut().zip(&self.chosen) {
            *average += weight * chosen;
        }
    }
}

/// After so many rounds it is looked at how far the two sides are apart, and enough is enough.
const LOOK: usize = 40;
const NEAR: f64 = 1.001;

impl Relaxation {
    /// As many as there is time for.
    pub(super) fn rounds(&self) -> usize {
        let options: usize = self.sites.iter().map(|site| site.takes.count()).sum();
        (WORK / (options * self.dimensions.len() * 2).max(1)).clamp(ROUNDS.0, ROUNDS.1)
    }

    pub(super) fn resource_prices(&self) -> ResourcePrices {
        let dimensions = self.dimensions.len();
        // What a unit costs if a site puts its whole price on that dimension.
        let scales: Vec<Vec<f64>> = self.sites.iter().map(Site::scales).collect();
        let options: Vec<Vec<usize>> = self.kinds.ids().map(|kind| self.sites_of(kind)).collect();
        let mut sites: Vec<Learner> = self.sites.iter().map(|_| Learner::new(dimensions)).collect();
        let mut kinds: Vec<Learner> = options.iter().map(|options| Learner::new(options.len())).collect();
        let rounds = self.rounds();
        let mut prices = vec![0.0; dimensions * self.sites.len()];
        let mut gains: Vec<f64> = Vec::new();
        let mut loads = prices.clone();
        for round in 1..=rounds {
            let weight = (round * round) as f64;
            for ((site, scales), prices) in sites.iter_mut().zip(&scales).zip(prices.chunks_mut(dimensions.max(1))) {
                site.choose();
                for ((price, share), scale) in prices.iter_mut().zip(&site.chosen).zip(scales) {
                    *price = share * scale;
                }
            }
            loads.fill(0.0);
            for ((kind, options), learner) in self.kinds.iter().zip(&options).zip(&mut kinds) {
                learner.choose();
                gains.clear();
                gains.extend(options.iter().map(|site| -cost(kind, &prices, *site, dimensions)));
                for (&site, share) in options.iter().zip(&learner.chosen).filter(|(_, share)| **share > 0.0) {
                    let copies = share * kind.copies as f64;
                    for (load, &amount) in loads.iter_mut().skip(site * dimensions).zip(&kind.requests) {
                        *load += copies * amount as f64;
                    }
                }
                learner.learn(&gains, weight);
            }
            for ((site, scales), loads) in sites.iter_mut().zip(&scales).zip(loads.chunks(dimensions.max(1))) {
                gains.clear();
                gains.extend(loads.iter().zip(scales).map(|(load, scale)| load * scale));
                site.learn(&gains, weight);
            }
            if round % LOOK == 0 && self.is_solved(&sites, &kinds, &scales, &options) {
                break;
            }
        }
        self.sites.iter().zip(&sites).map(|(site, learner)| site.prices(&learner.average)).collect()
    }

    /// Whether what copies pay at the sites' average prices is about what machines cost at the kinds' average choice.
    fn is_solved(&self, sites: &[Learner], kinds: &[Learner], scales: &[Vec<f64>], options: &[Vec<usize>]) -> bool {
        let dimensions = self.dimensions.len();
        let shares = |learner: &Learner| {
            let sum: f64 = learner.average.iter().sum();
            learner.average.iter().map(|share| share / sum).collect::<Vec<f64>>()
        };
        let of_site = |(site, scales): (&Learner, &Vec<f64>)| {
            shares(site).into_iter().zip(scales).map(|(share, scale)| share * scale).collect::<Vec<f64>>()
        };
        let prices: Vec<f64> = sites.iter().zip(scales).flat_map(of_site).collect();
        let mut loads = vec![0.0; prices.len()];
        let mut paid = 0.0;
        for ((kind, options), learner) in self.kinds.iter().zip(options).zip(kinds) {
            let costs = options.iter().map(|site| cost(kind, &prices, *site, dimensions));
            paid += kind.copies as f64 * costs.min_by(f64::total_cmp).unwrap_or(0.0);
            for (&site, share) in options.iter().zip(shares(learner)) {
                let copies = share * kind.copies as f64;
                for (load, &amount) in loads.iter_mut().skip(site * dimensions).zip(&kind.requests) {
                    *load += copies * amount as f64;
                }
            }
        }
        let machines = |(loads, scales): (&[f64], &Vec<f64>)| {
            loads.iter().zip(scales).map(|(load, scale)| load * scale).fold(0.0, f64::max)
        };
        let bought: f64 = loads.chunks(dimensions.max(1)).zip(scales).map(machines).sum();
        bought <= paid * NEAR
    }

    /// What a copy of each kind is worth: what it would pay at the site where it pays least.
    pub(super) fn worth(&self, prices: &ResourcePrices) -> Vec<i64> {
        let worth = |(id, kind): (KindId, &Kind)| {
            let paid = |(_, prices): (&Site, &Vec<i128>)| pays(&kind.requests, prices) / ONE;
            let takes = self.sites.iter().zip(prices).filter(|(site, _)| site.takes.contains(id));
            takes.map(paid).min().map_or(0, |least| i64::try_from(least).unwrap_or(i64::MAX))
        };
        self.kinds.iter_enumerated().map(worth).collect()
    }

    fn sites_of(&self, kind: KindId) -> Vec<usize> {
        let taking = self.sites.iter().enumerate().filter(|(_, site)| site.takes.contains(kind));
        taking.map(|(index, _)| index).collect()
    }
}

fn cost(kind: &Kind, prices: &[f64], site: usize, dimensions: usize) -> f64 {
    let prices = prices.iter().skip(site * dimensions);
    kind.requests.iter().zip(prices).map(|(&amount, price)| amount as f64 * price).sum()
}

/// What so much costs at these prices, in nano-dollars / 2³².
pub(super) fn pays(amounts: &[i64], prices: &[i128]) -> i128 {
    let costs = amounts.iter().zip(prices).map(|(&amount, price)| price.saturating_mul(i128::from(amount)));
    costs.fold(0, i128::saturating_add)
}

impl Site {
    fn scales(&self) -> Vec<f64> {
        let scale = |&holds: &i64| if holds > 0 { self.price.0.max(0) as f64 / holds as f64 } else { 0.0 };
        self.holds.iter().map(scale).collect()
    }

    /// The site's price, spread in these proportions; what rounding leaves is given away.
    fn prices(&self, weights: &[f64]) -> Vec<i128> {
        let sum: f64 = weights.iter().sum();
        let share = |weight: f64| if sum > 0.0 { (weight / sum * ONE as f64) as i128 } else { 0 };
        let mut left = ONE;
        let mut prices = Vec::with_capacity(weights.len());
        for (&weight, &holds) in weights.iter().zip(&self.holds) {
            let share = share(weight).clamp(0, left);
            left -= share;
            let holds = i128::from(holds);
            prices.push(if holds > 0 { share * i128::from(self.price.0.max(0)) / holds } else { 0 });
        }
        prices
    }
}

/// Its place among the kinds.
pub(super) fn at<T>(values: &[T], kind: KindId) -> Option<&T> {
    values.get(kind.index())
}
