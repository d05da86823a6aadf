package nfs

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/tarn-csi/tarn/pkg/run"
)

// commitTimeout bounds one exportfs. It may wait for the resolver.
const commitTimeout = time.Minute

// job is what one volume's table entries need. Its files are written already.
type job struct {
	source string
	drop   []string
	add    []client
	// reread asks for exportfs -r: somebody else's entries are in the way.
	reread bool

	done chan struct{}
	err  error
}

// commit has exportfs do a job, and returns when it is done. Each exportfs
// flushes the kernel's caches, by a clock of whole seconds that a second flush
// within one pushes ahead of the real one; until the real one has caught up, no
// stale entry is cleaned away, and each keeps its dataset from being unmounted
// (write_flush and cache_clean in net/sunrpc/cache.c). So there is one exportfs
// a second at most, and it does the jobs of all who wait.
func (e *Exporter) commit(ctx context.Context, j *job) error {
	j.done = make(chan struct{})
	e.mu.Lock()
	e.jobs = append(e.jobs, j)
	if !e.working {
		e.working = true
		go e.work()
	}
	e.mu.Unlock()
	select {
	case <-j.done:
		return j.err
	case <-ctx.Done():
	}
	e.mu.Lock()
	i := slices.Index(e.jobs, j)
	if i >= 0 {
		e.jobs = slices.Delete(e.jobs, i, i+1)
	}
	e.mu.Unlock()
	if i < 0 {
		<-j.done // it runs, and the caller's lock has to cover it
	}
	return ctx.Err()
}

// work does jobs until there are none.
func (e *Exporter) work() {
	for {
		e.mu.Lock()
		e.working = len(e.jobs) > 0
		more := e.working
		e.mu.Unlock()
		if !more {
			return
		}
		e.waitFlush()
		e.mu.Lock()
		jobs := e.jobs
		e.jobs = nil
		e.mu.Unlock()
		if len(jobs) == 0 {
			continue // their callers left
		}
		ctx, cancel := context.WithTimeout(context.Background(), commitTimeout)
		_, err := e.run.Run(ctx, run.Cmd{Tool: "exportfs", Args: arguments(jobs)})
		cancel()
		for _, j := range jobs {
			j.err = err
			close(j.done)
		}
	}
}

// maxNamed is how many clients of paths one exportfs is told of: the command stands
// in the error of each volume that shares it.
const maxNamed = 64

// arguments are the one command that does all jobs: what is only taken away, or
// only given with the same options, is named; anything else, and more than
// maxNamed, is read from the files.
func arguments(jobs []*job) []string {
	all := []string{"-r"}
	var drop, add []string
	var opts options
	for _, j := range jobs {
		if j.reread {
			return all
		}
		for _, host := range j.drop {
			drop = append(drop, hostPath(host, j.source))
		}
		for _, c := range j.add {
			if len(add) > 0 && c.options != opts {
				return all
			}
			opts = c.options
			add = append(add, hostPath(c.addr.String(), j.source))
		}
	}
	switch {
	case len(drop) > 0 && len(add) > 0 || len(drop)+len(add) > maxNamed:
		return all
	case len(drop) > 0:
		return append([]string{"-u"}, drop...)
	}
	return append([]string{"-o", opts.String()}, add...)
}

// waitFlush waits until the second of the kernel's last flush has passed, the
// next second at most: where others flush faster than that, we go along.
func (e *Exporter) waitFlush() {
	now := time.Now()
	if e.lastFlush() < now.Unix() {
		return
	}
	<-time.After(now.Truncate(time.Second).Add(time.Second).Sub(now))
}

// lastFlush returns the second of the last flush, or zero.
func (e *Exporter) lastFlush() int64 {
	raw, err := os.ReadFile(filepath.Join(e.paths.Proc, "net/rpc/nfsd.export/flush"))
	if err != nil {
		return 0
	}
	n, _ := strconv.ParseInt(strings.TrimSpace(string(raw)), 10, 64)
	return n
}
