// Package tree makes, changes and deletes volumes, snapshots, clones and groups
// of snapshots in random order over csi.v1, and compares what the driver says
// and what is in the volumes with a small model after each step. Names are few,
// so that they are used again and again.
package tree

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"pgregory.net/rapid"
)

// World is a driver and what a test does beside it.
type World struct {
	Conn grpc.ClientConnInterface
	// Parameters of a volume.
	Parameters map[string]string
	Block      bool
	// Unit is the size of the smallest volume, in bytes.
	Unit int64
	// Write makes text all that a volume holds, on stable storage; nil where
	// volumes hold nothing.
	Write func(volumeID, text string) error
	// Read returns what was written last, "" when that was nothing.
	Read func(volumeID string) (string, error)
	// Left lists what there is below the parent dataset.
	Left func() ([]string, error)
	// Steps is how many are taken.
	Steps int
	// Timeout bounds one call.
	Timeout time.Duration
}

// names are few on purpose.
var names = []string{"a", "b", "c", "d", "e"}

// volume, snapshot and group are the model; pointers tell a name's lives apart.
type volume struct {
	id, text string
	// created and bytes are its size when it was made, and now.
	created, bytes int64
	source         string
}

type snapshot struct {
	id, text string
	of       *volume
	ofID     string
	bytes    int64
	group    string
	created  time.Time
}

type machine struct {
	w          World
	controller csi.ControllerClient
	group      csi.GroupControllerClient

	volumes   map[string]*volume
	snapshots map[string]*snapshot // by name, without those of groups
	members   map[string][]*snapshot
	groupIDs  map[string]string
	writes    int
}

// Check takes steps in the world, deletes everything, and sees that nothing is
// left.
func Check(t *rapid.T, w World) {
	m := &machine{
		w: w, controller: csi.NewControllerClient(w.Conn), group: csi.NewGroupControllerClient(w.Conn),
		volumes: map[string]*volume{}, snapshots: map[string]*snapshot{}, members: map[string][]*snapshot{}, groupIDs: map[string]string{},
	}
	m.clear(t)
	before, err := w.Left()
	if err != nil {
		t.Fatal(err)
	}
	steps := map[string]func(*rapid.T){
		"create":         m.create,
		"write":          m.write,
		"snapshot":       m.snapshot,
		"restore":        m.restore,
		"clone":          m.clone,
		"groupSnapshot":  m.groupSnapshot,
		"deleteGroup":    m.deleteGroup,
		"expand":         m.expand,
		"deleteVolume":   m.deleteVolume,
		"deleteSnapshot": m.deleteSnapshot,
	}
	next := rapid.SampledFrom(slices.Sorted(maps.Keys(steps)))
	for range w.Steps {
		steps[next.Draw(t, "step")](t)
		m.agrees(t)
	}
	m.deleteAll(t)
	after, err := w.Left()
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(before, after) {
		t.Fatalf("left behind:\nbefore %q\nafter  %q", before, after)
	}
}

// clear deletes what a run that failed has left, so that rapid can try a shorter
// one.
func (m *machine) clear(t *rapid.T) {
	ctx, cancel := m.ctx()
	defer cancel()
	snapshots, err := m.controller.ListSnapshots(ctx, &csi.ListSnapshotsRequest{})
	want(t, "ListSnapshots", err, codes.OK)
	groups := map[string][]string{}
	for _, e := range snapshots.GetEntries() {
		id, group := e.GetSnapshot().GetSnapshotId(), e.GetSnapshot().GetGroupSnapshotId()
		if !ours(e.GetSnapshot().GetSourceVolumeId()) {
			continue
		}
		if group != "" {
			groups[group] = append(groups[group], id)
			continue
		}
		_, err := m.controller.DeleteSnapshot(ctx, &csi.DeleteSnapshotRequest{SnapshotId: id})
		want(t, "DeleteSnapshot "+id, err, codes.OK)
	}
	for id, members := range groups {
		_, err := m.group.DeleteVolumeGroupSnapshot(ctx, &csi.DeleteVolumeGroupSnapshotRequest{GroupSnapshotId: id, SnapshotIds: members})
		want(t, "DeleteVolumeGroupSnapshot "+id, err, codes.OK)
	}
	volumes, err := m.controller.ListVolumes(ctx, &csi.ListVolumesRequest{})
	want(t, "ListVolumes", err, codes.OK)
	for _, e := range volumes.GetEntries() {
		if !ours(e.GetVolume().GetVolumeId()) {
			continue
		}
		_, err := m.controller.DeleteVolume(ctx, &csi.DeleteVolumeRequest{VolumeId: e.GetVolume().GetVolumeId()})
		want(t, "DeleteVolume", err, codes.OK)
	}
}

