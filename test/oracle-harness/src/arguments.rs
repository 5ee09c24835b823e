//! The command line of the programs that ask an oracle.

use std::path::PathBuf;
use std::process::ExitCode;

use dra_types::KubernetesMinor;

use crate::oracle::Oracle;

/// What is asked for.
pub struct Arguments {
    /// The program that answers for each release.
    pub oracles: Vec<(KubernetesMinor, String)>,
    /// How many random questions.
    pub cases: u64,
    /// Where the random numbers start.
    pub seed: u64,
    /// Where shrunk differences are written.
    pub fixtures: Option<PathBuf>,
    /// The file that equal answers are written into, to be compared by tests without upstream's code.
    pub record: Option<PathBuf>,
}

/// Runs a program; it fails if `run` does or tells of faults.
pub fn main(name: &str, run: impl FnOnce(&Arguments) -> Result<Vec<String>, String>) -> ExitCode {
    let arguments = match Arguments::read(std::env::args().skip(1)) {
        Ok(arguments) => arguments,
        Err(error) => {
            eprintln!("{error}");
            eprintln!(
                "usage: {name} --oracle 1.37=PROGRAM… [--cases N] [--seed S] [--fixtures FOLDER] [--record FILE]"
            );
            return ExitCode::from(2);
        }
    };
    match run(&arguments) {
        Ok(faults) if faults.is_empty() => ExitCode::SUCCESS,
        Ok(faults) => {
            faults.iter().for_each(|fault| println!("FAILED: {fault}"));
            ExitCode::FAILURE
        }
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

impl Arguments {
    /// Starts the oracle of each release.
    ///
    /// # Errors
    /// The first program that cannot be started.
    pub fn start(&self) -> Result<Vec<(KubernetesMinor, Oracle)>, String> {
        self.oracles.iter().map(|(release, program)| Ok((*release, Oracle::start(program)?))).collect()
    }

    fn read(mut texts: impl Iterator<Item = String>) -> Result<Self, String> {
        let mut arguments = Self { oracles: Vec::new(), cases: 1000, seed: 1, fixtures: None, record: None };
        while let Some(name) = texts.next() {
            let value = texts.next().ok_or_else(|| format!("{name} needs a value"))?;
            let number = || value.parse().map_err(|_| format!("{name}: {value} is not a number"));
            match name.as_str() {
                "--oracle" => arguments.oracles.push(oracle(&value)?),
                "--cases" => arguments.cases = number()?,
                "--seed" => arguments.seed = number()?,
                "--record" => arguments.record = Some(PathBuf::from(value)),
                "--fixtures" => arguments.fixtures = Some(PathBuf::from(value)),
                _ => return Err(format!("unknown option {name}")),
            }
        }
        if arguments.oracles.is_empty() { Err("--oracle is missing".to_owned()) } else { Ok(arguments) }
    }
}

fn oracle(value: &str) -> Result<(KubernetesMinor, String), String> {
    let (name, program) = value.split_once('=').ok_or_else(|| format!("--oracle: {value} has no release"))?;
    Ok((release(name).map_err(|error| format!("--oracle: {error}"))?, program.to_owned()))
}

/// A release by its name, `1.37`.
pub fn release(name: &str) -> Result<KubernetesMinor, String> {
    let known = KubernetesMinor::ALL.into_iter().find(|known| known.to_string() == name);
    known.ok_or_else(|| format!("release {name} is not known"))
}
