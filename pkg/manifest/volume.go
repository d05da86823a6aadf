// Package manifest writes Kubernetes objects for volumes that a pool holds, as
// YAML and without any of Kubernetes' packages.
package manifest

import (
	"bytes"
	"cmp"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/tarn-csi/tarn/pkg/access"
	"github.com/tarn-csi/tarn/pkg/fault"
	"github.com/tarn-csi/tarn/pkg/ident"
	"github.com/tarn-csi/tarn/pkg/volume"
)

// PersistentVolume is the part of Kubernetes' object that a volume fills in.
type PersistentVolume struct {
	APIVersion string   `yaml:"apiVersion"`
	Kind       string   `yaml:"kind"`
	Metadata   Metadata `yaml:"metadata"`
	Spec       Spec     `yaml:"spec"`
}

// Metadata names an object.
type Metadata struct {
	Name        string            `yaml:"name"`
	Annotations map[string]string `yaml:"annotations"`
}

// Spec is what the volume is.
type Spec struct {
	Capacity      Capacity  `yaml:"capacity"`
	VolumeMode    string    `yaml:"volumeMode"`
	AccessModes   []string  `yaml:"accessModes"`
	ReclaimPolicy string    `yaml:"persistentVolumeReclaimPolicy"`
	StorageClass  string    `yaml:"storageClassName,omitempty"`
	ClaimRef      *ClaimRef `yaml:"claimRef,omitempty"`
	CSI           CSI       `yaml:"csi"`
}

// Capacity is the volume's size.
type Capacity struct {
	Storage string `yaml:"storage"`
}

// ClaimRef keeps a volume for one claim.
type ClaimRef struct {
	APIVersion string `yaml:"apiVersion"`
	Kind       string `yaml:"kind"`
	Namespace  string `yaml:"namespace"`
	Name       string `yaml:"name"`
}

// CSI is what the driver gets with every call.
type CSI struct {
	Driver           string            `yaml:"driver"`
	VolumeHandle     string            `yaml:"volumeHandle"`
	FSType           string            `yaml:"fsType,omitempty"`
	VolumeAttributes map[string]string `yaml:"volumeAttributes"`
}

// The access modes of Kubernetes.
const (
	readWriteOnce    = "ReadWriteOnce"
	readOnlyMany     = "ReadOnlyMany"
	readWriteMany    = "ReadWriteMany"
	readWriteOncePod = "ReadWriteOncePod"
)

// modes has for each CSI access mode the one of Kubernetes that asks for it, or
// for the mode that is nearest to it.
var modes = map[access.Mode]string{
	access.SingleNodeWriter:       readWriteOnce,
	access.SingleNodeMultiWriter:  readWriteOnce,
	access.SingleNodeSingleWriter: readWriteOncePod,
	access.SingleNodeReaderOnly:   readOnlyMany,
	access.MultiNodeReaderOnly:    readOnlyMany,
	access.MultiNodeSingleWriter:  readWriteMany,
	access.MultiNodeMultiWriter:   readWriteMany,
}

// The names that Kubernetes takes: RFC 1123 labels and subdomains.
var (
	label     = regexp.MustCompile(`^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$`)
	subdomain = regexp.MustCompile(`^[a-z0-9]([a-z0-9-]*[a-z0-9])?(\.[a-z0-9]([a-z0-9-]*[a-z0-9])?)*$`)
)

func validName(s string) bool { return len(s) <= 253 && subdomain.MatchString(s) }

// Classes are names of storage classes, by what volumes are: a protocol, or for
// iscsi also the protocol, a slash and the filesystem or the word block.
type Classes map[string]string

// kinds are what a class may be given for.
var kinds = []string{volume.NFS, volume.ISCSI, "iscsi/ext4", "iscsi/ext3", "iscsi/xfs", "iscsi/block"}

// ParseClasses reads NAME, which is the class of all volumes, or KIND=NAME.
func ParseClasses(list []string) (Classes, error) {
	classes := Classes{}
	for _, text := range list {
		of, name := []string{volume.NFS, volume.ISCSI}, text
		if kind, class, given := strings.Cut(text, "="); given {
			if !slices.Contains(kinds, kind) {
				return nil, fault.New(fault.Invalid, "--storage-class is %q; before the = must be one of %s", ident.Printable(text), strings.Join(kinds, ", "))
			}
			of, name = []string{kind}, class
		}
		if !validName(name) {
			return nil, fault.New(fault.Invalid, "--storage-class is %q; no storage class can have that name", ident.Printable(text))
		}
		for _, kind := range of {
			if classes[kind] != "" {
				return nil, fault.New(fault.Invalid, "--storage-class names two classes for %s: %s and %s", kind, classes[kind], name)
			}
			classes[kind] = name
		}
	}
	return classes, nil
}

// of is the class of an object, the one for its filesystem before its protocol's.
func (c Classes) of(protocol string, o PersistentVolume) string {
	exact := o.Spec.CSI.FSType
	if o.Spec.VolumeMode == "Block" {
		exact = "block"
	}
	return cmp.Or(c[protocol+"/"+exact], c[protocol])
}

