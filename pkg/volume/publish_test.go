package volume_test

import (
	"net/netip"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tarn-csi/tarn/pkg/access"
	"github.com/tarn-csi/tarn/pkg/chap"
	"github.com/tarn-csi/tarn/pkg/fault"
	"github.com/tarn-csi/tarn/pkg/volume"
)

// open is what opened shows when a volume v is open to a node.
func open(protocol, node string) string {
	name, addr, _ := strings.Cut(node, "@")
	if protocol == volume.NFS {
		return "v " + addr + " rw"
	}
	return name
}

func TestPublishAndUnpublish(t *testing.T) {
	eachProtocol(t, func(t *testing.T, e *env, protocol string) {
		v := e.create(request("v", protocol))
		e.wantOpened()
		info := e.publish(to(v, nodeA))
		e.wantOpened(open(protocol, nodeA))
		if diff := cmp.Diff(info, e.publish(to(v, nodeA))); diff != "" {
			t.Errorf("a repeat answers otherwise:\n%s", diff)
		}
		_, err := e.Publish(t.Context(), to(v, nodeB))
		wantKind(t, err, fault.Precondition, "worker-a")
		wantKind(t, e.Delete(t.Context(), v.ID), fault.Precondition, "worker-a")
		e.wantOpened(open(protocol, nodeA))
		must(t, e.Unpublish(t.Context(), v.ID, nodeB)) // it is not published there
		e.wantOpened(open(protocol, nodeA))
		for range 2 {
			must(t, e.Unpublish(t.Context(), v.ID, nodeA))
			e.wantOpened()
		}
		e.publish(to(v, nodeB))
		e.wantOpened(open(protocol, nodeB))
		must(t, e.Unpublish(t.Context(), v.ID, ""))
		e.wantOpened()
		must(t, e.Delete(t.Context(), v.ID))
		must(t, e.Delete(t.Context(), v.ID))
		e.wantDatasets()
		if left := append(e.ExportFiles(), e.Exports()...); len(left) > 0 {
			t.Errorf("left: %q", left)
		}
	})
}

// What is already published in another way is not published again.
func TestIncompatiblePublication(t *testing.T) {
	e := newEnv(t)
	v := e.create(request("v", "iscsi"))
	e.publish(to(v, nodeA))
	mode, typ, readOnly := to(v, nodeA), to(v, nodeA), to(v, nodeA)
	mode.Capability.Mode = access.SingleNodeReaderOnly
	typ.Capability.Type = access.Block
	readOnly.ReadOnly = true
	for says, r := range map[string]volume.PublishRequest{"access mode": mode, "access type": typ, "readonly": readOnly} {
		_, err := e.Publish(t.Context(), r)
		wantKind(t, err, fault.Exists, says, "unpublish it first")
	}
	e.wantOpened("worker-a")
}

// Two nodes at once: what each kind of volume admits.
func TestTwoNodes(t *testing.T) {
	const (
		rwx = access.MultiNodeMultiWriter
		rox = access.MultiNodeReaderOnly
		rw1 = access.MultiNodeSingleWriter
		rwo = access.SingleNodeWriter
	)
	type grant struct {
		mode     access.Mode
		readOnly bool
	}
	cases := []struct {
		name, protocol string
		typ            access.Type
		a, b           grant
		ok             bool
	}{
		{"writers", "nfs", access.Mount, grant{rwx, false}, grant{rwx, false}, true},
		{"readers", "nfs", access.Mount, grant{rox, false}, grant{rox, false}, true},
		{"one writer and a reader", "nfs", access.Mount, grant{rw1, false}, grant{rw1, true}, true},
		{"a reader and one writer", "nfs", access.Mount, grant{rw1, true}, grant{rw1, false}, true},
		{"two of one writer", "nfs", access.Mount, grant{rw1, false}, grant{rw1, false}, false},
		{"one writer and many", "nfs", access.Mount, grant{rw1, false}, grant{rwx, false}, false},
		{"one node first", "nfs", access.Mount, grant{rwo, false}, grant{rwx, false}, false},
		{"one node second", "nfs", access.Mount, grant{rwx, false}, grant{rwo, false}, false},
		{"one node reads", "nfs", access.Mount, grant{access.SingleNodeReaderOnly, false}, grant{rox, false}, false},
		{"readers of a disk", "iscsi", access.Mount, grant{rox, false}, grant{rox, false}, true},
		{"writers of a device", "iscsi", access.Block, grant{rwx, false}, grant{rwx, false}, true},
		{"a writer and a reader of a device", "iscsi", access.Block, grant{rwx, false}, grant{rox, false}, true},
	}
	for _, c := range cases {
		t.Run(c.protocol+" "+c.name, func(t *testing.T) {
			e := newEnv(t)
			v := e.create(request("v", c.protocol))
			ask := func(node string, g grant) error {
				_, err := e.Publish(t.Context(), volume.PublishRequest{VolumeID: v.ID, NodeID: node, ReadOnly: g.readOnly, Capability: access.Capability{Type: c.typ, Mode: g.mode}})
				return err
			}
			must(t, ask(nodeA, c.a))
			err := ask(nodeB, c.b)
			if !c.ok {
				wantKind(t, err, fault.Precondition, "worker-a")
				if len(e.opened()) != 1 {
					t.Errorf("open to %q", e.opened())
				}
				return
			}
			must(t, err)
			if len(e.opened()) != 2 {
				t.Errorf("open to %q", e.opened())
			}
			must(t, e.Unpublish(t.Context(), v.ID, nodeA))
			if open := e.opened(); len(open) != 1 || strings.Contains(open[0], "worker-a") || strings.Contains(open[0], "192.0.2.21") {
				t.Errorf("open to %q", open)
			}
			wantKind(t, e.Delete(t.Context(), v.ID), fault.Precondition, "worker-b")
		})
	}
}

