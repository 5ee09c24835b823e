//! What the EC2NodeClass CRD demands: what that of Karpenter 1.15 does, with its messages.
//!
//! Some of it is not what one would write. The rules that keep `id` alone ask whether *all* terms break them, so one
//! good term lets the bad ones pass; ids of images, subnets and security groups may have anything around them; sizes in
//! Ti leave out those that end in 8 or 9. Manifests that Karpenter accepts are accepted here.

use api::crd::schema::{Constrain, at};
use api::crd::{CustomResourceDefinition, complete, rules};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::JSONSchemaProps;
use kube::CustomResourceExt;
use serde_json::json;

use super::spec::EC2NodeClassDefinition;

/// `1Gi` to `59000Gi`, `1G` to `64000G`, and of the larger units those that Karpenter's pattern lists, a bare unit
/// among them.
const VOLUME_SIZE: &str = concat!(
    "^((",
    "[1-9][0-9]{0,3}|[1-4][0-9]{4}|5[0-8][0-9]{3}|59000)Gi|(",
    "[1-9][0-9]{0,3}|[1-5][0-9]{4}|6[0-3][0-9]{3}|64000)G|(",
    "[1-9]?|[1-5][0-7]|58)Ti|(",
    "[1-9]?|[1-5][0-9]|6[0-4])T)$"
);
const ACCOUNT: &str = "^[0-9]{12}$";
const CAPACITY_RESERVATION: &str = "^cr-[0-9a-z]+$";
/// How many terms a selector has.
const MAX_TERMS: i64 = 30;

/// The CRD of EC2NodeClass.
pub(crate) fn crd() -> CustomResourceDefinition {
    complete(
        EC2NodeClassDefinition::crd(),
        &[
            spec_is_optional,
            role_or_profile,
            family_of_the_images,
            subnets,
            security_groups,
            capacity_reservations,
            placement_group,
            images,
            tags,
            kubelet,
            disks,
            network_interfaces,
            network_numbers,
            metadata_options,
            status,
            rules::conditions_without_key,
        ],
    )
}

/// An object without a spec is stored; it is never ready.
fn spec_is_optional(root: &mut JSONSchemaProps) {
    root.optional(&["spec"]);
}

fn role_or_profile(root: &mut JSONSchemaProps) {
    at(root, "spec")
        .rule("has(self.role) != has(self.instanceProfile)", "must specify exactly one of ['role', 'instanceProfile']");
    at(root, "spec.role").rule("self != ''", "role cannot be empty");
    at(root, "spec.instanceProfile").rule("self != ''", "instanceProfile cannot be empty");
}

fn family_of_the_images(root: &mut JSONSchemaProps) {
    let spec = at(root, "spec");
    spec.rule(
        "has(self.amiFamily) || self.amiSelectorTerms.exists(x, has(x.alias))",
        "must specify amiFamily if amiSelectorTerms does not contain an alias",
    );
    for (alias, family) in super::alias::FAMILIES {
        spec.rule(
            &format!(
                "!has(self.amiFamily) || self.amiFamily in ['{family}', 'Custom'] || \
                 !self.amiSelectorTerms.exists(x, has(x.alias) && x.alias.find('^[^@]+') == '{alias}')"
            ),
            &format!(
                "if set, amiFamily must be '{family}' or 'Custom' when using {} {family} alias",
                article(family.as_str())
            ),
        );
    }
}

/// What stands before a family in the messages.
fn article(family: &str) -> &'static str {
    if family.starts_with('A') { "an" } else { "a" }
}

fn subnets(root: &mut JSONSchemaProps) {
    at(root, "spec.subnetSelectorTerms")
        .max_items(MAX_TERMS)
        .rule("self.size() != 0", "subnetSelectorTerms cannot be empty")
        .rule("self.all(x, has(x.tags) || has(x.id))", "expected at least one, got none, ['tags', 'id']")
        .rule(
            "!self.all(x, has(x.id) && has(x.tags))",
            "'id' is mutually exclusive, cannot be set with a combination of other fields in a subnet selector term",
        );
    at(root, "spec.subnetSelectorTerms[].id").pattern("subnet-[0-9a-z]+");
    tags_of_a_term(root, "spec.subnetSelectorTerms[].tags");
}

