package cluster

import (
	"errors"
	"flag"
	"io"
	"reflect"
	"strings"
	"testing"
	"time"
)

func TestOptionsHoldWhatTheCommandLineSays(t *testing.T) {
	got, err := ParseOptions(strings.Fields(
		"--dir D --gates all --gate DRAListTypeAttributes=false --user alice:t0k:devs,system:ops --service-account karpenter/dovetail:t1k"+
			` --default-spread {"topologyKey":"zone"}`+
			" --keep-jobs-running --pod-delete-delay-ms 250 --arg scheduler=-v=4 --arg scheduler=--x=y --shutdown-grace-ms 0 --exit-with-parent"), io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	want := Options{
		Dir:         "D",
		Gates:       GatesAll,
		SingleGates: []string{"DRAListTypeAttributes=false"},
		Users: []User{
			{File: "alice", Name: "alice", Token: "t0k", Groups: []string{"devs", "system:ops"}},
			{File: "dovetail", Name: "system:serviceaccount:karpenter:dovetail", Token: "t1k",
				Groups: []string{"system:serviceaccounts", "system:serviceaccounts:karpenter"}},
		},
		KeepJobsRunning: true,
		PodDeleteDelay:  250 * time.Millisecond,
		DefaultSpread:   []any{object{"topologyKey": "zone"}},
		ExtraArgs:       map[string][]string{Scheduler: {"-v=4", "--x=y"}},
		BootTimeout:     2 * time.Minute,
		ExitWithParent:  true,
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got  %+v\nwant %+v", got, want)
	}
}

func TestServiceAccountWithoutTokenGetsARandomOne(t *testing.T) {
	var tokens [2]string
	for i := range tokens {
		options, err := ParseOptions([]string{"--dir", "D", "--service-account", "ns/name"}, io.Discard)
		if err != nil {
			t.Fatal(err)
		}
		tokens[i] = options.Users[0].Token
	}
	if len(tokens[0]) < 16 || tokens[0] == tokens[1] {
		t.Errorf("tokens %q", tokens)
	}
}

func TestBadOptionsAreRefusedByName(t *testing.T) {
	for line, want := range map[string]string{
		"":                                       "--dir is required",
		"--dir D more":                           `unexpected argument "more"`,
		"--dir D --gates some":                   `--gates "some"`,
		"--dir D --gate DRA":                     `--gate "DRA"`,
		"--dir D --gate =true":                   `--gate "=true"`,
		"--dir D --user alice":                   "NAME:TOKEN",
		"--dir D --user ../alice:t":              `user "../alice"`,
		"--dir D --user alice:":                  `user "alice": the token`,
		"--dir D --user a:t --user b:t":          `user "b": another user has the same token`,
		"--dir D --user a:t --user a:u":          `user "a": another user has the same name`,
		"--dir D --service-account dovetail":     "NAMESPACE/NAME",
		"--dir D --arg kubelet=-v=4":             "COMPONENT=ARG",
		"--dir D --default-spread zone":          "-default-spread: must be a map",
		"--dir D --pod-delete-delay-ms -1":       "pod-delete-delay-ms",
		"--dir D --pod-delete-delay-ms 1 --nope": "-nope",
	} {
		_, err := ParseOptions(strings.Fields(line), io.Discard)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: error %v does not contain %q", line, err, want)
		}
	}
}

func TestHelpIsNoFailure(t *testing.T) {
	var text strings.Builder
	if _, err := ParseOptions([]string{"--help"}, &text); !errors.Is(err, flag.ErrHelp) {
		t.Errorf("error %v", err)
	}
	for _, name := range []string{"-dir", "-gates", "-user", "-service-account", "-exit-with-parent"} {
		if !strings.Contains(text.String(), name) {
			t.Errorf("help does not mention %s", name)
		}
	}
}

func TestSingleGateOverridesItsSet(t *testing.T) {
	got, err := resolveFeatures(GatesAll, []string{"GenericWorkload=false", "Another=true"})
	if err != nil {
		t.Fatal(err)
	}
	gates := "," + got.gates + ","
	for _, want := range []string{",GenericWorkload=false,", ",Another=true,", ",DRADeviceTaintRules=true,"} {
		if !strings.Contains(gates, want) {
			t.Errorf("%s does not contain %s", got.gates, want)
		}
	}
	if strings.Contains(gates, "GenericWorkload=true") {
		t.Errorf("%s still sets the overridden gate", got.gates)
	}
}

func TestDefaultGatesSetNoFlag(t *testing.T) {
	got, err := resolveFeatures(GatesDefault, nil)
	if err != nil || got != (features{}) {
		t.Errorf("got %+v, %v", got, err)
	}
	for name, args := range arguments(layout{"D"}, ports{}, got) {
		if joined := strings.Join(args, " "); strings.Contains(joined, "--feature-gates") || strings.Contains(joined, "--runtime-config") {
			t.Errorf("%s gets %s", name, joined)
		}
	}
}

func TestNodesThatKwokIsLateWithAreNotGivenUp(t *testing.T) {
	args := arguments(layout{"D"}, ports{}, features{})
	if joined := strings.Join(args[ControllerManager], " "); !strings.Contains(joined, nodeGrace) {
		t.Errorf("no %s among %s", nodeGrace, joined)
	}
}

func TestAllGatesReachTheThreeComponentsThatReadThem(t *testing.T) {
	all, err := resolveFeatures(GatesAll, nil)
	if err != nil {
		t.Fatal(err)
	}
	args := arguments(layout{"D"}, ports{}, all)
	for _, name := range ComponentNames {
		joined := strings.Join(args[name], " ")
		reads := name == APIServer || name == ControllerManager || name == Scheduler
		if got := strings.Contains(joined, "--feature-gates="+all.gates); got != reads {
			t.Errorf("%s: has the gates: %t", name, got)
		}
		if got := strings.Contains(joined, "--runtime-config="); got != (name == APIServer) {
			t.Errorf("%s: has the API versions: %t", name, got)
		}
	}
}
