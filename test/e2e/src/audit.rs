//! What the controller asked of API servers, by their audit logs, beside what the chart lets it ask.
//!
//! Where [`VARIABLE`] names a folder, each control plane writes a log of the controller's requests there. A right is a
//! verb on a resource; names and namespaces are left out of the comparison, since a role has its reasons for them.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use serde_json::Value;

/// The environment variable with the folder.
pub const VARIABLE: &str = "DOVETAIL_AUDIT";

/// Notes the controller's requests, and nobody else's; without bodies. A watch is noted when it begins.
const POLICY: &str = r#"{"apiVersion": "audit.k8s.io/v1", "kind": "Policy", "omitStages": ["RequestReceived"], "rules": [
    {"level": "Metadata", "users": ["system:serviceaccount:kube-system:karpenter"]},
    {"level": "None"}
]}"#;

/// A verb on a resource or a path.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Right {
    /// The resource with its group, as `nodeclaims.karpenter.sh/status`; or a path.
    pub resource: String,
    /// The verb.
    pub verb: String,
}

impl fmt::Display for Right {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.verb, self.resource)
    }
}

impl Right {
    fn of(group: &str, resource: &str, subresource: &str, verb: &str) -> Self {
        let mut name = resource.to_owned();
        if !group.is_empty() {
            name = format!("{name}.{group}");
        }
        if !subresource.is_empty() {
            name = format!("{name}/{subresource}");
        }
        Self { resource: name, verb: verb.to_owned() }
    }
}

/// Requests by what came of them.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Requests {
    /// RBAC let them pass.
    pub allowed: BTreeSet<Right>,
    /// It did not; with an example each.
    pub forbidden: BTreeMap<Right, String>,
}

/// Arguments of an API server that make it keep a log in the folder that [`VARIABLE`] names, if it does. `scratch` is
/// for what the server reads at start.
///
/// # Errors
/// If a file cannot be written.
pub fn arguments(name: &str, scratch: &Path) -> Result<Vec<String>> {
    let Some(folder) = folder() else { return Ok(Vec::new()) };
    fs::create_dir_all(&folder).with_context(|| format!("create {}", folder.display()))?;
    let policy = scratch.join("audit-policy.json");
    fs::write(&policy, POLICY).with_context(|| format!("write {}", policy.display()))?;
    // Several of a name are on different scratch folders.
    let unique = scratch.file_name().unwrap_or_default().to_string_lossy();
    let log = folder.join(format!("{name}-{unique}.log"));
    Ok(vec![format!("--audit-policy-file={}", policy.display()), format!("--audit-log-path={}", log.display())])
}

/// The folder that [`VARIABLE`] names.
#[must_use]
pub fn folder() -> Option<PathBuf> {
    std::env::var_os(VARIABLE).filter(|folder| !folder.is_empty()).map(PathBuf::from)
}

/// Reads every log of a folder.
///
/// # Errors
/// If one cannot be read.
pub fn read(folder: &Path) -> Result<Requests> {
    let mut requests = Requests::default();
    for entry in fs::read_dir(folder).with_context(|| format!("read {}", folder.display()))? {
        let path = entry?.path();
        let text = fs::read_to_string(&path).with_context(|| format!("read {}", path.display()))?;
        text.lines().for_each(|line| requests.note(line));
    }
    Ok(requests)
}

impl Requests {
    /// A line that a killed server has not finished says nothing.
    fn note(&mut self, line: &str) {
        let Ok(event) = serde_json::from_str::<Value>(line) else { return };
        let text = |pointer: &str| event.pointer(pointer).and_then(Value::as_str).unwrap_or_default();
        let right = match text("/objectRef/resource") {
            "" => Right { resource: path(text("/requestURI")).to_owned(), verb: text("/verb").to_owned() },
            resource => Right::of(text("/objectRef/apiGroup"), resource, text("/objectRef/subresource"), text("/verb")),
        };
        let annotation = |name: &str| event["annotations"][format!("authorization.k8s.io/{name}")].as_str();
        match annotation("decision") {
            Some("allow") => {
                self.allowed.insert(right);
            }
            Some(_) => {
                self.forbidden.entry(right).or_insert_with(|| text("/requestURI").to_owned());
            }
            None => {}
        }
    }
}