// ours reports whether a volume has one of our names.
func ours(volumeID string) bool {
	return slices.Contains(names, volumeID[strings.LastIndexByte(volumeID, '/')+1:])
}

func (m *machine) ctx() (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.Background(), m.w.Timeout)
}

// want fails the test unless a call ended as the model says.
func want(t *rapid.T, what string, err error, codesAllowed ...codes.Code) bool {
	got := status.Code(err)
	if !slices.Contains(codesAllowed, got) {
		t.Fatalf("%s: %v, want %v", what, err, codesAllowed)
	}
	return got == codes.OK
}

func (m *machine) capability() *csi.VolumeCapability {
	c := &csi.VolumeCapability{AccessMode: &csi.VolumeCapability_AccessMode{Mode: csi.VolumeCapability_AccessMode_SINGLE_NODE_WRITER}}
	if m.w.Block {
		c.AccessType = &csi.VolumeCapability_Block{Block: &csi.VolumeCapability_BlockVolume{}}
	} else {
		c.AccessType = &csi.VolumeCapability_Mount{Mount: &csi.VolumeCapability_MountVolume{}}
	}
	return c
}

func (m *machine) request(name string, bytes int64, full bool, source *csi.VolumeContentSource) *csi.CreateVolumeRequest {
	parameters := maps.Clone(m.w.Parameters)
	if full {
		parameters["cloneMode"] = "full"
	}
	return &csi.CreateVolumeRequest{
		Name: name, CapacityRange: &csi.CapacityRange{RequiredBytes: bytes},
		VolumeCapabilities: []*csi.VolumeCapability{m.capability()}, Parameters: parameters, VolumeContentSource: source,
	}
}

// make asks for a volume that holds text; how says from what it is made, so that
// a name that is taken by another is known.
func (m *machine) make(t *rapid.T, r *csi.CreateVolumeRequest, text, how string) {
	have := m.volumes[r.GetName()]
	ctx, cancel := m.ctx()
	defer cancel()
	answer, err := m.controller.CreateVolume(ctx, r)
	allowed := codes.OK
	if have != nil && (have.source != how || have.created < r.GetCapacityRange().GetRequiredBytes()) {
		allowed = codes.AlreadyExists
	}
	what := fmt.Sprintf("CreateVolume %s from %q", r.GetName(), how)
	if !want(t, what, err, allowed) {
		return
	}
	v := answer.GetVolume()
	if have != nil {
		if v.GetVolumeId() != have.id || v.GetCapacityBytes() != have.bytes {
			t.Fatalf("%s again: %s of %d bytes, want %s of %d", what, v.GetVolumeId(), v.GetCapacityBytes(), have.id, have.bytes)
		}
		return
	}
	if v.GetCapacityBytes() < r.GetCapacityRange().GetRequiredBytes() {
		t.Fatalf("%s: %d bytes, want %d", what, v.GetCapacityBytes(), r.GetCapacityRange().GetRequiredBytes())
	}
	m.volumes[r.GetName()] = &volume{id: v.GetVolumeId(), text: text, created: v.GetCapacityBytes(), bytes: v.GetCapacityBytes(), source: how}
}

func (m *machine) create(t *rapid.T) {
	name := rapid.SampledFrom(names).Draw(t, "name")
	m.make(t, m.request(name, m.w.Unit, false, nil), "", "")
}

// pick draws one of what there is; false when there is nothing.
func pick[T comparable](t *rapid.T, label string, list map[string]T) (string, T, bool) {
	var zero T
	if len(list) == 0 {
		return "", zero, false
	}
	name := rapid.SampledFrom(slices.Sorted(maps.Keys(list))).Draw(t, label)
	return name, list[name], true
}

func (m *machine) write(t *rapid.T) {
	name, v, ok := pick(t, "volume", m.volumes)
	if !ok || m.w.Write == nil {
		return
	}
	m.writes++
	v.text = fmt.Sprintf("%s %d", name, m.writes)
	if err := m.w.Write(v.id, v.text); err != nil {
		t.Fatal(err)
	}
}

