package cluster

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"time"
)

// reapTimeout bounds the wait for a process after SIGKILL, which only a process stuck in the kernel outlasts.
const reapTimeout = 10 * time.Second

// stopGrace is how long a component that one command stops may take to end by itself.
const stopGrace = 10 * time.Second

// State of a component.
type State string

// A component is in one of these states.
const (
	Running State = "running"
	Paused  State = "paused"
	Stopped State = "stopped"
)

// Status is what the control socket tells of a component.
type Status struct {
	State  State  `json:"state"`
	PID    int    `json:"pid,omitempty"`
	Starts int    `json:"starts"`
	Exit   string `json:"exit,omitempty"` // how it last ended, while it is stopped
}

// component is a process that can be started, ended and started again.
type component struct {
	name    string
	command []string
	env     []string
	logPath string
	spawner *spawner

	change sync.Mutex // held through a whole operation; operations on one component come one after another

	mu      sync.Mutex
	process *process // nil before the first start
	starts  int
	paused  bool
}

// process is one life of a component.
type process struct {
	cmd  *exec.Cmd
	done chan struct{} // closed after exit is set
	exit string
}

func (p *process) ended() bool {
	select {
	case <-p.done:
		return true
	default:
		return false
	}
}

func (c *component) status() Status {
	c.mu.Lock()
	defer c.mu.Unlock()
	status := Status{State: Stopped, Starts: c.starts}
	switch {
	case c.process == nil:
	case c.process.ended():
		status.Exit = c.process.exit
	default:
		status.State, status.PID = Running, c.process.cmd.Process.Pid
		if c.paused {
			status.State = Paused
		}
	}
	return status
}

// live gives the running process.
func (c *component) live() (*process, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.process == nil || c.process.ended() {
		return nil, errors.New("it is not running")
	}
	return c.process, nil
}

func (c *component) start() error {
	c.change.Lock()
	defer c.change.Unlock()
	return c.startLocked()
}

func (c *component) startLocked() error {
	if p, err := c.live(); err == nil {
		return fmt.Errorf("it is already running as process %d", p.cmd.Process.Pid)
	}
	log, err := os.OpenFile(c.logPath, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	defer log.Close() // the child has its own

	cmd := exec.Command(c.command[0], c.command[1:]...)
	cmd.Env = append(os.Environ(), c.env...)
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = childAttributes()
	if err := c.spawner.start(cmd); err != nil {
		return err
	}
	p := &process{cmd: cmd, done: make(chan struct{})}
	go func() {
		_ = cmd.Wait() // the state tells more than the error
		p.exit = cmd.ProcessState.String()
		close(p.done)
	}()
	c.mu.Lock()
	defer c.mu.Unlock()
	c.process, c.paused = p, false
	c.starts++
	return nil
}

func (c *component) kill() error {
	c.change.Lock()
	defer c.change.Unlock()
	p, err := c.live()
	if err != nil {
		return err
	}
	return killAndReap(p)
}

// stop ends the process, by force when it has not ended grace after it was asked to.
func (c *component) stop(grace time.Duration) error {
	c.change.Lock()
	defer c.change.Unlock()
	return c.stopLocked(grace)
}

func (c *component) stopLocked(grace time.Duration) error {
	p, err := c.live()
	if err != nil {
		return err
	}
	if grace > 0 {
		if err := signal(p, syscall.SIGTERM); err != nil {
			return err
		}
		// A paused process would not see the signal.
		if err := signal(p, syscall.SIGCONT); err != nil {
			return err
		}
		select {
		case <-p.done:
			return nil
		case <-time.After(grace):
		}
	}
	return killAndReap(p)
}

func (c *component) restart() error {
	c.change.Lock()
	defer c.change.Unlock()
	if err := c.stopLocked(stopGrace); err != nil {
		return err
	}
	return c.startLocked()
}

func (c *component) pause() error { return c.setPaused(true, syscall.SIGSTOP) }

func (c *component) resume() error { return c.setPaused(false, syscall.SIGCONT) }

func (c *component) setPaused(paused bool, s syscall.Signal) error {
	c.change.Lock()
	defer c.change.Unlock()
	p, err := c.live()
	if err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.paused == paused {
		return fmt.Errorf("it is already %s", map[bool]State{true: Paused, false: Running}[paused])
	}
	c.paused = paused
	return signal(p, s)
}

// signal sends a signal; a process that has ended meanwhile is no error.
func signal(p *process, s syscall.Signal) error {
	if err := p.cmd.Process.Signal(s); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	return nil
}

func killAndReap(p *process) error {
	if err := signal(p, syscall.SIGKILL); err != nil {
		return err
	}
	select {
	case <-p.done:
		return nil
	case <-time.After(reapTimeout):
		return fmt.Errorf("process %d is still there %s after SIGKILL", p.cmd.Process.Pid, reapTimeout)
	}
}

// logTail gives the last lines of what the component wrote, to be shown when it ended unasked.
func (c *component) logTail() string {
	const lines, bytes = 5, 4096
	file, err := os.Open(c.logPath)
	if err != nil {
		return err.Error()
	}
	defer file.Close()
	if info, err := file.Stat(); err == nil && info.Size() > bytes {
		_, _ = file.Seek(-bytes, io.SeekEnd) // shows the beginning if it fails
	}
	text, err := io.ReadAll(io.LimitReader(file, bytes))
	if err != nil {
		return err.Error()
	}
	all := strings.Split(strings.TrimSpace(string(text)), "\n")
	return strings.Join(all[max(0, len(all)-lines):], "\n")
}

// spawner starts all children from one thread that never ends. Linux sends the signal that childAttributes asks for when
// the thread that started the child ends, and Go ends idle threads as it sees fit.
type spawner struct{ starts chan func() }

func newSpawner() *spawner {
	s := &spawner{starts: make(chan func())}
	go func() {
		runtime.LockOSThread()
		for start := range s.starts {
			start()
		}
	}()
	return s
}

func (s *spawner) start(cmd *exec.Cmd) error {
	result := make(chan error)
	s.starts <- func() { result <- cmd.Start() }
	return <-result
}