fn security_groups(root: &mut JSONSchemaProps) {
    at(root, "spec.securityGroupSelectorTerms")
        .max_items(MAX_TERMS)
        .rule("self.size() != 0", "securityGroupSelectorTerms cannot be empty")
        .rule(
            "self.all(x, has(x.tags) || has(x.id) || has(x.name))",
            "expected at least one, got none, ['tags', 'id', 'name']",
        )
        .rule(
            "!self.all(x, has(x.id) && (has(x.tags) || has(x.name)))",
            "'id' is mutually exclusive, cannot be set with a combination of other fields in a security group selector \
             term",
        )
        .rule(
            "!self.all(x, has(x.name) && (has(x.tags) || has(x.id)))",
            "'name' is mutually exclusive, cannot be set with a combination of other fields in a security group selector \
             term",
        );
    at(root, "spec.securityGroupSelectorTerms[].id").pattern("sg-[0-9a-z]+");
    tags_of_a_term(root, "spec.securityGroupSelectorTerms[].tags");
}

fn capacity_reservations(root: &mut JSONSchemaProps) {
    at(root, "spec.capacityReservationSelectorTerms")
        .max_items(MAX_TERMS)
        .rule(
            "self.all(x, has(x.tags) || has(x.id) || has(x.instanceMatchCriteria))",
            "expected at least one, got none, ['tags', 'id', 'instanceMatchCriteria']",
        )
        .rule(
            "!self.all(x, has(x.id) && (has(x.tags) || has(x.ownerID) || has(x.instanceMatchCriteria)))",
            "'id' is mutually exclusive, cannot be set along with other fields in a capacity reservation selector term",
        );
    at(root, "spec.capacityReservationSelectorTerms[].id").pattern(CAPACITY_RESERVATION);
    at(root, "spec.capacityReservationSelectorTerms[].ownerID").pattern(ACCOUNT);
    tags_of_a_term(root, "spec.capacityReservationSelectorTerms[].tags");
}

fn placement_group(root: &mut JSONSchemaProps) {
    at(root, "spec.placementGroupSelector")
        .rule("has(self.name) || has(self.id)", "expected at least one, got none, ['name', 'id']")
        .rule("!has(self.name) || !has(self.id)", "'name' and 'id' are mutually exclusive");
    at(root, "spec.placementGroupSelector.name").length(Some(1), None);
    at(root, "spec.placementGroupSelector.id").pattern("^pg-[0-9a-z]+$");
}

fn images(root: &mut JSONSchemaProps) {
    let terms = at(root, "spec.amiSelectorTerms").max_items(MAX_TERMS);
    terms.min_items = Some(1);
    terms
        .rule(
            "self.all(x, has(x.tags) || has(x.id) || has(x.name) || has(x.alias) || has(x.ssmParameter))",
            "expected at least one, got none, ['tags', 'id', 'name', 'alias', 'ssmParameter']",
        )
        .rule(
            "!self.exists(x, has(x.id) && (has(x.alias) || has(x.tags) || has(x.name) || has(x.owner)))",
            "'id' is mutually exclusive, cannot be set with a combination of other fields in amiSelectorTerms",
        )
        .rule(
            "!self.exists(x, has(x.alias) && (has(x.id) || has(x.tags) || has(x.name) || has(x.owner)))",
            "'alias' is mutually exclusive, cannot be set with a combination of other fields in amiSelectorTerms",
        )
        .rule(
            "self.size() == 1 || !self.exists(x, has(x.alias))",
            "'alias' is mutually exclusive, cannot be set with a combination of other amiSelectorTerms",
        );
    let families = super::alias::FAMILIES.map(|(alias, _)| format!("'{alias}'"));
    let windows = super::alias::FAMILIES.iter().filter(|(_, family)| family.is_windows());
    let windows: Vec<_> = windows.map(|(alias, _)| format!("'{alias}'")).collect();
    at(root, "spec.amiSelectorTerms[].alias")
        .length(None, Some(30))
        .rule(
            "self.matches('^[a-zA-Z0-9]+@.+$')",
            "'alias' is improperly formatted, must match the format 'family@version'",
        )
        .rule(
            &format!("self.find('^[^@]+') in [{}]", families.join(", ")),
            &format!("family is not supported, must be one of the following: {}", families.join(", ")),
        )
        .rule(
            &format!("self.split('@')[0] in [{}] ? self.split('@')[1] == 'latest' : true", windows.join(", ")),
            "windows families may only specify version 'latest'",
        );
    at(root, "spec.amiSelectorTerms[].id").pattern("ami-[0-9a-z]+");
    tags_of_a_term(root, "spec.amiSelectorTerms[].tags");
}

