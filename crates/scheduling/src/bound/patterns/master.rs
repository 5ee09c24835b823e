//! The least price at which patterns hold all copies, if machines can be bought in parts: a linear program over the
//! patterns that are known so far, by the revised simplex method.
//!
//! Its dual prices say which other pattern would make it cheaper. In floats, and ended after a number of steps: whoever
//! uses the dual prices makes a bound of them in integers, whatever they are.

/// Smaller numbers are nothing.
const EPSILON: f64 = 1e-9;

/// So many copies of each kind on a machine at a price.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Column {
    pub(super) copies: Vec<f64>,
    pub(super) price: f64,
}

#[derive(Debug)]
pub(super) struct Master {
    known: Vec<Column>,
    /// A column for each row; with the inverse of their matrix, and how many of each are bought.
    basis: Vec<Column>,
    inverse: Vec<Vec<f64>>,
    bought: Vec<f64>,
}

impl Master {
    /// Begins with a column for each kind that holds nothing else, for so many copies of each.
    pub(super) fn new(alone: Vec<Column>, wanted: &[f64]) -> Self {
        let held = |row: usize, column: &Column| column.copies.get(row).copied().unwrap_or(1.0);
        let unit = |row: usize, of: f64| (0..alone.len()).map(|at| if at == row { 1.0 / of } else { 0.0 }).collect();
        let inverse = alone.iter().enumerate().map(|(row, column)| unit(row, held(row, column))).collect();
        let bought = alone.iter().enumerate().zip(wanted).map(|((row, column), wanted)| wanted / held(row, column));
        Self { inverse, bought: bought.collect(), known: alone.clone(), basis: alone }
    }

    pub(super) fn add(&mut self, column: Column) {
        self.known.push(column);
    }

    /// What the machines cost that are bought now.
    pub(super) fn price(&self) -> f64 {
        self.basis.iter().zip(&self.bought).map(|(column, bought)| column.price * bought).sum()
    }

    /// What a copy of each kind is worth.
    pub(super) fn worth(&self) -> Vec<f64> {
        let mut worth = vec![0.0; self.basis.len()];
        for (column, row) in self.basis.iter().zip(&self.inverse) {
            worth.iter_mut().zip(row).for_each(|(worth, part)| *worth += column.price * part);
        }
        worth
    }

    /// Buys what makes it cheaper of what is known, so many times at most.
    pub(super) fn solve(&mut self, steps: usize) {
        for _ in 0..steps {
            let worth = self.worth();
            let gain = |column: &Column| dot(&column.copies, &worth) - column.price;
            // Copies may also be more than are wanted: a column that takes one away, for nothing.
            let surplus = worth.iter().enumerate().filter(|(_, worth)| **worth < -EPSILON).map(|(kind, negative)| {
                let copies = (0..worth.len()).map(|at| if at == kind { -1.0 } else { 0.0 }).collect();
                (-negative, Column { copies, price: 0.0 })
            });
            let known = self.known.iter().map(|column| (gain(column), column));
            let best_known = known.max_by(|(a, _), (b, _)| a.total_cmp(b));
            let best_surplus = surplus.max_by(|(a, _), (b, _)| a.total_cmp(b));
            let least = EPSILON * self.price().abs().max(1.0);
            let enters = match (best_known, best_surplus) {
                (Some((gain, _)), Some((other, column))) if other > gain => (other > least).then_some(column),
                (Some((gain, column)), _) => (gain > least).then(|| column.clone()),
                (None, surplus) => surplus.map(|(_, column)| column),
            };
            let Some(column) = enters else { return };
            if !self.enter(column) {
                return;
            }
        }
    }

    /// Takes a column in, in place of the one that is used up first; false if that cannot be told.
    fn enter(&mut self, column: Column) -> bool {
        let needs: Vec<f64> = self.inverse.iter().map(|row| dot(row, &column.copies)).collect();
        let ratios = needs.iter().zip(&self.bought).enumerate().filter(|(_, (need, _))| **need > EPSILON);
        let Some((leaves, _)) =
            ratios.map(|(at, (need, bought))| (at, bought / need)).min_by(|(_, a), (_, b)| a.total_cmp(b))
        else {
            return false;
        };
        let (Some(need), Some(row), Some(bought)) =
            (needs.get(leaves), self.inverse.get(leaves), self.bought.get(leaves))
        else {
            return false;
        };
        let pivot: Vec<f64> = row.iter().map(|part| part / need).collect();
        let amount = bought / need;
        for (at, ((row, bought), need)) in self.inverse.iter_mut().zip(&mut self.bought).zip(&needs).enumerate() {
            if at == leaves {
                row.clone_from(&pivot);
                *bought = amount;
            } else {
                row.iter_mut().zip(&pivot).for_each(|(part, pivot)| *part -= need * pivot);
                *bought = (*bought - need * amount).max(0.0);
            }
        }
        if let Some(slot) = self.basis.get_mut(leaves) {
            *slot = column;
        }
        true
    }
}

fn dot(a: &[f64], b: &[f64]) -> f64 {
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn column(copies: &[f64], price: f64) -> Column {
        Column { copies: copies.to_vec(), price }
    }

    #[test]
    fn the_cheapest_mix_of_patterns_is_bought() {
        // Two of the first on a machine, or three of the second, or one of each and one more of the second.
        let alone = vec![column(&[2.0, 0.0], 10.0), column(&[0.0, 3.0], 10.0)];
        let mut master = Master::new(alone, &[4.0, 6.0]);
        assert!((master.price() - 40.0).abs() < 1e-6);
        master.add(column(&[1.0, 2.0], 10.0));
        master.solve(100);
        // Three of the mix and half a machine of the first.
        assert!((master.price() - 35.0).abs() < 1e-6, "{}", master.price());
        let worth = master.worth();
        assert!((worth[0] * 4.0 + worth[1] * 6.0 - 35.0).abs() < 1e-6, "{worth:?}");
        assert!(worth[0] * 2.0 <= 10.0 + 1e-6 && worth[0] + worth[1] * 2.0 <= 10.0 + 1e-6, "{worth:?}");
    }

    #[test]
    fn more_copies_than_are_wanted_do_no_harm() {
        let alone = vec![column(&[1.0, 0.0], 5.0), column(&[0.0, 1.0], 5.0)];
        let mut master = Master::new(alone, &[4.0, 1.0]);
        master.add(column(&[1.0, 1.0], 5.0));
        master.solve(100);
        assert!((master.price() - 20.0).abs() < 1e-6, "{}", master.price());
        assert!(master.worth().iter().all(|worth| *worth > -1e-6));
    }
}
