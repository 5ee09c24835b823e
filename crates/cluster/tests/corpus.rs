//! NodePools and their kin as people commit them: accepted and refused as a real API server with Karpenter's CRDs does.
//!
//! They are not part of the repository, see the crate `corpus`.

use api::labels::ProviderLabels;
use cluster::offline::{self, Settings};

#[test]
fn kinds_of_ours_are_accepted_and_refused_as_by_the_api_server() {
    const NAME: &str = "decode, published NodePools and their kin";
    let Some(corpus) = corpus::open(NAME, "corpus/nodepools") else { return };
    let labels = ProviderLabels::default();
    let provider_crds = (cloudprovider_kwok::DECLARATION.crds)();
    let settings = Settings { provider_crds: &provider_crds, ..Settings::new(&[], &labels, &[]) };
    let (mut checked, mut refused_later, mut wrong) = (0, 0, Vec::new());
    for entry in corpus::index::<serde_json::Value>(&corpus) {
        let text = |field: &str| entry[field].as_str().unwrap_or_default();
        let is_ours =
            matches!(text("kind"), "NodePool" | "NodeClaim" | "NodeOverlay" | "CapacityBuffer" | "KWOKNodeClass");
        if !is_ours || !matches!(text("verdict"), "accept" | "refuse") {
            continue;
        }
        let parsed =
            decode::manifests::parse(text("file"), &std::fs::read_to_string(corpus.join(text("file"))).unwrap());
        // What the server lets in and the controller refuses is another question.
        let is_refused_later = parsed.manifests.iter().any(|manifest| {
            decode::node_pool_object(&manifest.object)
                .is_ok_and(|pool| manifest.kind == "NodePool" && !api::validation::node_pool(&pool, &labels).is_valid())
        });
        let read = offline::read(parsed.manifests, parsed.errors, &settings);
        let (_, errors) = cluster::snapshot(read.cluster.clone(), read.interner.clone(), &labels);
        let expected = text("verdict") == "accept" && !is_refused_later;
        refused_later += usize::from(is_refused_later && text("verdict") == "accept");
        if (read.problems.is_empty() && errors.is_empty()) != expected {
            wrong.push(format!("{} should be {}: {:?} {errors:?}", text("file"), text("verdict"), read.problems));
        }
        checked += 1;
    }
    corpus::note(NAME, &format_args!("{checked} objects, {refused_later} of them refused by the controller only"));
    assert!(refused_later * 20 < checked, "{refused_later} of {checked} refused by the controller only");
    assert!(checked > 100, "{checked} objects checked");
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// Whether a verdict is about kinds of devices or about what pods say of claims; nothing here reads the rest of a pod.
fn is_about_claims(entry: &serde_json::Value) -> bool {
    let of = |field: &str| entry[field].as_str().unwrap_or_default();
    of("api").starts_with("resource.k8s.io/") || of("check").contains("resourceClaims[")
}

#[test]
fn kinds_of_devices_and_claims_of_pods_are_accepted_and_refused_as_by_the_api_server() {
    const NAME: &str = "decode, published objects of devices";
    let Some(corpus) = corpus::open(NAME, "corpus/dra") else { return };
    let labels = ProviderLabels::default();
    let settings = Settings { expand_workloads: true, ..Settings::new(&[], &labels, &[]) };
    let (mut accepted, mut refused, mut wrong) = (0, 0, Vec::new());
    for entry in corpus::index::<serde_json::Value>(&corpus) {
        let text = |field: &str| entry[field].as_str().unwrap_or_default();
        let is_accepted = text("check").starts_with("accepted");
        if !is_about_claims(&entry) {
            continue;
        }
        let mut object = std::fs::read_to_string(corpus.join(text("file"))).unwrap();
        let parsed = decode::manifests::parse(text("file"), &object);
        // The server had namespaces in which access as administrator is allowed.
        for manifest in &parsed.manifests {
            let namespace = manifest.object.pointer("/metadata/namespace").and_then(serde_json::Value::as_str);
            let labels = "{resource.kubernetes.io/admin-access: \"true\"}";
            object.push_str(&format!(
                "\n---\napiVersion: v1\nkind: Namespace\nmetadata: {{name: {}, labels: {labels}}}\n",
                namespace.unwrap_or("default")
            ));
        }
        let parsed = decode::manifests::parse(text("file"), &object);
        let read = offline::read(parsed.manifests, parsed.errors, &settings);
        if read.problems.is_empty() != is_accepted {
            wrong.push(format!("{}: {}: {:?}", text("file"), text("check"), read.problems));
        }
        *(if is_accepted { &mut accepted } else { &mut refused }) += 1;
    }
    corpus::note(NAME, &format_args!("{accepted} objects accepted, {refused} refused"));
    assert!(accepted > 100 && refused > 20, "{accepted} accepted, {refused} refused");
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
