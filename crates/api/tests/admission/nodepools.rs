//! `corpus/nodepools`: objects found in the wild, each with the server's verdict.

use api::{
    admission::{Admission, Operation},
    crd,
};
use serde::Deserialize;
use serde_json::{Value, json};
use serde_saphyr::options::DuplicateKeyPolicy;

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Entry {
    file: String,
    kind: String,
    api_version: String,
    verdict: String,
    /// The document had no usable name, and the server was given another.
    #[serde(default)]
    name_replaced: bool,
}

#[test]
fn objects_from_the_wild_get_the_verdict_of_the_api_server() {
    const NAME: &str = "api, published NodePools and their kin";
    let Some(folder) = corpus::open(NAME, "corpus/nodepools") else { return };
    let admission = Admission::new(&crd::crds()).unwrap();
    let (mut seen, mut failures) = (0, Vec::new());
    for entry in corpus::index::<Entry>(&folder) {
        if !admission.serves(&entry.api_version, &entry.kind) {
            continue;
        }
        seen += 1;
        let text = std::fs::read_to_string(folder.join(&entry.file)).unwrap();
        // As the tool did that sent these objects: where a key is there twice, the later one counts.
        let options = serde_saphyr::options! { duplicate_keys: DuplicateKeyPolicy::LastWins };
        let mut object: Value = serde_saphyr::from_str_with_options(&text, options).unwrap();
        if entry.name_replaced {
            object["metadata"]["name"] = json!("placeholder-name");
        }
        let verdict = admission.admit(&object, Operation::Create);
        if verdict.is_ok() != (entry.verdict == "accept") {
            failures.push(format!("{}: expected {}, got {:?}", entry.file, entry.verdict, verdict.err()));
        }
    }
    corpus::note(NAME, &format_args!("{seen} objects, {} differ", failures.len()));
    assert!(failures.is_empty(), "{}", failures.join("\n"));
    assert!(seen > 0, "the index lists no object of a kind that we serve");
}
