// Package kube asks the API server of the cluster in which this process is a pod.
// It is a client of few words: it sends and gets JSON, and knows no object.
package kube

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"strings"
)

// accountDir is where a kubelet mounts a pod's service account.
const accountDir = "/var/run/secrets/kubernetes.io/serviceaccount"

// Account is a pod's service account, as the kubelet writes it. Its directory is
// held open: it can be read after the process has changed its root, and shows the
// token that holds now, since a kubelet replaces what is in the directory and not
// the directory.
type Account struct {
	dir *os.Root
	// address is the API server's.
	address string
	// Namespace is the pod's.
	Namespace string
}

// InPod opens the account of this process's pod; nil where it is in none, or in
// one that gets no token.
func InPod() (*Account, error) {
	return Open(accountDir, os.Getenv("KUBERNETES_SERVICE_HOST"), os.Getenv("KUBERNETES_SERVICE_PORT"))
}

// Open opens the account in a directory, with an API server at host and port; nil
// where one of them is not there.
func Open(dir, host, port string) (*Account, error) {
	if host == "" || port == "" {
		return nil, nil
	}
	root, err := os.OpenRoot(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("open the service account: %w", err)
	}
	a := &Account{dir: root, address: net.JoinHostPort(host, port)}
	if a.Namespace, err = a.read("namespace"); err != nil {
		return nil, errors.Join(err, root.Close())
	}
	return a, nil
}

// Close closes the directory.
func (a *Account) Close() error { return a.dir.Close() }

// read returns what one of the account's files says now.
func (a *Account) read(name string) (string, error) {
	raw, err := a.dir.ReadFile(name)
	if err != nil {
		return "", fmt.Errorf("read the service account: %w", err)
	}
	return strings.TrimSpace(string(raw)), nil
}
