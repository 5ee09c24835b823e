//! Inputs that are not in the repository: written once, so that both sides, and later runs, read the same ones even
//! when what makes them changes.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use serde_json::Value;

use crate::process::{build, command, run};

/// Texts that cannot be read, or not as a whole.
const BAD: [(&str, &[u8]); 10] = [
    ("empty.yaml", b""),
    ("not-utf-8.yaml", b"kind: Pod\nmetadata: {name: \xff}\n"),
    ("control.yaml", b"apiVersion: v1\nkind: Pod\nmetadata: {name: \"a\\e[2Jb\"}\n"),
    ("cut.json", b"{\"apiVersion\": \"v1\", \"kind\": \"Pod\", \"metadata\": {"),
    ("list-of-nothing.json", b"[]"),
    ("scalar.yaml", b"just text\n---\n7\n---\n- a\n"),
    ("no-kind.yaml", b"metadata: {name: a}\n---\nkind: Pod\n---\napiVersion: v1\nkind: 3\n"),
    ("twice.yaml", b"apiVersion: v1\nkind: Pod\nkind: Node\nmetadata: {name: a}\n"),
    ("indented.yaml", b"apiVersion: v1\nkind: Pod\n metadata: {name: a}\n"),
    (
        "wrong-fields.yaml",
        b"apiVersion: v1\nkind: Pod\nmetadata: {name: a}\nspec: {containers: [{name: c, resources: {requests: {cpu: much}}}]}\n\
          ---\napiVersion: v1\nkind: Pod\nmetadata: {name: b}\nspec: {containers: 7}\n\
          ---\napiVersion: karpenter.sh/v1\nkind: NodePool\nmetadata: {name: p}\nspec: {weight: heavy}\n\
          ---\napiVersion: v1\nkind: Node\nmetadata: {name: n}\nstatus: {allocatable: {cpu: -x}}\n",
    ),
];

/// Recorded cases, one a line, most with an object in it.
const VECTORS: [&str; 2] = ["crates/api/tests/admission", "crates/dra-sched/tests"];

/// Writes all inputs into a folder below `folder` and gives it; once written, they stay as they are.
pub(super) fn write(folder: &Path, seeds: u64) -> Result<PathBuf> {
    let inputs = folder.join(format!("inputs-{seeds}"));
    if inputs.exists() {
        println!("inputs: those of an earlier run; remove {} to write them anew", inputs.display());
        return Ok(inputs);
    }
    // Only whole folders get the name.
    let unfinished = folder.join("inputs-unfinished");
    if unfinished.exists() {
        fs::remove_dir_all(&unfinished).with_context(|| format!("remove {}", unfinished.display()))?;
    }
    for (name, bytes) in BAD {
        write_file(&unfinished.join("bad").join(name), bytes)?;
    }
    vectors(&unfinished.join("vectors"))?;
    eprintln!("building what makes random clusters and the benchmark's");
    let cases = build(&["--workspace", "--features", crate::test::FEATURES, "--example=cases"], "cases")?;
    run(command(&cases.to_string_lossy()).arg(unfinished.join("seeds")).arg(seeds.to_string()))?;
    let bench = build(&["--workspace", "--features", crate::test::FEATURES, "--bin=scheduling"], "scheduling")?;
    run(command(&bench.to_string_lossy()).arg("--export").arg(unfinished.join("bench")))?;
    fs::rename(&unfinished, &inputs).with_context(|| format!("rename {}", unfinished.display()))?;
    Ok(inputs)
}

/// The objects of recorded cases.
fn vectors(folder: &Path) -> Result<()> {
    let in_repository = VECTORS.map(|folder| go_programs::repository().join(folder));
    let others = corpus::open("same-plans", "vectors");
    for source in in_repository.iter().chain(&others) {
        for path in super::questions::files(source)? {
            if path.extension().is_none_or(|extension| extension != "jsonl") {
                continue;
            }
            let text = fs::read_to_string(&path).with_context(|| format!("read {}", path.display()))?;
            let objects: String = text.lines().map(|line| format!("{}\n", object(line))).collect();
            let name = path.iter().rev().take(2).map(|part| part.to_string_lossy()).collect::<Vec<_>>().join("-of-");
            write_file(&folder.join(format!("{name}.jsonl")), objects.as_bytes())?;
        }
    }
    Ok(())
}

/// The object of a case; the case itself where it has none.
fn object(line: &str) -> String {
    let case: Option<Value> = serde_json::from_str(line).ok();
    case.and_then(|case| Some(case.get("object")?.to_string())).unwrap_or_else(|| line.to_owned())
}

fn write_file(path: &Path, bytes: &[u8]) -> Result<()> {
    let write = || format!("write {}", path.display());
    fs::create_dir_all(path.parent().with_context(write)?).with_context(write)?;
    fs::write(path, bytes).with_context(write)
}
