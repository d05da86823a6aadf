// Package check looks at a host as a person would who wants to know why a
// volume cannot be served or mounted: what is needed, what is there, and what
// to do. It changes nothing.
package check

import (
	"context"
	"fmt"
	"io"
	"text/tabwriter"

	"github.com/tarn-csi/tarn/pkg/config"
	"github.com/tarn-csi/tarn/pkg/run"
)

// Level is how bad a finding is.
type Level string

// The levels.
const (
	OK   Level = "OK"
	Warn Level = "WARN"
	Fail Level = "FAIL"
)

// Finding is one line of the table.
type Finding struct {
	Level Level
	// What was looked at.
	What string
	// Seen is what was found, and what to do about it.
	Seen string
}

// Checker looks at this host.
type Checker struct {
	cfg config.Config
	run *run.Runner
	// root is "/", for tests another directory.
	root string
}

// New returns a Checker for what the configuration needs.
func New(c config.Config, r *run.Runner) *Checker { return &Checker{cfg: c, run: r, root: "/"} }

// Run makes every check. Each is bounded by ctx; none stops the others.
func (c *Checker) Run(ctx context.Context) []Finding {
	var list []Finding
	if c.cfg.Mode != config.Node {
		list = append(list, c.storageHost(ctx)...)
	}
	if c.cfg.Mode != config.Controller {
		list = append(list, c.node(ctx)...)
	}
	return list
}

// Worst is the worst level of a list.
func Worst(list []Finding) Level {
	worst := OK
	for _, f := range list {
		if f.Level == Fail || f.Level == Warn && worst == OK {
			worst = f.Level
		}
	}
	return worst
}

// Print writes the table.
func Print(w io.Writer, list []Finding) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	for _, f := range list {
		if _, err := fmt.Fprintf(t, "%s\t%s\t%s\n", f.Level, f.What, f.Seen); err != nil {
			return err
		}
	}
	return t.Flush()
}

func ok(what, format string, args ...any) Finding {
	return Finding{OK, what, fmt.Sprintf(format, args...)}
}

func warn(what, format string, args ...any) Finding {
	return Finding{Warn, what, fmt.Sprintf(format, args...)}
}

func fail(what, format string, args ...any) Finding {
	return Finding{Fail, what, fmt.Sprintf(format, args...)}
}
