// karpenter plans one case of the scheduling benchmark with Karpenter's own scheduler and prints what it did, or
// consolidates one of the consolidation benchmark with Karpenter's own methods.
//
// It is a process of its own for each case, so that its memory and its garbage are its own. The case is a file of JSON
// lines (see test/bench/src/case.rs); the answer is one JSON object on standard output.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"runtime"
	"runtime/debug"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/karpenter/pkg/cloudprovider"
	"sigs.k8s.io/karpenter/pkg/cloudprovider/fake"
	"sigs.k8s.io/karpenter/pkg/controllers/provisioning/scheduling"
	"sigs.k8s.io/karpenter/pkg/controllers/state"
	"sigs.k8s.io/karpenter/pkg/events"
	"sigs.k8s.io/karpenter/pkg/operator/options"
	"sigs.k8s.io/karpenter/pkg/utils/nodepool"
)

type silent struct{}

func (silent) Publish(...events.Event) {}

func main() {
	path := flag.String("case", "", "file of the case")
	limit := flag.Duration("limit", 5*time.Minute, "when to stop planning")
	workers := flag.Int("workers", 1, "candidates of one pod that are looked at at once")
	wantsLess := flag.Bool("consolidate", false, "consolidate the nodes of the case, in place of planning for its pods")
	version := flag.Bool("print-versions", false, "print what this program is made of and end")
	flag.Parse()
	if *version {
		fmt.Println(versions())
		return
	}
	log.SetLogger(logr.Discard())
	var answer any
	var err error
	if *wantsLess {
		answer, err = consolidate(*path, *limit)
	} else {
		answer, err = run(*path, *limit, *workers)
	}
	if err == nil {
		err = json.NewEncoder(os.Stdout).Encode(answer)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "error:", err)
		os.Exit(1)
	}
}

// settings are Karpenter's defaults, with claims left to others: no case has any.
func settings() *options.Options {
	return &options.Options{
		PreferencePolicy:  options.PreferencePolicyRespect,
		MinValuesPolicy:   options.MinValuesPolicyStrict,
		IgnoreDRARequests: true,
		FeatureGates:      options.DefaultFeatureGates(),
	}
}

func run(path string, limit time.Duration, workers int) (*answer, error) {
	begun := time.Now()
	input, err := readCase(path)
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", path, err)
	}
	settings := settings()
	ctx := settings.ToContext(context.Background())
	reader := newReader(input)
	cluster := state.NewCluster(clock.RealClock{}, reader, fake.NewCloudProvider())
	for _, node := range input.nodes {
		if err := cluster.UpdateNode(ctx, node); err != nil {
			return nil, fmt.Errorf("node %s: %w", node.Name, err)
		}
	}
	nodepool.OrderByWeight(input.nodePools)
	// A round reads the instance types from the provider's cache, the same objects for every pool.
	types := map[string][]*cloudprovider.InstanceType{}
	for _, pool := range input.nodePools {
		types[pool.Name] = input.instanceTypes
	}
	read := time.Since(begun)
	runtime.GC()

	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	schedulerOptions := []scheduling.Options{
		scheduling.NumConcurrentReconciles(workers), scheduling.DisableReservedCapacityFallback,
		scheduling.MinValuesPolicy(settings.MinValuesPolicy),
	}
	if input.ignorePreferences {
		schedulerOptions = append(schedulerOptions, scheduling.IgnorePreferences)
	}

	// What Karpenter does anew in each round: nodes copied, topology, scheduler, solution, truncation.
	before := usage()
	nodes := cluster.DeepCopyNodes()
	topology, err := scheduling.NewTopology(ctx, reader, cluster, nodes, input.nodePools, types, input.pending, schedulerOptions...)
	if err != nil {
		return nil, fmt.Errorf("topology: %w", err)
	}
	scheduler := scheduling.NewScheduler(ctx, reader, input.nodePools, cluster, nodes, topology, types, input.daemonPods,
		silent{}, clock.RealClock{}, nil, nil, schedulerOptions...)
	beforeSolve := usage()
	results, err := scheduler.Solve(ctx, input.pending)
	timedOut := errors.Is(err, context.DeadlineExceeded) || ctx.Err() != nil
	if err != nil && !timedOut {
		return nil, fmt.Errorf("solve: %w", err)
	}
	afterSolve := usage()
	results = results.TruncateInstanceTypes(ctx, scheduling.MaxInstanceTypes)
	after := usage()

	answer := answerOf(results, input)
	answer.TimedOut = timedOut
	answer.ReadNanos = read.Nanoseconds()
	answer.CPUNanos = after.cpu - before.cpu
	answer.WallNanos = after.wall.Sub(before.wall).Nanoseconds()
	answer.SolveCPUNanos = afterSolve.cpu - beforeSolve.cpu
	answer.PeakKiB = after.peakKiB
	return answer, nil
}

func versions() string {
	karpenter := "unknown"
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, module := range info.Deps {
			if module.Path == "sigs.k8s.io/karpenter" {
				karpenter = module.Version
			}
		}
	}
	return fmt.Sprintf("Karpenter %s, %s", karpenter, runtime.Version())
}

func isUnschedulable(pod *corev1.Pod) *corev1.Pod {
	pod.Status.Phase = corev1.PodPending
	pod.Status.Conditions = []corev1.PodCondition{{
		Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: corev1.PodReasonUnschedulable,
	}}
	return pod
}