// A disk with a filesystem has several readers or one writer, also where the
// mode would allow more.
func TestFilesystemOnADiskHasOneWriter(t *testing.T) {
	e := newEnv(t)
	v := e.create(request("v", "iscsi"))
	r := to(v, nodeA)
	r.Capability.Mode = access.MultiNodeMultiWriter
	_, err := e.Publish(t.Context(), r)
	wantKind(t, err, fault.Invalid)
	e.wantOpened()
}

// The server grants no more than was asked.
func TestReadOnlyPublication(t *testing.T) {
	e := newEnv(t)
	v := e.create(request("v", "nfs"))
	r := to(v, nodeA)
	r.ReadOnly = true
	if info := e.publish(r); info["readonly"] != "true" {
		t.Errorf("the node is told %v", info)
	}
	e.wantOpened("v 192.0.2.21 ro")
	must(t, e.Unpublish(t.Context(), v.ID, nodeA))
	r.ReadOnly, r.Capability.Mode = false, access.SingleNodeReaderOnly
	e.publish(r)
	e.wantOpened("v 192.0.2.21 ro")
}

// A node is its name: new addresses replace the old, and an old id closes.
func TestNodeWithNewAddresses(t *testing.T) {
	eachProtocol(t, func(t *testing.T, e *env, protocol string) {
		v := e.create(request("v", protocol))
		e.publish(to(v, nodeA))
		moved := "worker-a@192.0.2.121,2001:db8::1"
		e.publish(to(v, moved))
		if protocol == volume.NFS {
			e.wantOpened("v 192.0.2.121 rw", "v 2001:db8::1 rw")
		} else {
			e.wantOpened("worker-a")
		}
		list, _, err := e.List(t.Context(), 0, "")
		must(t, err)
		if diff := cmp.Diff([]string{moved}, list[0].Nodes); diff != "" {
			t.Error(diff)
		}
		must(t, e.Unpublish(t.Context(), v.ID, nodeA))
		e.wantOpened()
	})
}

func TestUnknownVolumesAndNodes(t *testing.T) {
	e := newEnv(t, func(c *volume.Config) { c.NodeNetworks = []netip.Prefix{netip.MustParsePrefix("192.0.2.0/25")} })
	v := e.create(request("v", "nfs"))
	for _, node := range []string{"x", "worker-a", "worker-a@", "worker-a@name", "Worker@192.0.2.1", "a@127.0.0.1", "a@192.0.2.200", "a@192.0.2.1,198.51.100.1", "a@0.0.0.0", "a@*"} {
		_, err := e.Publish(t.Context(), to(v, node))
		wantKind(t, err, fault.NotFound, "unknown")
	}
	_, err := e.Publish(t.Context(), to(v, ""))
	wantKind(t, err, fault.Invalid)
	for _, id := range []string{"tank/none", "other/v", "tank/../v", "tank/.tombstones", "v", "/v", "tank/v@snap", "tank/v/w"} {
		_, err := e.Publish(t.Context(), to(volume.Volume{ID: id}, nodeA))
		wantKind(t, err, fault.NotFound)
		wantKind(t, e.Unpublish(t.Context(), id, nodeA), fault.NotFound)
		must(t, e.Delete(t.Context(), id))
	}
	wantKind(t, e.Unpublish(t.Context(), v.ID, "x"), fault.NotFound)
	wantKind(t, e.Delete(t.Context(), ""), fault.Invalid)
	// A node whose network is no longer allowed is still closed.
	must(t, e.Unpublish(t.Context(), v.ID, "worker-a@198.51.100.1"))
	e.wantOpened()
	e.wantDatasets("v")
}

func secretsMode(c *volume.Config) { c.Pools[0].CHAP = chap.Secrets }

// The pair of a secret is kept for as long as the volume is published. Without it
// the volume stays closed.
func TestSecrets(t *testing.T) {
	e := newEnv(t, secretsMode)
	v := e.create(request("v", "iscsi"))
	_, err := e.Publish(t.Context(), to(v, nodeA))
	wantKind(t, err, fault.Invalid, "node.session.auth.username")
	e.wantOpened()
	r := to(v, nodeA)
	r.Secrets = map[string]string{"node.session.auth.username": "user", "node.session.auth.password": "sixteen-letters!"}
	if info := e.publish(r); info["chap"] != "secrets" || strings.Contains(strings.Join(values(info), " "), "sixteen") {
		t.Errorf("the node is told %v", info)
	}
	e.wantOpened("worker-a")
	files, err := os.ReadDir(e.Dir("chap"))
	must(t, err)
	if len(files) != 1 {
		t.Fatalf("%d files are kept", len(files))
	}
	if st, err := files[0].Info(); err != nil || st.Mode().Perm() != 0o600 {
		t.Errorf("mode %v, %v", st.Mode(), err)
	}
	// After a reboot the file opens the volume again.
	must(t, e.LoseConfigfs(t.Context()))
	e.start()
	e.wantOpened("worker-a")
	// Without the file it stays closed.
	must(t, e.LoseConfigfs(t.Context()))
	must(t, os.RemoveAll(e.Dir("chap")))
	e.start()
	e.wantOpened()
	e.publish(r)
	e.wantOpened("worker-a")
	must(t, e.Unpublish(t.Context(), v.ID, nodeA))
	e.wantOpened()
	if files, _ := os.ReadDir(e.Dir("chap")); len(files) > 0 {
		t.Errorf("the pair is still kept: %v", files)
	}
}

func values(m map[string]string) []string {
	var list []string
	for _, v := range m {
		list = append(list, v)
	}
	return list
}