func (m *machine) snapshot(t *rapid.T) {
	_, v, ok := pick(t, "volume", m.volumes)
	if !ok {
		return
	}
	name := rapid.SampledFrom(names).Draw(t, "name")
	have := m.snapshots[name]
	ctx, cancel := m.ctx()
	defer cancel()
	answer, err := m.controller.CreateSnapshot(ctx, &csi.CreateSnapshotRequest{Name: name, SourceVolumeId: v.id})
	allowed := codes.OK
	if have != nil && have.of != v {
		allowed = codes.AlreadyExists
	}
	what := fmt.Sprintf("CreateSnapshot %s of %s", name, v.id)
	if !want(t, what, err, allowed) {
		return
	}
	s := answer.GetSnapshot()
	if have != nil {
		if s.GetSnapshotId() != have.id || s.GetSizeBytes() != have.bytes || !s.GetCreationTime().AsTime().Equal(have.created) {
			t.Fatalf("%s again: %v, want %+v", what, s, have)
		}
		return
	}
	if s.GetSizeBytes() != v.bytes || s.GetSourceVolumeId() != v.id || !s.GetReadyToUse() {
		t.Fatalf("%s: %v, want a ready one of %d bytes", what, s, v.bytes)
	}
	m.snapshots[name] = &snapshot{id: s.GetSnapshotId(), text: v.text, of: v, ofID: v.id, bytes: s.GetSizeBytes(), created: s.GetCreationTime().AsTime()}
}

// all are the snapshots, those of groups too, by id.
func (m *machine) all() map[string]*snapshot {
	list := map[string]*snapshot{}
	for _, s := range m.snapshots {
		list[s.id] = s
	}
	for _, members := range m.members {
		for _, s := range members {
			list[s.id] = s
		}
	}
	return list
}

func (m *machine) restore(t *rapid.T) {
	id, s, ok := pick(t, "snapshot", m.all())
	if !ok {
		return
	}
	name := rapid.SampledFrom(names).Draw(t, "name")
	bytes := s.bytes + m.w.Unit*int64(rapid.IntRange(0, 1).Draw(t, "more"))
	full := rapid.Bool().Draw(t, "full")
	source := &csi.VolumeContentSource{Type: &csi.VolumeContentSource_Snapshot{
		Snapshot: &csi.VolumeContentSource_SnapshotSource{SnapshotId: id}}}
	m.make(t, m.request(name, bytes, full, source), s.text, fmt.Sprintf("snapshot %s, full %t", id, full))
}

func (m *machine) clone(t *rapid.T) {
	_, v, ok := pick(t, "volume", m.volumes)
	if !ok {
		return
	}
	name := rapid.SampledFrom(names).Draw(t, "name")
	if m.volumes[name] == v {
		return // of itself
	}
	full := rapid.Bool().Draw(t, "full")
	source := &csi.VolumeContentSource{Type: &csi.VolumeContentSource_Volume{
		Volume: &csi.VolumeContentSource_VolumeSource{VolumeId: v.id}}}
	m.make(t, m.request(name, v.bytes, full, source), v.text, fmt.Sprintf("volume %s, full %t", v.id, full))
}

func (m *machine) groupSnapshot(t *rapid.T) {
	if len(m.volumes) < 2 {
		return
	}
	name := rapid.SampledFrom(names[:2]).Draw(t, "name")
	if m.members[name] != nil {
		return
	}
	var ids []string
	of := map[string]*volume{}
	for _, n := range slices.Sorted(maps.Keys(m.volumes))[:2] {
		ids = append(ids, m.volumes[n].id)
		of[m.volumes[n].id] = m.volumes[n]
	}
	ctx, cancel := m.ctx()
	defer cancel()
	answer, err := m.group.CreateVolumeGroupSnapshot(ctx, &csi.CreateVolumeGroupSnapshotRequest{Name: name, SourceVolumeIds: ids})
	want(t, "CreateVolumeGroupSnapshot "+name, err, codes.OK)
	g := answer.GetGroupSnapshot()
	if len(g.GetSnapshots()) != len(ids) {
		t.Fatalf("group %s: %v, want snapshots of %q", name, g, ids)
	}
	m.groupIDs[name] = g.GetGroupSnapshotId()
	for _, s := range g.GetSnapshots() {
		v := of[s.GetSourceVolumeId()]
		if v == nil || s.GetSizeBytes() != v.bytes {
			t.Fatalf("group %s: %v", name, s)
		}
		m.members[name] = append(m.members[name], &snapshot{
			id: s.GetSnapshotId(), text: v.text, of: v, ofID: v.id, bytes: s.GetSizeBytes(), group: g.GetGroupSnapshotId()})
	}
}

func (m *machine) deleteGroup(t *rapid.T) {
	name, id, ok := pick(t, "group", m.groupIDs)
	if !ok {
		return
	}
	m.endGroup(t, name, id)
}

func (m *machine) endGroup(t *rapid.T, name, id string) {
	var ids []string
	for _, s := range m.members[name] {
		ids = append(ids, s.id)
	}
	ctx, cancel := m.ctx()
	defer cancel()
	_, err := m.group.DeleteVolumeGroupSnapshot(ctx, &csi.DeleteVolumeGroupSnapshotRequest{GroupSnapshotId: id, SnapshotIds: ids})
	want(t, "DeleteVolumeGroupSnapshot "+name, err, codes.OK)
	delete(m.members, name)
	delete(m.groupIDs, name)
}

