package main

import (
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// writeChart makes a chart of a small base and the given files, and gives its folder.
func writeChart(t *testing.T, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	base := map[string]string{
		"Chart.yaml":           "apiVersion: v2\nname: web\nversion: 0.1.0\n",
		"values.yaml":          "replicas: 1\nimage: {repository: web, tag: a}\n",
		"values.schema.json":   `{"properties": {"replicas": {"type": "integer", "minimum": 0}}}`,
		"templates/NOTES.txt":  "Thank you.",
		"templates/_names.tpl": `{{ define "web.name" }}{{ .Release.Name }}-{{ .Chart.Name }}{{ end }}`,
		"templates/app.yaml": `
kind: Deployment
metadata: {name: {{ include "web.name" . }}, namespace: {{ .Release.Namespace }}}
spec: {replicas: {{ .Values.replicas }}, image: "{{ .Values.image.repository }}:{{ .Values.image.tag }}"}
---
kind: ServiceAccount
metadata: {name: {{ include "web.name" . }}}
`,
	}
	for name, content := range files {
		base[name] = content
	}
	for name, content := range base {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// invoke runs the command line with the chart first, as callers write it.
func invoke(chartDir string, args ...string) (code int, stdout, stderr string) {
	var out, errors strings.Builder
	code = run(append([]string{chartDir}, args...), &out, &errors)
	return code, out.String(), errors.String()
}

func TestManifestsComeInInstallOrderWithoutNotes(t *testing.T) {
	code, stdout, stderr := invoke(writeChart(t, nil), "--name", "shop", "--namespace", "prod")
	want := `---
# Source: web/templates/app.yaml
kind: ServiceAccount
metadata: {name: shop-web}
---
# Source: web/templates/app.yaml
kind: Deployment
metadata: {name: shop-web, namespace: prod}
spec: {replicas: 1, image: "web:a"}
`
	if code != 0 || stderr != "" || stdout != want {
		t.Errorf("exit %d, %q\n%s", code, stderr, stdout)
	}
}

func TestLaterValuesWinAndSettingsWinOverFiles(t *testing.T) {
	chart := writeChart(t, nil)
	for name, content := range map[string]string{"1.yaml": "replicas: 2\nimage: {tag: b}\n", "2.yaml": "image: {tag: c}\n"} {
		if err := os.WriteFile(filepath.Join(chart, "..", name), []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	one, two := filepath.Join(chart, "..", "1.yaml"), filepath.Join(chart, "..", "2.yaml")
	for _, test := range []struct {
		args []string
		want string
	}{
		{[]string{"--values", one}, `replicas: 2, image: "web:b"`},
		{[]string{"--values", one, "--values", two}, `replicas: 2, image: "web:c"`},
		{[]string{"--values", two, "--values", one}, `replicas: 2, image: "web:b"`},
		{[]string{"--set", "image.tag=d", "--values", one}, `replicas: 2, image: "web:d"`},
		{[]string{"--set", "replicas=3,image.tag=d", "--set", "image.tag=e"}, `replicas: 3, image: "web:e"`},
	} {
		if code, stdout, stderr := invoke(chart, test.args...); code != 0 || !strings.Contains(stdout, test.want) {
			t.Errorf("%q: exit %d, %s\n%s", test.args, code, stderr, stdout)
		}
	}
}

func TestCRDsArePrintedFirstOnRequest(t *testing.T) {
	chart := writeChart(t, map[string]string{"crds/all.yaml": "# one\n---\nkind: CustomResourceDefinition\n---\nkind: CustomResourceDefinition\n"})
	if _, stdout, _ := invoke(chart); strings.Contains(stdout, "CustomResourceDefinition") {
		t.Errorf("printed unasked:\n%s", stdout)
	}
	_, stdout, _ := invoke(chart, "--include-crds")
	crd := "---\n# Source: web/crds/all.yaml\nkind: CustomResourceDefinition\n"
	if !strings.HasPrefix(stdout, crd+crd+"---\n# Source: web/templates/") {
		t.Errorf("got\n%s", stdout)
	}
}

func TestTemplatesSeeTheClusterDescribed(t *testing.T) {
	chart := writeChart(t, map[string]string{
		"templates/c.yaml": `version: {{ .Capabilities.KubeVersion.Version }}
monitor: {{ .Capabilities.APIVersions.Has "monitoring.coreos.com/v1" }}`,
	})
	if _, stdout, _ := invoke(chart); !strings.Contains(stdout, "version: "+defaultKubeVersion+"\nmonitor: false\n") {
		t.Errorf("by default:\n%s", stdout)
	}
	_, stdout, stderr := invoke(chart, "--kube-version", "1.35.1", "--api-versions", "monitoring.coreos.com/v1")
	if !strings.Contains(stdout, "version: v1.35.1\nmonitor: true\n") {
		t.Errorf("%s\n%s", stderr, stdout)
	}
}

func TestHooksComeLast(t *testing.T) {
	chart := writeChart(t, map[string]string{
		"templates/a-hook.yaml": "kind: Job\nmetadata: {name: h, annotations: {helm.sh/hook: pre-delete}}\n",
	})
	if _, stdout, stderr := invoke(chart); !strings.HasSuffix(stdout, "hook: pre-delete}}\n") {
		t.Errorf("%s\n%s", stderr, stdout)
	}
}

func TestBadChartsAndValuesAreRefusedWithAReason(t *testing.T) {
	for name, test := range map[string]struct {
		files map[string]string
		args  []string
		want  string
	}{
		"schema":             {nil, []string{"--set", "replicas=many"}, "replicas"},
		"template":           {map[string]string{"templates/x.yaml": "a: {{ .Values.a.b.c }}"}, nil, "templates/x.yaml"},
		"yaml":               {map[string]string{"templates/x.yaml": "a: [1\n"}, nil, "templates/x.yaml"},
		"duplicate key":      {map[string]string{"templates/x.yaml": "kind: A\nkind: B\n"}, nil, "templates/x.yaml"},
		"setting":            {nil, []string{"--set", "image[x]=1"}, "--set image[x]=1"},
		"values file":        {nil, []string{"--values", "no-such-file"}, "--values no-such-file"},
		"kube version":       {nil, []string{"--kube-version", "new"}, "--kube-version new"},
		"wants newer":        {map[string]string{"Chart.yaml": "apiVersion: v2\nname: web\nversion: 0.1.0\nkubeVersion: '>=1.99.0'\n"}, nil, ">=1.99.0"},
		"missing dependency": {map[string]string{"Chart.yaml": "apiVersion: v2\nname: web\nversion: 0.1.0\ndependencies: [{name: db, version: 1.0.0}]\n"}, nil, "db"},
		"no chart":           {map[string]string{"Chart.yaml": "apiVersion: v2\n"}, nil, "name"},
	} {
		code, stdout, stderr := invoke(writeChart(t, test.files), test.args...)
		if code != 1 || stdout != "" || !strings.Contains(stderr, test.want) {
			t.Errorf("%s: exit %d, error %q lacks %q\n%s", name, code, stderr, test.want, stdout)
		}
	}
}

func TestUsageErrorsHaveTheirOwnExitCode(t *testing.T) {
	for _, args := range [][]string{{}, {"a", "b"}, {"a", "--nope"}} {
		if code := run(args, io.Discard, io.Discard); code != 2 {
			t.Errorf("%q: exit %d", args, code)
		}
	}
	if code := run([]string{"--help"}, io.Discard, io.Discard); code != 0 {
		t.Errorf("--help: exit %d", code)
	}
}
