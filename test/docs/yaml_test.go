package docs

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/sirupsen/logrus"

	"github.com/tarn-csi/tarn/pkg/config"
	"github.com/tarn-csi/tarn/pkg/export"
	"github.com/tarn-csi/tarn/pkg/fault"
	"github.com/tarn-csi/tarn/pkg/volume"
)

// Every YAML block is what it claims to be: Kubernetes' objects, of whose
// parameters the driver's own parser thinks well, or a configuration of Tarn that
// starts.
func TestEveryYAMLBlockIsValid(t *testing.T) {
	objects := 0
	for _, d := range pages(t) {
		for _, b := range d.Blocks {
			if b.Language != "yaml" {
				continue
			}
			list, err := documents(b.Text)
			if err != nil {
				t.Errorf("%s:%d: %v", d.Path, b.Line, err)
			}
			for _, text := range list {
				objects++
				if err := judge(t, text); err != nil {
					t.Errorf("%s:%d: %v", d.Path, b.Line, err)
				}
			}
		}
	}
	if objects == 0 {
		t.Error("no YAML was found")
	}
}

// judge says what is wrong with one document.
func judge(t *testing.T, text string) error {
	if strings.Contains(text, "kind:") {
		return object(text)
	}
	path := filepath.Join(t.TempDir(), "config.yaml")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		return err
	}
	c := config.Default()
	if err := c.Read(path); err != nil {
		return err
	}
	return c.Complete()
}

func TestWrongYAMLIsRefused(t *testing.T) {
	const class = "apiVersion: storage.k8s.io/v1\nkind: StorageClass\nmetadata: {name: a}\nprovisioner: io.github.tarn-csi\n"
	const snapshots = "apiVersion: snapshot.storage.k8s.io/v1\nkind: VolumeSnapshotClass\nmetadata: {name: a}\ndriver: io.github.tarn-csi\n"
	const attributes = "apiVersion: storage.k8s.io/v1\nkind: VolumeAttributesClass\nmetadata: {name: a}\ndriverName: io.github.tarn-csi\n"
	for text, right := range map[string]bool{
		class + "parameters: {protocol: nfs, zfs.recordsize: 1M, csi.storage.k8s.io/node-stage-secret-name: a}": true,
		class + "parameters: {protocol: nfs, fsType: ext4}":                                                     false,
		class + "parameters: {protocol: iscsi, zfs.compresion: lz4}":                                            false,
		class + "parameters: {protocol: iscsi, thin: true}":                                                     false,
		class + "parameters: {protocol: iscsi, thin: 'yes'}":                                                    false,
		class + "parameters: {protocol: smb}":                                                                   false,
		class + "parameters: {protocol: nfs, csi.storage.k8s.io/node-secret: a}":                                false,
		class + "reclaimPolicy: Keep":                                                                           false,
		class + "volumeBinding: Immediate":                                                                      false,
		strings.Replace(class, "io.github.tarn-csi", "csi.example", 1):                                          false,
		strings.Replace(class, "/v1", "/v2", 1):                                                                 false,
		strings.Replace(class, "name: a", "name: A_b", 1):                                                       false,
		snapshots + "deletionPolicy: Delete":                                                                    true,
		snapshots + "deletionPolicy: Delete\nparameters: {a: b}":                                                false,
		snapshots: false,
		attributes + "parameters: {zfs.compression: zstd}":        true,
		attributes + "parameters: {zfs.compression: best}":        false,
		attributes + "parameters: {zfs.volblocksize: 16K}":        false,
		"pools: [{name: a, parent: a/b, addresses: [192.0.2.1]}]": true,
		"pools: [{name: a, parent: a, addresses: [192.0.2.1]}]":   false,
		"pool: []": false,
		"kind: Deployment\napiVersion: apps/v1\nmetadata: {name: a}": false,
	} {
		if err := judge(t, text); (err == nil) != right {
			t.Errorf("%v:\n%s", err, text)
		}
	}
}

// asked is a service whose pools are those of the documentation's examples. It
// never starts: a request that passes its checks is answered with UNAVAILABLE.
func asked() (*volume.Service, error) {
	log := logrus.New()
	log.SetOutput(io.Discard)
	cfg := volume.Config{Driver: config.DefaultDriverName, Passive: true, Log: log,
		Exporters: map[string]export.Exporter{volume.NFS: unused{}, volume.ISCSI: unused{}}}
	for _, name := range []string{"tank", "fast"} {
		cfg.Pools = append(cfg.Pools, volume.PoolConfig{Name: name, Parent: name + "/csi", Addresses: []netip.Addr{netip.MustParseAddr("192.0.2.10")}})
	}
	return volume.New(cfg)
}

// unused is an exporter of which only that it is there counts.
type unused struct{ export.Exporter }

// secretKeys are the keys by which sidecars find secrets, without their prefix.
func secretKeys(names ...string) (all []string) {
	for _, n := range names {
		all = append(all, "csi.storage.k8s.io/"+n+"-name", "csi.storage.k8s.io/"+n+"-namespace")
	}
	return all
}

// parameters are given to the driver's parser.
func parameters(m map[string]string) error {
	known := append(secretKeys("provisioner-secret", "controller-publish-secret", "node-stage-secret", "node-publish-secret", "controller-expand-secret",
		"node-expand-secret"), "csi.storage.k8s.io/fstype")
	for key := range m {
		// The driver ignores the whole prefix, and the sidecar a key that it does not know.
		if strings.HasPrefix(key, "csi.storage.k8s.io/") && !slices.Contains(known, key) {
			return fmt.Errorf("the provisioner knows no parameter %s", key)
		}
	}
	s, err := asked()
	if err != nil {
		return err
	}
	if _, _, _, err := s.Capacity(context.Background(), m, nil); fault.Kind(err) != fault.Unavailable {
		return err
	}
	return nil
}

func driverName(name string) error {
	if !strings.HasPrefix(name, config.DefaultDriverName) {
		return fmt.Errorf("driver %q is not Tarn", name)
	}
	return nil
}

func (o *storageClass) wrong() error {
	return errors.Join(driverName(o.Provisioner), oneOf("reclaimPolicy", o.ReclaimPolicy, "", "Delete", "Retain"),
		oneOf("volumeBindingMode", o.VolumeBindingMode, "", "Immediate", "WaitForFirstConsumer"), parameters(o.Parameters))
}

func (o *attributesClass) wrong() error {
	for key := range o.Parameters {
		if err := oneOf("a parameter that may change", key, volume.MutableParameters("")...); err != nil {
			return err
		}
	}
	return errors.Join(driverName(o.DriverName), notEmpty("parameters", len(o.Parameters)), parameters(o.Parameters))
}

func (o *snapshotClass) wrong() error {
	for key := range o.Parameters {
		if err := oneOf("a parameter of snapshots", key, secretKeys("snapshotter-secret", "snapshotter-list-secret")...); err != nil {
			return err
		}
	}
	return errors.Join(driverName(o.Driver), oneOf("deletionPolicy", o.DeletionPolicy, "Delete", "Retain"))
}