func (m *machine) expand(t *rapid.T) {
	_, v, ok := pick(t, "volume", m.volumes)
	if !ok {
		return
	}
	bytes := v.bytes + m.w.Unit
	ctx, cancel := m.ctx()
	defer cancel()
	answer, err := m.controller.ControllerExpandVolume(ctx, &csi.ControllerExpandVolumeRequest{
		VolumeId: v.id, CapacityRange: &csi.CapacityRange{RequiredBytes: bytes}, VolumeCapability: m.capability()})
	want(t, "ControllerExpandVolume "+v.id, err, codes.OK)
	if answer.GetCapacityBytes() < bytes {
		t.Fatalf("ControllerExpandVolume %s: %d bytes, want %d", v.id, answer.GetCapacityBytes(), bytes)
	}
	v.bytes = answer.GetCapacityBytes()
}

func (m *machine) deleteVolume(t *rapid.T) {
	if name, v, ok := pick(t, "volume", m.volumes); ok {
		m.endVolume(t, name, v)
	}
}

func (m *machine) endVolume(t *rapid.T, name string, v *volume) {
	ctx, cancel := m.ctx()
	defer cancel()
	_, err := m.controller.DeleteVolume(ctx, &csi.DeleteVolumeRequest{VolumeId: v.id})
	want(t, "DeleteVolume "+v.id, err, codes.OK)
	delete(m.volumes, name)
}

func (m *machine) deleteSnapshot(t *rapid.T) {
	if name, s, ok := pick(t, "snapshot", m.snapshots); ok {
		m.endSnapshot(t, name, s)
	}
}

func (m *machine) endSnapshot(t *rapid.T, name string, s *snapshot) {
	ctx, cancel := m.ctx()
	defer cancel()
	_, err := m.controller.DeleteSnapshot(ctx, &csi.DeleteSnapshotRequest{SnapshotId: s.id})
	want(t, "DeleteSnapshot "+s.id, err, codes.OK)
	delete(m.snapshots, name)
}

// agrees compares listings and contents with the model.
func (m *machine) agrees(t *rapid.T) {
	ctx, cancel := m.ctx()
	defer cancel()
	volumes, err := m.controller.ListVolumes(ctx, &csi.ListVolumesRequest{})
	want(t, "ListVolumes", err, codes.OK)
	var got, expected []string
	for _, e := range volumes.GetEntries() {
		got = append(got, fmt.Sprintf("%s %d", e.GetVolume().GetVolumeId(), e.GetVolume().GetCapacityBytes()))
	}
	for _, v := range m.volumes {
		expected = append(expected, fmt.Sprintf("%s %d", v.id, v.bytes))
	}
	same(t, "volumes", got, expected)

	snapshots, err := m.controller.ListSnapshots(ctx, &csi.ListSnapshotsRequest{})
	want(t, "ListSnapshots", err, codes.OK)
	got, expected = nil, nil
	for _, e := range snapshots.GetEntries() {
		s := e.GetSnapshot()
		got = append(got, fmt.Sprintf("%s of %s %d %s", s.GetSnapshotId(), s.GetSourceVolumeId(), s.GetSizeBytes(), s.GetGroupSnapshotId()))
	}
	for _, s := range m.all() {
		expected = append(expected, fmt.Sprintf("%s of %s %d %s", s.id, s.ofID, s.bytes, s.group))
	}
	same(t, "snapshots", got, expected)

	if m.w.Read == nil {
		return
	}
	for _, v := range m.volumes {
		text, err := m.w.Read(v.id)
		if err != nil {
			t.Fatal(err)
		}
		if text != v.text {
			t.Fatalf("volume %s holds %q, want %q", v.id, text, v.text)
		}
	}
}

func same(t *rapid.T, what string, got, expected []string) {
	slices.Sort(got)
	slices.Sort(expected)
	if !slices.Equal(got, expected) {
		t.Fatalf("%s:\n\t%s\nwant:\n\t%s", what, strings.Join(got, "\n\t"), strings.Join(expected, "\n\t"))
	}
}

// deleteAll deletes everything, in an order of rapid's choice.
func (m *machine) deleteAll(t *rapid.T) {
	for len(m.volumes)+len(m.snapshots)+len(m.groupIDs) > 0 {
		switch rapid.IntRange(0, 2).Draw(t, "what") {
		case 0:
			m.deleteVolume(t)
		case 1:
			m.deleteSnapshot(t)
		default:
			m.deleteGroup(t)
		}
	}
	m.agrees(t)
}
