package sanityv0

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	csi "github.com/tarn-csi/tarn/proto/csi/v0"
)

// reference is an honest plugin of csi.v0 in memory. Its mounts are numbers in a
// map and its data is bytes in another; everything else it does as the
// specification says.
type reference struct {
	csi.UnimplementedIdentityServer
	csi.UnimplementedControllerServer
	csi.UnimplementedNodeServer

	multiNode   bool // it supports volumes for several nodes
	refuseBlock bool // it supports mounted volumes only
	// latency is how long an operation takes. Whoever asks for the same volume
	// meanwhile gets ABORTED; a caller that gives up does not end it.
	latency time.Duration
	idTail  string // appended to each id

	mu      sync.Mutex
	busy    map[string]bool
	nodes   map[string]bool
	volumes map[string]*refVolume // by id
	staged  map[place]*csi.VolumeCapability
	targets map[string]*refTarget // by target path
	mounts  map[string]int        // mount lines by path
	data    map[string][]byte     // by volume id
	calls   map[string]int        // by method, those that were answered with OK
	// volumesEver holds each name for which a volume was made, once for each time.
	volumesEver []string
}

type refVolume struct {
	*csi.Volume
	request *csi.CreateVolumeRequest
	grants  map[string]*csi.ControllerPublishVolumeRequest // by node id
}

type refTarget struct {
	request  *csi.NodePublishVolumeRequest // without secrets
	readonly bool
}

const (
	refNode      = "node-1@192.0.2.11"
	refOtherNode = "node-2@192.0.2.12"
	refBlock     = 4096 // sizes are multiples of it
	refMax       = 1 << 50
)

func newReference() *reference {
	return &reference{
		multiNode: true,
		busy:      map[string]bool{},
		nodes:     map[string]bool{refNode: true, refOtherNode: true},
		volumes:   map[string]*refVolume{},
		staged:    map[place]*csi.VolumeCapability{},
		targets:   map[string]*refTarget{},
		mounts:    map[string]int{},
		data:      map[string][]byte{},
		calls:     map[string]int{},
	}
}

// serve listens on a socket of its own and returns its endpoint.
func (r *reference) serve(t testing.TB, intercept grpc.UnaryServerInterceptor) string {
	t.Helper()
	socket := filepath.Join(shortDir(t), "csi.sock")
	l, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	count := func(ctx context.Context, req any, info *grpc.UnaryServerInfo, next grpc.UnaryHandler) (any, error) {
		resp, err := next(ctx, req)
		if err == nil {
			r.mu.Lock()
			r.calls[filepath.Base(info.FullMethod)]++
			r.mu.Unlock()
		}
		return resp, err
	}
	chain := []grpc.UnaryServerInterceptor{count}
	if intercept != nil {
		chain = append(chain, intercept)
	}
	s := grpc.NewServer(grpc.ChainUnaryInterceptor(chain...))
	csi.RegisterIdentityServer(s, r)
	csi.RegisterControllerServer(s, r)
	csi.RegisterNodeServer(s, r)
	go func() { _ = s.Serve(l) }()
	t.Cleanup(s.Stop)
	return "unix://" + socket
}

// shortDir is a temporary directory whose name leaves room for a socket and for
// the paths in a call.
func shortDir(t testing.TB) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "v0-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	return dir
}

// options are those that fit the reference at an endpoint.
func (r *reference) options(t testing.TB, endpoint string) Options {
	dir := shortDir(t)
	return Options{
		Endpoint:        endpoint,
		Parameters:      map[string]string{"kind": "a"},
		OtherParameters: map[string]string{"kind": "b"},
		Secrets: Secrets{
			CreateVolume:            map[string]string{"password": "sentinel-create"},
			ControllerPublishVolume: map[string]string{"password": "sentinel-publish"},
			NodeStageVolume:         map[string]string{"password": "sentinel-stage"},
			NodePublishVolume:       map[string]string{"password": "sentinel-node-publish"},
		},
		VolumeSize:         1 << 20,
		MultiNode:          r.multiNode,
		RefusesOtherAccess: r.refuseBlock,
		OtherNodeID:        refOtherNode,
		StagingDir:         dir,
		TargetDir:          dir,
		Host:               Host{Mounted: r.hostMounted, Write: r.hostWrite, Read: r.hostRead},
		Pause:              func(context.Context, string) error { return nil },
		// Ample for a machine under load; no honest run comes near.
		Timeout:  20 * time.Second,
		RetryFor: 20 * time.Second,
	}
}

