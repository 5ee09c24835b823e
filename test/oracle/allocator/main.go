// Answers allocation questions with kube-scheduler's own allocator: JSON lines in, JSON lines out.
//
// A question holds the objects of a small cluster and the claims of its pods; see question. Pods are taken in order, and
// each is tried on the nodes in order until one has devices for it, which count for the pods that follow. An answer is
// what the allocator returned at each attempt: one result for each claim, none if nothing fits, or an error. The same
// source is built against two releases, see README.md.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"reflect"
	"slices"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/dynamic-resource-allocation/cel"
	"k8s.io/dynamic-resource-allocation/structured"
)

const (
	maxLineBytes      = 256 << 20
	celCacheEntries   = 1024
	defaultTimeoutSec = 10
)

// question is a cluster and the pods that want devices, one after the other. Devices are [driver, pool, device].
type question struct {
	Name       string                         `json:"name"`
	Features   []string                       `json:"features"`
	Classes    []*resourceapi.DeviceClass     `json:"classes"`
	Slices     []*resourceapi.ResourceSlice   `json:"slices"`
	TaintRules []json.RawMessage              `json:"taintRules"`
	Nodes      []*v1.Node                     `json:"nodes"`
	Pods       [][]*resourceapi.ResourceClaim `json:"pods"`
	// Node and Claims are a question of one node and one pod.
	Node                   *v1.Node                     `json:"node"`
	Claims                 []*resourceapi.ResourceClaim `json:"claims"`
	AllocatedDevices       [][3]string                  `json:"allocatedDevices"`
	AllocatedSharedDevices [][3]string                  `json:"allocatedSharedDevices"`
	AggregatedCapacity     []consumed                   `json:"aggregatedCapacity"`
	Bench                  *benchmark                   `json:"bench"`
}

type consumed struct {
	Device   [3]string                                       `json:"device"`
	Consumed map[resourceapi.QualifiedName]resource.Quantity `json:"consumed"`
}

type answer struct {
	Name     string    `json:"name"`
	Attempts []attempt `json:"attempts"`
	// Measured is there instead if the question has a benchmark.
	Measured *measurement `json:"measured,omitempty"`
}

// attempt is one pod on one node, by their positions in the question.
type attempt struct {
	Pod     int                            `json:"pod"`
	Node    int                            `json:"node"`
	Results []resourceapi.AllocationResult `json:"results"`
	Error   string                         `json:"error,omitempty"`
	// Scope says for whom an error is one: node, after which other nodes are tried, or pod, whose attempt it ends.
	Scope string `json:"scope,omitempty"`
	// Unanswered says that there is no answer: the time was over, or the allocator crashed. It is the last attempt.
	Unanswered bool `json:"unanswered,omitempty"`
	Crashed    bool `json:"crashed,omitempty"`
	// Micros is the time of the allocation alone.
	Micros int64 `json:"micros"`
}

type classes map[string]*resourceapi.DeviceClass

func (c classes) List() ([]*resourceapi.DeviceClass, error) {
	list := make([]*resourceapi.DeviceClass, 0, len(c))
	for _, class := range c {
		list = append(list, class)
	}
	return list, nil
}

func (c classes) Get(name string) (*resourceapi.DeviceClass, error) {
	if class, ok := c[name]; ok {
		return class, nil
	}
	return nil, fmt.Errorf("class %s not found", name)
}

func main() {
	timeout := flag.Int("timeout-seconds", defaultTimeoutSec, "give up a question after that long")
	flag.Parse()
	// The stable variant's answers depend on the order of Go's maps.
	structured.EnableAllocators("incubating", "experimental")
	if err := run(time.Duration(*timeout) * time.Second); err != nil {
		fmt.Fprintln(os.Stderr, "allocator oracle:", err)
		os.Exit(1)
	}
}

func run(timeout time.Duration) error {
	in := bufio.NewScanner(os.Stdin)
	in.Buffer(make([]byte, 0, 1<<20), maxLineBytes)
	out := bufio.NewWriter(os.Stdout)
	encoder := json.NewEncoder(out)
	for line := 1; in.Scan(); line++ {
		var q question
		if err := json.Unmarshal(in.Bytes(), &q); err != nil {
			return fmt.Errorf("line %d: %w", line, err)
		}
		reply, err := ask(&q, timeout)
		if err != nil {
			return fmt.Errorf("line %d (%s): %w", line, q.Name, err)
		}
		if err := encoder.Encode(reply); err != nil {
			return err
		}
		// One line at a time, so that a caller can wait for each.
		if err := out.Flush(); err != nil {
			return err
		}
	}
	return in.Err()
}

// celCaches keep what was compiled from one question to the next, as the scheduler does between pods.
var celCaches = map[cel.Features]*cel.Cache{}

func celCache(features structured.Features) *cel.Cache {
	key := celFeatures(features)
	cache, ok := celCaches[key]
	if !ok {
		cache = cel.NewCache(celCacheEntries, key)
		celCaches[key] = cache
	}
	return cache
}

