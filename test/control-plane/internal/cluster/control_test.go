package cluster

import (
	"context"
	"io"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"
)

// sleepers is a control plane whose components only sleep; "etcd" ignores SIGTERM. None has a health endpoint.
func sleepers(t *testing.T) *cluster {
	t.Helper()
	dir := t.TempDir()
	spawner := newSpawner()
	c := &cluster{prober: &prober{}, progressTo: io.Discard, shutdown: func() {}, layout: layout{dir}}
	for _, name := range []string{Etcd, Kwok} {
		script := "exec sleep 600"
		if name == Etcd {
			script = `trap "" TERM; echo deaf; ` + script
		}
		c.components = append(c.components, &component{
			name: name, command: []string{"/bin/sh", "-c", script}, logPath: filepath.Join(dir, name+".log"), spawner: spawner,
		})
	}
	t.Cleanup(c.stopAll)
	return c
}

// command runs one that must succeed.
func command(t *testing.T, c *cluster, line string) answer {
	t.Helper()
	reply := c.answer(context.Background(), line)
	if !reply.OK {
		t.Fatalf("%s: %s", line, reply.Error)
	}
	return reply
}

func TestCommandsTakeEffectBeforeTheAnswer(t *testing.T) {
	c := sleepers(t)
	for _, step := range []struct {
		line  string
		state State
		exit  string
		start int
	}{
		{"status", Stopped, "", 0},
		{"start kwok", Running, "", 1},
		{"wait kwok 5000", Running, "", 1},
		{"pause kwok", Paused, "", 1},
		{"resume kwok", Running, "", 1},
		{"kill kwok", Stopped, "signal: killed", 1},
		{"start kwok", Running, "", 2},
		{"pause kwok", Paused, "", 2},
		{"restart kwok", Running, "", 3},
		{"stop kwok", Stopped, "signal: terminated", 3},
	} {
		got := command(t, c, step.line).Components[Kwok]
		if (got.PID != 0) != (step.state != Stopped) {
			t.Errorf("%s: process %d", step.line, got.PID)
		}
		got.PID = 0
		if want := (Status{State: step.state, Starts: step.start, Exit: step.exit}); got != want {
			t.Errorf("%s: %+v, want %+v", step.line, got, want)
		}
	}
}

func TestWaitTellsWhyAComponentEnded(t *testing.T) {
	c := sleepers(t)
	kwok, err := c.component(Kwok)
	if err != nil {
		t.Fatal(err)
	}
	kwok.command = []string{"/bin/sh", "-c", "seq 9; echo no stages found; exit 7"}
	command(t, c, "start kwok")
	// Without an endpoint it counts as healthy until it ends.
	process, err := kwok.live()
	if err == nil {
		<-process.done
	}
	reply := c.answer(context.Background(), "wait kwok")
	if !strings.Contains(reply.Error, "exit status 7") || !strings.HasSuffix(reply.Error, "\n6\n7\n8\n9\nno stages found") {
		t.Errorf("%q", reply.Error)
	}
}

func TestStopKillsWhatIgnoresIt(t *testing.T) {
	c := sleepers(t)
	command(t, c, "start etcd")
	etcd, err := c.component(Etcd)
	if err != nil {
		t.Fatal(err)
	}
	for deadline := time.Now().Add(10 * time.Second); ; time.Sleep(5 * time.Millisecond) {
		if log, err := os.ReadFile(etcd.logPath); err == nil && string(log) == "deaf\n" {
			break
		}
		if time.Now().After(deadline) {
			t.Fatal("the shell does not start")
		}
	}
	if err := etcd.stop(10 * time.Millisecond); err != nil {
		t.Fatal(err)
	}
	if got := etcd.status(); got.State != Stopped || got.Exit != "signal: killed" {
		t.Errorf("%+v", got)
	}
}

func TestBadCommandsAreRefusedAndChangeNothing(t *testing.T) {
	c := sleepers(t)
	before := command(t, c, "start kwok").Components
	for line, want := range map[string]string{
		"":                "empty command",
		"  ":              "empty command",
		"explode kwok":    "unknown command",
		"kill":            "needs exactly one component",
		"kill kwok etcd":  "needs exactly one component",
		"kill kubelet":    `unknown component "kubelet"`,
		"kill etcd":       "it is not running",
		"start kwok":      "already running",
		"wait":            "needs a component",
		"wait kwok soon":  "time-out in milliseconds",
		"wait etcd":       "it is not running",
		"status kwok":     "takes no operand",
		"resume kwok":     "it is already running",
		"wait kwok -1 -1": "needs a component",
	} {
		reply := c.answer(context.Background(), line)
		if reply.OK || !strings.Contains(reply.Error, want) {
			t.Errorf("%q: ok %t, error %q does not contain %q", line, reply.OK, reply.Error, want)
		}
		if !reflect.DeepEqual(reply.Components, before) {
			t.Errorf("%q changed the components to %+v", line, reply.Components)
		}
	}
}

func TestStoppingControlPlaneStartsNothing(t *testing.T) {
	c := sleepers(t)
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if reply := c.answer(ctx, "start kwok"); reply.OK || reply.Components[Kwok].State != Stopped {
		t.Errorf("%+v", reply)
	}
}

func TestSocketCarriesCommandsAndAnswers(t *testing.T) {
	c := sleepers(t)
	listener, err := listenControl(c.layout.controlSocket())
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	go c.serveControl(context.Background(), listener)
	for _, step := range []struct {
		words []string
		ok    bool
	}{
		{[]string{"start", "kwok"}, true},
		{[]string{"start", "kwok"}, false},
		{[]string{"kill", "kwok"}, true},
	} {
		line, ok, err := Control(c.layout.dir, step.words)
		if err != nil || ok != step.ok || strings.Contains(line, "\n") {
			t.Errorf("%v: %q, ok %t, %v", step.words, line, ok, err)
		}
	}
}

func TestLongSocketPathIsExplained(t *testing.T) {
	_, err := listenControl(filepath.Join(t.TempDir(), strings.Repeat("d", 120)))
	if err == nil || !strings.Contains(err.Error(), "shorter --dir") {
		t.Errorf("error %v", err)
	}
}

func TestFolderBelongsToOneControlPlane(t *testing.T) {
	path := filepath.Join(t.TempDir(), "lock")
	unlock, err := lock(path)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := lock(path); err == nil {
		t.Error("locked twice")
	}
	unlock()
	unlock, err = lock(path)
	if err != nil {
		t.Fatalf("still locked: %v", err)
	}
	unlock()
	if _, err := os.Stat(path); err != nil {
		t.Error(err)
	}
}
