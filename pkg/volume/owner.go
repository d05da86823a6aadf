package volume

import (
	"encoding/json"
	"strings"

	"github.com/tarn-csi/tarn/pkg/zfs"
)

// propOwner says for whom the volume was made, for people: nothing depends on
// it.
const propOwner = "tarn:owner"

// maxOwner is the longest name that is kept, in bytes: an object's name in
// Kubernetes has at most 253.
const maxOwner = 253

// owner is what an orchestrator tells about the claim, or the pod, that a volume
// is for.
type owner struct {
	Claim     string `json:"claim,omitempty"`
	Pod       string `json:"pod,omitempty"`
	Namespace string `json:"namespace,omitempty"`
	Volume    string `json:"volume,omitempty"`
}

// ownerOf reads the keys that the external provisioner adds to the parameters
// with --extra-create-metadata, or a node for a pod's own volume.
func ownerOf(parameters map[string]string) owner {
	if parameters[ParamEphemeral] == "true" {
		return owner{Pod: bounded(parameters[ParamPodName]), Namespace: bounded(parameters[ParamPodNamespace])}
	}
	return owner{
		Claim:     bounded(parameters["csi.storage.k8s.io/pvc/name"]),
		Namespace: bounded(parameters["csi.storage.k8s.io/pvc/namespace"]),
		Volume:    bounded(parameters["csi.storage.k8s.io/pv/name"]),
	}
}

// bounded cuts a name that is too long at the end of a character.
func bounded(s string) string {
	return strings.ToValidUTF8(s[:min(len(s), maxOwner)], "")
}

// settings is the property to be set; none where nothing was told.
func (o owner) settings() []zfs.Setting {
	raw, err := json.Marshal(o)
	if err != nil || o == (owner{}) { // strings can always be encoded
		return nil
	}
	return []zfs.Setting{{Name: propOwner, Value: string(raw)}}
}

// readOwner reads the property back; what it cannot read was told by nobody.
func readOwner(d zfs.Dataset) owner {
	var o owner
	raw, _ := d.Own(propOwner)
	if err := json.Unmarshal([]byte(raw), &o); err != nil {
		return owner{}
	}
	return o
}

// String is what people call the owner: the claim, the pod, or the volume's object.
func (o owner) String() string {
	switch {
	case o.Pod != "":
		return "pod " + o.Namespace + "/" + o.Pod
	case o.Claim != "" && o.Namespace != "":
		return o.Namespace + "/" + o.Claim
	case o.Claim != "":
		return o.Claim
	}
	return o.Volume
}
