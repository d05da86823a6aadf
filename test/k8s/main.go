// Command k8s shows Tarn to a real Kubernetes: the API server takes all manifests
// under strict validation, and on a node in a virtual machine, installed by these
// manifests, Tarn serves claims over NFS and iSCSI on real ZFS. It prints one line
// a step and stops at the first failure.
//
// hack/k8s/run starts it, as root and in namespaces of its own.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"
)

// limit bounds the whole run, also on an emulated processor under load.
const limit = 60 * time.Minute

func main() {
	only := flag.String("only", "", "one part: manifests, which needs no node, or claims")
	programs := flag.String("programs", "", "folder with Kubernetes' programs: hack/k8s/binaries")
	built := flag.String("built", "", "folder with this project's programs; work in progress and logs are put there too")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	ctx, cancel := context.WithTimeout(ctx, limit)
	err := show(ctx, *programs, *built, *only)
	cancel()
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "k8s: failed:", err)
		os.Exit(1)
	}
}

// show runs what is asked for. What a failure is understood by stays, in logs.
func show(ctx context.Context, programs, built, only string) (err error) {
	c := &cluster{programs: programs, built: built, dir: filepath.Join(built, "run"), start: time.Now()}
	// What a run that was killed left behind.
	if err := os.RemoveAll(c.dir); err != nil {
		return err
	}
	parent := ctx // ends when we are told to
	ctx, c.failed = context.WithCancelCause(ctx)
	defer func() {
		if err != nil && parent.Err() == nil {
			err = errors.Join(err, c.diagnose())
			fmt.Fprintln(os.Stderr, "k8s: logs:", c.logs())
		}
		c.stop()
		if err == nil {
			err = os.RemoveAll(c.dir)
		}
	}()
	if err := os.MkdirAll(c.logs(), 0o755); err != nil {
		return err
	}
	// The network namespace is new.
	if out, err := exec.CommandContext(ctx, "ip", "link", "set", "lo", "up").CombinedOutput(); err != nil {
		return fmt.Errorf("ip link set lo up: %w: %s", err, out)
	}
	if err := c.startControlPlane(ctx); err != nil {
		return err
	}
	if only != "claims" {
		if err := c.takesManifests(ctx); err != nil {
			return err
		}
	}
	if only == "manifests" {
		return nil
	}
	return c.servesClaims(ctx)
}
