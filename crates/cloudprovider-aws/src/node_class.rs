//! EC2NodeClass `karpenter.k8s.aws/v1`: its fields, its rules and its CRD.
