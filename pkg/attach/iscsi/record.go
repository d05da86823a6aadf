package iscsi

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/tarn-csi/tarn/pkg/chap"
	"github.com/tarn-csi/tarn/pkg/fault"
	"github.com/tarn-csi/tarn/pkg/step"
)

// interfaceName names the interface record that carries an initiator name. It
// is derived from that name, so two Tarn instances on a node do not share one.
func interfaceName(initiator string) string {
	sum := sha256.Sum256([]byte(initiator))
	return interfacePrefix + hex.EncodeToString(sum[:6])
}

const interfacePrefix = "tarn-"

// ensureInterface makes the interface record with which this node logs in
// under a name of its own; initiatorname.iscsi stays the node's.
func (a *Attacher) ensureInterface(ctx context.Context, initiator string) error {
	select {
	case a.interfaces <- struct{}{}:
	case <-ctx.Done():
		return ctx.Err()
	}
	defer func() { <-a.interfaces }()

	name := interfaceName(initiator)
	if a.interfaceHas(name, initiator) {
		return nil
	}
	// -o new on a record that exists is a success and resets it.
	if err := a.iscsiadm(ctx, nil, "-m", "iface", "-I", name, "-o", "new"); err != nil {
		return failed(err, "make the interface record "+name)
	}
	if err := a.iscsiadm(ctx, nil, "-m", "iface", "-I", name, "-o", "update", "-n", "iface.initiatorname", "-v", initiator); err != nil {
		return failed(err, "name the initiator in the interface record "+name)
	}
	return nil
}

func (a *Attacher) interfaceHas(name, initiator string) bool {
	for _, db := range a.databases {
		content, err := os.ReadFile(filepath.Join(db, "ifaces", name))
		if err == nil && slices.Contains(strings.Split(string(content), "\n"), "iface.initiatorname = "+initiator) {
			return true
		}
	}
	return false
}

// makeRecord makes the node record of one portal. iscsiadm writes it with the
// node's own defaults; then the file is replaced by one with our settings, so
// that no password is ever an argument.
func (a *Attacher) makeRecord(ctx context.Context, iqn string, p portal, iface string, c *chap.Credentials) error {
	if err := a.iscsiadm(ctx, nil, "-m", "node", "-T", iqn, "-p", p.String(), "-I", iface, "-o", "new"); err != nil {
		return failed(err, "make the node record of "+iqn)
	}
	path, err := a.recordPath(iqn, p)
	if err != nil {
		return err
	}
	content, err := os.ReadFile(path)
	if err != nil {
		return fault.New(fault.Unavailable, "the node record of %s cannot be read: %w", iqn, err)
	}
	content, err = withSettings(content, a.settings(c))
	if err != nil {
		return err
	}
	if err := replaceFile(path, temporary(path, iqn, iface), content); err != nil {
		return fault.New(fault.Unavailable, "the node record of %s cannot be written: %w", iqn, err)
	}
	return nil
}

// recordPath finds the file that iscsiadm made: nodes/IQN/HOST,PORT.
func (a *Attacher) recordPath(iqn string, p portal) (string, error) {
	for _, db := range a.databases {
		path := filepath.Join(db, "nodes", iqn, p.host+","+strconv.Itoa(p.port))
		if fi, err := os.Lstat(path); err == nil && fi.Mode().IsRegular() {
			return path, nil
		}
	}
	return "", fault.New(fault.Unavailable, "iscsiadm made a node record of %s, but it is in none of %s",
		iqn, strings.Join(a.databases, ", "))
}

// temporary is where a record is written before it is renamed: beside the
// nodes, since whatever lies among them is read as a record, and always the
// same for a target and an interface, so that one left by a crash is found again
// and tells whose it is.
func temporary(record, iqn, iface string) string {
	db := filepath.Dir(filepath.Dir(filepath.Dir(record)))
	return filepath.Join(db, "."+iface+"-"+iqn)
}

// temporaries finds the unfinished records of a target, of whatever interface.
func (a *Attacher) temporaries(iqn string) ([]string, error) {
	var all []string
	for _, db := range a.databases {
		found, err := filepath.Glob(filepath.Join(db, "."+interfacePrefix+"*-"+iqn))
		if err != nil {
			return nil, err
		}
		all = append(all, found...)
	}
	return all, nil
}

// authPrefix begins the keys of CHAP. Those that the node's iscsid.conf brings
// are dropped: they belong to other targets.
const authPrefix = "node.session.auth."

