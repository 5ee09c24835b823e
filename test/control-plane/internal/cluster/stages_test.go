package cluster

import (
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"
)

// stageNames gives the names of the stages that kwok is told to play, and the delay of the last.
func stageNames(t *testing.T, options Options) (names []string, lastDelay any) {
	t.Helper()
	stages, err := kwokStages(options)
	if err != nil {
		t.Fatal(err)
	}
	for _, stage := range stages {
		names = append(names, stage["metadata"].(object)["name"].(string))
	}
	return names, stages[len(stages)-1]["spec"].(object)["delay"]
}

func TestNodesHeartbeatWithoutLeases(t *testing.T) {
	names, delay := stageNames(t, Options{})
	want := []string{"node-initialize", "node-heartbeat", "pod-ready", "pod-complete", "pod-delete"}
	if !reflect.DeepEqual(names, want) || delay != nil {
		t.Errorf("stages %q, delay of the last %v", names, delay)
	}
	if lease := kwokConfig()["options"].(object)["nodeLeaseDurationSeconds"]; lease != 0 {
		t.Errorf("lease of %v seconds", lease)
	}
}

func TestStagesFollowTheOptions(t *testing.T) {
	names, delay := stageNames(t, Options{KeepJobsRunning: true, PodDeleteDelay: 1500 * time.Millisecond})
	want := []string{"node-initialize", "node-heartbeat", "pod-ready", "pod-delete"}
	if !reflect.DeepEqual(names, want) {
		t.Errorf("stages %q", names)
	}
	if !reflect.DeepEqual(delay, object{"durationMilliseconds": int64(1500)}) {
		t.Errorf("delay %v", delay)
	}
}

func TestAStageFromAFileReplacesTheDefaultOneOfItsNameOrComesOnTop(t *testing.T) {
	folder := t.TempDir()
	write := func(name, text string) string {
		path := filepath.Join(folder, name+".yaml")
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	slow := write("slow", "{kind: Stage, metadata: {name: pod-delete}, spec: {delay: {durationMilliseconds: 7}}}")
	another := write("another", "{kind: Stage, metadata: {name: pod-unhealthy}, spec: {weight: 100}}")
	options, err := ParseOptions([]string{"--dir", "D", "--kwok-stage", slow, "--kwok-stage", another}, os.Stderr)
	if err != nil {
		t.Fatal(err)
	}
	stages, err := kwokStages(options)
	if err != nil {
		t.Fatal(err)
	}
	delays := map[string]any{}
	for _, stage := range stages {
		delays[stageName(stage)] = stage["spec"].(object)["delay"]
	}
	if len(stages) != 6 || len(delays) != 6 {
		t.Errorf("%d stages of %d names", len(stages), len(delays))
	}
	if !reflect.DeepEqual(delays["pod-delete"], object{"durationMilliseconds": float64(7)}) {
		t.Errorf("pod-delete is not the file's: delay %v", delays["pod-delete"])
	}
	if _, found := delays["pod-unhealthy"]; !found {
		t.Error("pod-unhealthy is missing")
	}

	for text, want := range map[string]string{
		"{kind: Pod, metadata: {name: a}}": "must be one Stage",
		"{kind: Stage}":                    "must be one Stage",
		"kind: [":                          "yaml",
	} {
		if _, err := readStage(write("bad", text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: error %v does not contain %q", text, err, want)
		}
	}
	if _, err := readStage(filepath.Join(folder, "none.yaml")); err == nil {
		t.Error("a missing file is no error")
	}
}
