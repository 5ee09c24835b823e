//! The policies of the template, and what they allow: the part of IAM's language that they use, any other part is
//! refused.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::Value;

use super::recorder::Ask;

/// What stands for the parameters of the template. A policy must name no others.
const PARAMETERS: [(&str, &str); 5] = [
    ("${AWS::Partition}", "aws"),
    ("${AWS::Region}", super::REGION),
    ("${AWS::AccountId}", super::ACCOUNT),
    ("${AWS::URLSuffix}", "amazonaws.com"),
    ("${ClusterName}", super::CLUSTER),
];
/// What IAM takes of a managed policy, without white space.
const LONGEST: usize = 6144;

#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase", deny_unknown_fields)]
struct Policy {
    #[serde(rename = "Version")]
    _version: String,
    statement: Vec<Statement>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase", deny_unknown_fields)]
pub(super) struct Statement {
    /// Its name.
    pub(super) sid: String,
    effect: String,
    pub(super) action: Texts,
    pub(super) resource: Texts,
    #[serde(default)]
    condition: BTreeMap<Operator, BTreeMap<String, Texts>>,
}

#[derive(Debug, Deserialize, PartialEq, Eq, PartialOrd, Ord)]
enum Operator {
    StringEquals,
    StringLike,
    #[serde(rename = "ForAllValues:StringEquals")]
    AllStringEquals,
}

/// One text, or several.
#[derive(Debug, Deserialize)]
#[serde(untagged)]
pub(super) enum Texts {
    One(String),
    Many(Vec<String>),
}

impl Texts {
    pub(super) fn all(&self) -> &[String] {
        match self {
            Self::One(text) => std::slice::from_ref(text),
            Self::Many(texts) => texts,
        }
    }
}

impl Statement {
    pub(super) fn allows(&self, ask: &Ask) -> bool {
        self.effect == "Allow"
            && self.action.all().iter().any(|action| *action == ask.action)
            && self.resource.all().iter().any(|pattern| is_like(pattern, &ask.resource))
            && self.condition.iter().all(|(operator, keys)| {
                keys.iter().all(|(key, wanted)| operator.holds(ask.context.get(key), wanted.all()))
            })
    }
}

impl Operator {
    /// Whether what a request has of a key is as wanted. Without the key nothing is, but that all of nothing is.
    fn holds(&self, found: Option<&Vec<String>>, wanted: &[String]) -> bool {
        match self {
            Self::StringEquals => found.is_some_and(|found| found.iter().any(|it| wanted.contains(it))),
            Self::StringLike => {
                found.is_some_and(|found| found.iter().any(|it| wanted.iter().any(|pattern| is_like(pattern, it))))
            }
            Self::AllStringEquals => found.is_none_or(|found| found.iter().all(|it| wanted.contains(it))),
        }
    }
}

/// Whether a text fits a pattern, in which `*` stands for any text.
pub(super) fn is_like(pattern: &str, text: &str) -> bool {
    let Some((head, mut rest)) = pattern.split_once('*') else { return pattern == text };
    let Some(mut text) = text.strip_prefix(head) else { return false };
    while let Some((part, behind)) = rest.split_once('*') {
        let Some(at) = text.find(part) else { return false };
        (text, rest) = (&text[at + part.len()..], behind);
    }
    text.ends_with(rest)
}

/// The statements of a policy.
pub(super) fn statements_of(policy: &str) -> Vec<Statement> {
    serde_json::from_str::<Policy>(policy).unwrap().statement
}

/// The statements of all policies of the controller.
pub(super) fn statements(template: &str) -> Vec<Statement> {
    let template: Value = serde_saphyr::from_str(template).unwrap();
    let resources = template["Resources"].as_object().unwrap();
    let attached = &resources["ControllerRole"]["Properties"]["ManagedPolicyArns"];
    let mut statements = Vec::new();
    for reference in attached.as_array().unwrap() {
        let policy = &resources[reference["Ref"].as_str().unwrap()];
        assert_eq!(policy["Type"], "AWS::IAM::ManagedPolicy");
        let mut text = policy["Properties"]["PolicyDocument"]["Fn::Sub"].as_str().unwrap().to_owned();
        for (name, value) in PARAMETERS {
            text = text.replace(name, value);
        }
        assert!(!text.contains("${"), "a parameter that is not known: {text}");
        let length: usize = text.split_whitespace().map(str::len).sum();
        assert!(length < LONGEST, "{reference}: {length} characters, IAM takes {LONGEST}");
        statements.extend(statements_of(&text));
    }
    let policies = resources.values().filter(|it| it["Type"] == "AWS::IAM::ManagedPolicy").count();
    assert_eq!(attached.as_array().unwrap().len(), policies, "a policy is attached to nobody");
    statements
}

/// Source and type of the events that rules of the template put into the queue. Rules must name nothing else.
pub(super) fn event_patterns(template: &str) -> Vec<(String, String)> {
    let template: Value = serde_saphyr::from_str(template).unwrap();
    let resources = template["Resources"].as_object().unwrap().values();
    let rules = resources.filter(|it| it["Type"] == "AWS::Events::Rule").map(|it| &it["Properties"]);
    rules
        .map(|rule| {
            let target =
                serde_json::json!([{"Id": "InterruptionQueue", "Arn": {"Fn::GetAtt": ["InterruptionQueue", "Arn"]}}]);
            assert_eq!(rule["Targets"], target);
            let pattern = rule["EventPattern"].as_object().unwrap();
            assert_eq!(pattern.len(), 2, "{pattern:?}");
            let one = |key: &str| match pattern[key].as_array().unwrap().as_slice() {
                [Value::String(text)] => text.clone(),
                other => panic!("{key}: {other:?}"),
            };
            (one("source"), one("detail-type"))
        })
        .collect()
}
