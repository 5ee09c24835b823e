//! The chart's rights beside what the controller did in all end-to-end tests: nothing is granted that is not used, and
//! nothing was asked that is not granted.
//!
//! `cargo xtask test --stage e2e` runs this after the others, on the audit logs that they left.

use anyhow::{Result, ensure};
use e2e::audit::{self, Right};
use e2e::install;

/// Rights that leave no trace in an audit log, and why they are given.
const UNSEEN: [(&str, &str); 2] = [
    (
        "update nodepools.karpenter.sh/finalizers",
        "asked for by admission, where OwnerReferencesPermissionEnforcement is on",
    ),
    (
        "update nodeclaims.karpenter.sh/finalizers",
        "asked for by admission, where OwnerReferencesPermissionEnforcement is on",
    ),
];
/// Roles that the chart makes for people.
const OF_PEOPLE: [&str; 4] = ["viewer", "platform-engineer", "admin", "metrics-reader"];

#[test]
fn every_granted_verb_is_used_and_every_used_verb_is_granted() -> Result<()> {
    let Some(folder) = audit::folder() else {
        println!(
            "skipped: {} names no folder with audit logs; `cargo xtask test --stage e2e` makes them",
            audit::VARIABLE
        );
        return Ok(());
    };
    let requests = audit::read(&folder)?;
    ensure!(requests.allowed.len() > 30, "only {} kinds of requests in {}", requests.allowed.len(), folder.display());
    let mut objects = install::render("charts/dovetail", &install::ALL_OPTIONS)?;
    objects.extend(install::render("charts/dovetail", install::AWS)?);
    let is_of_controller = |role: &str| !OF_PEOPLE.iter().any(|name| role == format!("{}-{name}", install::RELEASE));
    let granted = audit::granted(&objects, is_of_controller);
    ensure!(granted.len() > 30, "only {} rights", granted.len());

    let is_unseen = |right: &Right| UNSEEN.iter().any(|(unseen, _)| *unseen == right.to_string());
    let unused: Vec<String> = granted
        .iter()
        .filter(|(right, _)| !requests.allowed.contains(*right) && !is_unseen(right))
        .map(|(right, roles)| format!("{right} ({})", roles.iter().cloned().collect::<Vec<_>>().join(", ")))
        .collect();
    ensure!(unused.is_empty(), "granted and never used:\n{}", unused.join("\n"));
    let known = |(unseen, _): &(&str, &str)| granted.keys().any(|right| right.to_string() == *unseen);
    ensure!(UNSEEN.iter().all(known), "an exception for a right that is not granted");

    // A server that has just started, or whose roles were just made, may say no to what it allows a moment later.
    let is_granted = |right: &Right| granted.contains_key(right) || requests.allowed.contains(right);
    let forbidden = requests.forbidden.iter().filter(|(right, _)| !is_granted(right));
    let forbidden: Vec<String> = forbidden.map(|(right, uri)| format!("{right}: {uri}")).collect();
    ensure!(forbidden.is_empty(), "asked and not granted:\n{}", forbidden.join("\n"));
    Ok(())
}
