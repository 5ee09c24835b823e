// Package kubeversion makes the Kubernetes components linked into this program report the version of the module that they
// come from.
//
// Kubernetes' own build stamps its version with linker flags. Without them a server calls itself v0.0.0-master, which
// clients that parse the version refuse. Taking the version from the build information keeps go.mod its only home and
// makes a plain "go build" right.
//
// The package must be initialised before any package that reads the version while it is initialised itself. Go
// initialises packages in the order of their import paths as far as dependencies allow, and "dovetail.test" sorts before
// "k8s.io"; the test of this package and the server's answer to /version in the boot test guard it.
package kubeversion

import (
	"fmt"
	"runtime/debug"
	_ "unsafe" // for go:linkname

	utilversion "k8s.io/apimachinery/pkg/util/version"
	"k8s.io/component-base/version"
)

const kubernetesModule = "k8s.io/kubernetes"

//go:linkname gitVersion k8s.io/component-base/version.gitVersion
var gitVersion string

//go:linkname gitMajor k8s.io/component-base/version.gitMajor
var gitMajor string

//go:linkname gitMinor k8s.io/component-base/version.gitMinor
var gitMinor string

func init() {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return // built without modules: the placeholder stays
	}
	for _, module := range info.Deps {
		if module.Path == kubernetesModule {
			if err := set(module.Version); err != nil {
				panic(fmt.Sprintf("version of module %s: %v", kubernetesModule, err))
			}
		}
	}
}

// set stamps a version such as "v1.36.3".
func set(release string) error {
	parsed, err := utilversion.ParseSemantic(release)
	if err != nil {
		return err
	}
	gitVersion = release
	gitMajor, gitMinor = fmt.Sprint(parsed.Major()), fmt.Sprint(parsed.Minor())
	return version.SetDynamicVersion(release)
}
