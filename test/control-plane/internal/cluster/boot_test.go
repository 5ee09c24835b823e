package cluster_test

import (
	"bytes"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"dovetail.test/control-plane/internal/cluster"
	"sigs.k8s.io/yaml"
)

// binaryVariable names the built program; the tests in this file need it.
const binaryVariable = "CONTROL_PLANE_BINARY"

// patience bounds every wait for something that the control plane will do.
const patience = 60 * time.Second

type object = map[string]any

// running is a control plane in a process of its own.
type running struct {
	t     *testing.T
	dir   string
	ready cluster.Ready
	stdin io.Closer
	cmd   *exec.Cmd
	http  http.Client
	token string
}

func boot(t *testing.T, options ...string) *running {
	t.Helper()
	binary := os.Getenv(binaryVariable)
	if binary == "" {
		t.Skipf("%s is not set", binaryVariable)
	}
	dir, err := os.MkdirTemp("", "cp") // t.TempDir() holds the test's name and may be too long for a socket
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })

	r := &running{t: t, dir: dir}
	r.cmd = exec.Command(binary, append([]string{"up", "--dir", dir, "--exit-with-parent"}, options...)...)
	var progress bytes.Buffer
	r.cmd.Stderr = &progress
	stdin, err := r.cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	stdout, err := r.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := r.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	r.stdin = stdin
	t.Cleanup(func() {
		_ = r.cmd.Process.Kill()
		_ = r.cmd.Wait()
	})
	if err := json.NewDecoder(stdout).Decode(&r.ready); err != nil {
		_ = r.cmd.Wait()
		t.Fatalf("no line of JSON (%v):\n%s", err, progress.String())
	}
	r.http = http.Client{Timeout: patience, Transport: &http.Transport{
		DisableKeepAlives: true, TLSClientConfig: &tls.Config{InsecureSkipVerify: true},
	}}
	r.token = tokenIn(t, r.ready.Kubeconfig)
	return r
}

func tokenIn(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var config struct {
		Users []struct{ User struct{ Token string } }
	}
	if err := yaml.Unmarshal(text, &config); err != nil {
		t.Fatal(err)
	}
	return config.Users[0].User.Token
}

// request gives the HTTP status and the object that the apiserver answers with.
func (r *running) request(method, path, token string, body object) (int, object) {
	r.t.Helper()
	text, err := json.Marshal(body)
	if err != nil {
		r.t.Fatal(err)
	}
	request, err := http.NewRequest(method, r.ready.Server+path, bytes.NewReader(text))
	if err != nil {
		r.t.Fatal(err)
	}
	request.Header.Set("Authorization", "Bearer "+token)
	request.Header.Set("Content-Type", "application/json")
	response, err := r.http.Do(request)
	if err != nil {
		r.t.Fatal(err)
	}
	defer response.Body.Close()
	var answer object
	if err := json.NewDecoder(response.Body).Decode(&answer); err != nil {
		r.t.Fatal(err)
	}
	return response.StatusCode, answer
}

func (r *running) create(path string, body object) {
	r.t.Helper()
	if status, answer := r.request(http.MethodPost, path, r.token, body); status != http.StatusCreated {
		r.t.Fatalf("create in %s: %d %v", path, status, answer["message"])
	}
}

func (r *running) createNode(name string) {
	r.t.Helper()
	resources := object{"cpu": "8", "memory": "16Gi", "pods": "110"}
	r.create("/api/v1/nodes", object{
		"apiVersion": "v1", "kind": "Node",
		"metadata": object{"name": name, "annotations": object{"kwok.x-k8s.io/node": "fake"}},
		"status":   object{"capacity": resources, "allocatable": resources},
	})
}

const podsPath = "/api/v1/namespaces/default/pods"

func (r *running) createPod(name string) {
	r.t.Helper()
	container := object{"name": "c", "image": "i", "resources": object{"requests": object{"cpu": "100m"}}}
	r.create(podsPath, object{
		"apiVersion": "v1", "kind": "Pod", "metadata": object{"name": name}, "spec": object{"containers": []object{container}},
	})
}

