package main

import (
	"context"
	"fmt"
	"os"
	"strings"
)

// installed is the overlay that is used: its addresses are the guest's, and its
// pool tank/csi.
const installed = deploy + "/overlays/combined"

// servesClaims installs Tarn as docs/install.md says, lets claims live on it, and
// removes it.
func (c *cluster) servesClaims(ctx context.Context) error {
	err := c.acts(ctx,
		act{"kube-scheduler, snapshot-controller", c.startScheduler},
		act{"kubectl apply -k " + installed, c.install},
		act{"keys for CHAP", c.makeKeys},
		act{"images of the sidecars and Tarn", c.writeImages},
		act{"containerd and kubelet in a virtual machine", c.startNode},
		act{"Tarn's pods are ready, the driver is registered", c.isReady},
	)
	if err != nil {
		return err
	}
	if err := c.claims(ctx); err != nil {
		return err
	}
	if err := c.step(ctx, "nothing was forbidden", c.wasWell); err != nil {
		return err
	}
	return c.step(ctx, "kubectl delete -k "+installed, c.uninstall)
}

func (c *cluster) install(ctx context.Context) (string, error) {
	out, err := c.kubectl(ctx, append(strict, "-k", installed)...)
	return fmt.Sprintf("%d objects", strings.Count(out, "\n")), err
}

// makeKeys makes the keys from which iSCSI's passwords are derived. The pods start
// after that: there is no node yet.
func (c *cluster) makeKeys(ctx context.Context) (string, error) {
	master := c.path("master.key")
	if _, err := c.output(ctx, "bin/tarn", "key", "--create", "--master-key-file", master); err != nil {
		return "", err
	}
	key, err := c.output(ctx, "bin/tarn", "key", "--master-key-file", master, nodeName)
	if err != nil {
		return "", err
	}
	if err := os.WriteFile(c.path(nodeName), []byte(key), 0o600); err != nil {
		return "", err
	}
	if _, err := c.kubectl(ctx, "-n", "tarn", "create", "secret", "generic", "tarn-master-key", "--from-file="+master); err != nil {
		return "", err
	}
	_, err = c.kubectl(ctx, "-n", "tarn", "create", "secret", "generic", "tarn-node-keys", "--from-file="+c.path(nodeName))
	return "", err
}

func (c *cluster) isReady(ctx context.Context) (string, error) {
	if _, err := c.kubectl(ctx, "label", "node", nodeName, "tarn-csi.github.io/storage-host=true"); err != nil {
		return "", err
	}
	for _, what := range []string{"statefulset/tarn-controller", "daemonset/tarn-node"} {
		err := until(ctx, func(ctx context.Context) error {
			_, err := c.kubectl(ctx, "-n", "tarn", "rollout", "status", "--timeout=10s", what)
			return err
		})
		if err != nil {
			return "", err
		}
	}
	if err := c.wait(ctx, "jsonpath={.spec.drivers[0].name}=io.github.tarn-csi", "csinode/"+nodeName); err != nil {
		return "", err
	}
	return c.kubectl(ctx, "get", "csinode", nodeName, "-o", "jsonpath=node id {.spec.drivers[0].nodeID}")
}

// wasWell looks for what the sidecars were refused, and counts the containers that
// were started anew: on a machine under load, a sidecar may give up before Tarn
// answers for the first time.
func (c *cluster) wasWell(ctx context.Context) (string, error) {
	log, err := c.podLogs(ctx)
	if err != nil {
		return "", err
	}
	for line := range strings.Lines(log) {
		if strings.Contains(line, "forbidden") {
			return "", fmt.Errorf("a sidecar was refused: %s", line)
		}
	}
	restarts, err := c.kubectl(ctx, "-n", "tarn", "get", "pods", "-o", "jsonpath={.items[*].status.containerStatuses[*].restartCount}")
	return fmt.Sprintf("%d lines of log; restarts: %s", strings.Count(log, "\n"), restarts), err
}

// podLogs is what the containers have printed.
func (c *cluster) podLogs(ctx context.Context) (string, error) {
	return c.onNode(ctx, "find", "/var/log/pods", "-name", "*.log", "-exec", "cat", "{}", "+")
}

func (c *cluster) uninstall(ctx context.Context) (string, error) {
	_, err := c.kubectl(ctx, "delete", "-k", installed) // it waits until all is gone, the namespace with its pods last
	return "", err
}
