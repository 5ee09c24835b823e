package cluster

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"strconv"
	"strings"
	"time"
)

const (
	defaultWait     = 60 * time.Second
	maxCommandBytes = 1024
	maxSocketPath   = 107 // sun_path holds 108 bytes with the closing zero
)

// answer is one line on the control socket.
type answer struct {
	OK         bool              `json:"ok"`
	Error      string            `json:"error,omitempty"`
	Components map[string]Status `json:"components,omitempty"`
}

func listenControl(path string) (net.Listener, error) {
	if len(path) > maxSocketPath {
		return nil, fmt.Errorf("control socket %s: the path has %d bytes, a Unix socket's at most %d; choose a shorter --dir",
			path, len(path), maxSocketPath)
	}
	return net.Listen("unix", path)
}

// serveControl answers until the listener is closed.
func (c *cluster) serveControl(ctx context.Context, listener net.Listener) {
	for {
		connection, err := listener.Accept()
		if err != nil {
			return
		}
		go c.serveConnection(ctx, connection)
	}
}

func (c *cluster) serveConnection(ctx context.Context, connection net.Conn) {
	defer connection.Close()
	lines := bufio.NewScanner(connection)
	lines.Buffer(make([]byte, 0, maxCommandBytes), maxCommandBytes)
	replies := json.NewEncoder(connection)
	for lines.Scan() {
		if err := replies.Encode(c.answer(ctx, lines.Text())); err != nil {
			return
		}
	}
}

func (c *cluster) answer(ctx context.Context, line string) answer {
	err := c.execute(ctx, strings.Fields(line))
	reply := answer{OK: err == nil, Components: map[string]Status{}}
	if err != nil {
		reply.Error = strings.TrimSpace(line) + ": " + err.Error()
	}
	for _, component := range c.components {
		reply.Components[component.name] = component.status()
	}
	return reply
}

func (c *cluster) execute(ctx context.Context, words []string) error {
	if len(words) == 0 {
		return errors.New("empty command")
	}
	if ctx.Err() != nil {
		return errors.New("the control plane is stopping")
	}
	command, operands := words[0], words[1:]
	switch command {
	case "status":
		return noOperands(operands)
	case "shutdown":
		if err := noOperands(operands); err != nil {
			return err
		}
		c.shutdown()
		return nil
	case "wait":
		return c.executeWait(ctx, operands)
	}
	action, ok := map[string]func(*component) error{
		"kill":    (*component).kill,
		"stop":    func(target *component) error { return target.stop(stopGrace) },
		"start":   (*component).start,
		"restart": (*component).restart,
		"pause":   (*component).pause,
		"resume":  (*component).resume,
	}[command]
	if !ok {
		return errors.New("unknown command; there are status, kill, stop, start, restart, pause, resume, wait and shutdown")
	}
	if len(operands) != 1 {
		return errors.New("needs exactly one component")
	}
	target, err := c.component(operands[0])
	if err != nil {
		return err
	}
	c.progress("%s %s", command, target.name)
	return action(target)
}

func (c *cluster) executeWait(ctx context.Context, operands []string) error {
	if len(operands) < 1 || len(operands) > 2 {
		return errors.New("needs a component, or all, and perhaps a time-out in milliseconds")
	}
	timeout := defaultWait
	if len(operands) == 2 {
		milliseconds, err := strconv.ParseUint(operands[1], 10, 31)
		if err != nil {
			return fmt.Errorf("time-out in milliseconds: %w", err)
		}
		timeout = time.Duration(milliseconds) * time.Millisecond
	}
	targets := c.components
	if operands[0] != "all" {
		target, err := c.component(operands[0])
		if err != nil {
			return err
		}
		targets = []*component{target}
	}
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	return c.waitHealthy(ctx, targets)
}

func noOperands(operands []string) error {
	if len(operands) > 0 {
		return errors.New("takes no operand")
	}
	return nil
}

// Control sends one command to the control plane in dir and gives its answer, a line of JSON, and whether it says "ok".
func Control(dir string, words []string) (string, bool, error) {
	connection, err := net.Dial("unix", layout{dir}.controlSocket())
	if err != nil {
		return "", false, fmt.Errorf("no control plane runs in %s: %w", dir, err)
	}
	defer connection.Close()
	if _, err := fmt.Fprintln(connection, strings.Join(words, " ")); err != nil {
		return "", false, err
	}
	line, err := bufio.NewReader(connection).ReadString('\n')
	if err != nil {
		return "", false, fmt.Errorf("the control plane in %s ended before it answered: %w", dir, err)
	}
	var reply answer
	if err := json.Unmarshal([]byte(line), &reply); err != nil {
		return "", false, fmt.Errorf("answer of the control plane in %s: %w", dir, err)
	}
	return strings.TrimSuffix(line, "\n"), reply.OK, nil
}
