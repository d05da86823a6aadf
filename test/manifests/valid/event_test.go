package valid

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/tarn-csi/tarn/pkg/event"
	"github.com/tarn-csi/tarn/test/manifests/render"
)

func made(t *testing.T, about event.Reference) render.Object {
	t.Helper()
	raw, err := json.Marshal(event.Make("io.github.tarn-csi", about, "volume tank/pvc-1", "NotExported", "the kernel does not export it", time.Now()))
	if err != nil {
		t.Fatal(err)
	}
	var o render.Object
	if err := json.Unmarshal(raw, &o); err != nil {
		t.Fatal(err)
	}
	return o
}

// The driver's events are such as Kubernetes takes, whatever they are about.
func TestKubernetesTakesTheEvents(t *testing.T) {
	claim := event.Reference{APIVersion: "v1", Kind: "PersistentVolumeClaim", Namespace: "shop", Name: "data", UID: "u"}
	for _, about := range []event.Reference{claim, {APIVersion: "v1", Kind: "PersistentVolume", Name: "pvc-1", UID: "u"}, {APIVersion: "v1", Kind: "Pod", Namespace: "tarn", Name: "tarn-controller-0"}} {
		if err := validate(made(t, about)); err != nil {
			t.Errorf("%s: %v", about.Kind, err)
		}
	}
	for part, change := range map[string]func(o render.Object){
		"unknown field":  func(o render.Object) { o["reasons"] = "x" },
		"does not match": func(o render.Object) { o["metadata"].(map[string]any)["namespace"] = "other" },
		"parsing time":   func(o render.Object) { o["lastTimestamp"] = "yesterday" },
	} {
		o := made(t, claim)
		change(o)
		if err := validate(o); err == nil || !strings.Contains(err.Error(), part) {
			t.Errorf("%s: %v", part, err)
		}
	}
}
