//! The command lines: which are asked of which input.

use std::collections::BTreeSet;
use std::fmt::{Display, Formatter};
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use super::comparison::Answer;

/// The arguments of one command.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Question(pub(super) Vec<String>);

impl Display for Question {
    fn fmt(&self, f: &mut Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0.join(" "))
    }
}

impl Question {
    /// Words with blanks between them, in which `{}` stands for a path and `{types}` for that without extension.
    fn new(words: &str, path: &Path) -> Self {
        let types = path.with_extension("");
        let filled =
            |word: &str| word.replace("{}", &path.to_string_lossy()).replace("{types}", &types.to_string_lossy());
        Self(words.split_whitespace().map(filled).collect())
    }
}

/// Of the program itself, and of arguments that it refuses.
const OF_NO_INPUT: [&str; 24] = [
    "",
    "--version",
    "-h",
    "crds",
    "support",
    "completion bash",
    "completion elvish",
    "completion fish",
    "completion powershell",
    "completion zsh",
    "completion no-such-shell",
    "no-such-command",
    "plan",
    "plan -f examples/web --no-such-option",
    "plan -f examples/web -o no-such-format",
    "plan -f examples/web --kubernetes 1.2",
    "plan -f examples/web --gates NoSuchGate=true",
    "plan -f examples/web --node-price -1",
    "plan -f examples/web --budget many",
    "plan -f no/such/path",
    "plan -f examples/web --expand-workloads --compare examples/web/nodepool.yaml examples/shop/pool.yaml",
    "plan --compare examples/web examples/shop --expand-workloads --karpenter-order -o json",
    "explain pod no-such-pod -f examples/web",
    "dra allocate -f examples/devices",
];

/// Of inputs that everything can be asked of.
const OF_EXAMPLES: [&str; 19] = [
    "plan -f {}",
    "plan -f {} --expand-workloads -o table",
    "plan -f {} --expand-workloads -o wide --karpenter-order",
    "plan -f {} --expand-workloads -o json --reasons --check",
    "plan -f {} --expand-workloads -o yaml --verbose",
    "plan -f {} --expand-workloads -o json --no-default-nodepool --preference-policy Ignore --node-price 0.1",
    "plan -f {} --expand-workloads -o json --prioritized-list-policy price --preference-price 0.01 --budget 10",
    "plan -f {} --expand-workloads -o json --kubernetes 1.34 --gates all=true",
    "dra allocate -f {} --all-nodes --expand-workloads",
    "dra allocate -f {} --all-nodes --expand-workloads --kubernetes 1.36 -o json",
    "dra allocate -f {} --all-nodes --expand-workloads --each-alone",
    "overlay render -f {}",
    "overlay render -f {} -o json",
    "overlay lint -f {}",
    "overlay learn -f {}",
    "overlay verify -f {}",
    "overlay verify -f {} -o json",
    "overlay capture -f {}",
    "overlay capture -f {} -o json",
];

/// Of inputs that are many, or that are to be refused.
const OF_OTHERS: [&str; 3] = [
    "plan -f {} --expand-workloads -o json --reasons --check",
    "dra allocate -f {} --all-nodes --expand-workloads -o json",
    "overlay capture -f {}",
];

/// Of those that may be NodeOverlays too.
const OF_OVERLAYS: &str = "overlay lint -f {}";

/// Of files that may describe instance types.
const OF_INSTANCE_TYPES: &str = "plan -f examples/web --instance-types {}";

/// Of each random cluster, which has its instance types in the file without extension.
const OF_SEEDS: [&str; 2] = [
    "plan -f {} --instance-types {types} --budget 2000 -o json --reasons --check",
    "dra allocate -f {} --all-nodes -o json",
];

/// Of every second random cluster one.
const OF_SEEDS_IN_TURN: [&str; 8] = [
    "plan -f {} --instance-types {types} --budget 2000 -o table",
    "plan -f {} --instance-types {types} --budget 2000 -o wide --karpenter-order",
    "plan -f {} --instance-types {types} --budget 2000 -o yaml --preference-policy Ignore --prioritized-list-policy price",
    "plan -f {} --instance-types {types} --budget 10 -o json --reasons --node-price 0.5",
    "plan -f {} --instance-types {types} --kubernetes 1.34 --gates all=true -o json --check",
    "explain pod d/p0-0 -f {} --instance-types {types}",
    "explain node n0 -f {} --instance-types {types}",
    "dra allocate -f {} --all-nodes --each-alone --kubernetes 1.36",
];

/// Of each case of the benchmark, and further ones of those that are small.
const OF_BENCH: &str = "plan -f {} -o json";
const OF_SMALL_BENCH: [&str; 4] = [
    "plan -f {}",
    "plan -f {} -o wide --karpenter-order",
    "plan -f {} -o yaml --node-price 0.1",
    "plan -f {} --reasons -o json",
];
const SMALL_BYTES: u64 = 2 << 20;

