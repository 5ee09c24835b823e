package kubeversion

import (
	"testing"

	"k8s.io/component-base/version"
)

func TestSetChangesWhatKubernetesReports(t *testing.T) {
	if err := set("v1.99.7"); err != nil {
		t.Fatal(err)
	}
	got := version.Get()
	if got.GitVersion != "v1.99.7" || got.Major != "1" || got.Minor != "99" {
		t.Errorf("component-base reports %s (major %q, minor %q)", got.GitVersion, got.Major, got.Minor)
	}
}

func TestSetRefusesWhatIsNoRelease(t *testing.T) {
	for _, release := range []string{"", "v1.36", "(devel)", "v1.36.x"} {
		if err := set(release); err == nil {
			t.Errorf("set(%q) succeeded", release)
		}
	}
}
