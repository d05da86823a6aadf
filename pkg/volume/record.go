package volume

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"

	"github.com/tarn-csi/tarn/pkg/access"
	"github.com/tarn-csi/tarn/pkg/fault"
	"github.com/tarn-csi/tarn/pkg/ident"
	"github.com/tarn-csi/tarn/pkg/zfs"
)

// The user properties. Values are plain words, numbers or JSON, and so hold
// neither tab nor newline, with which a property could forge zfs' output.
const (
	propDriver   = "tarn:driver"
	propName     = "tarn:name"
	propUUID     = "tarn:uuid"
	propProtocol = "tarn:protocol"
	propRequest  = "tarn:request"
	propSize     = "tarn:size"
	propSource   = "tarn:source"
	// propNode begins the name of one property a publication.
	propNode = "tarn:node."
)

// maxProperty is the longest value that ZFS stores, with its final zero
// (ZAP_MAXVALUELEN, zfsprops(7)).
const maxProperty = 8191

// request is what a volume was made for.
type request struct {
	Parameters   map[string]string `json:"parameters"`
	Capabilities []string          `json:"capabilities"`
}

// record is what a volume's dataset says of it.
type record struct {
	id      ident.VolumeID
	dataset zfs.Dataset
	name    string
	uuid    string
	request request
	params  params
	source  source
	// createdBytes is the size at creation, against which a repeated request
	// is compared; sizeBytes is today's.
	createdBytes, sizeBytes int64
	publications            map[string]publication
	// err says why the properties make no sense; such a volume is listed and
	// can be deleted, and nothing else.
	err error
}

// publication is the grant of a volume to one node.
type publication struct {
	// NodeID is the node's full id, with its addresses.
	NodeID string      `json:"node"`
	Mode   access.Mode `json:"mode"`
	Type   access.Type `json:"type"`
	// ReadOnly is what the caller asked; a reader-only mode implies it.
	ReadOnly bool `json:"readonly"`
}

// closed reports that the publication grants no write.
func (p publication) closed() bool { return p.ReadOnly || p.Mode.ReaderOnly() }

// readRecord reads a volume out of its dataset's properties; false when the
// dataset carries no mark of this driver's.
func readRecord(id ident.VolumeID, d zfs.Dataset) (*record, bool) {
	r := &record{id: id, dataset: d, sizeBytes: sizeOf(d), publications: map[string]publication{}}
	var marked bool
	if r.name, marked = d.Own(propName); !marked {
		return nil, false
	}
	r.err = r.parse()
	return r, true
}

func (r *record) parse() error {
	broken := func(property string, err error) error {
		return fault.New(fault.Precondition, "volume %s: property %s of %s makes no sense (%v): set it again by hand or delete the volume",
			r.id, property, r.dataset.Name, err)
	}
	r.uuid, _ = r.dataset.Own(propUUID)
	if !ident.ValidUUID(r.uuid) {
		return broken(propUUID, fmt.Errorf("%q is no uuid", r.uuid))
	}
	size, _ := r.dataset.Own(propSize)
	var err error
	if r.createdBytes, err = strconv.ParseInt(size, 10, 64); err != nil {
		return broken(propSize, err)
	}
	raw, _ := r.dataset.Own(propRequest)
	if err = json.Unmarshal([]byte(raw), &r.request); err != nil {
		return broken(propRequest, err)
	}
	if r.params, err = fromCanonical(r.request.Parameters); err != nil {
		return broken(propRequest, err)
	}
	if raw, made := r.dataset.Own(propSource); made {
		if err = json.Unmarshal([]byte(raw), &r.source); err != nil {
			return broken(propSource, err)
		}
	}
	for node, value := range r.dataset.LocalPrefix(propNode) {
		var p publication
		if err := json.Unmarshal([]byte(value), &p); err != nil {
			return broken(propNode+node, err)
		}
		r.publications[node] = p
	}
	return nil
}

// settings are the properties that mark a new volume.
func settings(name, uuid string, p params, caps []string, bytes int64) ([]zfs.Setting, error) {
	raw, err := json.Marshal(request{Parameters: p.canonical(), Capabilities: caps})
	if err != nil {
		return nil, err
	}
	encoded, err := json.Marshal(name)
	if err != nil {
		return nil, err
	}
	list := []zfs.Setting{
		{Name: propName, Value: string(encoded)},
		{Name: propUUID, Value: uuid},
		{Name: propProtocol, Value: p.Protocol},
		{Name: propRequest, Value: string(raw)},
		{Name: propSize, Value: strconv.FormatInt(bytes, 10)},
	}
	for _, s := range list {
		if len(s.Value) > maxProperty {
			return nil, fault.New(fault.Invalid, "the request is too long to be stored: %s would have %d bytes of at most %d", s.Name, len(s.Value), maxProperty)
		}
	}
	return list, nil
}

// differs names the first field in which a repeated request differs from the
// one that made the volume; empty when it is compatible.
func (r *record) differs(c creation) string {
	encoded, _ := json.Marshal(c.request.Name)
	if string(encoded) != r.name {
		return fmt.Sprintf("the name is %s, not %s", r.name, encoded)
	}
	if was, is := r.source.source(), c.request.Source; was != is {
		return fmt.Sprintf("the content source was %s and is now %s", was, is)
	}
	want := c.params.canonical()
	// Another protocol has other parameters, which nobody gave.
	for _, key := range append([]string{"protocol"}, slices.Sorted(maps.Keys(merge(want, r.request.Parameters)))...) {
		if was, is := r.request.Parameters[key], want[key]; was != is {
			return fmt.Sprintf("parameter %s was %q and is now %q", key, was, is)
		}
	}
	if !slices.Equal(r.request.Capabilities, c.caps) {
		return fmt.Sprintf("the capabilities were %s and are now %s", joinCaps(r.request.Capabilities), joinCaps(c.caps))
	}
	if size := c.request.Size; !size.holds(r.createdBytes) {
		return fmt.Sprintf("its size was %d bytes, and now required is %d and the limit %d", r.createdBytes, size.RequiredBytes, size.LimitBytes)
	}
	return ""
}

func merge(a, b map[string]string) map[string]string {
	m := map[string]string{}
	maps.Copy(m, a)
	maps.Copy(m, b)
	return m
}

// volume is the caller's view.
func (r *record) volume() Volume {
	v := Volume{ID: r.id.String(), CapacityBytes: r.sizeBytes, Context: r.params.context(), Source: r.source.source()}
	for _, node := range slices.Sorted(maps.Keys(r.publications)) {
		v.Nodes = append(v.Nodes, r.publications[node].NodeID)
	}
	return v
}

// nodes names the nodes of the publications, for messages.
func (r *record) nodes() []string { return slices.Sorted(maps.Keys(r.publications)) }
