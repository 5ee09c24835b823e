package main

import (
	"fmt"
	"strings"

	"helm.sh/helm/v3/pkg/chart"
	"helm.sh/helm/v3/pkg/chart/loader"
	"helm.sh/helm/v3/pkg/chartutil"
	"helm.sh/helm/v3/pkg/engine"
	"helm.sh/helm/v3/pkg/releaseutil"
	"helm.sh/helm/v3/pkg/strvals"
	"sigs.k8s.io/yaml"
)

type options struct {
	chartDir    string
	name        string
	namespace   string
	valueFiles  []string
	settings    []string
	includeCRDs bool
	kubeVersion string
	apiVersions []string
}

// render gives the manifests in the order in which Helm would install them, hooks last.
func render(o options) (string, error) {
	loaded, err := loader.LoadDir(o.chartDir)
	if err != nil {
		return "", err
	}
	if err := loaded.Validate(); err != nil {
		return "", err
	}
	values, err := readValues(o)
	if err != nil {
		return "", err
	}
	capabilities, err := capabilitiesOf(o)
	if err != nil {
		return "", err
	}
	if wanted := loaded.Metadata.KubeVersion; wanted != "" && !chartutil.IsCompatibleRange(wanted, capabilities.KubeVersion.Version) {
		return "", fmt.Errorf("the chart wants Kubernetes %s, not %s", wanted, capabilities.KubeVersion.Version)
	}
	if err := checkDependencies(loaded); err != nil {
		return "", err
	}
	if err := chartutil.ProcessDependenciesWithMerge(loaded, values); err != nil {
		return "", err
	}
	release := chartutil.ReleaseOptions{Name: o.name, Namespace: o.namespace, Revision: 1, IsInstall: true}
	renderValues, err := chartutil.ToRenderValues(loaded, values, release, capabilities) // checks the schema
	if err != nil {
		return "", err
	}
	files, err := engine.Engine{}.Render(loaded, renderValues)
	if err != nil {
		return "", err
	}
	return join(loaded, files, o.includeCRDs)
}

// checkDependencies refuses a chart whose subcharts have not been fetched; rendering would leave them out in silence.
func checkDependencies(loaded *chart.Chart) error {
	present := map[string]bool{}
	for _, dependency := range loaded.Dependencies() {
		present[dependency.Name()] = true
	}
	for _, wanted := range loaded.Metadata.Dependencies {
		if !present[wanted.Name] {
			return fmt.Errorf("Chart.yaml wants the chart %s, but charts/ does not hold it", wanted.Name)
		}
	}
	return nil
}

func readValues(o options) (map[string]any, error) {
	values := map[string]any{}
	for _, file := range o.valueFiles {
		next, err := chartutil.ReadValuesFile(file)
		if err != nil {
			return nil, fmt.Errorf("--values %s: %w", file, err)
		}
		values = chartutil.MergeTables(next, values)
	}
	for _, setting := range o.settings {
		if err := strvals.ParseInto(setting, values); err != nil {
			return nil, fmt.Errorf("--set %s: %w", setting, err)
		}
	}
	return values, nil
}

func capabilitiesOf(o options) (*chartutil.Capabilities, error) {
	version, err := chartutil.ParseKubeVersion(o.kubeVersion)
	if err != nil {
		return nil, fmt.Errorf("--kube-version %s: %w", o.kubeVersion, err)
	}
	capabilities := chartutil.DefaultCapabilities.Copy()
	capabilities.KubeVersion = *version
	capabilities.APIVersions = append(capabilities.APIVersions, o.apiVersions...)
	return capabilities, nil
}

// join puts rendered files and CRDs into one stream of YAML documents.
func join(loaded *chart.Chart, files map[string]string, includeCRDs bool) (string, error) {
	for name := range files {
		if strings.HasSuffix(name, "NOTES.txt") {
			delete(files, name)
		}
	}
	hooks, manifests, err := releaseutil.SortManifests(files, nil, releaseutil.InstallOrder)
	if err != nil {
		return "", err
	}
	var stream strings.Builder
	add := func(source, content string) error {
		// Helm itself takes the last of two equal keys in silence; the API server would not see the first.
		var document any
		if err := yaml.UnmarshalStrict([]byte(content), &document); err != nil {
			return fmt.Errorf("%s: %w", source, err)
		}
		if document == nil { // only comments
			return nil
		}
		fmt.Fprintf(&stream, "---\n# Source: %s\n%s\n", source, strings.TrimSpace(content))
		return nil
	}
	if includeCRDs {
		for _, crd := range loaded.CRDObjects() {
			for _, document := range splitDocuments(string(crd.File.Data)) {
				if err := add(crd.Filename, document); err != nil {
					return "", err
				}
			}
		}
	}
	for _, manifest := range manifests {
		if err := add(manifest.Name, manifest.Content); err != nil {
			return "", err
		}
	}
	for _, hook := range hooks {
		if err := add(hook.Path, hook.Manifest); err != nil {
			return "", err
		}
	}
	return stream.String(), nil
}

func splitDocuments(text string) []string {
	var documents []string
	for _, document := range strings.Split("\n"+text, "\n---") {
		if strings.TrimSpace(document) != "" {
			documents = append(documents, document)
		}
	}
	return documents
}
