package cluster

import (
	"encoding/csv"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
	"sigs.k8s.io/yaml"
)

func TestTokenFileKeepsGroupsInOneColumn(t *testing.T) {
	text, err := renderTokens([]User{
		{Name: "admin", Token: "t1", Groups: []string{"system:masters"}},
		{Name: "alice", Token: "t2", Groups: []string{"devs", "ops"}},
		{Name: "bob", Token: "t3"},
	})
	if err != nil {
		t.Fatal(err)
	}
	reader := csv.NewReader(strings.NewReader(string(text)))
	reader.FieldsPerRecord = -1
	got, err := reader.ReadAll()
	if err != nil {
		t.Fatal(err)
	}
	want := [][]string{{"t1", "admin", "admin", "system:masters"}, {"t2", "alice", "alice", "devs,ops"}, {"t3", "bob", "bob"}}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestDefaultSpreadReachesTheScheduler(t *testing.T) {
	if profiles, found := schedulerConfig(Options{}, "k")["profiles"]; found {
		t.Errorf("profiles %v without being asked for", profiles)
	}
	zone := object{"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule"}
	text, err := yaml.Marshal(schedulerConfig(Options{DefaultSpread: []any{zone}}, "k")["profiles"])
	if err != nil {
		t.Fatal(err)
	}
	want := `- pluginConfig:
  - args:
      defaultConstraints:
      - maxSkew: 1
        topologyKey: zone
        whenUnsatisfiable: DoNotSchedule
      defaultingType: List
    name: PodTopologySpread
  schedulerName: default-scheduler
`
	if string(text) != want {
		t.Errorf("got\n%swant\n%s", text, want)
	}
}

func TestRenderedFilesParseAndKeepTheKey(t *testing.T) {
	l := layout{t.TempDir()}
	users := []User{
		{File: adminFile, Name: "admin", Token: "t1", Groups: []string{"system:masters"}},
		{File: "alice", Name: "alice", Token: "t2"},
	}
	if err := l.write(Options{}, users, "https://127.0.0.1:1"); err != nil {
		t.Fatal(err)
	}
	for file, token := range map[string]string{"kubeconfig": "t1", "kubeconfig-alice": "t2"} {
		var config struct {
			Clusters []struct{ Cluster struct{ Server string } }
			Users    []struct{ User struct{ Token string } }
		}
		readYAML(t, l.path(file), &config)
		if config.Clusters[0].Cluster.Server != "https://127.0.0.1:1" || config.Users[0].User.Token != token {
			t.Errorf("%s: %+v", file, config)
		}
	}
	if info, err := os.Stat(l.path("kubeconfig")); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("kubeconfig: %v, %v; others could read it", info.Mode(), err)
	}
	kwok, err := os.ReadFile(l.kwokConfig())
	if err != nil {
		t.Fatal(err)
	}
	for i, document := range strings.Split(string(kwok), "\n---\n") {
		var parsed struct{ Kind string }
		if err := yaml.Unmarshal([]byte(document), &parsed); err != nil {
			t.Fatal(err)
		}
		if want := map[bool]string{true: "KwokConfiguration", false: "Stage"}[i == 0]; parsed.Kind != want {
			t.Errorf("document %d of kwok.yaml is a %q", i, parsed.Kind)
		}
	}

	key, err := os.ReadFile(l.serviceAccountKey())
	if err != nil {
		t.Fatal(err)
	}
	if err := l.write(Options{}, users, "https://127.0.0.1:2"); err != nil {
		t.Fatal(err)
	}
	if again, err := os.ReadFile(l.serviceAccountKey()); err != nil || string(again) != string(key) {
		t.Errorf("a second run replaced the key (%v): tokens of the first are worth nothing", err)
	}
}

func readYAML(t *testing.T, path string, into any) {
	t.Helper()
	text, err := os.ReadFile(path)
	if err == nil {
		err = yaml.Unmarshal(text, into)
	}
	if err != nil {
		t.Fatal(err)
	}
}

func TestReservedPortsAreDistinctAndBelowTheKernelsRange(t *testing.T) {
	low, limited := kernelRangeStart()
	limited = limited && low-lowestPort >= leastPorts
	seen := map[int]bool{}
	for range 20 {
		reserved, err := reserve()
		if err != nil {
			t.Fatal(err)
		}
		defer reserved.close()
		if seen[reserved.port] {
			t.Errorf("port %d given twice", reserved.port)
		}
		if limited && (reserved.port < lowestPort || reserved.port >= low) {
			t.Errorf("port %d is not in [%d, %d)", reserved.port, lowestPort, low)
		}
		seen[reserved.port] = true
	}
}

func TestAReservedPortIsOnlyForItsComponentHoweverOftenThatStarts(t *testing.T) {
	reserved, err := reserve()
	if err != nil {
		t.Fatal(err)
	}
	defer reserved.close()
	if again, err := bind(reserved.port); err == nil {
		again.close()
		t.Error("it is reserved twice")
	}
	address := fmt.Sprintf("127.0.0.1:%d", reserved.port)
	if stranger, err := net.Listen("tcp4", address); err == nil {
		stranger.Close()
		t.Error("a stranger listens there")
	}
	share := net.ListenConfig{Control: func(_, _ string, connection syscall.RawConn) error {
		var failure error
		err := connection.Control(func(socket uintptr) {
			failure = unix.SetsockoptInt(int(socket), unix.SOL_SOCKET, unix.SO_REUSEPORT, 1)
		})
		return errors.Join(err, failure)
	}}
	for range 2 {
		component, err := share.Listen(t.Context(), "tcp4", address)
		if err != nil {
			t.Fatal(err)
		}
		// Every connection is the component's: the reservation does not listen.
		for range 10 {
			client, err := net.Dial("tcp4", address)
			if err != nil {
				t.Fatal(err)
			}
			server, err := component.Accept()
			if err != nil {
				t.Fatal(err)
			}
			server.Close()
			client.Close()
		}
		component.Close()
	}
}

func TestOwnBinaryIsPreferredToTheSubcommand(t *testing.T) {
	dir := t.TempDir()
	for name, mode := range map[string]os.FileMode{"etcd": 0o755, "kwok": 0o644} {
		if err := os.WriteFile(filepath.Join(dir, name), nil, mode); err != nil {
			t.Fatal(err)
		}
	}
	for name, want := range map[string][]string{
		Etcd:      {filepath.Join(dir, "etcd"), "-x"},
		Kwok:      {"self", "kwok", "-x"}, // not executable
		Scheduler: {"self", "kube-scheduler", "-x"},
	} {
		if got := commandLine("self", dir, name, []string{"-x"}); !reflect.DeepEqual(got, want) {
			t.Errorf("%s: %q", name, got)
		}
	}
	if got := commandLine("self", "", Etcd, nil); !reflect.DeepEqual(got, []string{"self", "etcd"}) {
		t.Errorf("without a folder: %q", got)
	}
}