func ask(q *question, timeout time.Duration) (*answer, error) {
	names := q.Features
	features, err := featureSet(names)
	if err != nil {
		return nil, err
	}
	lister := classes{}
	for _, class := range q.Classes {
		lister[class.Name] = class
	}
	if q.Pods == nil {
		q.Pods = [][]*resourceapi.ResourceClaim{q.Claims}
	}
	if q.Nodes == nil {
		if q.Node == nil {
			q.Node = &v1.Node{}
		}
		q.Nodes = []*v1.Node{q.Node}
	}
	published := q.Slices
	if len(q.TaintRules) > 0 && slices.Contains(names, "DRADeviceTaints") && slices.Contains(names, "DRADeviceTaintRules") {
		if published, err = applyTaintRules(q.Slices, q.TaintRules, features.ConsumableCapacity); err != nil {
			return nil, err
		}
	}
	reply := &answer{Name: q.Name}
	if q.Bench != nil {
		measure := repeat
		if q.Bench.Gather != "" {
			measure = cluster
		}
		reply.Measured, err = measure(q, features, lister, timeout)
		return reply, err
	}
	state := allocatedState(q)
	for pod, claims := range q.Pods {
		for node := range q.Nodes {
			// One allocator for each node. kube-scheduler asks one for all nodes of a pod, from several goroutines, and
			// what it remembers from the first (free counters of a pool) then depends on which was first.
			ctx, cancel := context.WithTimeout(context.Background(), timeout)
			allocator, err := structured.NewAllocator(ctx, asScheduled(features), state, lister, published, celCache(features))
			if err != nil {
				cancel()
				return nil, err
			}
			tried := allocate(ctx, allocator, q.Nodes[node], claims)
			cancel()
			tried.Pod, tried.Node = pod, node
			reply.Attempts = append(reply.Attempts, tried)
			if tried.Unanswered {
				return reply, nil
			}
			if tried.Error == "" && len(tried.Results) > 0 {
				charge(&state, tried.Results, features.ConsumableCapacity)
				break
			}
		}
	}
	return reply, nil
}

func allocate(
	ctx context.Context, allocator structured.Allocator, node *v1.Node, claims []*resourceapi.ResourceClaim,
) (tried attempt) {
	start := time.Now()
	defer func() {
		if crash := recover(); crash != nil {
			tried.Error = fmt.Sprint(crash)
			tried.Unanswered = true
			tried.Crashed = true
		}
		tried.Micros = time.Since(start).Microseconds()
	}()
	results, err := allocator.Allocate(ctx, node, claims)
	tried.Results = results
	if err != nil {
		tried.Error = err.Error()
		tried.Scope = "pod"
		if errors.Is(err, structured.ErrFailedAllocationOnNode) {
			tried.Scope = "node"
		}
		tried.Unanswered = errors.Is(err, context.DeadlineExceeded)
	}
	return tried
}

// charge counts what was allocated, as the scheduler does when it gathers the state: admin access holds nothing, a share
// holds its capacity, anything else the whole device.
func charge(state *structured.AllocatedState, results []resourceapi.AllocationResult, consumableCapacity bool) {
	for _, result := range results {
		for _, device := range result.Devices.Results {
			if device.AdminAccess != nil && *device.AdminAccess {
				continue
			}
			id := structured.MakeDeviceID(device.Driver, device.Pool, device.Device)
			if !consumableCapacity || device.ShareID == nil {
				state.AllocatedDevices.Insert(id)
				continue
			}
			state.AllocatedSharedDeviceIDs.Insert(structured.MakeSharedDeviceID(id, device.ShareID))
			if device.ConsumedCapacity != nil {
				state.AggregatedCapacity.Insert(structured.NewDeviceConsumedCapacity(id, device.ConsumedCapacity))
			}
		}
	}
}

// featureSet turns on what feature gates ask for. Gates are named after fields of Features, but for DRA in front; the
// field for binding conditions stands for two gates. A gate that this release does not have stays off.
func featureSet(names []string) (structured.Features, error) {
	var features structured.Features
	value := reflect.ValueOf(&features).Elem()
	for _, name := range names {
		field := strings.TrimPrefix(name, "DRA")
		switch {
		case strings.HasPrefix(field, "DeviceBindingConditions"):
			field = "DeviceBindingAndStatus"
		case field == "DeviceCompatibilityGroups":
			field = "CompatibilityGroups"
		}
		if target := value.FieldByName(field); target.IsValid() {
			target.SetBool(true)
		}
	}
	return features, nil
}

func celFeatures(features structured.Features) cel.Features {
	var result cel.Features
	target := reflect.ValueOf(&result).Elem()
	source := reflect.ValueOf(features)
	for index := 0; index < target.NumField(); index++ {
		name := strings.TrimPrefix(strings.TrimPrefix(target.Type().Field(index).Name, "Enable"), "DRA")
		if field := source.FieldByName(name); field.IsValid() {
			target.Field(index).SetBool(field.Bool())
		}
	}
	return result
}

func allocatedState(q *question) structured.AllocatedState {
	devices := sets.New[structured.DeviceID]()
	for _, id := range q.AllocatedDevices {
		devices.Insert(structured.MakeDeviceID(id[0], id[1], id[2]))
	}
	shared := sets.New[structured.SharedDeviceID]()
	for index, id := range q.AllocatedSharedDevices {
		share := types.UID(fmt.Sprintf("share-%d", index))
		shared.Insert(structured.MakeSharedDeviceID(structured.MakeDeviceID(id[0], id[1], id[2]), &share))
	}
	capacity := structured.NewConsumedCapacityCollection()
	for _, entry := range q.AggregatedCapacity {
		id := structured.MakeDeviceID(entry.Device[0], entry.Device[1], entry.Device[2])
		capacity.Insert(structured.NewDeviceConsumedCapacity(id, entry.Consumed))
	}
	return structured.AllocatedState{
		AllocatedDevices:         devices,
		AllocatedSharedDeviceIDs: shared,
		AggregatedCapacity:       capacity,
	}
}
