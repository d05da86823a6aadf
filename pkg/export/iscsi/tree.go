package iscsi

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"strings"

	"github.com/sirupsen/logrus"

	"github.com/tarn-csi/tarn/pkg/export/configfs"
)

// tree is configfs under one call's context: it stops between operations when
// the context ends, and logs what it changes. Values are not logged.
type tree struct {
	ctx context.Context //nolint:containedctx // a tree lives for one call
	fs  configfs.FS
	log logrus.FieldLogger
}

func (e *Exporter) tree(ctx context.Context) tree { return tree{ctx: ctx, fs: e.fs, log: e.log} }

func (t tree) op(name, path string, call func() error) error {
	if err := t.ctx.Err(); err != nil {
		return fmt.Errorf("stopped before %s %s: %w", name, path, err)
	}
	err := call()
	entry := t.log.WithFields(logrus.Fields{"operation": name, "path": path})
	if err != nil {
		entry = entry.WithError(err)
	}
	entry.Debug("configfs")
	return err
}

func (t tree) mkdir(path string) error {
	return t.op("mkdir", path, func() error { return t.fs.Mkdir(path) })
}

// mkdirShared is mkdir of a directory that may be there already.
func (t tree) mkdirShared(path string) error {
	if err := t.mkdir(path); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	return nil
}

// rmdir is a success when nothing is there.
func (t tree) rmdir(path string) error {
	return missingIsDone(t.op("rmdir", path, func() error { return t.fs.Rmdir(path) }))
}

// unlink is a success when nothing is there.
func (t tree) unlink(path string) error {
	return missingIsDone(t.op("unlink", path, func() error { return t.fs.Unlink(path) }))
}

func (t tree) write(path, value string) error {
	return t.op("write", path, func() error { return t.fs.Write(path, value) })
}

func (t tree) symlink(target, path string) error {
	return t.op("symlink", path, func() error { return t.fs.Symlink(target, path) })
}

// read returns "" for an attribute that is not there: it went away, or this
// kernel does not have it.
func (t tree) read(path string) (string, error) {
	if err := t.ctx.Err(); err != nil {
		return "", err
	}
	v, err := t.fs.Read(path)
	return v, missingIsDone(err)
}

// list returns the entries of a kind whose names begin with prefix, none when
// dir is not there.
func (t tree) list(dir string, kind configfs.Kind, prefix string) ([]configfs.Entry, error) {
	list, _, err := t.entries(dir, kind, prefix)
	return list, err
}

// entries is list, and says whether dir is there.
func (t tree) entries(dir string, kind configfs.Kind, prefix string) (list []configfs.Entry, exists bool, err error) {
	if err := t.ctx.Err(); err != nil {
		return nil, false, err
	}
	all, err := t.fs.List(dir)
	if err != nil {
		return nil, false, missingIsDone(err)
	}
	for _, e := range all {
		if e.Kind == kind && strings.HasPrefix(e.Name, prefix) {
			list = append(list, e)
		}
	}
	return list, true, nil
}

func missingIsDone(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}
