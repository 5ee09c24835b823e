// Answers what upstream makes of device selectors.
//
// It reads JSON lines: {"device": {"driver", "attributes", "capacity", "allowMultipleAllocations"}} sets the device
// for the lines that follow; {"name", "expr", "features"} is a case. It writes the same lines, with "upstream" added to
// each case: {"match", "error", "actualCost", "maxCost"}, or {"compileError"} for a text that is refused.
// Without "features" all gates are on.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"slices"

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

const kubernetes = "1.36"

func answer(expression string, features dracel.Features, on device) map[string]any {
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
	result := map[string]any{"match": matches, "error": "", "maxCost": compiled.MaxCost}
	if err != nil {
		result["error"] = err.Error()
	}
	if details != nil && details.ActualCost() != nil {
		result["actualCost"] = *details.ActualCost()
	}
	return result
}

func run() error {
	lines := bufio.NewScanner(os.Stdin)
	lines.Buffer(nil, 64<<20)
	out := bufio.NewWriter(os.Stdout)
	defer out.Flush()
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
	}
	return lines.Err()
}

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
