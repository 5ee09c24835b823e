//! The planner and Karpenter's scheduler side by side in one session: CPU time, memory, machines and price.
//!
//! Both get the same case from one file. Each plan is made by a process of its own, which has planned nothing before,
//! so CPU time, wall time and memory are those of a first plan; runs alternate, and the median counts where there are
//! several. Reading the case is not part of the time and is part of the memory. The time is that of a whole round on
//! both sides: ours builds a snapshot of decoded objects and plans it (`ours.rs`); Karpenter's copies nodes and makes
//! topology, scheduler and solution. What either pays beside that in a cluster, decoding, caches, events and metrics,
//! is left out.
//!
//! Prices follow one rule for both (`verdict.rs`), and the checker judges both plans. Left out: the real control plane
//! (`cargo xtask bench e2e`), devices (`cargo xtask bench dra`).

mod case;
mod cases;
mod clock;
mod consolidation;
mod devices;
mod export;
mod goals;
mod instructions;
mod ours;
mod plot;
mod process;
mod report;
mod theirs;
mod verdict;

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use clap::{Parser, Subcommand};

use self::cases::Named;
use self::instructions::Then;
use self::ours::Measured;
use self::process::Outcome;
use self::report::{Checked, Report, Row, TheirRun, Theirs};
use self::theirs::Answer;

/// Plans the same cases with our planner and with Karpenter's scheduler.
#[derive(Parser)]
#[command(name = "cargo xtask bench scheduling --")]
struct Arguments {
    #[command(subcommand)]
    command: Option<Command>,
    /// Only these: a group such as P1, a kind such as P3-ratios, or a name; may be given several times.
    #[arg(long = "case", value_name = "NAME")]
    cases: Vec<String>,
    /// So many pods in each case, in place of the usual numbers.
    #[arg(long)]
    pods: Option<usize>,
    /// Leave out cases of more than 2,000 waiting pods.
    #[arg(long)]
    quick: bool,
    /// Do not run Karpenter's scheduler.
    #[arg(long)]
    only_ours: bool,
    /// Pairs of runs where Karpenter's takes at most five seconds; where it takes longer it runs once.
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u16).range(1..=99))]
    runs: u16,
    /// Stop Karpenter's scheduler after so many seconds.
    #[arg(long, default_value_t = 300)]
    limit_seconds: u64,
    /// Stop the checker after so many seconds; it is simple, and slow on purpose.
    #[arg(long, default_value_t = 60)]
    check_seconds: u64,
    /// Candidates of one pod that Karpenter's scheduler looks at at once; its default in a cluster is 1.
    #[arg(long, default_value_t = 1)]
    workers: usize,
    /// Write everything that was measured into this file.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Draw CPU time over pods of P1 into this file.
    #[arg(long, value_name = "FILE")]
    plot: Option<PathBuf>,
    /// Leave the cases and Karpenter's answers in this folder.
    #[arg(long, value_name = "FOLDER")]
    keep: Option<PathBuf>,
    /// Count instructions of four cases with valgrind, compare them with test/bench/instructions.json, and end.
    #[arg(long)]
    instructions: bool,
    /// Count them and write that file.
    #[arg(long)]
    keep_instructions: bool,
    /// Write the cases into this folder as snapshot files, which `dovetail plan` reads, and end.
    #[arg(long, value_name = "FOLDER")]
    export: Option<PathBuf>,
    /// Print the names of the cases and end.
    #[arg(long)]
    list: bool,
    /// The program of test/bench/karpenter; `cargo xtask bench scheduling` builds it.
    #[arg(long, hide = true)]
    karpenter: Option<PathBuf>,
    /// In a process of its own: plan this case and print what it took.
    #[arg(long, hide = true)]
    measure: Option<PathBuf>,
    /// In a process of its own: so many more rounds, or counted plans, after the first.
    #[arg(long, hide = true, default_value_t = 0)]
    again: usize,
    /// In a process of its own: plan this case and print nothing.
    #[arg(long, hide = true)]
    count: Option<PathBuf>,
    /// In a process of its own: check the plan of this case, or an answer to it.
    #[arg(long, hide = true)]
    check: Option<PathBuf>,
    /// The answer of Karpenter's scheduler that is checked in place of our plan.
    #[arg(long, hide = true)]
    answer: Option<PathBuf>,
}

