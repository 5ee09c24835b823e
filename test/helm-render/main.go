// Command helm-render prints the manifests of a chart, as "helm template" does, with nothing installed but Go.
//
//	helm-render CHART_DIR [--name R] [--namespace N] [--values F]... [--set K=V]... [--include-crds]
//	            [--kube-version V] [--api-versions GROUP/VERSION[/KIND]]...
//
// Values are checked against the chart's values.schema.json. Build it with "CGO_ENABLED=0 go build -o OUT .". Exit
// codes: 0, 1 if the chart does not render or its values are refused, 2 for usage.
package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
)

// defaultKubeVersion is that of test/control-plane. The library's own default is years old; Helm overwrites it in its build.
const defaultKubeVersion = "v1.36.3"

func main() {
	os.Exit(run(os.Args[1:], os.Stdout, os.Stderr))
}

func run(args []string, stdout, stderr io.Writer) int {
	options, err := parseOptions(args, stderr)
	switch {
	case errors.Is(err, flag.ErrHelp):
		return 0
	case err != nil:
		fmt.Fprintf(stderr, "helm-render: %v\n", err)
		return 2
	}
	manifests, err := render(options)
	if err != nil {
		fmt.Fprintf(stderr, "helm-render %s: %v\n", options.chartDir, err)
		return 1
	}
	if _, err := io.WriteString(stdout, manifests); err != nil {
		fmt.Fprintf(stderr, "helm-render: %v\n", err)
		return 1
	}
	return 0
}

func parseOptions(args []string, usage io.Writer) (options, error) {
	var o options
	flags := flag.NewFlagSet("helm-render CHART_DIR", flag.ContinueOnError)
	flags.SetOutput(usage)
	flags.StringVar(&o.name, "name", "release-name", "name of the release")
	flags.StringVar(&o.namespace, "namespace", "default", "namespace of the release")
	flags.BoolVar(&o.includeCRDs, "include-crds", false, "print the chart's crds/ first")
	flags.StringVar(&o.kubeVersion, "kube-version", defaultKubeVersion, "Kubernetes `version` to render for")
	flags.Func("values", "`file` of values; repeatable, the last wins", appendTo(&o.valueFiles))
	flags.Func("set", "one value, `KEY=VALUE`; repeatable, goes before --values", appendTo(&o.settings))
	flags.Func("api-versions", "an `API` that the cluster is to serve; repeatable", appendTo(&o.apiVersions))

	var positional []string
	for rest := args; ; { // flags may stand on both sides of the chart
		if err := flags.Parse(rest); err != nil {
			return options{}, err
		}
		if flags.NArg() == 0 {
			break
		}
		positional, rest = append(positional, flags.Arg(0)), flags.Args()[1:]
	}
	if len(positional) != 1 {
		return options{}, fmt.Errorf("needs one chart folder, got %d", len(positional))
	}
	o.chartDir = positional[0]
	return o, nil
}

func appendTo(list *[]string) func(string) error {
	return func(value string) error {
		*list = append(*list, value)
		return nil
	}
}
