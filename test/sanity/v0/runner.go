package sanityv0

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"google.golang.org/grpc"

	csi "github.com/tarn-csi/tarn/proto/csi/v0"
)

// Checks lists every check in the order in which they run.
func Checks() []Check {
	return slices.Concat(
		identityChecks(),
		requiredChecks(),
		createChecks(),
		sizeChecks(),
		nameChecks(),
		validateChecks(),
		listChecks(),
		capacityChecks(),
		publishChecks(),
		unpublishChecks(),
		stageChecks(),
		nodePublishChecks(),
		multiNodeChecks(),
		lifecycleChecks(),
		concurrencyChecks(),
		deleteChecks(),
		wireChecks(),
		cleanupChecks(),
	)
}

// Run judges the plugin, each check a subtest. It cleans up after itself, also
// when checks fail or are filtered with -run.
func Run(t *testing.T, o Options) {
	t.Helper()
	s, err := start(t.Context(), o)
	if err != nil {
		t.Fatalf("sanity: %v", err)
	}
	t.Cleanup(func() {
		for _, err := range s.close() {
			t.Errorf("clean up: %v", err)
		}
	})
	for _, ck := range s.selected() {
		t.Run(ck.Name, func(t *testing.T) {
			res := s.execute(ck)
			for _, m := range res.Messages {
				t.Logf("[%s] %s", ck.Section, m)
			}
			switch res.State {
			case Failed:
				t.Fail()
			case Skipped:
				t.SkipNow()
			}
		})
		if s.stop != "" {
			t.Fatalf("stopped: %s", s.stop)
		}
	}
}

// Execute judges the plugin without the testing package. each, if not nil, is
// called after every check. A run that ctx ends still cleans up.
func Execute(ctx context.Context, o Options, each func(Result)) (*Report, error) {
	s, err := start(ctx, o)
	if err != nil {
		return nil, err
	}
	r := &Report{}
	add := func(res Result) {
		r.Results = append(r.Results, res)
		if each != nil {
			each(res)
		}
	}
	for _, ck := range s.selected() {
		if ctx.Err() != nil {
			r.Stopped = ctx.Err().Error()
			break
		}
		add(s.execute(ck))
		if s.stop != "" {
			r.Stopped = s.stop
			break
		}
	}
	if errs := s.close(); len(errs) > 0 {
		res := Result{Check: Check{Name: "cleanup/after-the-run", Section: "3, DeleteVolume"}, State: Failed}
		for _, err := range errs {
			res.Messages = append(res.Messages, err.Error())
		}
		add(res)
	}
	return r, nil
}

// suite is one run: its connections, what it has made, what it has seen.
type suite struct {
	o Options
	// ctx is that of the run: a suite lives no longer than the call that made it.
	ctx context.Context //nolint:containedctx // checks have one argument, and a run has one context
	// tag makes the names of this run unique: eight hexadecimal digits.
	tag string
	// stop, once set, ends the run after the current check.
	stop string

	conns              []*grpc.ClientConn
	identity           csi.IdentityClient // of the node's endpoint
	controllerIdentity csi.IdentityClient
	controller         csi.ControllerClient
	node               csi.NodeClient

	audit  *audit
	ledger *ledger

	offers capabilities
	nodeID string
	// before holds the ids of the volumes that the plugin had at the start; nil
	// where it cannot list.
	before map[string]bool

	stagingRoot, targetRoot string
	// paths are all that may have been made below the two.
	paths   []string
	volumes map[string]*volume
}

// capabilities are what the plugin says it offers.
type capabilities struct {
	createDelete, publish, list, capacity, stage bool
}

func start(ctx context.Context, o Options) (*suite, error) {
	o, err := o.withDefaults()
	if err != nil {
		return nil, err
	}
	random := make([]byte, 4)
	if _, err := rand.Read(random); err != nil {
		return nil, err
	}
	s := &suite{
		o:       o,
		ctx:     ctx,
		tag:     hex.EncodeToString(random),
		audit:   newAudit(o.Secrets),
		ledger:  newLedger(),
		volumes: map[string]*volume{},
	}
	node, err := s.dial(o.NodeEndpoint)
	if err != nil {
		return nil, err
	}
	controller := node
	if o.ControllerEndpoint != o.NodeEndpoint {
		if controller, err = s.dial(o.ControllerEndpoint); err != nil {
			return nil, err
		}
	}
	s.identity, s.node = csi.NewIdentityClient(node), csi.NewNodeClient(node)
	s.controllerIdentity, s.controller = csi.NewIdentityClient(controller), csi.NewControllerClient(controller)
	s.stagingRoot, s.targetRoot = s.root(o.StagingDir), s.root(o.TargetDir)
	for _, dir := range []string{s.stagingRoot, s.targetRoot} {
		if len(dir)+len("/multi.t1") > maxString {
			return nil, fmt.Errorf("directory %s is too long: a path in a call has at most %d bytes", dir, maxString)
		}
		if err := o.Host.MakeDir(dir); err != nil {
			return nil, err
		}
	}
	return s, nil
}

// root is this run's directory below dir.
func (s *suite) root(dir string) string {
	if dir == "" {
		dir = os.TempDir()
	}
	return filepath.Join(dir, "csi-v0-"+s.tag)
}

func (s *suite) selected() []Check {
	all := Checks()
	if s.o.Only == nil {
		return all
	}
	var some []Check
	for _, ck := range all {
		// The first check learns what the plugin offers.
		if ck.Name == nameServes || s.o.Only.MatchString(ck.Name) {
			some = append(some, ck)
		}
	}
	return some
}

// close removes all that the run has made and ends the connections.
func (s *suite) close() []error {
	var errs []error
	if s.stop == "" {
		errs = s.teardown()
	}
	for _, dir := range []string{s.stagingRoot, s.targetRoot} {
		if err := s.o.Host.Remove(dir); err != nil {
			errs = append(errs, err)
		}
	}
	for _, c := range s.conns {
		if err := c.Close(); err != nil {
			errs = append(errs, err)
		}
	}
	return errs
}