fn path(uri: &str) -> &str {
    uri.split_once('?').map_or(uri, |(path, _)| path)
}

/// The rights that roles give, with the names of the roles. `is_of_controller` tells by its name whether a role is the
/// controller's.
pub fn granted(objects: &[Value], is_of_controller: impl Fn(&str) -> bool) -> BTreeMap<Right, BTreeSet<String>> {
    let mut granted: BTreeMap<Right, BTreeSet<String>> = BTreeMap::new();
    let texts = |value: &Value| -> Vec<String> {
        value.as_array().into_iter().flatten().filter_map(|it| it.as_str().map(str::to_owned)).collect()
    };
    let roles = objects.iter().filter(|object| matches!(object["kind"].as_str(), Some("Role" | "ClusterRole")));
    for role in roles {
        let name = role["metadata"]["name"].as_str().unwrap_or_default();
        if !is_of_controller(name) {
            continue;
        }
        for rule in role["rules"].as_array().into_iter().flatten() {
            let resources = texts(&rule["apiGroups"])
                .into_iter()
                .flat_map(|group| texts(&rule["resources"]).into_iter().map(move |resource| (group.clone(), resource)));
            let mut rights: Vec<Right> = Vec::new();
            for (group, resource) in resources {
                let (resource, subresource) = resource.split_once('/').unwrap_or((&resource, ""));
                rights.extend(texts(&rule["verbs"]).iter().map(|verb| Right::of(&group, resource, subresource, verb)));
            }
            for path in texts(&rule["nonResourceURLs"]) {
                let verbs = texts(&rule["verbs"]);
                rights.extend(verbs.into_iter().map(|verb| Right { resource: path.clone(), verb }));
            }
            for right in rights {
                granted.entry(right).or_default().insert(name.to_owned());
            }
        }
    }
    granted
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn event(verb: &str, object: Value, uri: &str, decision: &str) -> String {
        json!({
            "verb": verb, "objectRef": object, "requestURI": uri,
            "annotations": { "authorization.k8s.io/decision": decision },
        })
        .to_string()
    }

    #[test]
    fn requests_are_read_as_verbs_on_resources() {
        let mut requests = Requests::default();
        let status =
            json!({ "apiGroup": "karpenter.sh", "resource": "nodeclaims", "subresource": "status", "name": "a" });
        requests.note(&event("patch", status, "/apis/karpenter.sh/v1/nodeclaims/a/status", "allow"));
        requests.note(&event("get", Value::Null, "/metrics?x=y", "allow"));
        requests.note(&event("list", json!({ "resource": "secrets" }), "/api/v1/secrets", "forbid"));
        requests.note("{\"verb\": \"get\", \"obj");
        let allowed: Vec<String> = requests.allowed.iter().map(ToString::to_string).collect();
        assert_eq!(allowed, ["get /metrics", "patch nodeclaims.karpenter.sh/status"]);
        let forbidden: Vec<_> = requests.forbidden.iter().map(|(right, uri)| format!("{right}: {uri}")).collect();
        assert_eq!(forbidden, ["list secrets: /api/v1/secrets"]);
    }

    #[test]
    fn each_verb_on_each_resource_of_a_role_is_a_right() {
        let roles = [
            json!({ "kind": "ClusterRole", "metadata": { "name": "ours" }, "rules": [
                { "apiGroups": ["", "x"], "resources": ["pods", "pods/status"], "verbs": ["get"] },
                { "nonResourceURLs": ["/metrics"], "verbs": ["get"] },
            ] }),
            json!({ "kind": "Role", "metadata": { "name": "persons" }, "rules": [
                { "apiGroups": [""], "resources": ["nodes"], "verbs": ["get"] },
            ] }),
        ];
        let granted = granted(&roles, |name| name == "ours");
        let rights: Vec<String> = granted.keys().map(ToString::to_string).collect();
        assert_eq!(rights, ["get /metrics", "get pods", "get pods.x", "get pods.x/status", "get pods/status"]);
    }
}
