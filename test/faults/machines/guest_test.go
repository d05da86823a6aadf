//go:build vm

// Package machines tests what needs more than one machine or more than one boot:
// a storage host and a node, each a virtual machine of its own, joined by a
// private network. It runs on the host and only drives the machines.
package machines

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/tarn-csi/tarn/test/harness"
)

const (
	bootTimeout    = 5 * time.Minute
	commandTimeout = 5 * time.Minute
	callTimeout    = 2 * time.Minute
)

// guest is a virtual machine that can be stopped and booted again.
type guest struct {
	t     *testing.T // the test that uses it now
	owner *testing.T // the one with which it ends
	root  string
	name  string
	flags []string
	// background are commands that run until the guest ends.
	background []*exec.Cmd
}

func newGuest(t *testing.T, name string, flags ...string) *guest {
	t.Helper()
	root, err := harness.Root()
	if err != nil {
		t.Fatal(err)
	}
	g := &guest{t: t, owner: t, root: root, name: fmt.Sprintf("%s-%d", name, os.Getpid()), flags: flags}
	t.Cleanup(func() { g.stop("--kill") })
	return g
}

func (g *guest) script(name string) string { return filepath.Join(g.root, "hack", "vm", name) }

// boot is tryBoot that must succeed.
func (g *guest) boot() {
	g.t.Helper()
	if err := g.tryBoot(); err != nil {
		g.t.Fatal(err)
	}
}

// tryBoot boots the guest with no service started.
func (g *guest) tryBoot() error {
	ctx, cancel := context.WithTimeout(context.Background(), bootTimeout)
	defer cancel()
	args := append([]string{"--name", g.name, "--cached", "--cpus", "1", "--daemon", "--no-services", "--timeout", "2400"}, g.flags...)
	c := exec.CommandContext(ctx, g.script("run"), args...)
	if out, err := c.CombinedOutput(); err != nil {
		return fmt.Errorf("boot %s: %w\n%s", g.name, err, out)
	}
	return nil
}

// stop powers the guest off, or with --kill cuts its power.
func (g *guest) stop(flags ...string) {
	ctx, cancel := context.WithTimeout(context.Background(), bootTimeout)
	defer cancel()
	// It may be down already.
	_ = exec.CommandContext(ctx, g.script("stop"), append(flags, g.name)...).Run()
	for _, c := range g.background {
		_ = c.Wait()
	}
	g.background = nil
}

// try runs a shell script in the guest.
func (g *guest) try(script string) (string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), commandTimeout)
	defer cancel()
	c := exec.CommandContext(ctx, g.script("exec"), g.name, "--", "bash", "-euo", "pipefail", "-c", script)
	c.Dir = g.root
	var stderr bytes.Buffer
	c.Stderr = &stderr
	out, err := c.Output()
	if err != nil {
		err = fmt.Errorf("%w: %s", err, strings.TrimSpace(stderr.String()))
	}
	return strings.TrimSpace(string(out)), err
}

// sh is try for what must succeed.
func (g *guest) sh(script string) string {
	g.t.Helper()
	out, err := g.try(script)
	if err != nil {
		g.t.Fatalf("%s: %v\nscript: %s", g.name, err, script)
	}
	return out
}

// start runs a command in the guest until the guest ends; its output is shown
// when the guest's tests have failed.
func (g *guest) start(argv ...string) {
	g.t.Helper()
	log, err := os.CreateTemp(g.owner.TempDir(), g.name+"-*.log")
	if err != nil {
		g.t.Fatal(err)
	}
	c := exec.Command(g.script("exec"), append([]string{"--timeout", "2400", g.name, "--"}, argv...)...)
	c.Dir, c.Stdout, c.Stderr = g.root, log, log
	if err := c.Start(); err != nil {
		g.t.Fatal(err)
	}
	g.background = append(g.background, c)
	g.owner.Cleanup(func() {
		if g.owner.Failed() {
			b, _ := os.ReadFile(log.Name())
			g.owner.Logf("--- %s: %s\n%s", g.name, strings.Join(argv, " "), b)
		}
	})
}

// call makes a CSI call in the guest that must succeed, and returns the answer as
// JSON.
func (g *guest) call(method, request string) string {
	g.t.Helper()
	return g.callAt("", method, request)
}

// callAt is call at an endpoint that is not the usual one.
func (g *guest) callAt(endpoint, method, request string) string {
	g.t.Helper()
	answer, err := g.tryCall(endpoint, callTimeout, method, request)
	if err != nil {
		g.t.Fatalf("%s: %s %s: %v", g.name, method, request, err)
	}
	return answer
}

// tryCall makes a CSI call with a deadline.
func (g *guest) tryCall(endpoint string, timeout time.Duration, method, request string) (string, error) {
	flags := "--timeout " + timeout.String()
	if endpoint != "" {
		flags += " --endpoint " + endpoint
	}
	return g.try(fmt.Sprintf("bin/csi-call %s %s %s", flags, method, quote(request)))
}

// quote makes one word of a text for bash.
func quote(s string) string { return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'" }