// setting is a line of a node record.
type setting struct{ key, value string }

// settings are what a record of ours says. With open-iscsi's own defaults a
// login to a target that does not exist takes two minutes.
func (a *Attacher) settings(c *chap.Credentials) []setting {
	seconds := func(d time.Duration) string { return strconv.Itoa(max(1, int(d.Seconds()))) }
	list := []setting{
		{"node.startup", "manual"},
		{"node.conn[0].startup", "manual"},
		{"node.leading_login", "No"},
		{"node.session.scan", "auto"},
		{"node.session.nr_sessions", "1"},
		{"node.session.initial_login_retry_max", strconv.Itoa(loginRetries)},
		{"node.session.timeo.replacement_timeout", seconds(a.cfg.ReplacementTimeout)},
		{"node.conn[0].timeo.login_timeout", seconds(a.cfg.LoginTimeout)},
	}
	if c == nil {
		return append(list, setting{authPrefix + "authmethod", "None"})
	}
	list = append(list,
		setting{authPrefix + "authmethod", "CHAP"},
		setting{authPrefix + "username", c.User},
		setting{authPrefix + "password", c.Password},
	)
	if c.MutualUser != "" {
		list = append(list,
			setting{authPrefix + "username_in", c.MutualUser},
			setting{authPrefix + "password_in", c.MutualPassword},
		)
	}
	return list
}

// withSettings puts the settings into a record's text in place of the lines
// with the same keys. No error holds a value.
func withSettings(record []byte, settings []setting) ([]byte, error) {
	const begin, end = "# BEGIN RECORD", "# END RECORD"
	if !bytes.HasPrefix(record, []byte(begin)) || !bytes.Contains(record, []byte(end)) {
		return nil, fault.New(fault.Unavailable, "what iscsiadm wrote is no node record")
	}
	for _, s := range settings {
		if s.value == "" || strings.ContainsFunc(s.value, func(r rune) bool { return r <= ' ' || r == 0x7f }) {
			return nil, fault.New(fault.Invalid, "%s is empty or has a blank or a control character", s.key)
		}
	}
	var out bytes.Buffer
	for line := range strings.Lines(string(record)) {
		key, _, _ := strings.Cut(line, " = ")
		switch {
		case strings.HasPrefix(line, end):
			for _, s := range settings {
				fmt.Fprintf(&out, "%s = %s\n", s.key, s.value)
			}
		case strings.HasPrefix(key, authPrefix) && key != authPrefix+"chap_algs",
			slices.ContainsFunc(settings, func(s setting) bool { return s.key == key }):
			continue
		}
		out.WriteString(line)
	}
	return out.Bytes(), nil
}

// replaceFile puts content, readable by root alone, in the place of path.
func replaceFile(path, temporary string, content []byte) error {
	if err := os.Remove(temporary); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	err := change("write", func() error {
		f, err := os.OpenFile(temporary, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
		if err != nil {
			return err
		}
		_, err = f.Write(content)
		return errors.Join(err, f.Close())
	})
	if err == nil {
		err = change("rename", func() error { return os.Rename(temporary, path) })
	}
	if err != nil {
		return errors.Join(err, os.RemoveAll(temporary))
	}
	return nil
}

func change(what string, effect func() error) error {
	return step.Do(context.Background(), step.File, what+" node record", effect)
}

// deleteRecords removes every record of the target, and verifies that none is
// left. None to begin with is a success.
func (a *Attacher) deleteRecords(ctx context.Context, iqn string) error {
	unfinished, err := a.temporaries(iqn)
	if err != nil {
		return err
	}
	for _, path := range unfinished {
		if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fault.New(fault.Unavailable, "the unfinished node record of %s cannot be removed: %w", iqn, err)
		}
	}
	if !a.hasRecords(iqn) {
		return nil
	}
	err = a.iscsiadm(ctx, nil, "-m", "node", "-T", iqn, "-o", "delete")
	if a.hasRecords(iqn) {
		if err == nil {
			err = errors.New("iscsiadm returned success, but it is still there")
		}
		return failed(err, "remove the node record of "+iqn)
	}
	return nil
}

func (a *Attacher) hasRecords(iqn string) bool {
	for _, db := range a.databases {
		entries, err := os.ReadDir(filepath.Join(db, "nodes", iqn))
		if len(entries) > 0 || (err != nil && !errors.Is(err, fs.ErrNotExist)) {
			return true
		}
	}
	return false
}
