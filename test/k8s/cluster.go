package main

import (
	"context"
	"path/filepath"
	"time"
)

// cluster is the control plane, and what it takes to use it.
type cluster struct {
	programs, built string
	dir             string // of this run, removed when it ends well
	start           time.Time
	tokens          map[string]string // of the users
	daemons         []daemon
	failed          context.CancelCauseFunc // ends the run, for a daemon has ended
}

// program is the path of one of Kubernetes' programs.
func (c *cluster) program(name string) string { return filepath.Join(c.programs, name) }

// path is a file of this run.
func (c *cluster) path(name string) string { return filepath.Join(c.dir, name) }

func (c *cluster) logs() string { return filepath.Join(c.dir, "logs") }

// kubeconfig is the path of a user's.
func (c *cluster) kubeconfig(user string) string { return c.path(user + ".kubeconfig") }
