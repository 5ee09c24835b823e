package main

import (
	"context"
	"fmt"
	"maps"
	"os"
	"strconv"
	"strings"
	"syscall"
	"time"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/dynamic-resource-allocation/structured"
)

// benchmark asks for times instead of answers.
type benchmark struct {
	// Repeat is how often each pod is allocated on each node, with one allocator, after a first time that is not counted.
	Repeat int `json:"repeat"`
	// Gather says how the state is read for each pod of a cluster: "incremental" as the scheduler's plugin does, which
	// follows events and copies its sets for each pod, or "relist", from all claims each time. Pods are then taken in
	// order, each on the first node that has devices, beginning after the node of the pod before.
	Gather string `json:"gather"`
	// AllocatedClaims are in the cluster from the start.
	AllocatedClaims []*resourceapi.ResourceClaim `json:"allocatedClaims"`
}

type measurement struct {
	// CPUNanos is what the process used, garbage collection included, for all repetitions or the whole cluster.
	CPUNanos  int64 `json:"cpuNanos"`
	WallNanos int64 `json:"wallNanos"`
	// Allocations is how often Allocate was called.
	Allocations int `json:"allocations"`
	// Placed is how many pods got devices.
	Placed   int   `json:"placed"`
	TimedOut bool  `json:"timedOut"`
	PeakKiB  int64 `json:"peakKib"`
}

type stopwatch struct {
	cpu  int64
	wall time.Time
}

func startStopwatch() stopwatch {
	return stopwatch{cpu: cpuNanos(), wall: time.Now()}
}

func (s stopwatch) stop(into *measurement) {
	into.CPUNanos = cpuNanos() - s.cpu
	into.WallNanos = time.Since(s.wall).Nanoseconds()
	into.PeakKiB = peakKiB()
}

func cpuNanos() int64 {
	var usage syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &usage); err != nil {
		return 0
	}
	return usage.Utime.Nano() + usage.Stime.Nano()
}

// peakKiB is what Linux says, 0 elsewhere.
func peakKiB() int64 {
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return 0
	}
	for line := range strings.Lines(string(status)) {
		if rest, ok := strings.CutPrefix(line, "VmHWM:"); ok {
			peak, _ := strconv.ParseInt(strings.TrimSpace(strings.TrimSuffix(strings.TrimSpace(rest), "kB")), 10, 64)
			return peak
		}
	}
	return 0
}

// repeat measures the same allocations again and again.
func repeat(q *question, features structured.Features, lister classes, timeout time.Duration) (*measurement, error) {
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	result := &measurement{}
	state := allocatedState(q)
	allocator, err := structured.NewAllocator(ctx, asScheduled(features), state, lister, q.Slices, celCache(features))
	if err != nil {
		return nil, err
	}
	once := func() bool {
		for _, claims := range q.Pods {
			for _, node := range q.Nodes {
				tried := allocate(ctx, allocator, node, claims)
				if tried.Unanswered {
					result.TimedOut = true
					return false
				}
				result.Allocations++
				if len(tried.Results) > 0 {
					result.Placed++
				}
			}
		}
		return true
	}
	watch := startStopwatch()
	if q.Bench.Repeat == 0 {
		once()
		watch.stop(result)
		return result, nil
	}
	if !once() {
		watch.stop(result)
		return result, nil
	}
	*result = measurement{}
	watch = startStopwatch()
	for range q.Bench.Repeat {
		if !once() {
			break
		}
	}
	watch.stop(result)
	return result, nil
}

// cluster measures pods in order, each charged before the next, gathering included.
func cluster(q *question, features structured.Features, lister classes, timeout time.Duration) (*measurement, error) {
	result := &measurement{}
	claims := append([]*resourceapi.ResourceClaim(nil), q.Bench.AllocatedClaims...)
	watch := startStopwatch()
	kept := gather(claims, features)
	next := 0
	for _, pod := range q.Pods {
		ctx, cancel := context.WithTimeout(context.Background(), timeout)
		var state structured.AllocatedState
		switch q.Bench.Gather {
		case "incremental":
			state = structured.AllocatedState{
				AllocatedDevices:         kept.AllocatedDevices.Clone(),
				AllocatedSharedDeviceIDs: kept.AllocatedSharedDeviceIDs.Clone(),
				AggregatedCapacity:       maps.Clone(kept.AggregatedCapacity),
			}
		case "relist":
			state = gather(claims, features)
		default:
			cancel()
			return nil, fmt.Errorf("unknown way to gather: %q", q.Bench.Gather)
		}
		allocator, err := structured.NewAllocator(ctx, asScheduled(features), state, lister, q.Slices, celCache(features))
		if err != nil {
			cancel()
			return nil, err
		}
		for range q.Nodes {
			node := q.Nodes[next%len(q.Nodes)]
			next++
			tried := allocate(ctx, allocator, node, pod)
			result.Allocations++
			if tried.Unanswered {
				result.TimedOut = true
				break
			}
			if len(tried.Results) > 0 {
				result.Placed++
				charge(&kept, tried.Results, features.ConsumableCapacity)
				for index := range tried.Results {
					claim := pod[index].DeepCopy()
					claim.Status.Allocation = &tried.Results[index]
					claims = append(claims, claim)
				}
				break
			}
		}
		cancel()
	}
	watch.stop(result)
	return result, nil
}

func gather(claims []*resourceapi.ResourceClaim, features structured.Features) structured.AllocatedState {
	state := allocatedState(&question{})
	for _, claim := range claims {
		if claim.Status.Allocation != nil {
			charge(&state, []resourceapi.AllocationResult{*claim.Status.Allocation}, features.ConsumableCapacity)
		}
	}
	return state
}
