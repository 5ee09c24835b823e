// Command control-plane runs a real Kubernetes control plane for tests: etcd, kube-apiserver, kube-controller-manager,
// kube-scheduler, and kwok in place of kubelets. README.md is its manual.
//
// Build it with
//
//	CGO_ENABLED=0 go build -ldflags='-s -w' -o OUT .
//
// Feature gates, global flags and metrics registries allow one component in a process. So each is a subcommand, and "up"
// starts this program once for each of them.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"

	"dovetail.test/control-plane/internal/cluster"
	_ "dovetail.test/control-plane/internal/kubeversion"
)

const usage = `usage: control-plane up --dir D [options]          runs a control plane; "up --help" lists the options
       control-plane ctl --dir D COMMAND [...]    kills, stops, starts, pauses its components; see README.md
       control-plane COMPONENT [ARGUMENT ...]     runs one component: etcd, kube-apiserver,
                                                  kube-controller-manager, kube-scheduler or kwok
`

// Exit codes.
const (
	exitOK = iota
	exitFailure
	exitUsage
)

func main() {
	os.Exit(run(os.Args))
}

func run(args []string) int {
	if len(args) < 2 {
		fmt.Fprint(os.Stderr, usage)
		return exitUsage
	}
	switch name, rest := args[1], args[2:]; name {
	case "up":
		return up(rest)
	case "ctl":
		return control(rest)
	case "help", "-h", "--help":
		fmt.Print(usage)
		return exitOK
	default:
		component, ok := components[name]
		if !ok {
			fmt.Fprintf(os.Stderr, "control-plane: unknown command %q\n%s", name, usage)
			return exitUsage
		}
		return component(rest)
	}
}

func up(args []string) int {
	options, err := cluster.ParseOptions(args, os.Stderr)
	if errors.Is(err, flag.ErrHelp) {
		return exitOK
	}
	if err != nil {
		fmt.Fprintf(os.Stderr, "control-plane up: %v\n", err)
		return exitUsage
	}
	if options.Self, err = os.Executable(); err != nil {
		fmt.Fprintf(os.Stderr, "control-plane up: %v\n", err)
		return exitFailure
	}
	options.BinaryDir = os.Getenv("KUBEBUILDER_ASSETS")

	ctx, cancel := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP)
	defer cancel()
	// A reader of the progress that goes away must not take the control plane with it.
	signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE)
	if options.ExitWithParent {
		go func() {
			_, _ = io.Copy(io.Discard, os.Stdin) // an error ends it as well
			cancel()
		}()
	}
	if err := cluster.Up(ctx, options, os.Stdout, os.Stderr); err != nil {
		fmt.Fprintf(os.Stderr, "control-plane up: %v\n", err)
		return exitFailure
	}
	return exitOK
}

func control(args []string) int {
	flags := flag.NewFlagSet("control-plane ctl", flag.ContinueOnError)
	dir := flags.String("dir", "", "`folder` of a running control plane (required)")
	if err := flags.Parse(args); errors.Is(err, flag.ErrHelp) {
		return exitOK
	} else if err != nil {
		return exitUsage
	}
	if *dir == "" || flags.NArg() == 0 {
		fmt.Fprint(os.Stderr, usage)
		return exitUsage
	}
	line, ok, err := cluster.Control(*dir, flags.Args())
	if err != nil {
		fmt.Fprintf(os.Stderr, "control-plane ctl: %v\n", err)
		return exitFailure
	}
	fmt.Println(line)
	if !ok {
		return exitFailure
	}
	return exitOK
}
