package cluster

import (
	"fmt"
	"sort"
	"strconv"
	"strings"
)

// GateSet names a choice of feature gates.
type GateSet string

const (
	// GatesDefault leaves every gate at its default: what most users run.
	GatesDefault GateSet = "default"
	// GatesAll turns on what is off by default around Dynamic Resource Allocation and pod groups.
	GatesAll GateSet = "all"
)

// features is what the gate options come to: the values of two command-line flags, empty where nothing is to be set.
type features struct {
	gates         string
	runtimeConfig string
}

// resolveFeatures applies single gates ("NAME=BOOL") on top of a set; the last mention of a gate counts.
func resolveFeatures(set GateSet, single []string) (features, error) {
	gates := map[string]bool{}
	var apis []string
	switch set {
	case GatesDefault:
	case GatesAll:
		for _, name := range offByDefault {
			gates[name] = true
		}
		for _, api := range apisOffByDefault {
			apis = append(apis, api+"=true")
		}
	default:
		return features{}, fmt.Errorf("--gates %q: must be %q or %q", set, GatesDefault, GatesAll)
	}
	for _, setting := range single {
		name, value, _ := strings.Cut(setting, "=")
		on, err := strconv.ParseBool(value)
		if name == "" || err != nil {
			return features{}, fmt.Errorf("--gate %q: must be NAME=true or NAME=false", setting)
		}
		gates[name] = on
	}
	list := make([]string, 0, len(gates))
	for name, on := range gates {
		list = append(list, fmt.Sprintf("%s=%t", name, on))
	}
	sort.Strings(list)
	return features{gates: strings.Join(list, ","), runtimeConfig: strings.Join(apis, ",")}, nil
}
