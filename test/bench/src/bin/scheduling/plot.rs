//! CPU time over pods of P1, both axes logarithmic, as SVG.

use std::fmt::Write as _;

use crate::goals::exponent;
use crate::report::Row;

const WIDTH: f64 = 720.0;
const HEIGHT: f64 = 440.0;
const LEFT: f64 = 70.0;
const RIGHT: f64 = 170.0;
const TOP: f64 = 30.0;
const BOTTOM: f64 = 50.0;

struct Line {
    name: &'static str,
    colour: &'static str,
    points: Vec<(usize, u64)>,
}

/// The drawing; without cases of P1 only the frame.
pub(crate) fn svg(rows: &[Row]) -> String {
    let of_group = || rows.iter().filter(|row| row.group == "P1");
    let finished = |row: &Row| Some((row.pods, row.theirs().filter(|side| !side.timed_out)?.cpu_ns));
    let lines = [
        Line { name: "Karpenter", colour: "#b04a2f", points: of_group().filter_map(finished).collect() },
        Line { name: "ours", colour: "#20639b", points: of_group().map(|row| (row.pods, row.ours().cpu_ns)).collect() },
    ];
    let all = || lines.iter().flat_map(|line| line.points.iter());
    let decades = |values: &mut dyn Iterator<Item = f64>, otherwise: (i32, i32)| {
        let (least, most) =
            values.fold((f64::INFINITY, 0.0), |(least, most): (f64, f64), value| (least.min(value), most.max(value)));
        if most > 0.0 { (least.log10().floor() as i32, most.log10().ceil() as i32) } else { otherwise }
    };
    let x_range = decades(&mut all().map(|point| point.0 as f64), (2, 5));
    let y_range = decades(&mut all().map(|point| point.1 as f64 / 1e9), (-3, 2));
    let place =
        |value: f64, range: (i32, i32)| (value.log10() - f64::from(range.0)) / f64::from((range.1 - range.0).max(1));
    let x = |pods: f64| LEFT + place(pods, x_range) * (WIDTH - LEFT - RIGHT);
    let y = |seconds: f64| HEIGHT - BOTTOM - place(seconds, y_range) * (HEIGHT - TOP - BOTTOM);

    let mut out = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" font-family=\"sans-serif\" font-size=\"13\">\n\
         <rect width=\"{WIDTH}\" height=\"{HEIGHT}\" fill=\"#fff\"/>\n"
    );
    let mut text = |line: std::fmt::Arguments<'_>| {
        let _ = out.write_fmt(line);
        out.push('\n');
    };
    let (right, bottom) = (WIDTH - RIGHT, HEIGHT - BOTTOM);
    for decade in x_range.0..=x_range.1 {
        let at = x(10_f64.powi(decade));
        text(format_args!("<path d=\"M{at:.1} {TOP}V{bottom}\" stroke=\"#ddd\"/>"));
        let label = 10_i64.pow(decade.max(0) as u32);
        text(format_args!("<text x=\"{at:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{label}</text>", bottom + 18.0));
    }
    for decade in y_range.0..=y_range.1 {
        let at = y(10_f64.powi(decade));
        text(format_args!("<path d=\"M{LEFT} {at:.1}H{right}\" stroke=\"#ddd\"/>"));
        let label =
            if decade < 0 { format!("{} ms", 10_f64.powi(decade + 3)) } else { format!("{} s", 10_f64.powi(decade)) };
        text(format_args!("<text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">{label}</text>", LEFT - 6.0, at + 4.0));
    }
    text(format_args!("<text x=\"{LEFT}\" y=\"18\">CPU time of one first plan over waiting pods (P1)</text>"));
    text(format_args!(
        "<text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"middle\">pods</text>",
        (LEFT + right) / 2.0,
        HEIGHT - 10.0
    ));
    for line in &lines {
        let Some(&(pods, ns)) = line.points.last() else { continue };
        let spots: Vec<(f64, f64)> =
            line.points.iter().map(|&(pods, ns)| (x(pods as f64), y(ns as f64 / 1e9))).collect();
        let path: Vec<String> = spots.iter().map(|(x, y)| format!("{x:.1},{y:.1}")).collect();
        text(format_args!(
            "<polyline points=\"{}\" fill=\"none\" stroke=\"{}\" stroke-width=\"2\"/>",
            path.join(" "),
            line.colour
        ));
        for (x, y) in &spots {
            text(format_args!("<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"3.5\" fill=\"{}\"/>", line.colour));
        }
        let slope = exponent(&line.points).map_or(String::new(), |slope| format!(", slope {slope:.2}"));
        let (x, y) = (x(pods as f64) + 10.0, y(ns as f64 / 1e9) + 4.0);
        text(format_args!("<text x=\"{x:.1}\" y=\"{y:.1}\" fill=\"{}\">{}{slope}</text>", line.colour, line.name));
    }
    out.push_str("</svg>\n");
    out
}
