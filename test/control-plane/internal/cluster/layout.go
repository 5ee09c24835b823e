package cluster

import (
	"bytes"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/csv"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"sigs.k8s.io/yaml"
)

// object is a piece of YAML or JSON.
type object = map[string]any

// layout names the files of a control plane.
type layout struct{ dir string }

func (l layout) path(parts ...string) string {
	return filepath.Join(append([]string{l.dir}, parts...)...)
}

func (l layout) controlSocket() string      { return l.path("control.sock") }
func (l layout) lock() string               { return l.path("lock") }
func (l layout) log(name string) string     { return l.path("logs", name+".log") }
func (l layout) tokens() string             { return l.path("tokens.csv") }
func (l layout) serviceAccountKey() string  { return l.path("sa.key") }
func (l layout) schedulerConfig() string    { return l.path("scheduler.yaml") }
func (l layout) kwokConfig() string         { return l.path("kwok.yaml") }
func (l layout) certs(name string) string   { return l.path("certs", name) }
func (l layout) etcdData() string           { return l.path("etcd") }
func (l layout) kwokWorkDir() string        { return l.path("kwok") }
func (l layout) kubeconfig(f string) string { return l.path(kubeconfigName(f)) }

func kubeconfigName(file string) string {
	if file == adminFile {
		return "kubeconfig"
	}
	return "kubeconfig-" + file
}

// write renders every file that the components and the clients read. A key that an earlier run made is kept, so that
// tokens signed with it stay valid.
func (l layout) write(options Options, users []User, server string) error {
	if err := os.MkdirAll(l.path("logs"), 0o755); err != nil {
		return err
	}
	if err := l.writeServiceAccountKey(); err != nil {
		return err
	}
	tokens, err := renderTokens(users)
	if err != nil {
		return err
	}
	if err := os.WriteFile(l.tokens(), tokens, 0o600); err != nil {
		return err
	}
	for _, user := range users {
		if err := writeYAML(l.kubeconfig(user.File), kubeconfig(server, user)); err != nil {
			return err
		}
	}
	if err := writeYAML(l.schedulerConfig(), schedulerConfig(options, l.kubeconfig(adminFile))); err != nil {
		return err
	}
	stages, err := kwokStages(options)
	if err != nil {
		return err
	}
	return writeYAML(l.kwokConfig(), append([]object{kwokConfig()}, stages...)...)
}

func (l layout) writeServiceAccountKey() error {
	if _, err := os.Stat(l.serviceAccountKey()); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		return err
	}
	block := &pem.Block{Type: "RSA PRIVATE KEY", Bytes: x509.MarshalPKCS1PrivateKey(key)}
	return os.WriteFile(l.serviceAccountKey(), pem.EncodeToMemory(block), 0o600)
}

func writeYAML(path string, documents ...object) error {
	var text bytes.Buffer
	for i, document := range documents {
		if i > 0 {
			text.WriteString("---\n")
		}
		rendered, err := yaml.Marshal(document)
		if err != nil {
			return fmt.Errorf("%s: %w", path, err)
		}
		text.Write(rendered)
	}
	return os.WriteFile(path, text.Bytes(), 0o600)
}

// renderTokens writes the static token file: token, user, uid and, in one quoted column, the groups.
func renderTokens(users []User) ([]byte, error) {
	var text bytes.Buffer
	writer := csv.NewWriter(&text)
	for _, user := range users {
		row := []string{user.Token, user.Name, user.Name}
		if len(user.Groups) > 0 {
			row = append(row, strings.Join(user.Groups, ","))
		}
		if err := writer.Write(row); err != nil {
			return nil, err
		}
	}
	writer.Flush()
	return text.Bytes(), writer.Error()
}

// kubeconfig trusts any server certificate: the apiserver signs its own, and only the loopback interface reaches it.
func kubeconfig(server string, user User) object {
	const name = "control-plane"
	return object{
		"apiVersion":      "v1",
		"kind":            "Config",
		"current-context": name,
		"clusters": []object{{"name": name, "cluster": object{
			"server":                   server,
			"insecure-skip-tls-verify": true,
		}}},
		"users":    []object{{"name": user.Name, "user": object{"token": user.Token}}},
		"contexts": []object{{"name": name, "context": object{"cluster": name, "user": user.Name}}},
	}
}

// schedulerConfig keeps kube-scheduler's rules and order; only the limits on requests and the wait before a refused pod is
// tried again (10 s at most by default) are changed, to make tests short.
func schedulerConfig(options Options, kubeconfig string) object {
	config := object{
		"apiVersion":               "kubescheduler.config.k8s.io/v1",
		"kind":                     "KubeSchedulerConfiguration",
		"clientConnection":         object{"kubeconfig": kubeconfig, "qps": 5000, "burst": 10000},
		"leaderElection":           object{"leaderElect": false},
		"parallelism":              16,
		"podInitialBackoffSeconds": 1,
		"podMaxBackoffSeconds":     2,
	}
	if len(options.DefaultSpread) > 0 {
		args := object{"defaultingType": "List", "defaultConstraints": options.DefaultSpread}
		config["profiles"] = []object{{
			"schedulerName": "default-scheduler",
			"pluginConfig":  []object{{"name": "PodTopologySpread", "args": args}},
		}}
	}
	return config
}

// kwokConfig turns node leases off: a restarted kwok would wait up to 40 s for its predecessor's leases and forget the
// pods bound meanwhile. Nodes then stay ready by the frequent heartbeat of kwokStages, and by nothing else.
func kwokConfig() object {
	return object{
		"apiVersion": "config.kwok.x-k8s.io/v1alpha1",
		"kind":       "KwokConfiguration",
		"options": object{
			"manageNodesWithAnnotationSelector": "kwok.x-k8s.io/node=fake",
			"nodeLeaseDurationSeconds":          0,
			"nodePlayStageParallelism":          4,
			"podPlayStageParallelism":           16,
			"cidr":                              "10.0.0.0/24",
		},
	}
}