#[derive(Subcommand)]
enum Command {
    /// Consolidate fleets with our planner and with Karpenter's methods.
    Consolidation(consolidation::Arguments),
}

fn main() -> Result<()> {
    let arguments = Arguments::parse();
    if let Some(Command::Consolidation(arguments)) = &arguments.command {
        return consolidation::run(arguments);
    }
    if let Some(case) = &arguments.measure {
        let measured = ours::measure(case, arguments.again)?;
        println!("{}", serde_json::to_string(&measured)?);
        return Ok(());
    }
    if let Some(case) = &arguments.count {
        return ours::repeat(case, arguments.again);
    }
    if let Some(case) = &arguments.check {
        println!("{}", serde_json::to_string(&verdict::judge(case, arguments.answer.as_deref())?)?);
        return Ok(());
    }
    if arguments.instructions || arguments.keep_instructions {
        let then = if arguments.keep_instructions { Then::Keep } else { Then::Compare };
        let folder = Folder::new(arguments.keep.as_deref())?;
        return instructions::count(&cases::all(None), &folder.path, then);
    }
    let is_wanted =
        |case: &Named| is_asked_for(&case.name, &arguments.cases) && (!arguments.quick || case.pods <= 2000);
    let cases: Vec<Named> = cases::all(arguments.pods).into_iter().filter(is_wanted).collect();
    ensure!(!cases.is_empty(), "no case has such a name; --list prints them");
    if arguments.list {
        cases.iter().for_each(|case| println!("{}", case.name));
        return Ok(());
    }
    if let Some(folder) = &arguments.export {
        return export::write(&cases, folder);
    }
    let karpenter = arguments.karpenter.as_deref().filter(|_| !arguments.only_ours);
    ensure!(
        karpenter.is_some() || arguments.only_ours,
        "run `cargo xtask bench scheduling`, which builds Karpenter's side"
    );
    let folder = Folder::new(arguments.keep.as_deref())?;
    let mut report = Report::begin(karpenter.map(process::versions).transpose()?);
    for case in &cases {
        report.add(run(case, &folder.path, karpenter, &arguments)?);
    }
    report.end();
    if let Some(path) = &arguments.plot {
        let text = plot::svg(&report.rows);
        fs::write(path, text).with_context(|| format!("write {}", path.display()))?;
    }
    if let Some(path) = &arguments.json {
        fs::write(path, report.json()?).with_context(|| format!("write {}", path.display()))?;
    }
    let wrong = report.rows.iter().filter(|row| row.is_wrong()).count();
    ensure!(wrong == 0, "{wrong} of our plans are wrong or not the same each time");
    Ok(())
}

/// Whether the name, or the beginning of it up to a dash, is among those wanted; all are where none is.
fn is_asked_for(name: &str, wanted: &[String]) -> bool {
    let begins_so = |wanted: &String| {
        name.strip_prefix(wanted.as_str()).is_some_and(|rest| rest.is_empty() || rest.starts_with('-'))
    };
    wanted.is_empty() || wanted.iter().any(begins_so)
}

/// Below this, Karpenter's side is run several times.
const SHORT: Duration = Duration::from_secs(5);
/// Our plans are repeated in one process, and made on several threads at once, where they take less.
const REPEATED: Duration = Duration::from_secs(2);
/// How often, after the first.
const AGAIN: usize = 4;

