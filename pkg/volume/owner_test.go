package volume_test

import (
	"strings"
	"testing"

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
