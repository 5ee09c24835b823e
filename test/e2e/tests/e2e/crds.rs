//! Our CRDs on a real API server: cases of ours, every accept/refuse case verified against Karpenter's own, and objects
//! found in the wild. The last two are not part of the repository, see the crate `corpus`.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::LazyLock;

use anyhow::{Context, Result, bail};
use e2e::control_plane::{ControlPlane, Options};
use e2e::{apply, install, objects};
use futures::{StreamExt, stream};
use kube::Client;
use serde::Deserialize;
use serde_json::{Value, json};

const PARALLEL: usize = 8;

#[tokio::test]
async fn our_crds_accept_and_refuse_what_karpenters_do() -> Result<()> {
    const NAME: &str = "e2e, accept and refuse cases of the CRDs";
    let Some(vectors) = corpus::open(NAME, "vectors/crd-cases.jsonl") else { return Ok(()) };
    let mut cases = cases_of(&std::fs::read_to_string(&vectors)?)?;
    if let Some(vectors) = corpus::open("e2e, cases of EC2NodeClass", "vectors/ec2nodeclass-cases.jsonl") {
        cases.extend(cases_of(&std::fs::read_to_string(&vectors)?)?);
    }
    if let Some(folder) = corpus::open("e2e, published NodePools and their kin", "corpus/nodepools") {
        cases.extend(found_in_the_wild(&folder)?);
    }
    let wrong = wrong_answers(&cases).await?;
    corpus::note(NAME, &format_args!("{} cases, {} differ from Karpenter's CRDs", cases.len(), wrong.len()));
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    Ok(())
}

#[tokio::test]
async fn our_crds_accept_and_refuse_what_our_own_cases_say() -> Result<()> {
    let mut cases = cases_of(include_str!("../../../../crates/api/tests/admission/crd-cases.jsonl"))?;
    cases.extend(cases_of(include_str!("../../../../crates/api/tests/admission/ec2-cases.jsonl"))?);
    let wrong = wrong_answers(&cases).await?;
    assert!(wrong.is_empty(), "{} of {}:\n{}", wrong.len(), cases.len(), wrong.join("\n"));
    assert!(cases.len() >= 400, "only {} cases were read", cases.len());
    Ok(())
}

/// What a real server answers otherwise than it should.
async fn wrong_answers(cases: &[Case]) -> Result<Vec<String>> {
    let server = Server::new(cases).await?;
    let wrong = stream::iter(cases)
        .map(|case| async {
            let answer = server.answer(case).await;
            let wrong = match answer {
                Ok(answer) => case.wrong(&answer),
                Err(error) => Some(format!("{error:#}")),
            };
            wrong.map(|wrong| format!("{}: {wrong}", case.name))
        })
        .buffer_unordered(PARALLEL)
        .filter_map(|wrong| async { wrong })
        .collect()
        .await;
    Ok(wrong)
}

