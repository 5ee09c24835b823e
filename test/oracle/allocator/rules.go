package main

import (
	"context"
	"encoding/json"
	"fmt"
	"sort"
	"time"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/dynamic-resource-allocation/resourceslice/tracker"
)

const (
	trackerTimeout = 10 * time.Second
	trackerPoll    = 100 * time.Microsecond
)

// applyTaintRules gives the slices as the scheduler sees them: with the taints of rules added by upstream's tracker. Their
// order stays.
func applyTaintRules(
	published []*resourceapi.ResourceSlice, rules []json.RawMessage, consumableCapacity bool,
) ([]*resourceapi.ResourceSlice, error) {
	ctx, cancel := context.WithTimeout(context.Background(), trackerTimeout)
	defer cancel()
	var objects []runtime.Object
	order := map[string]int{}
	for index, slice := range published {
		if _, twice := order[slice.Name]; twice {
			return nil, fmt.Errorf("two slices are called %s", slice.Name)
		}
		order[slice.Name] = index
		objects = append(objects, slice)
	}
	for _, rule := range rules {
		served := newTaintRule()
		if err := json.Unmarshal(rule, served); err != nil {
			return nil, err
		}
		objects = append(objects, served)
	}
	client := fake.NewClientset(objects...)
	factory := informers.NewSharedInformerFactory(client, 0)
	tracked, err := tracker.StartTracker(ctx, trackerOptions(factory, consumableCapacity))
	if err != nil {
		return nil, err
	}
	defer tracked.Stop()
	factory.Start(ctx.Done())
	for !tracked.HasSynced() {
		if ctx.Err() != nil {
			return nil, fmt.Errorf("taint rules: the tracker is not in sync after %s", trackerTimeout)
		}
		time.Sleep(trackerPoll)
	}
	patched, err := tracked.ListPatchedResourceSlices()
	if err != nil {
		return nil, err
	}
	if len(patched) != len(published) {
		return nil, fmt.Errorf("taint rules: %d slices of %d came back", len(patched), len(published))
	}
	sort.Slice(patched, func(a, b int) bool { return order[patched[a].Name] < order[patched[b].Name] })
	cancel()
	factory.Shutdown()
	return patched, nil
}
