//! Names of extended resources.

use super::Problems;
use crate::json::Reason;
use crate::meta::is_label;

/// In front of the name in a ResourceQuota, where it has to be valid too.
const QUOTA: &str = "requests.";

/// A name with a domain that is not Kubernetes' own (`IsExtendedResourceName` of its API helpers).
pub(super) fn check(problems: &mut Problems, field: &str, name: &str) {
    let Some((domain, id)) = name.split_once('/') else {
        problems.invalid(field, &format!("{name:?} has no domain in front of a slash, as extended resources have"));
        return;
    };
    if name.contains("kubernetes.io/") {
        problems.invalid(field, &format!("{name:?} is in a domain of Kubernetes itself"));
    } else if name.starts_with(QUOTA) {
        problems.invalid(field, &format!("{name:?} begins with {QUOTA:?}"));
    } else if QUOTA.len() + domain.len() > 253 {
        problems.add(field, Reason::TooLong { limit: 253 - QUOTA.len() });
    } else if !domain.split('.').all(is_label) {
        problems.invalid(field, &format!("{domain:?} is not a lowercase RFC 1123 subdomain"));
    }
    if id.len() > 63 {
        problems.add(field, Reason::TooLong { limit: 63 });
    } else if !is_qualified(id) {
        problems.invalid(
            field,
            &format!("{id:?} is not made of letters, digits, '-', '_' and '.', with a letter or digit at both ends"),
        );
    }
}

fn is_qualified(id: &str) -> bool {
    let bytes = id.as_bytes();
    bytes.first().is_some_and(u8::is_ascii_alphanumeric)
        && bytes.last().is_some_and(u8::is_ascii_alphanumeric)
        && bytes.iter().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.'))
}
