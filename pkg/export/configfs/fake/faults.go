package fake

import (
	"context"
	"io/fs"
	"path"
	"sync"
	"syscall"

	"github.com/tarn-csi/tarn/pkg/export/configfs"
	"github.com/tarn-csi/tarn/pkg/step"
)

// Op is one operation on a configfs; reads count too.
type Op struct {
	// Name is that of the method, in lower case.
	Name string
	Path string
	// Err is its outcome.
	Err error
}

// Injector is a configfs that fails operations of the one below, without their
// effect. It is safe for concurrent use.
type Injector struct {
	below configfs.FS

	mu      sync.Mutex
	count   int
	failAt  int // fails once; 0 is never
	failErr error
	cutAt   int // fails from here on; 0 is never
	at      Op  // fails with its Err so many times
	times   int
	observe func(Op)
}

// Inject wraps a configfs, and fails nothing yet.
func Inject(below configfs.FS) *Injector { return &Injector{below: below} }

var _ configfs.FS = (*Injector)(nil)

// FailNth makes the n-th operation from now fail once with err; 1 is the next.
func (i *Injector) FailNth(n int, err error) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.failAt, i.failErr = i.count+n, err
}

// FailAt makes the operation of that name on that path fail the next times, with
// err.
func (i *Injector) FailAt(name, path string, times int, err error) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.at, i.times = Op{Name: name, Path: path, Err: err}, times
}

// CutAfter lets n more operations happen and fails all that follow, with EIO:
// nothing more comes from a process that is killed there.
func (i *Injector) CutAfter(n int) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.cutAt = i.count + n + 1
}

// Heal takes back FailNth, FailAt and CutAfter.
func (i *Injector) Heal() {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.failAt, i.cutAt, i.times = 0, 0, 0
}

// Operations returns how many operations there were.
func (i *Injector) Operations() int {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.count
}

// Observe calls fn after each operation; nil calls nobody.
func (i *Injector) Observe(fn func(Op)) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.observe = fn
}

func (i *Injector) do(name, path string, call func() error) error {
	i.mu.Lock()
	i.count++
	var err error
	switch {
	case i.count == i.failAt:
		err = i.failErr
	case i.cutAt > 0 && i.count >= i.cutAt:
		err = syscall.EIO
	case i.times > 0 && i.at.Name == name && i.at.Path == path:
		i.times--
		err = i.at.Err
	}
	observe := i.observe
	i.mu.Unlock()
	if err != nil {
		err = &fs.PathError{Op: name, Path: path, Err: err}
	} else {
		err = i.effect(name, path, call)
	}
	if observe != nil {
		observe(Op{Name: name, Path: path, Err: err})
	}
	return err
}

// effect is a step, as on the kernel's configfs, unless it is only a look.
func (i *Injector) effect(name, p string, call func() error) error {
	if name == "read" || name == "list" {
		return call()
	}
	ended, err := step.Begin(context.Background(), step.Configfs, name+" "+path.Base(p))
	if err != nil {
		return &fs.PathError{Op: name, Path: p, Err: err}
	}
	defer ended()
	return call()
}

// Mkdir implements configfs.FS.
func (i *Injector) Mkdir(path string) error {
	return i.do("mkdir", path, func() error { return i.below.Mkdir(path) })
}

// Rmdir implements configfs.FS.
func (i *Injector) Rmdir(path string) error {
	return i.do("rmdir", path, func() error { return i.below.Rmdir(path) })
}

// Write implements configfs.FS.
func (i *Injector) Write(path, value string) error {
	return i.do("write", path, func() error { return i.below.Write(path, value) })
}

// Symlink implements configfs.FS.
func (i *Injector) Symlink(target, path string) error {
	return i.do("symlink", path, func() error { return i.below.Symlink(target, path) })
}

// Unlink implements configfs.FS.
func (i *Injector) Unlink(path string) error {
	return i.do("unlink", path, func() error { return i.below.Unlink(path) })
}

// Read implements configfs.FS.
func (i *Injector) Read(path string) (value string, err error) {
	err = i.do("read", path, func() error {
		value, err = i.below.Read(path)
		return err
	})
	return value, err
}

// List implements configfs.FS.
func (i *Injector) List(path string) (list []configfs.Entry, err error) {
	err = i.do("list", path, func() error {
		list, err = i.below.List(path)
		return err
	})
	return list, err
}
