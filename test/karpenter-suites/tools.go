//go:build tools

package suites

// What is built from here. No code of ours imports it, so these imports keep it in go.mod and go.sum.
import (
	_ "sigs.k8s.io/karpenter/dra-kwok-driver"
	_ "sigs.k8s.io/karpenter/test/suites/dra"
	_ "sigs.k8s.io/karpenter/test/suites/performance"
	_ "sigs.k8s.io/karpenter/test/suites/regression"
)