func (r *reference) hostMounted(path string) (int, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.mounts[path], nil
}

func (r *reference) hostWrite(path string, _ bool, data []byte) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	t := r.targets[path]
	if t == nil || r.mounts[path] == 0 {
		return errors.New("nothing is mounted there")
	}
	if t.readonly {
		return errors.New("read-only file system")
	}
	r.data[t.request.GetVolumeId()] = bytes.Clone(data)
	return nil
}

func (r *reference) hostRead(path string, block bool, size int) ([]byte, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	t := r.targets[path]
	if t == nil || r.mounts[path] == 0 {
		return nil, errors.New("nothing is mounted there")
	}
	data := r.data[t.request.GetVolumeId()]
	if block {
		data = append(bytes.Clone(data), make([]byte, size)...)
	}
	if len(data) < size {
		return nil, errors.New("no such file")
	}
	return data[:size], nil
}

// operate does work under the lock of one volume. What has begun goes on without
// its caller, but nothing is begun for a caller that has gone: it may have
// repeated the call since, and undone it.
func (r *reference) operate(ctx context.Context, id string, work func() error) error {
	r.mu.Lock()
	if ctx.Err() != nil {
		r.mu.Unlock()
		return status.FromContextError(ctx.Err()).Err()
	}
	if r.busy[id] {
		r.mu.Unlock()
		return status.Errorf(codes.Aborted, "volume %q is busy", id)
	}
	r.busy[id] = true
	r.mu.Unlock()
	if r.latency > 0 {
		<-time.After(r.latency)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.busy, id)
	return work()
}

func invalid(format string, args ...any) error {
	return status.Errorf(codes.InvalidArgument, format, args...)
}

func notFound(what, id string) error { return status.Errorf(codes.NotFound, "no %s %q", what, id) }

// wellFormed refuses a capability that lacks a part or has a mode of no known meaning.
func wellFormed(c *csi.VolumeCapability) error {
	mode := c.GetAccessMode().GetMode()
	switch {
	case c == nil:
		return invalid("no capability")
	case c.GetAccessType() == nil:
		return invalid("no access type")
	case mode == 0:
		return invalid("no access mode")
	case csi.VolumeCapability_AccessMode_Mode_name[int32(mode)] == "":
		return invalid("access mode %d is not known", mode)
	}
	return nil
}

func allWellFormed(cs []*csi.VolumeCapability) error {
	for _, c := range cs {
		if err := wellFormed(c); err != nil {
			return err
		}
	}
	return nil
}

// multi reports whether the mode is one for several nodes.
func multi(c *csi.VolumeCapability) bool {
	return c.GetAccessMode().GetMode() >= csi.VolumeCapability_AccessMode_MULTI_NODE_READER_ONLY
}

func (r *reference) supports(cs ...*csi.VolumeCapability) error {
	for _, c := range cs {
		switch {
		case c.GetBlock() != nil && r.refuseBlock:
			return invalid("block volumes are not supported")
		case multi(c) && !r.multiNode:
			return invalid("%s is not supported", c.GetAccessMode().GetMode())
		case c.GetMount() != nil && !slices.Contains([]string{"", "ext4", "xfs"}, c.GetMount().GetFsType()):
			return invalid("the filesystem %q is not supported", c.GetMount().GetFsType())
		}
	}
	return nil
}

// foreign reports whether an orchestrator leaves that key in the parameters.
func foreign(key string) bool {
	return strings.HasPrefix(key, "csi.storage.k8s.io/") || slices.Contains(orchestratorKeys, key)
}

// ownParameters drops the orchestrator's keys and refuses unknown ones.
func ownParameters(m map[string]string) (map[string]string, error) {
	own := map[string]string{}
	for k, v := range m {
		switch {
		case foreign(k):
		case k == "kind":
			own[k] = v
		default:
			return nil, invalid("the parameter %q is not known", k)
		}
	}
	return own, nil
}

func sameCapabilities(a, b []*csi.VolumeCapability) bool {
	return slices.EqualFunc(a, b, func(x, y *csi.VolumeCapability) bool { return proto.Equal(x, y) })
}

// refID is the id of the volume of that name: as long for each.
func refID(name string) string {
	sum := sha256.Sum256([]byte(name))
	return "ref/" + hex.EncodeToString(sum[:16])
}
