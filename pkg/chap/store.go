package chap

import (
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/google/renameio/v2"

	"github.com/tarn-csi/tarn/pkg/file"
)

// Store keeps one root-only file a publication whose mode is Secrets.
type Store struct{ Dir string }

func (s Store) path(uuid, node string) string {
	return filepath.Join(s.Dir, uuid+"."+node+".json")
}

// pair is Credentials as the file holds it: with the passwords.
type pair Credentials

// Put keeps a pair, on disk before it returns.
func (s Store) Put(uuid, node string, c Credentials) error {
	raw, err := json.Marshal(pair(c))
	if err != nil {
		return err
	}
	if err := os.MkdirAll(s.Dir, 0o700); err != nil {
		return err
	}
	if err := file.Replace(s.path(uuid, node), raw, 0o600); err != nil {
		return fmt.Errorf("keep a CHAP pair: %w", err)
	}
	return nil
}

// Get returns the kept pair, or false.
func (s Store) Get(uuid, node string) (Credentials, bool, error) {
	raw, err := os.ReadFile(s.path(uuid, node))
	if errors.Is(err, fs.ErrNotExist) {
		return Credentials{}, false, nil
	}
	if err != nil {
		return Credentials{}, false, err
	}
	var p pair
	if json.Unmarshal(raw, &p) != nil || p.User == "" || p.Password == "" {
		return Credentials{}, false, fmt.Errorf("%s is damaged: remove it and publish the volume again", s.path(uuid, node))
	}
	return Credentials(p), true, nil
}

// Remove forgets a pair, and what a Put that was cut off left of it; none is a
// success.
func (s Store) Remove(uuid, node string) error {
	return file.Remove(s.path(uuid, node))
}

// newFile begins a root-only file beside path, and never in TMPDIR, where a
// crash would leave a secret that nobody looks for.
func newFile(path string) (*renameio.PendingFile, error) {
	dir := filepath.Dir(path)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	return renameio.NewPendingFile(path, renameio.WithTempDir(dir), renameio.WithStaticPermissions(0o600))
}

// CreateKey makes a new random key file, root-only, unless there is one. Two
// callers at once get the same key.
func CreateKey(path string) (Key, error) {
	k, err := ReadKey(path)
	if !errors.Is(err, fs.ErrNotExist) {
		return k, err
	}
	k = make(Key, KeySize)
	if _, err := rand.Read(k); err != nil {
		return nil, err
	}
	pending, err := newFile(path)
	if err != nil {
		return nil, fmt.Errorf("make CHAP key: %w", err)
	}
	defer pending.Cleanup() //nolint:errcheck // nothing is left to do once it is linked
	if _, err := pending.WriteString(k.Hex() + "\n"); err != nil {
		return nil, err
	}
	if err := pending.Sync(); err != nil {
		return nil, err
	}
	// A link, unlike a rename, does not replace what another process made.
	if err := os.Link(pending.Name(), path); err != nil && !errors.Is(err, fs.ErrExist) {
		return nil, fmt.Errorf("make CHAP key: %w", err)
	}
	if err := file.SyncDir(filepath.Dir(path)); err != nil {
		return nil, err
	}
	return ReadKey(path)
}
