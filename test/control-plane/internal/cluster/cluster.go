package cluster

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"
)

// Ready is what "up" prints once everything is healthy.
type Ready struct {
	Kubeconfig    string            `json:"kubeconfig"`
	Server        string            `json:"server"`
	Version       string            `json:"version"`
	ControlSocket string            `json:"controlSocket"`
	Users         map[string]string `json:"users"` // kubeconfig by name
	PIDs          map[string]int    `json:"pids"`
	Metrics       map[string]string `json:"metrics"` // URL by component
	BootMs        int64             `json:"bootMs"`
}

// cluster is a control plane under supervision.
type cluster struct {
	options    Options
	layout     layout
	users      []User
	ports      ports
	reserved   []reservation
	components []*component // in the order of ComponentNames
	prober     *prober
	shutdown   context.CancelFunc
	begun      time.Time

	progressMu sync.Mutex
	progressTo io.Writer
}

// Up runs a control plane until ctx is done or a command says so. It writes one line to ready when everything is healthy,
// and what it does to progress.
func Up(ctx context.Context, options Options, ready, progress io.Writer) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	c := &cluster{options: options, shutdown: cancel, progressTo: progress, begun: time.Now()}

	unlock, err := c.prepare()
	if err != nil {
		return err
	}
	defer unlock()
	listener, err := listenControl(c.layout.controlSocket())
	if err != nil {
		return err
	}
	defer listener.Close() // also removes the file

	defer c.stopAll()
	if err := c.boot(ctx); err != nil {
		if ctx.Err() != nil {
			return nil // told to stop while it booted
		}
		return err
	}
	// Only now: during the boot, a command could start a component twice.
	go c.serveControl(ctx, listener)
	if err := c.announce(ctx, ready); err != nil {
		return err
	}
	<-ctx.Done()
	return nil
}

// prepare takes possession of the folder, reserves ports and writes all files.
func (c *cluster) prepare() (unlock func(), err error) {
	dir, err := filepath.Abs(c.options.Dir)
	if err != nil {
		return nil, err
	}
	c.layout = layout{dir}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, err
	}
	unlock, err = lock(c.layout.lock())
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			c.releasePorts()
			unlock()
		}
	}()
	// The lock tells that nobody listens on a socket left by a killed supervisor.
	if err := os.Remove(c.layout.controlSocket()); err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, err
	}
	if err := c.reservePorts(); err != nil {
		return nil, err
	}
	admin := User{File: adminFile, Name: "admin", Token: randomToken(), Groups: []string{"system:masters"}}
	c.users = append([]User{admin}, c.options.Users...)
	c.prober = newProber(c.ports, admin.Token)
	if err := c.layout.write(c.options, c.users, c.ports.serverURL()); err != nil {
		return nil, err
	}
	return unlock, c.makeComponents()
}

func (c *cluster) reservePorts() error {
	for name, port := range map[string]*int{
		Etcd:              &c.ports.etcd,
		APIServer:         &c.ports.apiServer,
		ControllerManager: &c.ports.controllerManager,
		Scheduler:         &c.ports.scheduler,
	} {
		reserved, err := reserve()
		if err != nil {
			return fmt.Errorf("port for %s: %w", name, err)
		}
		c.reserved = append(c.reserved, reserved)
		*port = reserved.port
	}
	return nil
}

func (c *cluster) releasePorts() {
	for _, reserved := range c.reserved {
		reserved.close()
	}
	c.reserved = nil
}

func (c *cluster) makeComponents() error {
	features, err := resolveFeatures(c.options.Gates, c.options.SingleGates)
	if err != nil {
		return err
	}
	args := arguments(c.layout, c.ports, features)
	spawner := newSpawner()
	for _, name := range ComponentNames {
		c.components = append(c.components, &component{
			name:    name,
			command: commandLine(c.options.Self, c.options.BinaryDir, name, append(args[name], c.options.ExtraArgs[name]...)),
			// kwok also loads the configuration in its user's home, unless it is told another place.
			env:     []string{"KWOK_WORKDIR=" + c.layout.kwokWorkDir()},
			logPath: c.layout.log(name),
			spawner: spawner,
		})
	}
	return nil
}

// boot starts the components, those first that the others need.
func (c *cluster) boot(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, c.options.BootTimeout)
	defer cancel()
	store, clients := c.components[:2], c.components[2:] // etcd and apiserver; the apiserver's clients
	for _, wave := range [][]*component{store, clients} {
		for _, component := range wave {
			if err := c.firstStart(component); err != nil {
				return fmt.Errorf("%s: %w", component.name, err)
			}
		}
		if err := c.waitHealthy(ctx, wave); err != nil {
			return err
		}
	}
	return nil
}

func (c *cluster) firstStart(component *component) error {
	if component.command[0] != c.options.Self {
		c.progress("%s is %s", component.name, component.command[0])
	}
	return component.start()
}

// waitHealthy returns when all targets are healthy, or with the first error.
func (c *cluster) waitHealthy(ctx context.Context, targets []*component) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	results := make(chan error, len(targets))
	for _, target := range targets {
		go func() {
			err := c.prober.wait(ctx, target)
			if err != nil {
				err = fmt.Errorf("%s: %w", target.name, err)
			} else {
				c.progress("%s is healthy", target.name)
			}
			results <- err
		}()
	}
	for range targets {
		if err := <-results; err != nil {
			return err
		}
	}
	return nil
}

func (c *cluster) announce(ctx context.Context, to io.Writer) error {
	version, err := c.prober.serverVersion(ctx)
	if err != nil {
		return fmt.Errorf("version of the apiserver: %w", err)
	}
	ready := Ready{
		Kubeconfig:    c.layout.kubeconfig(adminFile),
		Server:        c.ports.serverURL(),
		Version:       version,
		ControlSocket: c.layout.controlSocket(),
		Users:         map[string]string{},
		PIDs:          map[string]int{"supervisor": os.Getpid()},
		Metrics:       c.ports.metricsURLs(),
		BootMs:        time.Since(c.begun).Milliseconds(),
	}
	for _, user := range c.options.Users {
		ready.Users[user.File] = c.layout.kubeconfig(user.File)
	}
	for _, component := range c.components {
		ready.PIDs[component.name] = component.status().PID
	}
	return json.NewEncoder(to).Encode(ready)
}

func (c *cluster) stopAll() {
	defer c.releasePorts()
	for _, component := range slices.Backward(c.components) {
		if _, err := component.live(); err != nil {
			continue
		}
		if err := component.stop(c.options.ShutdownGrace); err != nil {
			c.progress("%s did not stop: %v", component.name, err)
			continue
		}
		c.progress("%s stopped (%s)", component.name, component.status().Exit)
	}
}

func (c *cluster) component(name string) (*component, error) {
	for _, component := range c.components {
		if component.name == name {
			return component, nil
		}
	}
	return nil, fmt.Errorf("unknown component %q; there are %s", name, strings.Join(ComponentNames, ", "))
}

func (c *cluster) progress(format string, args ...any) {
	c.progressMu.Lock()
	defer c.progressMu.Unlock()
	fmt.Fprintf(c.progressTo, "%6.2fs  %s\n", time.Since(c.begun).Seconds(), fmt.Sprintf(format, args...))
}

// lock makes this process the only one that uses the folder; the kernel drops the lock with the process.
func lock(path string) (unlock func(), err error) {
	file, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return nil, err
	}
	if err := syscall.Flock(int(file.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		file.Close()
		return nil, fmt.Errorf("%s: another control plane runs in this folder", filepath.Dir(path))
	}
	return func() { file.Close() }, nil
}