/// All questions, each once, in the same order every time.
pub(super) fn all(binary: &Path, inputs: &Path) -> Result<Vec<Question>> {
    let mut questions = helps(binary, Vec::new())?;
    let mut ask = |words: &[&str], path: &Path| {
        questions.extend(words.iter().map(|words| Question::new(words, path)));
    };
    ask(&OF_NO_INPUT, Path::new(""));
    for folder in
        ["examples", "test/fuzz/corpus/manifests", "test/fuzz/corpus/snapshot", "test/e2e/tests/e2e/dra/scenarios"]
    {
        entries(Path::new(folder))?.iter().for_each(|path| ask(&OF_EXAMPLES, path));
    }
    for folder in ["charts", "crds", "crates", "test/fuzz", "examples"] {
        for path in files(Path::new(folder))?.iter().filter(|path| is_fixture(path)) {
            ask(&OF_OTHERS, path);
            ask(&[OF_OVERLAYS], path);
        }
    }
    for path in entries(&inputs.join("bad"))? {
        ask(&OF_EXAMPLES, &path);
        ask(&[OF_INSTANCE_TYPES], &path);
    }
    for path in entries(&inputs.join("vectors"))? {
        ask(&OF_OTHERS, &path);
        ask(&[OF_OVERLAYS, OF_INSTANCE_TYPES], &path);
    }
    if let Some(corpus) = corpus::open("same-plans", "corpus") {
        let corpus = corpus.canonicalize().context("find the corpus")?;
        entries(&corpus.join("workloads"))?.iter().for_each(|path| ask(&OF_EXAMPLES, path));
        entries(&corpus.join("dra"))?.iter().for_each(|path| ask(&OF_EXAMPLES, path));
        files(&corpus.join("dra"))?.iter().for_each(|path| ask(&OF_OTHERS, path));
        files(&corpus.join("nodepools"))?.iter().for_each(|path| ask(&[OF_OTHERS[0], OF_OVERLAYS], path));
    }
    let seeds = entries(&inputs.join("seeds"))?;
    let seeds = seeds.iter().filter(|path| path.extension().is_some());
    let in_turn = OF_SEEDS_IN_TURN.iter().flat_map(|words| [Some(*words), None]).cycle();
    for (path, in_turn) in seeds.zip(in_turn) {
        ask(&OF_SEEDS, path);
        ask(in_turn.as_slice(), path);
    }
    for path in entries(&inputs.join("bench"))? {
        ask(&[OF_BENCH], &path);
        if fs::metadata(&path)?.len() <= SMALL_BYTES {
            ask(&OF_SMALL_BENCH, &path);
        }
    }
    let mut known = BTreeSet::new();
    questions.retain(|question| known.insert(question.clone()));
    Ok(questions)
}

/// `--help` of a command, and of all below it, as it lists them.
fn helps(binary: &Path, command: Vec<String>) -> Result<Vec<Question>> {
    let help = Question([command.as_slice(), &["--help".to_owned()]].concat());
    let answer = Answer::of(binary, &help)?;
    let text = answer.stdout();
    let mut all = vec![help];
    for name in listed(&text) {
        all.extend(helps(binary, [command.as_slice(), &[name.to_owned()]].concat())?);
    }
    Ok(all)
}

/// The commands that a help text lists.
fn listed(help: &str) -> impl Iterator<Item = &str> {
    let lines = help.lines().skip_while(|line| *line != "Commands:").skip(1).take_while(|line| !line.is_empty());
    // What is indented more goes on with the text of the line before.
    let names = lines.filter_map(|line| line.strip_prefix("  ").filter(|rest| !rest.starts_with(' ')));
    names.filter_map(|rest| rest.split_whitespace().next())
}

/// What is in a folder, by name, as seen from the top of the repository.
fn entries(folder: &Path) -> Result<Vec<PathBuf>> {
    let read = || format!("read {}", folder.display());
    let entries = fs::read_dir(go_programs::repository().join(folder)).with_context(read)?;
    let mut paths: Vec<PathBuf> =
        entries.map(|entry| Ok(folder.join(entry?.file_name()))).collect::<Result<_>>().with_context(read)?;
    paths.sort();
    Ok(paths)
}

/// All files below a folder.
pub(super) fn files(folder: &Path) -> Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    for path in entries(folder)? {
        if go_programs::repository().join(&path).is_dir() {
            files.extend(self::files(&path)?);
        } else {
            files.push(path);
        }
    }
    Ok(files)
}

/// What tests read, or at least looks so.
fn is_fixture(path: &Path) -> bool {
    path.extension().is_some_and(|extension| ["json", "jsonl", "tsv", "yaml"].iter().any(|known| extension == *known))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_are_those_that_the_help_text_lists() {
        let help = "Text\n\nCommands:\n  run   Run\n        it\n  plan  Plan\n\nOptions:\n  -h, --help  Help\n";
        assert_eq!(listed(help).collect::<Vec<_>>(), ["run", "plan"]);
        assert_eq!(listed("Usage: dovetail run\n\nOptions:\n  -h\n").count(), 0);
    }

    #[test]
    fn paths_with_blanks_stay_one_argument() {
        let question = Question::new("plan -f {} --instance-types {types}", Path::new("a b/c.yaml"));
        assert_eq!(question.0, ["plan", "-f", "a b/c.yaml", "--instance-types", "a b/c"]);
    }
}