fn tags_of_a_term(root: &mut JSONSchemaProps, path: &str) {
    at(root, path)
        .properties(None, 20)
        .rule("self.all(k, k != '' && self[k] != '')", "empty tag keys or values aren't supported");
}

/// By these tags machines are found, so they are not the user's.
fn tags(root: &mut JSONSchemaProps) {
    let tags = at(root, "spec.tags").rule("self.all(k, k != '')", "empty tag keys aren't supported");
    let message = |key: &str| format!("tag contains a restricted tag matching {key}");
    for key in super::tags::RESTRICTED {
        tags.rule(&format!("self.all(k, k != '{key}')"), &message(key));
    }
    tags.rule(
        &format!("self.all(k, !k.startsWith('{}'))", super::tags::RESTRICTED_PREFIX),
        &message(&format!("{}/", super::tags::RESTRICTED_PREFIX)),
    );
}

/// What is in it is the kubelet's business, and checked when the node class is reconciled.
fn kubelet(root: &mut JSONSchemaProps) {
    at(root, "spec.kubelet").x_kubernetes_preserve_unknown_fields = Some(true);
}

fn disks(root: &mut JSONSchemaProps) {
    at(root, "spec.blockDeviceMappings").max_items(50).rule(
        "self.filter(x, has(x.rootVolume) && x.rootVolume).size() <= 1",
        "must have only one blockDeviceMappings with rootVolume",
    );
    let ebs = at(root, "spec.blockDeviceMappings[].ebs")
        .rule("has(self.snapshotID) || has(self.volumeSize)", "snapshotID or volumeSize must be defined")
        .rule(
            "!has(self.volumeInitializationRate) || (has(self.snapshotID) && self.snapshotID != '')",
            "snapshotID must be set when volumeInitializationRate is set",
        );
    at(ebs, "volumeSize").pattern(VOLUME_SIZE);
    at(ebs, "volumeInitializationRate").range(Some(100.0), Some(300.0));
}

fn network_interfaces(root: &mut JSONSchemaProps) {
    at(root, "spec.networkInterfaces")
        .max_items(150)
        .rule(
            "self.size() == 0 || self.exists(x, x.networkCardIndex == 0 && x.deviceIndex == 0 && x.interfaceType == \
             'interface')",
            "networkInterfaces must include a primary interface with interfaceType='interface'",
        )
        .rule(
            "self.all(x, self.exists_one(y, x.networkCardIndex == y.networkCardIndex && (x.deviceIndex == y.deviceIndex \
             || (x.interfaceType == 'efa-only' && y.interfaceType == 'efa-only'))))",
            "networkInterfaces must not have duplicate networkCardIndex and deviceIndex pairs, and can have at most one \
             efa device per network card",
        );
    for index in ["networkCardIndex", "deviceIndex"] {
        at(root, &format!("spec.networkInterfaces[].{index}")).range(Some(0.0), None);
    }
}

fn network_numbers(root: &mut JSONSchemaProps) {
    at(root, "spec.ipPrefixCount").range(Some(0.0), None);
    let tracking = at(root, "spec.connectionTracking").rule(
        "has(self.tcpEstablishedTimeout) || has(self.udpStreamTimeout) || has(self.udpTimeout)",
        "at least one of tcpEstablishedTimeout, udpStreamTimeout, or udpTimeout must be set",
    );
    at(tracking, "tcpEstablishedTimeout").range(Some(60.0), Some(432_000.0));
    at(tracking, "udpStreamTimeout").range(Some(60.0), Some(180.0));
    at(tracking, "udpTimeout").range(Some(30.0), Some(60.0));
}

/// The defaults are those of the type; a default of the whole holds for its fields too.
fn metadata_options(root: &mut JSONSchemaProps) {
    at(root, "spec.metadataOptions.httpPutResponseHopLimit").range(Some(1.0), Some(64.0));
}

fn status(root: &mut JSONSchemaProps) {
    let reservation = at(root, "status.capacityReservations[]");
    at(reservation, "id").pattern(CAPACITY_RESERVATION);
    at(reservation, "ownerID").pattern(ACCOUNT);
    at(reservation, "reservationType").default_value(json!("default"));
    at(reservation, "state").default_value(json!("active"));
}
