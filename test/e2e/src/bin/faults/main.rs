//! `cargo xtask faults`: the controller behind a proxy where things go wrong, on a real control plane.

use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use clap::Parser;
use e2e::exit;
use e2e::faults::crashes::{Crash, Stage, Successor, failpoints};
use e2e::faults::rounds::Rounds;
use e2e::faults::silence::Silence;
use futures::future::join_all;

/// Clusters side by side on which controllers crash: most of it is waiting.
const CLUSTERS: usize = 3;
/// How long the API server is away.
const AWAY: Duration = Duration::from_secs(120);
/// Rounds after which each fault must have struck.
const MANY: u64 = 20;

#[derive(Parser)]
#[command(about = "Let things go wrong between controller and API server")]
struct Arguments {
    /// How many rounds of random faults.
    #[arg(long, default_value_t = 10)]
    rounds: u64,
    /// The first round's seed; the next have the next.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// In place of rounds: kill the controller at the first, second and fifth time of each step, and each step's second
    /// time with a standby.
    #[arg(long)]
    crashes: bool,
    /// In place of rounds: silent connections, and an API server that is away or hangs for two minutes.
    #[arg(long)]
    silence: bool,
    /// With --crashes: only steps with this in their name.
    #[arg(long, requires = "crashes")]
    step: Option<String>,
}

/// How many passed and failed.
#[derive(Default)]
struct Count {
    passed: usize,
    failed: usize,
}

impl Count {
    fn add(&mut self, what: &str, result: &Result<String>) {
        match result {
            Ok(text) => {
                println!("passed: {what}: {text}");
                self.passed += 1;
            }
            Err(error) => {
                println!("FAILED: {what}: {error:#}");
                self.failed += 1;
            }
        }
    }
}

#[tokio::main]
async fn main() -> ExitCode {
    let started = Instant::now();
    let arguments = Arguments::parse();
    let result = match (arguments.crashes, arguments.silence) {
        (true, _) => crash(arguments.step.as_deref()).await,
        (false, true) => silence().await,
        (false, false) => rounds(arguments.seed, arguments.rounds).await,
    };
    exit::code(result.map(|count| {
        println!("{:.0} s", started.elapsed().as_secs_f64());
        println!("{} passed, {} failed", count.passed, count.failed);
        count.failed == 0
    }))
}

async fn rounds(seed: u64, rounds: u64) -> Result<Count> {
    let mut count = Count::default();
    let stage = Rounds::new("faults", seed).await?;
    println!("seeds {seed} to {}, logs in {}", seed + rounds.saturating_sub(1), stage.folder().display());
    for seed in seed..seed + rounds {
        let played = stage.play(seed).await.map(|round| round.to_string());
        let is_over = played.is_err();
        count.add(&format!("seed {seed}"), &played);
        if is_over {
            // What is left of it would make the next ones fail.
            break;
        }
    }
    let struck = stage.struck();
    println!("faults: {struck:?}");
    let ended = stage.end().await.map(|ends| format!("{ends:?}"));
    count.add("the controller ended as it may", &ended);
    if rounds >= MANY && count.failed == 0 {
        ensure!(struck.len() >= 7, "faults that never struck: only {struck:?} did");
    }
    Ok(count)
}

async fn silence() -> Result<Count> {
    let mut count = Count::default();
    let all = [Silence::IdleForgotten, Silence::All, Silence::Half, Silence::Killed(AWAY), Silence::Paused(AWAY)];
    for (index, silence) in all.into_iter().enumerate() {
        let played = silence.play(&format!("silence-{index}")).await;
        let played = played.map(|took| format!("planned after {:.1} s", took.as_secs_f64()));
        count.add(&silence.to_string(), &played);
    }
    Ok(count)
}

async fn crash(step: Option<&str>) -> Result<Count> {
    let mut names = failpoints()?;
    names.retain(|name| step.is_none_or(|step| name.contains(step)));
    let each = [(1, Successor::Restart), (2, Successor::Restart), (5, Successor::Restart), (2, Successor::Standby)];
    let crashes: Vec<Crash> = each
        .iter()
        .flat_map(|&(hit, successor)| names.iter().map(move |name| Crash { failpoint: name.clone(), hit, successor }))
        .collect();
    // Each cluster takes every third, so that those that wait for a Lease are spread.
    let clusters = join_all((0..CLUSTERS).map(|index| {
        let crashes = crashes.iter().skip(index).step_by(CLUSTERS);
        async move {
            let mut played = Vec::new();
            let mut stage = Stage::new(&format!("crashes-{index}")).await?;
            for crash in crashes {
                let result = stage.survives(crash).await;
                if let Err(error) = &result {
                    eprintln!("{crash}: {error:#}");
                    // What is left of it would make the next ones fail.
                    stage = Stage::new(&format!("crashes-{index}-again")).await?;
                } else {
                    eprintln!("{crash}: passed");
                }
                played.push((crash.to_string(), result.map(|()| "finished by its successor".to_owned())));
            }
            anyhow::Ok(played)
        }
    }));
    let mut count = Count::default();
    for cluster in clusters.await {
        for (what, result) in cluster? {
            count.add(&what, &result);
        }
    }
    Ok(count)
}