/// The rules are accepted although they cost, and refuse what they should. `api`'s tests ask the offline admission the
/// same.
#[tokio::test]
async fn slice_templates_are_held_against_what_can_be_seen_without_a_machine() -> Result<()> {
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Templates {
        name: String,
        dynamic_resources: Value,
        /// Text of the refusal, if it is one.
        refused: Option<String>,
    }
    let text = include_str!("../../../../crates/api/tests/admission/dynamic-resources.jsonl");
    let all = text.lines().map(serde_json::from_str).collect::<Result<Vec<Templates>, _>>()?;
    let server = Server::new(&[]).await?;
    let mut wrong = Vec::new();
    for Templates { name, dynamic_resources, refused } in all {
        let object = json!({
            "apiVersion": "karpenter.sh/v1alpha1", "kind": "NodeOverlay", "metadata": { "name": name },
            "spec": { "requirements": [], "dynamicResources": dynamic_resources },
        });
        let expect = if refused.is_some() { Verdict::Refuse } else { Verdict::Accept };
        let case = Case { name, object, old_object: None, subresource: None, expect, expect_fields: Vec::new() };
        let answer = server.answer(&case).await?;
        let explains = refused.is_none_or(|text| answer.body.as_str().is_some_and(|body| body.contains(&text)));
        wrong.extend(case.wrong(&answer).map(|wrong| format!("{}: {wrong}", case.name)));
        if !explains {
            wrong.push(format!("{}: {}", case.name, answer.body));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    Ok(())
}

#[derive(Clone, Copy, Debug, Deserialize, PartialEq)]
#[serde(rename_all = "lowercase")]
enum Verdict {
    Accept,
    Refuse,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Case {
    name: String,
    object: Value,
    /// For an update: what is there before.
    old_object: Option<Value>,
    subresource: Option<String>,
    expect: Verdict,
    /// Paths and what they must be in the answer.
    #[serde(default)]
    expect_fields: Vec<(Vec<Value>, Value)>,
}

struct Answer {
    verdict: Verdict,
    body: Value,
}

impl Case {
    fn wrong(&self, answer: &Answer) -> Option<String> {
        if answer.verdict != self.expect {
            return Some(format!("expected {:?}, got {:?}: {}", self.expect, answer.verdict, answer.body));
        }
        let wrong = |(path, wanted): &&(Vec<Value>, Value)| at(&answer.body, path) != wanted;
        let (path, wanted) = self.expect_fields.iter().filter(|_| self.expect == Verdict::Accept).find(wrong)?;
        Some(format!("{path:?}: expected {wanted}, got {}", at(&answer.body, path)))
    }
}

fn at<'a>(body: &'a Value, path: &[Value]) -> &'a Value {
    static ABSENT: LazyLock<Value> = LazyLock::new(|| Value::from("<absent>"));
    path.iter().fold(body, |value, part| match part {
        Value::String(key) => value.get(key).unwrap_or(&ABSENT),
        Value::Number(index) => {
            index.as_u64().and_then(|index| value.get(usize::try_from(index).ok()?)).unwrap_or(&ABSENT)
        }
        _ => &ABSENT,
    })
}

fn cases_of(text: &str) -> Result<Vec<Case>> {
    Ok(text.lines().map(serde_json::from_str).collect::<Result<Vec<Case>, _>>()?)
}

/// Manifests that people published, of the kinds that we serve, with the verdict of Karpenter's CRDs.
fn found_in_the_wild(folder: &Path) -> Result<Vec<Case>> {
    #[derive(Deserialize)]
    struct Entry {
        file: String,
        kind: String,
        #[serde(rename = "apiVersion")]
        api_version: String,
        verdict: String,
    }
    let mut cases = Vec::new();
    for entry in corpus::index::<Entry>(folder) {
        let expect = match entry.verdict.as_str() {
            "accept" => Verdict::Accept,
            "refuse" => Verdict::Refuse,
            _ => continue,
        };
        if !served(&entry.api_version, &entry.kind) {
            continue;
        }
        let text = std::fs::read_to_string(folder.join(&entry.file))?;
        // One file has two objects without a separator; the verdict was on the second.
        let options = serde_saphyr::options! { duplicate_keys: serde_saphyr::DuplicateKeyPolicy::LastWins };
        let documents: Vec<Value> = serde_saphyr::from_multiple_with_options(&text, options)
            .with_context(|| format!("parse {}", entry.file))?;
        let of_the_entry = |object: &Value| object["kind"] == *entry.kind;
        let object = documents
            .into_iter()
            .find(of_the_entry)
            .with_context(|| format!("{} has no {}", entry.file, entry.kind))?;
        cases.push(Case {
            name: entry.file,
            object,
            old_object: None,
            subresource: None,
            expect,
            expect_fields: Vec::new(),
        });
    }
    Ok(cases)
}

fn served(api_version: &str, kind: &str) -> bool {
    path_of(&json!({ "apiVersion": api_version, "kind": kind })).is_ok()
}

/// The collection that an object belongs to.
fn path_of(object: &Value) -> Result<String> {
    let kind = (object["apiVersion"].as_str().unwrap_or_default(), object["kind"].as_str().unwrap_or_default());
    let namespace = object["metadata"]["namespace"].as_str().unwrap_or("default");
    Ok(match kind {
        ("karpenter.sh/v1", "NodePool") => "/apis/karpenter.sh/v1/nodepools".to_owned(),
        ("karpenter.sh/v1", "NodeClaim") => "/apis/karpenter.sh/v1/nodeclaims".to_owned(),
        ("karpenter.sh/v1alpha1", "NodeOverlay") => "/apis/karpenter.sh/v1alpha1/nodeoverlays".to_owned(),
        ("karpenter.kwok.sh/v1alpha1", "KWOKNodeClass") => {
            "/apis/karpenter.kwok.sh/v1alpha1/kwoknodeclasses".to_owned()
        }
        ("karpenter.k8s.aws/v1", "EC2NodeClass") => "/apis/karpenter.k8s.aws/v1/ec2nodeclasses".to_owned(),
        ("autoscaling.x-k8s.io/v1beta1", "CapacityBuffer") => {
            format!("/apis/autoscaling.x-k8s.io/v1beta1/namespaces/{namespace}/capacitybuffers")
        }
        (version, kind) => bail!("{version} {kind} is not one of our kinds"),
    })
}

/// An API server with our CRDs and nothing else.
struct Server {
    client: Client,
    _control_plane: ControlPlane,
}

impl Server {
    async fn new(cases: &[Case]) -> Result<Self> {
        let control_plane = ControlPlane::up(Options { name: "crds".to_owned(), ..Options::default() }).await?;
        let client = control_plane.client().await?;
        install::crds(&client).await?;
        let namespaces: BTreeSet<_> =
            cases.iter().filter_map(|case| case.object["metadata"]["namespace"].as_str()).collect();
        for namespace in namespaces {
            apply::apply_one(&client, objects::namespace(namespace)).await?;
        }
        Ok(Self { client, _control_plane: control_plane })
    }

    async fn answer(&self, case: &Case) -> Result<Answer> {
        const TRIAL: &str = "?dryRun=All&fieldValidation=Ignore";
        let Some(old) = &case.old_object else {
            return self.send("POST", &format!("{}{TRIAL}", path_of(&case.object)?), Some(&case.object)).await;
        };
        let collection = path_of(old)?;
        let name = old["metadata"]["name"].as_str().context("an object without a name")?;
        let before = self.send("POST", &format!("{collection}?fieldValidation=Ignore"), Some(old)).await?;
        if before.verdict == Verdict::Refuse {
            bail!("the old object is refused: {}", before.body);
        }
        let mut object = case.object.clone();
        object["metadata"]["resourceVersion"] = before.body["metadata"]["resourceVersion"].clone();
        let subresource = case.subresource.as_ref().map_or(String::new(), |subresource| format!("/{subresource}"));
        let answer = self.send("PUT", &format!("{collection}/{name}{subresource}{TRIAL}"), Some(&object)).await;
        self.send("DELETE", &format!("{collection}/{name}"), None).await?;
        answer
    }

    /// 400 and 422 are refusals; all else that is not success is a fault.
    async fn send(&self, method: &str, path: &str, body: Option<&Value>) -> Result<Answer> {
        let body = body.map(serde_json::to_vec).transpose()?.unwrap_or_default();
        let request =
            http::Request::builder().method(method).uri(path).header("Content-Type", "application/json").body(body)?;
        match self.client.request::<Value>(request).await {
            Ok(body) => Ok(Answer { verdict: Verdict::Accept, body }),
            Err(kube::Error::Api(status)) if matches!(status.code, 400 | 422) => {
                Ok(Answer { verdict: Verdict::Refuse, body: json!(status.message) })
            }
            Err(error) => Err(error).with_context(|| format!("{method} {path}")),
        }
    }
}
