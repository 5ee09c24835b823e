package cluster

import (
	"errors"
	"fmt"
	"os"
	"time"

	"sigs.k8s.io/kwok/kustomize/stage/node/fast"
	"sigs.k8s.io/kwok/kustomize/stage/node/heartbeat"
	podfast "sigs.k8s.io/kwok/kustomize/stage/pod/fast"
	"sigs.k8s.io/yaml"
)

// podDelete is kwok's stage that removes a deleted pod.
const podDelete = "pod-delete"

// kwokStages are the life cycles that kwok plays: its default ones, and those of the options.
func kwokStages(options Options) ([]object, error) {
	sources := []string{fast.DefaultNodeInit, heartbeat.DefaultNodeHeartbeat, podfast.DefaultPodReady}
	if !options.KeepJobsRunning {
		sources = append(sources, podfast.DefaultPodComplete)
	}
	sources = append(sources, podfast.DefaultPodDelete)

	stages := make([]object, len(sources))
	places := map[string]int{}
	for i, source := range sources {
		if err := yaml.Unmarshal([]byte(source), &stages[i]); err != nil {
			return nil, fmt.Errorf("stage %d of kwok: %w", i, err)
		}
		places[stageName(stages[i])] = i
	}
	for _, stage := range options.Stages {
		if i, found := places[stageName(stage)]; found {
			stages[i] = stage
			continue
		}
		places[stageName(stage)] = len(stages)
		stages = append(stages, stage)
	}
	return stages, delayStage(stages[places[podDelete]], options.PodDeleteDelay)
}

// readStage reads one stage from a file.
func readStage(path string) (object, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	var stage object
	if err := yaml.Unmarshal(text, &stage); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	if stage["kind"] != "Stage" || stageName(stage) == "" {
		return nil, fmt.Errorf("%s: must be one Stage of kwok with a name", path)
	}
	return stage, nil
}

// stageName is metadata.name, empty where there is none.
func stageName(stage object) string {
	metadata, _ := stage["metadata"].(object)
	name, _ := metadata["name"].(string)
	return name
}

func delayStage(stage object, delay time.Duration) error {
	spec, ok := stage["spec"].(object)
	if !ok {
		return errors.New("a stage of kwok has no spec")
	}
	if delay > 0 {
		spec["delay"] = object{"durationMilliseconds": delay.Milliseconds()}
	}
	return nil
}