// PersistentVolumes returns the objects of volumes in their order, and what a
// person has to see to.
//
// An object is kept for its claim where the volume's owner tells one that no
// other volume's owner tells. Any other object has no storage class, so that no
// claim of a class gets somebody's data by chance. An object has the name that it
// had, unless two volumes claim it or no object can have it.
func PersistentVolumes(driver string, list []volume.Lasting, classes Classes) ([]PersistentVolume, []string) {
	names, claims := map[string]int{}, map[[2]string][]string{}
	for _, v := range list {
		names[knownName(v)]++
		claims[claimOf(v)] = append(claims[claimOf(v)], v.ID)
	}
	var all []PersistentVolume
	var told []string
	for _, v := range list {
		o := object(driver, v)
		if o.Metadata.Name == "" || names[o.Metadata.Name] > 1 {
			o.Metadata.Name = "tarn-" + v.UUID
		}
		switch same := claims[claimOf(v)]; {
		case v.Owner.Claim == "":
		case !validName(v.Owner.Claim) || !label.MatchString(v.Owner.Namespace):
			told = append(told, fmt.Sprintf("%s: no claimRef: its owner %q in namespace %q is no name of a claim", v.ID, v.Owner.Claim, v.Owner.Namespace))
		case len(same) > 1:
			told = append(told, fmt.Sprintf("%s: no claimRef: claim %s is the owner of %s; find out which of them it used", v.ID, v.Owner, strings.Join(same, " and ")))
		default:
			o.Spec.ClaimRef = &ClaimRef{APIVersion: "v1", Kind: "PersistentVolumeClaim", Namespace: v.Owner.Namespace, Name: v.Owner.Claim}
			o.Spec.StorageClass = classes.of(v.Protocol, o)
		}
		all = append(all, o)
	}
	return all, told
}

// claimOf is the namespace and name of the claim that a volume was made for.
func claimOf(v volume.Lasting) [2]string { return [2]string{v.Owner.Namespace, v.Owner.Claim} }

// knownName is the name that the object had, if it is one: what the orchestrator
// told, or the volume's own, which an external provisioner makes the same.
func knownName(v volume.Lasting) string {
	for _, name := range []string{v.Owner.Volume, v.Name} {
		if validName(name) {
			return name
		}
	}
	return ""
}

// object is all of a volume but for whom it is.
func object(driver string, v volume.Lasting) PersistentVolume {
	o := PersistentVolume{APIVersion: "v1", Kind: "PersistentVolume"}
	o.Metadata = Metadata{
		Name: knownName(v),
		// Without it the external provisioner deletes no volume, whatever the policy.
		Annotations: map[string]string{"pv.kubernetes.io/provisioned-by": driver},
	}
	o.Spec = Spec{
		Capacity:      Capacity{Storage: quantity(v.CapacityBytes)},
		VolumeMode:    "Filesystem",
		ReclaimPolicy: "Retain",
		CSI:           CSI{Driver: driver, VolumeHandle: v.ID, VolumeAttributes: v.Context},
	}
	kind := access.Mount
	if !slices.ContainsFunc(v.Capabilities, func(c access.Capability) bool { return c.Type == access.Mount }) {
		kind, o.Spec.VolumeMode = access.Block, "Block"
	}
	for _, c := range v.Capabilities {
		if c.Type != kind {
			continue
		}
		o.Spec.AccessModes = append(o.Spec.AccessModes, modes[c.Mode])
		if o.Spec.CSI.FSType == "" {
			o.Spec.CSI.FSType = c.FSType
		}
	}
	o.Spec.AccessModes = together(o.Spec.AccessModes)
	return o
}

// together is a list that Kubernetes takes: ReadWriteOncePod stands alone.
func together(list []string) []string {
	slices.Sort(list)
	list = slices.Compact(list)
	if at := slices.Index(list, readWriteOncePod); at >= 0 && len(list) > 1 {
		list[at] = readWriteOnce
		slices.Sort(list)
		list = slices.Compact(list)
	}
	return list
}

// quantity writes bytes in the largest binary unit that is exact.
func quantity(bytes int64) string {
	units := []string{"", "Ki", "Mi", "Gi", "Ti", "Pi"}
	unit := 0
	for bytes%1024 == 0 && unit < len(units)-1 {
		bytes /= 1024
		unit++
	}
	return strconv.FormatInt(bytes, 10) + units[unit]
}

// Write writes objects as YAML documents.
func Write(w io.Writer, list []PersistentVolume) error {
	var out bytes.Buffer
	for _, o := range list {
		out.WriteString("---\n")
		e := yaml.NewEncoder(&out)
		e.SetIndent(2)
		if err := e.Encode(o); err != nil {
			return err
		}
		if err := e.Close(); err != nil {
			return err
		}
	}
	_, err := w.Write(out.Bytes())
	return err
}
