package main

import (
	_ "embed"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"
)

//go:embed initrd-init
var initrdInit []byte

// setup is what the scripts tell this program.
type setup struct {
	tree  string // the project
	image string // folder with vmlinuz, initrd, root.ext4
	agent string // static program for the guest
	cache string
}

func newSetup() setup {
	return setup{os.Getenv("TARN_TREE"), os.Getenv("TARN_VM_IMAGE"), os.Getenv("TARN_VM_AGENT"), os.Getenv("TARN_VM_CACHE")}
}

// stateDir is where this user's guests have their folders. Short, because unix sockets have short names.
func stateDir() (string, error) {
	dir := fmt.Sprintf("/var/tmp/tarn-vm-%d", os.Getuid())
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return "", err
	}
	info, err := os.Lstat(dir)
	if err != nil {
		return "", err
	}
	if stat, ok := info.Sys().(*syscall.Stat_t); !ok || !info.IsDir() || int(stat.Uid) != os.Getuid() {
		return "", fmt.Errorf("%s is not a folder of yours", dir)
	}
	return dir, nil
}

// lock takes the lock of a guest's folder; the guest's supervisor holds it for life. nil: somebody has it.
func lock(dir string) (*os.File, error) {
	f, err := os.OpenFile(dir+".lock", os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		f.Close()
		if err == syscall.EWOULDBLOCK {
			return nil, nil
		}
		return nil, err
	}
	return f, nil
}

// sweep removes what killed runners left behind.
func sweep(state string) {
	locks, _ := filepath.Glob(filepath.Join(state, "run-*.lock"))
	for _, path := range locks {
		dir := strings.TrimSuffix(path, ".lock")
		if held, err := lock(dir); err == nil && held != nil {
			os.RemoveAll(dir)
			os.Remove(path)
			held.Close()
		}
	}
}

// writeInitrd puts the image's initrd and the files of this boot into one file: cpio archives may follow each other.
func writeInitrd(path, base string, files []cpioFile) error {
	out, err := os.Create(path)
	if err != nil {
		return err
	}
	defer out.Close()
	in, err := os.Open(base)
	if err != nil {
		return err
	}
	defer in.Close()
	if _, err := io.Copy(out, in); err != nil {
		return err
	}
	for i, f := range append(files, cpioFile{name: "TRAILER!!!"}) {
		if err := f.write(out, i+1); err != nil {
			return err
		}
	}
	return out.Close()
}

type cpioFile struct {
	name    string
	mode    os.FileMode
	content []byte
}

func (f cpioFile) write(w io.Writer, inode int) error {
	mode := uint32(f.mode.Perm())
	switch {
	case f.mode.IsDir():
		mode |= syscall.S_IFDIR
	case f.mode != 0:
		mode |= syscall.S_IFREG
	}
	header := "070701"
	for _, v := range []uint32{uint32(inode), mode, 0, 0, 1, 0, uint32(len(f.content)), 0, 0, 0, 0, uint32(len(f.name) + 1), 0} {
		header += fmt.Sprintf("%08x", v)
	}
	header += f.name + "\x00"
	if _, err := io.WriteString(w, header+pad(len(header))); err != nil {
		return err
	}
	if _, err := w.Write(f.content); err != nil {
		return err
	}
	_, err := io.WriteString(w, pad(len(f.content)))
	return err
}

func pad(n int) string { return "\x00\x00\x00"[:(4-n%4)%4] }

// shellQuote makes s one word of a shell.
func shellQuote(s string) string { return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'" }

// tail is the end of a file for a person to read.
func tail(path string, lines int) string {
	content, _ := os.ReadFile(path)
	all := strings.Split(strings.TrimRight(strings.ReplaceAll(string(content), "\r", ""), "\n"), "\n")
	return strings.Join(all[max(0, len(all)-lines):], "\n")
}
