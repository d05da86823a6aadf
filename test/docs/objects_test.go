package docs

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/tarn-csi/tarn/pkg/manifest"
)

// texts is a map of strings in which Kubernetes takes strings alone: 1000 is
// refused, "1000" is not.
type texts map[string]string

// UnmarshalYAML implements yaml.Unmarshaler.
func (m *texts) UnmarshalYAML(n *yaml.Node) error {
	for i := 1; i < len(n.Content); i += 2 {
		if tag := n.Content[i].ShortTag(); tag != "!!str" {
			return fmt.Errorf("%s is %s and no string: quote it", n.Content[i-1].Value, tag)
		}
	}
	return n.Decode((*map[string]string)(m))
}

// head begins every object.
type head struct {
	APIVersion string `yaml:"apiVersion"`
	Kind       string `yaml:"kind"`
	Metadata   struct {
		Name        string `yaml:"name"`
		Namespace   string `yaml:"namespace"`
		Annotations texts  `yaml:"annotations"`
		Labels      texts  `yaml:"labels"`
	} `yaml:"metadata"`
}

type storageClass struct {
	head                 `yaml:",inline"`
	Provisioner          string   `yaml:"provisioner"`
	Parameters           texts    `yaml:"parameters"`
	ReclaimPolicy        string   `yaml:"reclaimPolicy"`
	MountOptions         []string `yaml:"mountOptions"`
	AllowVolumeExpansion bool     `yaml:"allowVolumeExpansion"`
	VolumeBindingMode    string   `yaml:"volumeBindingMode"`
}

type attributesClass struct {
	head       `yaml:",inline"`
	DriverName string `yaml:"driverName"`
	Parameters texts  `yaml:"parameters"`
}

type snapshotClass struct {
	head           `yaml:",inline"`
	Driver         string `yaml:"driver"`
	DeletionPolicy string `yaml:"deletionPolicy"`
	Parameters     texts  `yaml:"parameters"`
}

type snapshot struct {
	head `yaml:",inline"`
	Spec struct {
		Class  string `yaml:"volumeSnapshotClassName"`
		Source struct {
			Claim   string `yaml:"persistentVolumeClaimName"`
			Content string `yaml:"volumeSnapshotContentName"`
		} `yaml:"source"`
	} `yaml:"spec"`
}

type snapshotContent struct {
	head `yaml:",inline"`
	Spec struct {
		Class          string `yaml:"volumeSnapshotClassName"`
		DeletionPolicy string `yaml:"deletionPolicy"`
		Driver         string `yaml:"driver"`
		VolumeMode     string `yaml:"sourceVolumeMode"`
		Source         struct {
			Handle string `yaml:"snapshotHandle"`
		} `yaml:"source"`
		Ref struct {
			Namespace string `yaml:"namespace"`
			Name      string `yaml:"name"`
		} `yaml:"volumeSnapshotRef"`
	} `yaml:"spec"`
}

type claim struct {
	head `yaml:",inline"`
	Spec struct {
		AccessModes []string `yaml:"accessModes"`
		VolumeMode  string   `yaml:"volumeMode"`
		Resources   struct {
			Requests struct {
				Storage string `yaml:"storage"`
			} `yaml:"requests"`
		} `yaml:"resources"`
		// A pointer, since an empty class is not none.
		Class           *string `yaml:"storageClassName"`
		AttributesClass string  `yaml:"volumeAttributesClassName"`
		VolumeName      string  `yaml:"volumeName"`
		DataSource      *struct {
			APIGroup string `yaml:"apiGroup"`
			Kind     string `yaml:"kind"`
			Name     string `yaml:"name"`
		} `yaml:"dataSource"`
	} `yaml:"spec"`
}

type pod struct {
	head `yaml:",inline"`
	Spec struct {
		Containers []struct {
			Name         string   `yaml:"name"`
			Image        string   `yaml:"image"`
			Command      []string `yaml:"command"`
			VolumeMounts []struct {
				Name      string `yaml:"name"`
				MountPath string `yaml:"mountPath"`
				ReadOnly  bool   `yaml:"readOnly"`
			} `yaml:"volumeMounts"`
		} `yaml:"containers"`
		Volumes []struct {
			Name  string `yaml:"name"`
			Claim *struct {
				Name string `yaml:"claimName"`
			} `yaml:"persistentVolumeClaim"`
			CSI *struct {
				Driver     string `yaml:"driver"`
				FSType     string `yaml:"fsType"`
				ReadOnly   bool   `yaml:"readOnly"`
				Attributes texts  `yaml:"volumeAttributes"`
			} `yaml:"csi"`
		} `yaml:"volumes"`
	} `yaml:"spec"`
}

