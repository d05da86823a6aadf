package main

import (
	"bytes"
	"context"
	"errors"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	"github.com/tarn-csi/tarn/pkg/publish"
)

// asTarn makes the test binary run main, so that signals, exit status and race
// detector are those of a real process.
const asTarn = "TARN_TEST_AS_TARN"

func TestMain(m *testing.M) {
	if os.Getenv(asTarn) != "" {
		main()
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// command returns tarn with arguments, not yet started.
func command(t *testing.T, args ...string) *exec.Cmd {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(self, args...)
	cmd.Env = append(os.Environ(), asTarn+"=1")
	return cmd
}

// output is a buffer that a process writes to while a test reads it.
type output struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.buf.Write(p)
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.buf.String()
}

// process is a running node service whose mount(8) does not end before release.
type process struct {
	*testing.T
	dir    string
	socket string
	cmd    *exec.Cmd
	log    output
	gate   *os.File
	exit   chan error
	conn   *grpc.ClientConn
}

func start(t *testing.T, more ...string) *process {
	t.Helper()
	dir, err := os.MkdirTemp("", "tarn") // shorter than t.TempDir: a socket's path is bounded
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	p := &process{T: t, dir: dir, socket: dir + "/csi.sock", exit: make(chan error, 1)}
	tools := filepath.Join(dir, "bin")
	script := "#!/bin/sh\necho started >" + dir + "/started\nread line <" + dir + "/gate\necho released >&2\nexit 32\n"
	if err := errors.Join(os.Mkdir(tools, 0o755), os.WriteFile(tools+"/mount", []byte(script), 0o755), syscall.Mkfifo(dir+"/gate", 0o600)); err != nil {
		t.Fatal(err)
	}
	// Open both ways, it keeps what is written until a reader comes.
	if p.gate, err = os.OpenFile(dir+"/gate", os.O_RDWR, 0); err != nil {
		t.Fatal(err)
	}
	p.cmd = command(t, append([]string{"serve", "--mode=node", "--protocols=nfs", "--node-name=worker-1", "--node-address=192.0.2.21",
		"--state-dir=" + dir + "/state", "--run-dir=" + dir + "/run", "--log-level=debug"}, more...)...)
	p.cmd.Env = append(p.cmd.Env, "PATH="+tools+":"+os.Getenv("PATH"), "CSI_ENDPOINT=unix://"+p.socket)
	p.cmd.Stderr = &p.log
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() { p.exit <- p.cmd.Wait(); close(ended) }()
	t.Cleanup(func() {
		_ = p.cmd.Process.Kill()
		_ = p.gate.Close()
		<-ended
		if t.Failed() {
			t.Logf("the log:\n%s", p.log.String())
		}
	})
	p.eventually(p.listens)
	p.conn, err = grpc.NewClient("unix://"+p.socket, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = p.conn.Close() })
	return p
}

func (p *process) listens() bool {
	c, err := net.Dial("unix", p.socket)
	if err == nil {
		_ = c.Close()
	}
	return err == nil
}

// release lets a mount(8) that waits go on.
func (p *process) release() {
	p.Helper()
	if _, err := p.gate.WriteString("\n"); err != nil {
		p.Fatal(err)
	}
}

// ended waits for the end of the process.
func (p *process) ended() error {
	p.Helper()
	select {
	case err := <-p.exit:
		return err
	case <-time.After(20 * time.Second):
		p.Fatal("the process did not end in 20 s")
	}
	return nil
}

func (p *process) eventually(ok func() bool) {
	p.Helper()
	end := time.Now().Add(20 * time.Second)
	for pause := time.Millisecond; !ok(); pause = min(2*pause, 50*time.Millisecond) {
		if time.Now().After(end) {
			p.Fatal("it did not come true in 20 s")
		}
		time.Sleep(pause)
	}
}

