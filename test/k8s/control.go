package main

import (
	"context"
	"strings"
)

// startControlPlane starts what any cluster has, and nothing of a node.
func (c *cluster) startControlPlane(ctx context.Context) error {
	return c.acts(ctx,
		act{"etcd and kube-apiserver", c.startServer},
		act{"kube-controller-manager", c.startControllers},
		act{"definitions of snapshots", c.defineSnapshots},
	)
}

// startServer starts etcd and the API server.
func (c *cluster) startServer(ctx context.Context) (string, error) {
	if err := c.writeTokens(); err != nil {
		return "", err
	}
	const client, peer = "http://127.0.0.1:2379", "http://127.0.0.1:2380"
	if err := c.daemon("etcd", c.program("etcd"), "--name=it", "--data-dir="+c.path("etcd"), "--unsafe-no-fsync",
		"--listen-client-urls="+client, "--advertise-client-urls="+client,
		"--listen-peer-urls="+peer, "--initial-advertise-peer-urls="+peer, "--initial-cluster=it="+peer); err != nil {
		return "", err
	}
	if err := c.daemon("apiserver", c.program("kube-apiserver"), "--etcd-servers="+client,
		"--bind-address=127.0.0.1", "--advertise-address=127.0.0.1", "--secure-port=443",
		"--cert-dir="+c.path("apiserver"), // it makes its own certificate, for the Service's address too
		"--service-cluster-ip-range="+services, "--endpoint-reconciler-type=none",
		"--authorization-mode=Node,RBAC", "--token-auth-file="+c.path("tokens.csv"),
		"--service-account-issuer=https://kubernetes.default.svc",
		"--service-account-key-file="+c.path("accounts.key"), "--service-account-signing-key-file="+c.path("accounts.key"),
		"--allow-privileged=true", "--profiling=false"); err != nil {
		return "", err
	}
	err := until(ctx, func(ctx context.Context) error {
		if err := c.writeKubeconfig("admin", server, c.tokens["admin"]); err != nil {
			return err // the certificate is not there yet
		}
		_, err := c.kubectl(ctx, "get", "--raw", "/readyz")
		return err
	})
	if err != nil {
		return "", err
	}
	version, err := c.kubectl(ctx, "version")
	_, version, _ = strings.Cut(strings.TrimSpace(version), "Server Version: ")
	return version, err
}

// controllers are those of the controller-manager that a cluster with volumes needs.
var controllers = []string{
	"serviceaccount-controller", "serviceaccount-token-controller", "root-ca-certificate-publisher-controller",
	"namespace-controller", "garbage-collector-controller", "pod-garbage-collector-controller",
	"node-lifecycle-controller", "taint-eviction-controller",
	"statefulset-controller", "daemonset-controller", "disruption-controller",
	"persistentvolume-binder-controller", "persistentvolume-attach-detach-controller", "persistentvolume-expander-controller",
	"persistentvolumeclaim-protection-controller", "persistentvolume-protection-controller",
	"volumeattributesclass-protection-controller", "ephemeral-volume-controller",
}

// startControllers starts the controller-manager.
func (c *cluster) startControllers(ctx context.Context) (string, error) {
	if err := c.writeKubeconfig("controller-manager", server, c.tokens["controller-manager"]); err != nil {
		return "", err
	}
	if err := c.daemon("controller-manager", c.program("kube-controller-manager"), "--kubeconfig="+c.kubeconfig("controller-manager"),
		"--bind-address=127.0.0.1", "--cert-dir="+c.path("controller-manager"), "--leader-elect=false",
		"--service-account-private-key-file="+c.path("accounts.key"), "--root-ca-file="+c.path("apiserver/apiserver.crt"),
		"--use-service-account-credentials=true", "--controllers="+strings.Join(controllers, ",")); err != nil {
		return "", err
	}
	return "", until(ctx, func(ctx context.Context) error {
		_, err := c.kubectl(ctx, "get", "serviceaccount", "default")
		return err
	})
}

// startScheduler starts the scheduler and the snapshot-controller. That is one for
// all drivers, and not Tarn's; here it runs beside the cluster, under its account.
func (c *cluster) startScheduler(ctx context.Context) (string, error) {
	if err := c.writeKubeconfig("scheduler", server, c.tokens["scheduler"]); err != nil {
		return "", err
	}
	if err := c.daemon("scheduler", c.program("kube-scheduler"), "--kubeconfig="+c.kubeconfig("scheduler"),
		"--bind-address=127.0.0.1", "--cert-dir="+c.path("scheduler"), "--leader-elect=false"); err != nil {
		return "", err
	}
	if _, err := c.kubectl(ctx, "apply", "-f", c.program("rbac-snapshot-controller.yaml")); err != nil {
		return "", err
	}
	token, err := c.kubectl(ctx, "create", "token", "-n", "kube-system", "snapshot-controller")
	if err != nil {
		return "", err
	}
	if err := c.writeKubeconfig("snapshot-controller", server, strings.TrimSpace(token)); err != nil {
		return "", err
	}
	return "", c.daemon("snapshot-controller", c.program("snapshot-controller"), "--kubeconfig="+c.kubeconfig("snapshot-controller"), "--leader-election=false")
}

// defineSnapshots installs what the cluster has to have once, for all drivers.
func (c *cluster) defineSnapshots(ctx context.Context) (string, error) {
	if _, err := c.kubectl(ctx, "apply", "-f", c.program("crd")); err != nil {
		return "", err
	}
	return "", c.wait(ctx, "condition=Established", "crd", "--all")
}