type secret struct {
	head       `yaml:",inline"`
	Type       string `yaml:"type"`
	StringData texts  `yaml:"stringData"`
}

type csiDriver struct {
	head `yaml:",inline"`
	Spec struct {
		AttachRequired       *bool    `yaml:"attachRequired"`
		FSGroupPolicy        string   `yaml:"fsGroupPolicy"`
		AllocatableUpdate    int64    `yaml:"nodeAllocatableUpdatePeriodSeconds"`
		PodInfoOnMount       *bool    `yaml:"podInfoOnMount"`
		PreventPodScheduling *bool    `yaml:"preventPodSchedulingIfMissing"`
		RequiresRepublish    *bool    `yaml:"requiresRepublish"`
		SELinuxMount         *bool    `yaml:"seLinuxMount"`
		TokensInSecrets      *bool    `yaml:"serviceAccountTokenInSecrets"`
		StorageCapacity      *bool    `yaml:"storageCapacity"`
		VolumeLifecycleModes []string `yaml:"volumeLifecycleModes"`
		TokenRequests        []struct {
			Audience          string `yaml:"audience"`
			ExpirationSeconds int64  `yaml:"expirationSeconds"`
		} `yaml:"tokenRequests"`
	} `yaml:"spec"`
}

type kustomization struct {
	APIVersion string   `yaml:"apiVersion"`
	Kind       string   `yaml:"kind"`
	Namespace  string   `yaml:"namespace"`
	Resources  []string `yaml:"resources"`
	Images     []struct {
		Name    string `yaml:"name"`
		NewName string `yaml:"newName"`
		NewTag  string `yaml:"newTag"`
	} `yaml:"images"`
	Patches []struct {
		Path   string `yaml:"path"`
		Patch  string `yaml:"patch"`
		Target struct {
			Kind string `yaml:"kind"`
			Name string `yaml:"name"`
		} `yaml:"target"`
	} `yaml:"patches"`
	ConfigMapGenerator []struct {
		Name     string   `yaml:"name"`
		Behavior string   `yaml:"behavior"`
		Files    []string `yaml:"files"`
	} `yaml:"configMapGenerator"`
}

// object decodes one document into a kind of object that is known, and says what
// is wrong with it.
func object(text string) error {
	var h head
	if err := yaml.Unmarshal([]byte(text), &h); err != nil {
		return err
	}
	check, known := map[string]func(string) error{
		"storage.k8s.io/v1 StorageClass":                   as((*storageClass).wrong),
		"storage.k8s.io/v1 VolumeAttributesClass":          as((*attributesClass).wrong),
		"storage.k8s.io/v1 CSIDriver":                      as(func(o *csiDriver) error { return driverName(o.Metadata.Name) }),
		"snapshot.storage.k8s.io/v1 VolumeSnapshotClass":   as((*snapshotClass).wrong),
		"snapshot.storage.k8s.io/v1 VolumeSnapshot":        as((*snapshot).wrong),
		"snapshot.storage.k8s.io/v1 VolumeSnapshotContent": as((*snapshotContent).wrong),
		"v1 PersistentVolumeClaim":                         as((*claim).wrong),
		"v1 PersistentVolume":                              as(wrongVolume),
		"v1 Pod":                                           as((*pod).wrong),
		"v1 Secret":                                        as(func(o *secret) error { return notEmpty("stringData", len(o.StringData)) }),
		"kustomize.config.k8s.io/v1beta1 Kustomization":    as(func(o *kustomization) error { return notEmpty("resources", len(o.Resources)) }),
	}[h.APIVersion+" "+h.Kind]
	if !known {
		return fmt.Errorf("apiVersion %q with kind %q is unknown to this test", h.APIVersion, h.Kind)
	}
	if h.Kind != "Kustomization" && !subdomain.MatchString(h.Metadata.Name) {
		return fmt.Errorf("%s has no name that Kubernetes takes: %q", h.Kind, h.Metadata.Name)
	}
	return check(text)
}

