package release

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/tarn-csi/tarn/pkg/step"
)

var (
	superblock = regexp.MustCompile(`superblock: "([0-9a-f]+):([0-9a-f]+):`)
	// A file's name is not escaped, and may hold quotes.
	filename = regexp.MustCompile(`filename: "(.*?)"(?:, owner: ".*)? \}$`)
	address  = regexp.MustCompile(`(?m)^address: "(.*)"$`)
)

// nfsState makes nfsd let go of a filesystem. A v4 client that merely read a
// file holds a delegation and thereby the filesystem, also after the export is
// gone (fs/nfsd/nfs4state.c).
func (r *Releaser) nfsState(dir string, alive []netip.Addr) error {
	nfsd := filepath.Join(r.proc, "fs/nfsd")
	// Since Linux 6.9 this revokes NFSv4 state as well as locks, and of this
	// filesystem alone; before, it ends NLM locks. The kernel wants one escaped
	// word and the end of the line (write_unlock_fs in fs/nfsd/nfsctl.c).
	if err := write(filepath.Join(nfsd, "unlock_filesystem"), escape(dir)+"\n"); err != nil && !gone(err) {
		return err
	}
	var st unix.Stat_t
	if err := unix.Stat(dir, &st); err != nil {
		return &os.PathError{Op: "stat", Path: dir, Err: err}
	}
	clients, err := filepath.Glob(filepath.Join(nfsd, "clients/*"))
	if err != nil {
		return err
	}
	var errs []error
	for _, client := range clients {
		file, holds, err := holdsFile(filepath.Join(client, "states"), unix.Major(st.Dev), unix.Minor(st.Dev))
		if err != nil && !gone(err) {
			errs = append(errs, err)
			continue
		}
		if !holds {
			continue
		}
		who, err := clientAddress(filepath.Join(client, "info"))
		if gone(err) {
			continue
		}
		if err != nil {
			errs = append(errs, err)
			continue
		}
		if slices.Contains(alive, who) {
			errs = append(errs, fmt.Errorf("NFS client %s still has %q open: stop what uses it there", who, file))
			continue
		}
		// This drops the client's state on every volume, and it has none left.
		if err := write(filepath.Join(client, "ctl"), "expire\n"); err != nil && !gone(err) {
			errs = append(errs, fmt.Errorf("NFS client %s holds %q: %w", who, file, err))
		}
	}
	return errors.Join(errs...)
}

// gone reports that the client or the whole server went away meanwhile.
func gone(err error) bool {
	return errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ENXIO)
}

func write(path, value string) error {
	return step.Do(context.Background(), step.File, "write "+filepath.Base(path), func() error {
		f, err := os.OpenFile(path, os.O_WRONLY, 0)
		if err != nil {
			return err
		}
		_, err = f.WriteString(value)
		return errors.Join(err, f.Close())
	})
}

// holdsFile reports whether one of a client's states is on the device, and on
// which file.
func holdsFile(states string, major, minor uint32) (string, bool, error) {
	f, err := os.Open(states)
	if err != nil {
		return "", false, err
	}
	defer f.Close() //nolint:errcheck // opened for reading
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		m := superblock.FindStringSubmatch(lines.Text())
		if m == nil || m[1] != fmt.Sprintf("%02x", major) || m[2] != fmt.Sprintf("%02x", minor) {
			continue
		}
		name := ""
		if m := filename.FindStringSubmatch(lines.Text()); m != nil {
			name = m[1]
		}
		return name, true, nil
	}
	return "", false, lines.Err()
}

func clientAddress(info string) (netip.Addr, error) {
	b, err := os.ReadFile(info)
	if err != nil {
		return netip.Addr{}, err
	}
	m := address.FindStringSubmatch(string(b))
	if m == nil {
		return netip.Addr{}, fmt.Errorf("%s names no address", info)
	}
	if ap, err := netip.ParseAddrPort(m[1]); err == nil {
		return ap.Addr().Unmap(), nil
	}
	a, err := netip.ParseAddr(strings.Trim(m[1], "[]"))
	return a.Unmap(), err
}
