//! The options of this provider, as data.

use cloudprovider::options::{OptionDeclaration, OptionKind, Visibility};

/// Where the records are kept.
pub(crate) const INSTANCES_NAMESPACE: OptionDeclaration = OptionDeclaration {
    flag: "kwok-instances-namespace",
    env: "KWOK_INSTANCES_NAMESPACE",
    kind: OptionKind::Text,
    help: "Namespace in which the kwok provider keeps its instances [default: the pod's own, else kube-system]",
    visibility: Visibility::Shown,
};

/// What can be launched. The name is Karpenter's.
pub(crate) const INSTANCE_TYPES_FILE_PATH: OptionDeclaration = OptionDeclaration {
    flag: "instance-types-file-path",
    env: "INSTANCE_TYPES_FILE_PATH",
    kind: OptionKind::Path,
    help: "Catalogue of the kwok provider, a file in Karpenter's kwok format [default: the built-in 144 types]",
    visibility: Visibility::Shown,
};

/// Whether a ConfigMap makes things go wrong.
pub(crate) const READ_FAULTS: OptionDeclaration = OptionDeclaration {
    flag: "kwok-read-faults",
    env: "KWOK_READ_FAULTS",
    kind: OptionKind::Switch,
    help: "Let the kwok provider go wrong as the ConfigMap `dovetail-kwok-faults` says; for tests",
    visibility: Visibility::Hidden,
};

/// All of them, in the order of the help.
pub(crate) const ALL: [OptionDeclaration; 3] = [INSTANCES_NAMESPACE, INSTANCE_TYPES_FILE_PATH, READ_FAULTS];
