// Answers allocation questions with kube-scheduler's own allocator: JSON lines in, JSON lines out.
//
// A question holds the objects of one node and its pod's claims; see question. An answer is what the allocator returned:
// one result for each claim, none if nothing fits, or an error. The same source is built against two releases, see
// README.md.
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
	maxLineBytes      = 64 << 20
	celCacheEntries   = 256
	defaultTimeoutSec = 10
)

// question is one allocation to be made. Devices are [driver, pool, device].
type question struct {
	Name                   string                       `json:"name"`
	Features               []string                     `json:"features"`
	Claims                 []*resourceapi.ResourceClaim `json:"claims"`
	Classes                []*resourceapi.DeviceClass   `json:"classes"`
	Slices                 []*resourceapi.ResourceSlice `json:"slices"`
	Node                   *v1.Node                     `json:"node"`
	AllocatedDevices       [][3]string                  `json:"allocatedDevices"`
	AllocatedSharedDevices [][3]string                  `json:"allocatedSharedDevices"`
	AggregatedCapacity     []consumed                   `json:"aggregatedCapacity"`
}

type consumed struct {
	Device   [3]string                                       `json:"device"`
	Consumed map[resourceapi.QualifiedName]resource.Quantity `json:"consumed"`
}

type answer struct {
	Name    string                         `json:"name"`
	Results []resourceapi.AllocationResult `json:"results"`
	Error   string                         `json:"error,omitempty"`
	// Unanswered says that there is no answer: the time was over, or the allocator crashed on an object that an API
	// server would have refused.
	Unanswered bool `json:"unanswered,omitempty"`
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

func ask(q *question, timeout time.Duration) (*answer, error) {
	features, err := featureSet(q.Features)
	if err != nil {
		return nil, err
	}
	lister := classes{}
	for _, class := range q.Classes {
		lister[class.Name] = class
	}
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	cache := cel.NewCache(celCacheEntries, celFeatures(features))
	allocator, err := structured.NewAllocator(ctx, features, allocatedState(q), lister, q.Slices, cache)
	if err != nil {
		return nil, err
	}
	node := q.Node
	if node == nil {
		node = &v1.Node{}
	}
	return allocate(ctx, allocator, node, q), nil
}

func allocate(ctx context.Context, allocator structured.Allocator, node *v1.Node, q *question) (reply *answer) {
	reply = &answer{Name: q.Name}
	start := time.Now()
	defer func() {
		if crash := recover(); crash != nil {
			reply.Error = fmt.Sprint(crash)
			reply.Unanswered = true
		}
		reply.Micros = time.Since(start).Microseconds()
	}()
	results, err := allocator.Allocate(ctx, node, q.Claims)
	reply.Results = results
	if err != nil {
		reply.Error = err.Error()
		reply.Unanswered = errors.Is(err, context.DeadlineExceeded)
	}
	return reply
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
