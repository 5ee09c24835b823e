// Answers what upstream makes of device selectors.
//
// It reads JSON lines: {"device": {"driver", "attributes", "capacity", "allowMultipleAllocations"}} sets the device
// for the lines that follow; {"name", "expr", "features"} is a case. It writes the same lines, with "upstream" added to
// each case: {"match", "error", "actualCost", "maxCost"}, {"compileError"} for a text that is refused, or {"crash"} for one
// that the libraries crash on.
// Without "features" all gates are on. The same source is built against two releases: go.mod is v0.37.2, go_1_36.mod is
// v0.36.3.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"runtime/debug"
	"slices"
	"strings"

	resourceapi "k8s.io/api/resource/v1"
	dracel "k8s.io/dynamic-resource-allocation/cel"
)

type device struct {
	Driver                   string                                                    `json:"driver"`
	Attributes               map[resourceapi.QualifiedName]resourceapi.DeviceAttribute `json:"attributes"`
	Capacity                 map[resourceapi.QualifiedName]resourceapi.DeviceCapacity  `json:"capacity"`
	AllowMultipleAllocations *bool                                                     `json:"allowMultipleAllocations"`
}

type line struct {
	Device   json.RawMessage `json:"device,omitempty"`
	Name     string          `json:"name,omitempty"`
	Expr     *string         `json:"expr,omitempty"`
	Features *[]string       `json:"features,omitempty"`
	// The release whose libraries answer.
	Kubernetes string         `json:"kubernetes,omitempty"`
	Upstream   map[string]any `json:"upstream,omitempty"`
}

// release is the Kubernetes minor whose libraries this program was built with: v0.36.3 is 1.36.
func release() (string, error) {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "", errors.New("the program does not know what it was built from")
	}
	for _, module := range info.Deps {
		if module.Path != "k8s.io/dynamic-resource-allocation" {
			continue
		}
		if parts := strings.Split(module.Version, "."); len(parts) == 3 && parts[0] == "v0" {
			return "1." + parts[1], nil
		}
	}
	return "", errors.New("the program was built without a released k8s.io/dynamic-resource-allocation")
}

func answer(expression string, features dracel.Features, on device) (result map[string]any) {
	defer func() {
		if crash := recover(); crash != nil {
			result = map[string]any{"crash": fmt.Sprint(crash)}
		}
	}()
	compiled := dracel.GetCompiler(features).CompileCELExpression(expression, dracel.Options{})
	if compiled.Error != nil {
		return map[string]any{"compileError": compiled.Error.Detail}
	}
	matches, details, err := compiled.DeviceMatches(context.Background(), dracel.Device{
		Driver:                   on.Driver,
		AllowMultipleAllocations: on.AllowMultipleAllocations,
		Attributes:               on.Attributes,
		Capacity:                 on.Capacity,
	})
	result = map[string]any{"match": matches, "error": "", "maxCost": compiled.MaxCost}
	if err != nil {
		result["error"] = err.Error()
	}
	if details != nil && details.ActualCost() != nil {
		result["actualCost"] = *details.ActualCost()
	}
	return result
}

func run() error {
	kubernetes, err := release()
	if err != nil {
		return err
	}
	lines := bufio.NewScanner(os.Stdin)
	lines.Buffer(nil, 64<<20)
	out := bufio.NewWriter(os.Stdout)
	encoder := json.NewEncoder(out)
	encoder.SetEscapeHTML(false)
	var on device
	for lines.Scan() {
		var next line
		if err := json.Unmarshal(lines.Bytes(), &next); err != nil {
			return fmt.Errorf("reading %q: %w", lines.Text(), err)
		}
		if next.Device != nil {
			on = device{}
			if err := json.Unmarshal(next.Device, &on); err != nil {
				return fmt.Errorf("reading device: %w", err)
			}
		}
		if next.Expr != nil {
			features := dracel.Features{EnableConsumableCapacity: true, EnableListTypeAttributes: true}
			if next.Features != nil {
				features.EnableConsumableCapacity = slices.Contains(*next.Features, "DRAConsumableCapacity")
				features.EnableListTypeAttributes = slices.Contains(*next.Features, "DRAListTypeAttributes")
			}
			next.Kubernetes = kubernetes
			next.Upstream = answer(*next.Expr, features, on)
		}
		if err := encoder.Encode(next); err != nil {
			return err
		}
		// One line at a time, so that a caller can wait for each.
		if err := out.Flush(); err != nil {
			return err
		}
	}
	return lines.Err()
}

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