// as decodes into T, whose fields are all that there may be, and judges it.
func as[T any](wrong func(*T) error) func(string) error {
	return func(text string) error {
		var o T
		if err := strict(text, &o); err != nil {
			return err
		}
		return wrong(&o)
	}
}

func strict(text string, into any) error {
	d := yaml.NewDecoder(strings.NewReader(text))
	d.KnownFields(true)
	return d.Decode(into)
}

// documents splits a block into its documents.
func documents(text string) (all []string, err error) {
	d := yaml.NewDecoder(strings.NewReader(text))
	for {
		var n yaml.Node
		if err := d.Decode(&n); errors.Is(err, io.EOF) {
			return all, nil
		} else if err != nil {
			return nil, err
		}
		var out bytes.Buffer
		if err := yaml.NewEncoder(&out).Encode(&n); err != nil {
			return nil, err
		}
		all = append(all, out.String())
	}
}

var (
	subdomain = regexp.MustCompile(`^[a-z0-9]([a-z0-9.-]*[a-z0-9])?$`)
	quantity  = regexp.MustCompile(`^[1-9][0-9]*(Ki|Mi|Gi|Ti|k|M|G|T)?$`)
)

func notEmpty(what string, n int) error {
	if n == 0 {
		return fmt.Errorf("%s is empty", what)
	}
	return nil
}

func oneOf(what, value string, known ...string) error {
	if !slices.Contains(known, value) {
		return fmt.Errorf("%s is %q, which is none of %q", what, value, known)
	}
	return nil
}

func accessModes(list []string) error {
	for _, m := range list {
		if err := oneOf("an access mode", m, "ReadWriteOnce", "ReadOnlyMany", "ReadWriteMany", "ReadWriteOncePod"); err != nil {
			return err
		}
	}
	return notEmpty("accessModes", len(list))
}

func (o *claim) wrong() error {
	if !quantity.MatchString(o.Spec.Resources.Requests.Storage) {
		return fmt.Errorf("%q is no size", o.Spec.Resources.Requests.Storage)
	}
	if d := o.Spec.DataSource; d != nil {
		if err := oneOf("dataSource", d.APIGroup+"/"+d.Kind, "snapshot.storage.k8s.io/VolumeSnapshot", "/PersistentVolumeClaim"); err != nil {
			return err
		}
	}
	return errors.Join(accessModes(o.Spec.AccessModes), oneOf("volumeMode", o.Spec.VolumeMode, "", "Filesystem", "Block"))
}

func wrongVolume(o *manifest.PersistentVolume) error {
	if !quantity.MatchString(o.Spec.Capacity.Storage) {
		return fmt.Errorf("%q is no size", o.Spec.Capacity.Storage)
	}
	return errors.Join(driverName(o.Spec.CSI.Driver), accessModes(o.Spec.AccessModes), oneOf("volumeMode", o.Spec.VolumeMode, "Filesystem", "Block"),
		oneOf("persistentVolumeReclaimPolicy", o.Spec.ReclaimPolicy, "Retain", "Delete"), notEmpty("volumeHandle", len(o.Spec.CSI.VolumeHandle)))
}

func (o *pod) wrong() error {
	volumes := map[string]bool{}
	for _, v := range o.Spec.Volumes {
		volumes[v.Name] = true
		if v.CSI != nil {
			if err := driverName(v.CSI.Driver); err != nil {
				return err
			}
		}
	}
	for _, c := range o.Spec.Containers {
		for _, m := range c.VolumeMounts {
			if !volumes[m.Name] {
				return fmt.Errorf("container %s mounts %q, which is no volume of the pod", c.Name, m.Name)
			}
		}
	}
	return notEmpty("containers", len(o.Spec.Containers))
}

func (o *snapshot) wrong() error {
	if (o.Spec.Source.Claim == "") == (o.Spec.Source.Content == "") {
		return errors.New("a snapshot has one source")
	}
	return nil
}

func (o *snapshotContent) wrong() error {
	return errors.Join(driverName(o.Spec.Driver), oneOf("deletionPolicy", o.Spec.DeletionPolicy, "Retain", "Delete"),
		notEmpty("snapshotHandle", len(o.Spec.Source.Handle)), notEmpty("volumeSnapshotRef", len(o.Spec.Ref.Name)*len(o.Spec.Ref.Namespace)))
}
