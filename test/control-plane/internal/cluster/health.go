package cluster

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"time"
)

const (
	probeInterval = 50 * time.Millisecond
	probeTimeout  = 2 * time.Second
)

// prober asks components whether they are healthy. Each probe opens a connection of its own, since a kept one may belong to
// a process that has been killed.
type prober struct {
	client *http.Client
	token  string
	urls   map[string]string // by component; one without an endpoint is healthy while its process lives
	server string
}

func newProber(p ports, token string) *prober {
	return &prober{
		client: &http.Client{
			Timeout: probeTimeout,
			Transport: &http.Transport{
				DisableKeepAlives: true,
				TLSClientConfig:   &tls.Config{InsecureSkipVerify: true}, // self-signed, on loopback
			},
		},
		token:  token,
		server: p.serverURL(),
		urls: map[string]string{
			Etcd:              p.etcdURL() + "/health",
			APIServer:         p.serverURL() + "/readyz",
			ControllerManager: fmt.Sprintf("https://127.0.0.1:%d/healthz", p.controllerManager),
			Scheduler:         fmt.Sprintf("https://127.0.0.1:%d/readyz", p.scheduler),
		},
	}
}

// wait returns once the component is healthy, or with an error once it has ended or ctx is done.
func (p *prober) wait(ctx context.Context, c *component) error {
	tick := time.NewTicker(probeInterval)
	defer tick.Stop()
	for {
		process, err := c.live()
		if err != nil {
			status := c.status()
			if status.Exit == "" {
				return err
			}
			return fmt.Errorf("%w (%s); %s ends with:\n%s", err, status.Exit, c.logPath, c.logTail())
		}
		last := p.probe(ctx, c.name)
		if last == nil && !process.ended() {
			return nil
		}
		select {
		case <-tick.C:
		case <-process.done:
		case <-ctx.Done():
			return fmt.Errorf("it is not healthy: %v; see %s", last, c.logPath)
		}
	}
}

func (p *prober) probe(ctx context.Context, name string) error {
	url, ok := p.urls[name]
	if !ok {
		return nil
	}
	_, err := p.get(ctx, url)
	return err
}

// serverVersion asks the apiserver for its version.
func (p *prober) serverVersion(ctx context.Context) (string, error) {
	body, err := p.get(ctx, p.server+"/version")
	if err != nil {
		return "", err
	}
	var version struct{ GitVersion string }
	return version.GitVersion, json.Unmarshal(body, &version)
}

func (p *prober) get(ctx context.Context, url string) ([]byte, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return nil, err
	}
	if len(url) > len(p.server) && url[:len(p.server)] == p.server { // nobody else gets the token
		request.Header.Set("Authorization", "Bearer "+p.token)
	}
	response, err := p.client.Do(request)
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	body, err := io.ReadAll(io.LimitReader(response.Body, 64<<10))
	if err != nil {
		return nil, err
	}
	if response.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("%s answers %s", url, response.Status)
	}
	return body, nil
}
