package volume_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/tarn-csi/tarn/pkg/fault"
	"github.com/tarn-csi/tarn/pkg/volume"
)

func ownedBy(claim, namespace, name string) volume.CreateRequest {
	r := with(request("v", volume.NFS), "csi.storage.k8s.io/pvc/name", claim)
	r = with(r, "csi.storage.k8s.io/pvc/namespace", namespace)
	return with(r, "csi.storage.k8s.io/pv/name", name)
}

func TestOwnerIsKeptAndNotCompared(t *testing.T) {
	e := newEnv(t)
	r := with(ownedBy("data", "shop", "pvc-1"), "csi.storage.k8s.io/fstype", "")
	e.create(r)
	want := map[string]string{"tarn:owner": `{"claim":"data","namespace":"shop","volume":"pvc-1"}`}
	e.wantOwn("v", want, "tarn:owner")
	for _, again := range []volume.CreateRequest{request("v", volume.NFS), ownedBy("other", "", "pvc-2")} {
		e.create(again)
		e.wantOwn("v", want, "tarn:owner")
	}
}

func TestNobodyOwnsAVolumeOfWhichNothingIsTold(t *testing.T) {
	e := newEnv(t)
	e.create(request("v", volume.NFS))
	e.wantOwn("v", map[string]string{}, "tarn:owner")
}

// Whatever the names are, what is stored is one line, not too long, and forges
// nothing.
func TestOddOwners(t *testing.T) {
	for _, name := range []string{strings.Repeat("x", 9000), strings.Repeat("ü", 200), strings.Repeat("\x00", 400), "a\tb\nc", "a\xff\xfe", `"},{"`, "<script>"} {
		e := newEnv(t)
		e.create(ownedBy(name, name, name))
		got := e.own("v", "tarn:owner")["tarn:owner"]
		if len(got) == 0 || len(got) > 8191 || strings.ContainsAny(got, "\t\n\x00") {
			t.Errorf("%d bytes: %.80q", len(got), got)
		}
	}
}

// A volume that a node made for a pod is told from others, whatever they are
// called, and no cluster gets it back as a claim's.
func TestEphemeralVolumesAreMarked(t *testing.T) {
	e := newEnv(t)
	ephemeral := func(name string) volume.CreateRequest {
		r := with(request(name, volume.NFS), volume.ParamEphemeral, "true")
		return with(with(r, volume.ParamPodName, "web-0"), volume.ParamPodNamespace, "shop")
	}
	e.create(request("v", volume.NFS))
	if v := e.create(ephemeral("e")); v.Context[volume.ParamEphemeral] != "true" {
		t.Errorf("its context is %v", v.Context)
	}
	e.wantOwn("e", map[string]string{"tarn:owner": `{"pod":"web-0","namespace":"shop"}`}, "tarn:owner")
	for name, r := range map[string]volume.CreateRequest{"v": ephemeral("v"), "e": request("e", volume.NFS)} {
		if _, err := e.Create(t.Context(), r); !errors.Is(err, fault.Exists) {
			t.Errorf("%s is taken for the other kind: %v", name, err)
		}
	}
	list, err := e.Inventory(t.Context())
	if err != nil || len(list) != 2 || !list[0].Ephemeral || list[1].Ephemeral {
		t.Fatalf("%+v, %v", list, err)
	}
	var table strings.Builder
	if err := volume.PrintInventory(&table, list); err != nil || !strings.Contains(table.String(), "pod shop/web-0 (ephemeral)") {
		t.Errorf("%v\n%s", err, table.String())
	}
	lasting, left, err := e.Lasting(t.Context())
	if err != nil || len(lasting) != 1 || len(left) != 1 || !strings.Contains(left[0].Why, "pod shop/web-0") {
		t.Errorf("%+v, %+v, %v", lasting, left, err)
	}
}
