//! How many instructions a plan is, counted by valgrind: the one figure that a busy computer does not change.
//!
//! Counted are two plans less one, so that reading the case is no part of it. The counts of four cases are kept in
//! `test/bench/instructions.json`; more than [`MARGIN_PERCENT`] above them is an error, so that nobody makes the
//! planner slower without saying so. A new compiler, and work that makes it faster, are reasons to write the file anew.
//!
//! Equal programs take equally many instructions, but for what the C library picks by what the processor can do
//! (`memcpy` and the like). So it is told to pick what every x86-64 processor can do; on other architectures, and with
//! another C library, counts are others.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;

use anyhow::{Context, Result, anyhow, ensure};

use crate::cases::Named;

/// Those that are counted: rules that couple pods, preferences, price, and nodes that exist.
const CASES: [&str; 4] = ["P1-1000", "P2-respect-4000", "P3-ratios-1000", "P4-5000"];

const MARGIN_PERCENT: u64 = 3;

/// Keeps the C library from choosing by processor.
const BASELINE: (&str, &str) = (
    "GLIBC_TUNABLES",
    "glibc.cpu.hwcaps=-AVX,-AVX2,-AVX512F,-AVX512VL,-AVX512BW,-BMI1,-BMI2,-LZCNT,-MOVBE,-POPCNT,\
     -RTM,-SSE4_1,-SSE4_2,-SSSE3,-ERMS,-FSRM",
);

/// What to do with the counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Then {
    Compare,
    Keep,
}

/// Counts, prints, and compares with the file or writes it. Skipped with a line where valgrind is not installed.
pub(crate) fn count(cases: &[Named], folder: &Path, then: Then) -> Result<()> {
    if Command::new("valgrind").arg("--version").stdout(Stdio::null()).status().is_err() {
        println!("instructions: skipped, valgrind is not installed");
        return Ok(());
    }
    let file = kept_in();
    let kept: BTreeMap<String, u64> = match fs::read_to_string(&file) {
        Ok(text) => serde_json::from_str(&text).with_context(|| format!("read {}", file.display()))?,
        Err(_) => BTreeMap::new(),
    };
    let mut counts = BTreeMap::new();
    let mut above = 0;
    for case in cases.iter().filter(|case| CASES.contains(&case.name.as_str())) {
        eprintln!("{}: counting instructions", case.name);
        let path = folder.join(format!("{}.jsonl", case.name));
        case.make().write(&path)?;
        // At a time: valgrind keeps one processor busy.
        let (two, one) = thread::scope(|scope| {
            let two = scope.spawn(|| of_plans(&path, 2));
            let one = of_plans(&path, 1);
            (two.join(), one)
        });
        let two = two.map_err(|_| anyhow!("counting panicked"))?;
        let count = two?.saturating_sub(one?);
        let verdict = match kept.get(&case.name) {
            None => "nothing to compare with".to_owned(),
            Some(&kept) => {
                let is_above = count > kept + kept * MARGIN_PERCENT / 100;
                above += usize::from(is_above);
                let percent = (count as f64 / kept.max(1) as f64 - 1.0) * 100.0;
                format!("{percent:+.1} %{}", if is_above { ", more than allowed" } else { "" })
            }
        };
        println!("instructions: {:<18} {:>10.1} million, {verdict}", case.name, count as f64 / 1e6);
        counts.insert(case.name.clone(), count);
    }
    if then == Then::Keep {
        let text = format!("{}\n", serde_json::to_string_pretty(&counts)?);
        return fs::write(&file, text).with_context(|| format!("write {}", file.display()));
    }
    ensure!(above == 0, "{above} plans take over {MARGIN_PERCENT} % more instructions than {} says", file.display());
    Ok(())
}

fn kept_in() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("instructions.json")
}

fn of_plans(case: &Path, plans: usize) -> Result<u64> {
    let output = Command::new("valgrind")
        .args(["--tool=cachegrind", "--cache-sim=no", "--cachegrind-out-file=/dev/null"])
        .arg(std::env::current_exe()?)
        .arg("--count")
        .arg(case)
        .arg(format!("--again={}", plans - 1))
        .env(BASELINE.0, BASELINE.1)
        .output()
        .context("run valgrind")?;
    let told = String::from_utf8_lossy(&output.stderr).into_owned();
    ensure!(output.status.success(), "valgrind failed:\n{told}");
    // Releases differ in the blanks: `I refs:` and `I   refs:`.
    let is_count = |line: &&str| line.split_whitespace().skip(1).take(2).eq(["I", "refs:"]);
    let line = told.lines().find(is_count).with_context(|| format!("valgrind said\n{told}"))?;
    let digits: String = line.split("refs:").last().unwrap_or_default().chars().filter(char::is_ascii_digit).collect();
    digits.parse().with_context(|| format!("no number in {line}"))
}