fn run(case: &Named, folder: &Path, karpenter: Option<&Path>, arguments: &Arguments) -> Result<Row> {
    let say = |what: &str| eprintln!("{}: {what}", case.name);
    say("writing the case");
    let path = folder.join(format!("{}.jsonl", case.name));
    case.make().write(&path)?;
    let check_limit = Duration::from_secs(arguments.check_seconds);
    let checked = |answer: Option<&Path>| -> Result<Checked> {
        let mut rest = vec!["--check".to_owned(), path.display().to_string()];
        rest.extend(answer.into_iter().flat_map(|answer| ["--answer".to_owned(), answer.display().to_string()]));
        Ok(match process::ourselves(&rest, check_limit)? {
            Outcome::Output(text) => serde_json::from_str(&text)?,
            Outcome::TimedOut => Checked::not_finished(),
        })
    };

    let measure = |again: usize| -> Result<Measured> {
        let rest = ["--measure".to_owned(), path.display().to_string(), format!("--again={again}")];
        match process::ourselves(&rest, Duration::from_secs(arguments.limit_seconds.max(600)))? {
            Outcome::Output(text) => Ok(serde_json::from_str(&text)?),
            Outcome::TimedOut => anyhow::bail!("our side of {} did not end in time", case.name),
        }
    };
    say("ours");
    let mut ours = vec![measure(0)?];
    if Duration::from_nanos(ours[0].first_ns.1) < REPEATED {
        ours = vec![measure(AGAIN)?];
    }
    let mut theirs: Vec<Answer> = Vec::new();
    let answer = folder.join(format!("{}-karpenter.json", case.name));
    let mut killed = false;
    if let Some(karpenter) = karpenter {
        for run in 0..arguments.runs {
            say(&format!("Karpenter's scheduler, at most {} s", arguments.limit_seconds));
            let rest = theirs::arguments(&path, arguments.limit_seconds, arguments.workers);
            // It looks at the time between pods only, and reads the case before.
            let limit = Duration::from_secs(arguments.limit_seconds + 60);
            match process::run(karpenter, &rest, limit)? {
                Outcome::Output(text) => {
                    if run == 0 {
                        fs::write(&answer, &text)?;
                    }
                    theirs.push(serde_json::from_str(&text)?);
                }
                Outcome::TimedOut => killed = true,
            }
            let is_short = theirs.last().is_some_and(|last| Duration::from_nanos(last.wall_nanos) < SHORT);
            if killed || !is_short || run + 1 == arguments.runs {
                break;
            }
            ours.push(measure(0)?);
        }
    }
    while ours.len() < usize::from(arguments.runs) && Duration::from_nanos(ours[0].first_ns.1) < SHORT {
        ours.push(measure(0)?);
    }
    say("checking");
    let ours_checked = checked(None)?;
    let theirs = match theirs.first() {
        None if killed => Theirs::Killed,
        None => Theirs::NotAsked,
        Some(first) => Theirs::Answered {
            price_nano_usd_per_hour: verdict::price_of(&path, first)?,
            checked: checked(Some(&answer))?,
            runs: theirs.iter().map(TheirRun::of).collect(),
        },
    };
    Ok(Row {
        group: case.group.to_owned(),
        name: case.name.clone(),
        pods: case.pods,
        sha256: process::sha256(&path)?,
        ours,
        ours_checked,
        theirs,
    })
}

/// Where the cases lie; removed at the end unless the user named it.
struct Folder {
    path: PathBuf,
    is_kept: bool,
}

impl Folder {
    fn new(keep: Option<&Path>) -> Result<Self> {
        let own = || std::env::temp_dir().join(format!("dovetail-bench-{}", std::process::id()));
        let path = keep.map_or_else(own, Path::to_owned);
        fs::create_dir_all(&path).with_context(|| format!("create {}", path.display()))?;
        Ok(Self { path, is_kept: keep.is_some() })
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        if !self.is_kept {
            // Only its own files; a failure leaves them to the system's tidying.
            let _ = fs::remove_dir_all(&self.path);
        }
    }
}
