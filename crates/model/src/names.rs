//! Names that come from outside: of objects, machines and instance types.
//!
//! They are shared strings in newtypes, so that a node's name cannot be passed for a provider id. Their order is the
//! byte order of the text, which is what outputs are sorted by.

use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

/// Defines names: newtypes of shared strings that order by bytes, look themselves up by `&str`, and are strings in
/// JSON.
///
/// The crate that uses it depends on `serde`.
#[macro_export]
macro_rules! define_name {
    ($($(#[$meta:meta])* $name:ident)*) => {$(
        $(#[$meta])*
        #[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, ::serde::Serialize, ::serde::Deserialize)]
        #[serde(transparent)]
        pub struct $name(::std::sync::Arc<str>);

        impl $name {
            /// The text.
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl From<&str> for $name {
            fn from(text: &str) -> Self {
                Self(text.into())
            }
        }

        impl From<String> for $name {
            fn from(text: String) -> Self {
                Self(text.into())
            }
        }

        impl From<::std::sync::Arc<str>> for $name {
            fn from(text: ::std::sync::Arc<str>) -> Self {
                Self(text)
            }
        }

        impl ::std::borrow::Borrow<str> for $name {
            fn borrow(&self) -> &str {
                &self.0
            }
        }

        impl AsRef<str> for $name {
            fn as_ref(&self) -> &str {
                &self.0
            }
        }

        impl ::std::ops::Deref for $name {
            type Target = str;

            fn deref(&self) -> &str {
                &self.0
            }
        }

        impl PartialEq<str> for $name {
            fn eq(&self, other: &str) -> bool {
                &*self.0 == other
            }
        }

        impl PartialEq<&str> for $name {
            fn eq(&self, other: &&str) -> bool {
                &*self.0 == *other
            }
        }

        impl ::std::fmt::Display for $name {
            fn fmt(&self, f: &mut ::std::fmt::Formatter<'_>) -> ::std::fmt::Result {
                f.pad(&self.0)
            }
        }

        impl ::std::fmt::Debug for $name {
            fn fmt(&self, f: &mut ::std::fmt::Formatter<'_>) -> ::std::fmt::Result {
                write!(f, concat!(stringify!($name), "({:?})"), &*self.0)
            }
        }
    )*};
}

define_name! {
    /// The name of a Node.
    NodeName
    /// The name of a NodeClaim.
    NodeClaimName
    /// The name of a NodePool.
    NodePoolName
    /// The name of a NodeOverlay.
    NodeOverlayName
    /// The name of a ResourceClaim or of an entry of `spec.resourceClaims`, inside a namespace that is known.
    ResourceClaimName
    /// The `metadata.uid` of an object.
    Uid
    /// What a cloud provider calls a machine, as in a Node's `spec.providerID`.
    ProviderId
    /// What a cloud provider calls a kind of machine.
    InstanceTypeName
}

/// The name of an object inside its namespace. Ordered by namespace, then name.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct NamespacedName {
    /// The namespace; empty for an object of cluster scope.
    pub namespace: Arc<str>,
    /// The name.
    pub name: Arc<str>,
}

impl NamespacedName {
    /// Puts both parts together.
    pub fn new(namespace: impl Into<Arc<str>>, name: impl Into<Arc<str>>) -> Self {
        Self { namespace: namespace.into(), name: name.into() }
    }
}

impl fmt::Display for NamespacedName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.namespace.is_empty() { f.pad(&self.name) } else { f.pad(&format!("{}/{}", self.namespace, self.name)) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_look_themselves_up_by_text() {
        let nodes: std::collections::BTreeMap<NodeName, u8> = [("b".into(), 2), ("a".into(), 1)].into();
        assert_eq!(nodes.get("a"), Some(&1));
        assert_eq!(nodes.keys().map(NodeName::as_str).collect::<Vec<_>>(), ["a", "b"]);
    }

    #[test]
    fn namespaced_names_print_and_sort_by_namespace_first() {
        let mut names = [NamespacedName::new("b", "a"), NamespacedName::new("a", "z"), NamespacedName::new("", "zz")];
        names.sort();
        assert_eq!(names.map(|name| name.to_string()), ["zz", "a/z", "b/a"]);
    }

    #[test]
    fn a_name_is_a_string_in_json() {
        assert_eq!(serde_json::to_string(&NodeName::from("n-1")).unwrap(), "\"n-1\"");
        assert_eq!(serde_json::from_str::<NodeName>("\"n-1\"").unwrap(), "n-1");
    }
}