// stage begins a NodeStageVolume, and returns once it waits for mount(8).
func (p *process) stage() <-chan error {
	p.Helper()
	result := make(chan error, 1)
	go func() {
		_, err := csi.NewNodeClient(p.conn).NodeStageVolume(context.Background(), &csi.NodeStageVolumeRequest{
			VolumeId:          "tank/pvc-1",
			StagingTargetPath: p.dir + "/staging",
			PublishContext:    publish.Context{Protocol: publish.NFS, Server: "192.0.2.10", Share: "/tank/csi/pvc-1"}.Map(),
			Secrets:           map[string]string{"password": "sentinel-secret"},
			VolumeCapability: &csi.VolumeCapability{
				AccessType: &csi.VolumeCapability_Mount{Mount: &csi.VolumeCapability_MountVolume{MountFlags: []string{"context=sentinel-flag"}}},
				AccessMode: &csi.VolumeCapability_AccessMode{Mode: csi.VolumeCapability_AccessMode_MULTI_NODE_MULTI_WRITER},
			},
		})
		result <- err
	}()
	p.eventually(func() bool {
		select {
		case err := <-result:
			p.Fatalf("the call ended before mount(8) did: %v", err)
		default:
		}
		_, err := os.Stat(p.dir + "/started")
		return err == nil
	})
	return result
}

func (p *process) signal(s os.Signal) {
	p.Helper()
	if err := p.cmd.Process.Signal(s); err != nil {
		p.Fatal(err)
	}
}

func TestTheFirstSignalDrains(t *testing.T) {
	for _, s := range []os.Signal{syscall.SIGTERM, os.Interrupt} {
		t.Run(s.String(), func(t *testing.T) {
			t.Parallel()
			p := start(t)
			staged := p.stage()
			p.signal(s)
			p.eventually(func() bool { return !p.listens() })
			select {
			case err := <-p.exit:
				t.Fatalf("the process ended before its call: %v", err)
			case err := <-staged:
				t.Fatalf("the call was cut off: %v", err)
			default:
			}
			p.release()
			// The answer is the driver's own, and not that of a lost connection.
			if err := <-staged; status.Code(err) != codes.FailedPrecondition || !strings.Contains(err.Error(), "released") {
				t.Errorf("the call got %v", err)
			}
			if err := p.ended(); err != nil {
				t.Errorf("the process ended with %v", err)
			}
			if _, err := os.Lstat(p.socket); err == nil {
				t.Error("the socket is left")
			}
		})
	}
}

func TestTheSecondSignalEndsAtOnce(t *testing.T) {
	t.Parallel()
	p := start(t)
	staged := p.stage()
	p.signal(syscall.SIGTERM)
	p.eventually(func() bool { return !p.listens() })
	var err error
	p.eventually(func() bool {
		_ = p.cmd.Process.Signal(syscall.SIGTERM)
		select {
		case err = <-p.exit:
			return true
		default:
			return false
		}
	})
	var exit *exec.ExitError
	if !errors.As(err, &exit) || exit.Sys().(syscall.WaitStatus).Signal() != syscall.SIGTERM {
		t.Errorf("the process ended with %v", err)
	}
	if err := <-staged; status.Code(err) != codes.Unavailable {
		t.Errorf("the call got %v", err)
	}
	// What was left is found by the next start.
	p.release()
}

func TestC58NoSecretIsInTheLogOfAProcess(t *testing.T) {
	t.Parallel()
	for _, format := range []string{"text", "json"} {
		p := start(t, "--log-level=trace", "--log-format="+format)
		staged := p.stage()
		p.release()
		err := <-staged
		p.signal(syscall.SIGTERM)
		if err := p.ended(); err != nil {
			t.Error(err)
		}
		seen := p.log.String() + err.Error()
		if strings.Contains(seen, "sentinel") || !strings.Contains(seen, "tank/pvc-1") || !strings.Contains(seen, "192.0.2.10:/tank/csi/pvc-1") {
			t.Errorf("the log is %s", seen)
		}
	}
}

func TestASecondProcessOnOneSocketIsRefused(t *testing.T) {
	t.Parallel()
	p := start(t)
	second := command(t, "serve", "--mode=node", "--protocols=nfs", "--node-address=192.0.2.21", "--node-name=w",
		"--state-dir="+t.TempDir(), "--run-dir="+t.TempDir(), "--endpoint="+p.socket)
	out, err := second.CombinedOutput()
	if second.ProcessState.ExitCode() != 1 || !strings.Contains(string(out), "tarn: another process listens on "+p.socket) {
		t.Errorf("it ended with %v: %s", err, out)
	}
	if !p.listens() {
		t.Error("the first one is deaf now")
	}
}
