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
)

// Store keeps one root-only file a publication whose mode is Secrets.
type Store struct{ Dir string }

func (s Store) path(uuid, node string) string {
	return filepath.Join(s.Dir, uuid+"."+node+".json")
}

// Put keeps a pair, on disk before it returns.
func (s Store) Put(uuid, node string, c Credentials) error {
	if err := os.MkdirAll(s.Dir, 0o700); err != nil {
		return err
	}
	raw, err := json.Marshal(c)
	if err != nil {
		return err
	}
	if err := renameio.WriteFile(s.path(uuid, node), raw, 0o600, renameio.WithStaticPermissions(0o600)); err != nil {
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
	var c Credentials
	if json.Unmarshal(raw, &c) != nil {
		return c, false, fmt.Errorf("%s is damaged: remove it and publish the volume again", s.path(uuid, node))
	}
	return c, true, nil
}

// Remove forgets a pair; none is a success.
func (s Store) Remove(uuid, node string) error {
	if err := os.Remove(s.path(uuid, node)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// CreateKey makes a new random key file, root-only, unless there is one. Two
// callers at once get the same key.
func CreateKey(path string) (Key, error) {
	k, err := ReadKey(path)
	if !errors.Is(err, fs.ErrNotExist) {
		return k, err
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return nil, err
	}
	k = make(Key, KeySize)
	if _, err := rand.Read(k); err != nil {
		return nil, err
	}
	pending, err := renameio.NewPendingFile(path, renameio.WithStaticPermissions(0o600))
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
	return ReadKey(path)
}
