package app

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tarn-csi/tarn/pkg/chap"
	"github.com/tarn-csi/tarn/pkg/config"
	"github.com/tarn-csi/tarn/pkg/fault"
)

// settings is a configuration whose keys are in dir.
func settings(t *testing.T, mode, dir string) config.Config {
	t.Helper()
	c := config.Default()
	c.Mode, c.StateDir, c.NodeName = mode, dir, "Worker-1"
	c.Pools = []config.Pool{{Name: "tank", Parent: "tank/csi", Addresses: []string{"192.0.2.10"}}}
	if err := c.Complete(); err != nil {
		t.Fatal(err)
	}
	return c
}

func load(c config.Config) (keys, error) {
	k, err := readKeys(c)
	if err != nil {
		return k, err
	}
	return k, k.complete(c)
}

func TestModeAllMakesTheMasterKeyOnceAndDerivesTheNodes(t *testing.T) {
	c := settings(t, config.All, filepath.Join(t.TempDir(), "state"))
	if k, err := readKeys(c); err != nil || k.master != nil {
		t.Errorf("before the root is changed: %v, %v", k, err)
	}
	if _, err := os.Stat(c.MasterKeyFile); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a key was made inside the container: %v", err)
	}
	first, err := load(c)
	if err != nil {
		t.Fatal(err)
	}
	again, err := load(c)
	if err != nil || again.master.Hex() != first.master.Hex() || again.node.Hex() != first.node.Hex() {
		t.Errorf("a restart has other keys, %v", err)
	}
	if want := chap.NodeKey(first.master, "worker-1").Hex(); first.node.Hex() != want {
		t.Error("the node's key is not that of its name in ids")
	}
}

// A new key would lock every node out.
func TestAControllerNeverMakesAKey(t *testing.T) {
	c := settings(t, config.Controller, t.TempDir())
	if _, err := load(c); !errors.Is(err, fs.ErrNotExist) || !strings.Contains(err.Error(), "tarn key --create") {
		t.Errorf("without a key: %v", err)
	}
	if _, err := os.Stat(c.MasterKeyFile); err == nil {
		t.Error("a key was made")
	}
	made, err := chap.CreateKey(c.MasterKeyFile)
	if err != nil {
		t.Fatal(err)
	}
	if k, err := load(c); err != nil || k.master.Hex() != made.Hex() || k.node != nil {
		t.Errorf("with a key: %v", err)
	}
}

func TestANodeNeedsOnlyItsOwnKeyAndCanDoWithout(t *testing.T) {
	c := settings(t, config.Node, t.TempDir())
	if k, err := load(c); err != nil || k.node != nil || k.master != nil {
		t.Errorf("without a key: %v, %v", k, err)
	}
	key := chap.NodeKey(chap.Key(strings.Repeat("m", chap.KeySize)), "worker-1")
	if err := os.WriteFile(c.NodeKeyFile, []byte(key.Hex()+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if k, err := load(c); err != nil || k.node.Hex() != key.Hex() || k.master != nil {
		t.Errorf("with a key: %v, %v", k, err)
	}
	if _, err := os.Stat(c.MasterKeyFile); err == nil {
		t.Error("a master key was made on a node")
	}
}

func TestADamagedKeyStopsTheStart(t *testing.T) {
	for _, mode := range []string{config.All, config.Controller, config.Node} {
		c := settings(t, mode, t.TempDir())
		for _, path := range []string{c.MasterKeyFile, c.NodeKeyFile} {
			if err := os.WriteFile(path, []byte("sentinel"), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := load(c); fault.Kind(err) != fault.Invalid || strings.Contains(err.Error(), "sentinel") {
			t.Errorf("%s: %v", mode, err)
		}
	}
}

func TestNoKeyIsNeededWhereNothingIsDerived(t *testing.T) {
	for name, change := range map[string]func(*config.Config){
		"secrets":  func(c *config.Config) { c.Pools[0].CHAP = chap.Secrets },
		"none":     func(c *config.Config) { c.Pools[0].CHAP = chap.None },
		"no iSCSI": func(c *config.Config) { c.Protocols = []string{"nfs"} },
	} {
		for _, mode := range []string{config.All, config.Controller} {
			c := settings(t, mode, t.TempDir())
			change(&c)
			if k, err := load(c); err != nil || k.master != nil || k.node != nil {
				t.Errorf("%s, %s: %v, %v", name, mode, k, err)
			}
			if _, err := os.Stat(c.MasterKeyFile); err == nil {
				t.Errorf("%s, %s: a key was made", name, mode)
			}
		}
	}
}
