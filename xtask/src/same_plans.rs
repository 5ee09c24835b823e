//! `cargo xtask same-plans BEFORE AFTER`: shows that two revisions of `dovetail` answer alike, byte by byte.
//!
//! Both get the same command lines on the same inputs, side by side. Standard output, standard error and exit code are
//! compared. Left out: whatever talks to a cluster, so `run`, `snapshot`, and the commands that read one where no file
//! is named.

mod binary;
mod comparison;
mod inputs;
mod questions;

use std::path::Path;
use std::thread;

use anyhow::{Result, anyhow, ensure};
use regex::bytes::Regex;

use self::comparison::{Answer, difference};
use self::questions::Question;
use crate::progress::Progress;

#[derive(clap::Args)]
pub(crate) struct Options {
    /// The binary, or a revision of this repository to build, that is known to be right.
    before: String,
    /// The one that is to answer alike.
    after: String,
    /// Seeds of each of the checker's generators.
    #[arg(long, default_value_t = 500)]
    seeds: u64,
    /// Lines that may differ, be missing or be too many.
    #[arg(long, value_name = "REGEX")]
    ignore_lines: Option<Regex>,
    /// Ask only what contains this text; repeat for several.
    #[arg(long, value_name = "TEXT")]
    only: Vec<String>,
    /// Print so many differences; the others are counted.
    #[arg(long, value_name = "NUMBER", default_value_t = 5)]
    show: usize,
}

pub(crate) fn run(options: &Options) -> Result<()> {
    let folder = crate::process::target_folder()?.join("same-plans");
    let before = binary::of(&options.before, &folder)?;
    let after = binary::of(&options.after, &folder)?;
    let mut questions = questions::all(&before, &inputs::write(&folder, options.seeds)?)?;
    let is_wanted = |question: &Question| options.only.iter().any(|text| question.to_string().contains(text));
    questions.retain(|question| options.only.is_empty() || is_wanted(question));
    ensure!(!questions.is_empty(), "there is no such command");
    let progress = Progress::new();
    let mut differ = 0;
    for (index, question) in questions.iter().enumerate() {
        progress.say(&format!("{index} of {}, {differ} differ: dovetail {question}", questions.len()));
        let (of_before, of_after) = ask_both(&before, &after, question)?;
        let Some(difference) = difference(&of_before, &of_after, options.ignore_lines.as_ref()) else { continue };
        differ += 1;
        if differ <= options.show {
            let (before, after) = (before.display(), after.display());
            println!("{before} {question}\n{after} {question}\n{difference}");
        }
    }
    drop(progress);
    println!("{} commands, {differ} differ", questions.len());
    ensure!(differ == 0, "the answers differ");
    Ok(())
}

fn ask_both(before: &Path, after: &Path, question: &Question) -> Result<(Answer, Answer)> {
    thread::scope(|scope| {
        let of_before = scope.spawn(|| Answer::of(before, question));
        let of_after = Answer::of(after, question)?;
        Ok((of_before.join().map_err(|_| anyhow!("a thread panicked"))??, of_after))
    })
}