func (r *running) awaitRunning(pod string) {
	r.t.Helper()
	r.await(pod+" runs", func() bool {
		_, answer := r.request(http.MethodGet, podsPath+"/"+pod, r.token, nil)
		status, _ := answer["status"].(object)
		return status["phase"] == "Running"
	})
}

func (r *running) awaitReady(node string) {
	r.t.Helper()
	r.await(node+" is ready", func() bool {
		_, answer := r.request(http.MethodGet, "/api/v1/nodes/"+node, r.token, nil)
		status, _ := answer["status"].(object)
		conditions, _ := status["conditions"].([]any)
		return slices.ContainsFunc(conditions, func(one any) bool {
			condition, _ := one.(object)
			return condition["type"] == "Ready" && condition["status"] == "True"
		})
	})
}

func (r *running) await(what string, holds func() bool) {
	r.t.Helper()
	for deadline := time.Now().Add(patience); !holds(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(deadline) {
			r.t.Fatalf("not within %s: %s", patience, what)
		}
	}
}

func (r *running) control(words ...string) {
	r.t.Helper()
	if line, ok, err := cluster.Control(r.dir, words); err != nil || !ok {
		r.t.Fatalf("%v: %s %v", words, line, err)
	}
}

// live tells whether the process exists and is no zombie.
func live(pid int) bool {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
	return err == nil && len(text) > 0
}

func (r *running) awaitNoProcess() {
	r.t.Helper()
	for name, pid := range r.ready.PIDs {
		r.await(fmt.Sprintf("%s, process %d, is gone", name, pid), func() bool { return !live(pid) })
	}
}

// expectMetrics reads the metrics of each component at the address that it is announced with.
func (r *running) expectMetrics() {
	r.t.Helper()
	for component, metric := range map[string]string{
		cluster.APIServer:         "apiserver_request_total",
		cluster.ControllerManager: "workqueue_depth",
		cluster.Scheduler:         "scheduler_pending_pods",
	} {
		request, err := http.NewRequest(http.MethodGet, r.ready.Metrics[component], nil)
		if err != nil {
			r.t.Fatal(err)
		}
		if component == cluster.APIServer {
			request.Header.Set("Authorization", "Bearer "+r.token)
		}
		response, err := r.http.Do(request)
		if err != nil {
			r.t.Fatal(err)
		}
		text, err := io.ReadAll(response.Body)
		response.Body.Close()
		if err != nil || response.StatusCode != http.StatusOK || !strings.Contains(string(text), metric) {
			r.t.Errorf("metrics of %s: %s, %v, no %s", component, response.Status, err, metric)
		}
	}
}

func TestPodsRunWhateverComponentIsKilled(t *testing.T) {
	for _, gates := range []string{"default", "all"} {
		t.Run(gates, func(t *testing.T) {
			t.Parallel() // several at once must not disturb each other
			r := boot(t, "--gates", gates)
			t.Logf("booted in %d ms", r.ready.BootMs)
			if !strings.HasPrefix(r.ready.Version, "v1.") {
				t.Errorf("the apiserver calls itself %s", r.ready.Version)
			}
			r.expectMetrics()
			_, groups := r.request(http.MethodGet, "/apis/scheduling.k8s.io", r.token, nil)
			if served := strings.Contains(fmt.Sprint(groups), "v1alpha2"); served != (gates == "all") {
				t.Errorf("scheduling.k8s.io/v1alpha2 is served: %t", served)
			}
			r.createNode("n")
			r.createPod("first")
			r.awaitRunning("first")
			for _, component := range cluster.ComponentNames {
				r.control("kill", component)
				r.control("start", component)
				r.control("wait", "all")
				// A pod that is bound while kwok begins to watch is now and then overlooked by it for good.
				r.createNode("after-" + component)
				r.awaitReady("after-" + component)
				r.createPod("after-" + component)
				r.awaitRunning("after-" + component)
			}
			r.awaitRunning("first")
			r.stdin.Close()
			if err := r.cmd.Wait(); err != nil {
				t.Errorf("exit: %v", err)
			}
			r.awaitNoProcess()
		})
	}
}

