//! The fleet's price over time, a panel for each trace, as SVG.

use std::fmt::Write as _;

use crate::report::{Row, sides};
use crate::trace::Kind;

const WIDTH: f64 = 900.0;
const PANEL: f64 = 170.0;
const LEFT: f64 = 60.0;
const RIGHT: f64 = 20.0;
const TOP: f64 = 34.0;
const BOTTOM: f64 = 24.0;
const COLOURS: [&str; 4] = ["#20639b", "#b04a2f", "#3c8d53", "#7a5ea8"];

/// The drawing, of the first seed.
pub fn svg(rows: &[Row]) -> String {
    let sides = sides(rows);
    let mut kinds: Vec<Kind> = rows.iter().map(|row| row.kind).collect();
    kinds.dedup();
    kinds.sort_unstable();
    kinds.dedup();
    let height = TOP + PANEL * kinds.len() as f64;
    let mut out = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" font-family=\"sans-serif\" font-size=\"13\">\n\
         <rect width=\"{WIDTH}\" height=\"{height}\" fill=\"#fff\"/>\n"
    );
    for (position, side) in sides.iter().enumerate() {
        let (x, colour) = (LEFT + 280.0 * position as f64, colour(position));
        let _ = writeln!(out, "<text x=\"{x}\" y=\"18\" fill=\"{colour}\">{side}</text>");
    }
    for (position, kind) in kinds.iter().enumerate() {
        let of_kind: Vec<(&Row, &str)> = rows
            .iter()
            .filter(|row| row.kind == *kind)
            .map(|row| (row, colour(sides.iter().position(|side| *side == row.side).unwrap_or(0))))
            .collect();
        panel(&mut out, *kind, TOP + PANEL * position as f64, &of_kind);
    }
    out.push_str("</svg>\n");
    out
}

fn colour(position: usize) -> &'static str {
    COLOURS.get(position % COLOURS.len()).copied().unwrap_or("#000")
}

fn panel(out: &mut String, kind: Kind, top: f64, rows: &[(&Row, &str)]) {
    let outcomes = || rows.iter().filter_map(|(row, colour)| Some((row.outcomes.first()?, *colour)));
    let lasted = outcomes().map(|(outcome, _)| outcome.lasted_ms).max().unwrap_or(1).max(1);
    let prices = outcomes().flat_map(|(outcome, _)| outcome.prices.iter().map(|(_, price)| *price));
    let most = prices.max().unwrap_or(1).max(1);
    let (inner, base) = (PANEL - BOTTOM, top + PANEL - BOTTOM);
    let x = |at: i64| LEFT + at as f64 / lasted as f64 * (WIDTH - LEFT - RIGHT);
    let y = |price: i64| base - price as f64 / most as f64 * (inner - 12.0);
    let hours = lasted / 3_600_000;
    for hour in (0..=hours).step_by(usize::try_from((hours / 12).max(1)).unwrap_or(1)) {
        let at = x(hour * 3_600_000);
        let _ = writeln!(out, "<path d=\"M{at:.1} {:.1}V{base:.1}\" stroke=\"#eee\"/>", top + 12.0);
        let below = base + 15.0;
        let _ =
            writeln!(out, "<text x=\"{at:.1}\" y=\"{below:.1}\" text-anchor=\"middle\" fill=\"#777\">{hour} h</text>");
    }
    for price in [0, most] {
        let (at, dollars) = (y(price) + 4.0, price as f64 / 1e9);
        let left = LEFT - 6.0;
        let _ =
            writeln!(out, "<text x=\"{left}\" y=\"{at:.1}\" text-anchor=\"end\" fill=\"#777\">${dollars:.2}</text>");
    }
    let _ = writeln!(out, "<text x=\"{}\" y=\"{:.1}\">{kind}</text>", LEFT + 6.0, top + 10.0);
    // Whoever is drawn first lies below.
    for (outcome, colour) in outcomes() {
        let mut path = String::new();
        for (at, price) in &outcome.prices {
            let (x, y) = (x(at.0), y(*price));
            let _ = if path.is_empty() { write!(path, "M{x:.1} {y:.1}") } else { write!(path, "H{x:.1}V{y:.1}") };
        }
        let _ = write!(path, "H{:.1}", x(outcome.lasted_ms));
        let _ = writeln!(out, "<path d=\"{path}\" fill=\"none\" stroke=\"{colour}\" stroke-width=\"1.3\"/>");
    }
}

#[cfg(test)]
mod tests {
    use model::Timestamp;

    use super::*;
    use crate::run::Outcome;

    #[test]
    fn each_trace_has_a_panel_with_a_line_for_each_side() {
        let outcome = Outcome {
            lasted_ms: 7_200_000,
            prices: vec![(Timestamp(0), 1_000_000_000), (Timestamp(3_600_000), 500_000_000)],
            ..Outcome::default()
        };
        let row = |kind, side: &str| Row { kind, side: side.to_owned(), outcomes: vec![outcome.clone()] };
        let rows = [row(Kind::Steady, "ours"), row(Kind::Steady, "Karpenter"), row(Kind::Bursts, "ours")];
        let drawn = svg(&rows);
        assert_eq!(drawn.matches("fill=\"none\" stroke=").count(), 3, "{drawn}");
        assert_eq!(drawn.matches("#b04a2f").count(), 2, "{drawn}");
        assert!(drawn.contains(">bursts<") && drawn.contains("$1.00"), "{drawn}");
    }
}
