// Package cluster writes the configuration of a control plane on the loopback interface, runs its components as child
// processes and lets tests kill and restart them.
//
// Each component is a subcommand of this program, or a binary from a folder that the caller names; this package does not
// import Kubernetes, so that its tests link in a second.
package cluster

import (
	"crypto/rand"
	"encoding/hex"
	"errors"
	"flag"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strings"
	"time"

	"sigs.k8s.io/yaml"
)

// Options say what control plane to run. ParseOptions checks them.
type Options struct {
	Dir             string
	Gates           GateSet
	SingleGates     []string
	Users           []User
	KeepJobsRunning bool
	PodDeleteDelay  time.Duration
	// Stages are kwok's, from files: one replaces the default stage of its name, others come on top.
	Stages []object
	// DefaultSpread are kube-scheduler's topology spread constraints of pods that have none; none for its own defaults.
	DefaultSpread  []any
	ExtraArgs      map[string][]string // by component
	BootTimeout    time.Duration
	ShutdownGrace  time.Duration
	ExitWithParent bool
	// BinaryDir holds binaries to prefer to the subcommands; empty for none.
	BinaryDir string
	// Self is the path of this program.
	Self string
}

// User is an identity beside the administrator's.
type User struct {
	File   string // ends the name of its kubeconfig file
	Name   string
	Token  string
	Groups []string
}

const adminFile = "" // the administrator's kubeconfig has no suffix

var (
	fileName     = regexp.MustCompile(`^[A-Za-z0-9]([A-Za-z0-9._-]{0,62}[A-Za-z0-9])?$`)
	tokenPattern = regexp.MustCompile(`^[A-Za-z0-9._~+/=-]+$`)
)

// ParseOptions reads the command line of "up". It returns flag.ErrHelp after it has written the help to usage.
func ParseOptions(args []string, usage io.Writer) (Options, error) {
	options := Options{Gates: GatesDefault, ExtraArgs: map[string][]string{}}
	var podDeleteDelayMS, bootTimeoutMS, shutdownGraceMS uint

	flags := flag.NewFlagSet("control-plane up", flag.ContinueOnError)
	flags.SetOutput(usage)
	flags.StringVar(&options.Dir, "dir", "", "`folder` for data, configuration, logs and credentials (required)")
	flags.StringVar((*string)(&options.Gates), "gates", string(GatesDefault), "feature gates: default or all")
	flags.Func("gate", "sets one feature gate, `NAME=BOOL`; repeatable", func(value string) error {
		options.SingleGates = append(options.SingleGates, value)
		return nil
	})
	flags.Func("user", "one more user, `NAME:TOKEN[:GROUP,...]`; repeatable", func(value string) error {
		user, err := parseUser(value)
		options.Users = append(options.Users, user)
		return err
	})
	flags.Func("service-account", "a user taken for a ServiceAccount, `NAMESPACE/NAME[:TOKEN]`; repeatable", func(value string) error {
		user, err := parseServiceAccount(value)
		options.Users = append(options.Users, user)
		return err
	})
	flags.BoolVar(&options.KeepJobsRunning, "keep-jobs-running", false, "do not complete the pods of Jobs")
	flags.Func("kwok-stage", "a stage of kwok, in place of the default one of its name, in a YAML `FILE`; repeatable", func(path string) error {
		stage, err := readStage(path)
		options.Stages = append(options.Stages, stage)
		return err
	})
	flags.UintVar(&podDeleteDelayMS, "pod-delete-delay-ms", 0, "how long a deleted pod stays Terminating")
	flags.Func("default-spread", "a default topology spread constraint of kube-scheduler, `YAML`; repeatable", func(value string) error {
		var constraint object
		if err := yaml.UnmarshalStrict([]byte(value), &constraint); err != nil || len(constraint) == 0 {
			return errors.New("must be a map in YAML or JSON")
		}
		options.DefaultSpread = append(options.DefaultSpread, constraint)
		return nil
	})
	flags.Func("arg", "one more argument for a component, `COMPONENT=ARG`; repeatable", func(value string) error {
		component, arg, found := strings.Cut(value, "=")
		if !found || !slices.Contains(ComponentNames, component) {
			return fmt.Errorf("must be COMPONENT=ARG with a component of %s", strings.Join(ComponentNames, ", "))
		}
		options.ExtraArgs[component] = append(options.ExtraArgs[component], arg)
		return nil
	})
	flags.UintVar(&bootTimeoutMS, "boot-timeout-ms", 120_000, "give up when not everything is healthy by then")
	flags.UintVar(&shutdownGraceMS, "shutdown-grace-ms", 10_000, "at the end, SIGKILL what has not ended that long after SIGTERM; 0 kills at once")
	flags.BoolVar(&options.ExitWithParent, "exit-with-parent", false, "stop when standard input ends")
	if err := flags.Parse(args); err != nil {
		return Options{}, err
	}

	options.PodDeleteDelay = time.Duration(podDeleteDelayMS) * time.Millisecond
	options.BootTimeout = time.Duration(bootTimeoutMS) * time.Millisecond
	options.ShutdownGrace = time.Duration(shutdownGraceMS) * time.Millisecond
	if flags.NArg() > 0 {
		return Options{}, fmt.Errorf("unexpected argument %q", flags.Arg(0))
	}
	if options.Dir == "" {
		return Options{}, errors.New("--dir is required")
	}
	if _, err := resolveFeatures(options.Gates, options.SingleGates); err != nil {
		return Options{}, err
	}
	return options, checkUsers(options.Users)
}

func parseUser(value string) (User, error) {
	parts := strings.SplitN(value, ":", 3) // groups hold colons themselves
	if len(parts) < 2 {
		return User{}, errors.New("must be NAME:TOKEN[:GROUP,...]")
	}
	user := User{File: parts[0], Name: parts[0], Token: parts[1]}
	if len(parts) == 3 && parts[2] != "" {
		user.Groups = strings.Split(parts[2], ",")
	}
	return user, nil
}

func parseServiceAccount(value string) (User, error) {
	account, token, given := strings.Cut(value, ":")
	namespace, name, found := strings.Cut(account, "/")
	if !found || namespace == "" || name == "" {
		return User{}, errors.New("must be NAMESPACE/NAME[:TOKEN]")
	}
	if !given {
		token = randomToken()
	}
	return User{
		File:   name,
		Name:   "system:serviceaccount:" + namespace + ":" + name,
		Token:  token,
		Groups: []string{"system:serviceaccounts", "system:serviceaccounts:" + namespace},
	}, nil
}

func checkUsers(users []User) error {
	seen := map[string]bool{}
	for _, user := range users {
		if !fileName.MatchString(user.File) {
			return fmt.Errorf("user %q: the name must be one of a file, of letters, digits and inner '-', '_', '.'", user.File)
		}
		if !tokenPattern.MatchString(user.Token) {
			return fmt.Errorf("user %q: the token must be of letters, digits and '-._~+/='", user.File)
		}
		for _, key := range []string{"name " + user.File, "token " + user.Token} {
			if seen[key] {
				return fmt.Errorf("user %q: another user has the same %s", user.File, strings.Fields(key)[0])
			}
			seen[key] = true
		}
	}
	return nil
}

func randomToken() string {
	var bytes [16]byte
	_, _ = rand.Read(bytes[:]) // never fails, by its contract
	return hex.EncodeToString(bytes[:])
}