func TestObjectsOutliveTheControlPlane(t *testing.T) {
	t.Parallel()
	r := boot(t)
	r.createNode("kept")
	if err := r.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if err := r.cmd.Wait(); err != nil {
		t.Errorf("exit: %v", err)
	}
	again := boot(t, "--dir", r.dir)
	again.token = tokenIn(t, again.ready.Kubeconfig)
	if status, answer := again.request(http.MethodGet, "/api/v1/nodes/kept", again.token, nil); status != http.StatusOK {
		t.Errorf("the node is lost: %d %v", status, answer["message"])
	}
}

func TestComponentsDieWithTheirSupervisor(t *testing.T) {
	t.Parallel()
	r := boot(t)
	r.control("pause", "apiserver") // even one that cannot react
	if err := r.cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = r.cmd.Wait()
	r.awaitNoProcess()
}

func TestUsersHaveTheirNameAndNoRights(t *testing.T) {
	t.Parallel()
	r := boot(t, "--user", "alice:t0k:devs,ops", "--service-account", "karpenter/dovetail", "--shutdown-grace-ms", "0")
	for name, want := range map[string]struct {
		user   string
		groups []any
	}{
		"alice": {"alice", []any{"devs", "ops", "system:authenticated"}},
		"dovetail": {"system:serviceaccount:karpenter:dovetail",
			[]any{"system:serviceaccounts", "system:serviceaccounts:karpenter", "system:authenticated"}},
	} {
		token := tokenIn(t, r.ready.Users[name])
		_, review := r.request(http.MethodPost, "/apis/authentication.k8s.io/v1/selfsubjectreviews", token, object{
			"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview",
		})
		info := review["status"].(object)["userInfo"].(object)
		if groups, _ := info["groups"].([]any); info["username"] != want.user || !slices.Equal(groups, want.groups) {
			t.Errorf("%s is %v", name, info)
		}
		if status, _ := r.request(http.MethodGet, podsPath, token, nil); status != http.StatusForbidden {
			t.Errorf("%s lists pods: status %d", name, status)
		}
	}
}

func TestDeletedPodStaysForTheDelayAsked(t *testing.T) {
	t.Parallel()
	const delay = 1500 * time.Millisecond
	r := boot(t, "--pod-delete-delay-ms", fmt.Sprint(delay.Milliseconds()), "--shutdown-grace-ms", "0")
	r.createNode("n")
	r.createPod("p")
	r.awaitRunning("p")
	begun := time.Now()
	r.request(http.MethodDelete, podsPath+"/p", r.token, nil)
	r.await("the pod is gone", func() bool {
		status, _ := r.request(http.MethodGet, podsPath+"/p", r.token, nil)
		return status == http.StatusNotFound
	})
	if took := time.Since(begun); took < delay {
		t.Errorf("gone after %s", took)
	}
}

func TestPodsOfJobsEndOnlyIfTheyMay(t *testing.T) {
	for name, test := range map[string]struct {
		options []string
		phase   string
	}{
		"by default":             {nil, "Succeeded"},
		"with keep-jobs-running": {[]string{"--keep-jobs-running"}, "Running"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := boot(t, append(test.options, "--shutdown-grace-ms", "0")...)
			r.createNode("n")
			r.create("/apis/batch/v1/namespaces/default/jobs", object{
				"apiVersion": "batch/v1", "kind": "Job", "metadata": object{"name": "j"},
				"spec": object{"template": object{"spec": object{
					"restartPolicy": "Never", "containers": []object{{"name": "c", "image": "i"}},
				}}},
			})
			phase := func() any {
				_, list := r.request(http.MethodGet, podsPath+"?labelSelector=job-name=j", r.token, nil)
				if items, _ := list["items"].([]any); len(items) == 1 {
					return items[0].(object)["status"].(object)["phase"]
				}
				return nil
			}
			r.await("the Job's pod is "+test.phase, func() bool { return phase() == test.phase })
			// It stays so while kwok goes on to play another pod.
			r.createPod("later")
			r.awaitRunning("later")
			if got := phase(); got != test.phase {
				t.Errorf("the Job's pod became %v", got)
			}
		})
	}
}
