package release

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/tarn-csi/tarn/pkg/octal"
)

// caches are the kernel's two tables of who may do what with which path, in the
// order in which nfs-utils flushes them: the first refers to the second. An
// entry holds its filesystem, also one that has expired, until it is cleaned
// away.
var caches = []string{"nfsd.fh", "nfsd.export"}

// flushes is how often a cache is flushed for one path; somebody else's flush may
// come just before each.
const flushes = 3

// exportCache has the kernel drop the entries of a path that is exported no
// more. Entries are not cleaned while the second of the last flush, which quick
// flushes push into the future, has not passed (write_flush and cache_clean in
// net/sunrpc/cache.c): that is waited for.
func (r *Releaser) exportCache(ctx context.Context, dir string) error {
	for range flushes {
		held, err := r.cached(dir)
		if err != nil || !held {
			return err
		}
		flushed, err := r.lastFlush()
		if err != nil {
			return err
		}
		// One flush when the second has passed cleans everything away.
		next := time.Unix(flushed+1, 0)
		wait := time.NewTimer(time.Until(next))
		select {
		case <-wait.C:
		case <-ctx.Done():
			wait.Stop()
			return fmt.Errorf("the kernel's export cache holds %s until %s, since so many exports changed: repeat the call then (%w)",
				dir, next.Format(time.TimeOnly), ctx.Err())
		}
		if err := r.flush(); err != nil {
			return err
		}
	}
	if held, err := r.cached(dir); err != nil || !held {
		return err
	}
	return fmt.Errorf("the kernel's export cache still holds %s: see with `exportfs -v` who exports it", dir)
}

// cached reports whether an entry is of the directory, or of one below it.
func (r *Releaser) cached(dir string) (bool, error) {
	for _, cache := range caches {
		f, err := os.Open(filepath.Join(r.proc, "net/rpc", cache, "content"))
		if errors.Is(err, fs.ErrNotExist) {
			continue // nfsd is not loaded
		}
		if err != nil {
			return false, err
		}
		found, err := mentions(f, dir)
		if err := errors.Join(err, f.Close()); err != nil {
			return false, err
		}
		if found {
			return true, nil
		}
	}
	return false, nil
}

// mentions looks for a path among the words of a table, in which blanks of a
// path are octal.
func mentions(f *os.File, dir string) (bool, error) {
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		for _, word := range strings.FieldsFunc(lines.Text(), func(c rune) bool { return c == ' ' || c == '\t' }) {
			path := octal.Unescape(word)
			if path == dir || strings.HasPrefix(path, dir+"/") {
				return true, nil
			}
		}
	}
	return false, lines.Err()
}

// lastFlush returns the latest second, of the real clock, in which a cache was
// flushed.
func (r *Releaser) lastFlush() (int64, error) {
	var last int64
	for _, cache := range caches {
		raw, err := os.ReadFile(filepath.Join(r.proc, "net/rpc", cache, "flush"))
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return 0, err
		}
		n, err := strconv.ParseInt(strings.TrimSpace(string(raw)), 10, 64)
		if err != nil {
			return 0, fmt.Errorf("%s/flush: %w", cache, err)
		}
		last = max(last, n)
	}
	return last, nil
}

// flush expires everything; what is still exported is asked for again.
func (r *Releaser) flush() error {
	for _, cache := range caches {
		// Linux before 4.16 reads the number, as the second up to which to flush.
		value := strconv.FormatInt(time.Now().Unix()+1, 10) + "\n"
		if err := write(filepath.Join(r.proc, "net/rpc", cache, "flush"), value); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return nil
}

// escape and octal.Unescape are the kernel's qword_add and qword_get: what separates
// words is a backslash and three octal digits.
func escape(path string) string {
	var b strings.Builder
	for _, c := range []byte(path) {
		if c <= ' ' || c == '\\' || c >= 0x7f {
			fmt.Fprintf(&b, "\\%03o", c)
			continue
		}
		b.WriteByte(c)
	}
	return b.String()
}
