package app

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/tarn-csi/tarn/pkg/fault"
)

// told is a publisher that notes what it is told.
type told struct {
	list []string
	err  error
	got  string
}

func (t *told) nodes(context.Context, string) ([]string, error) { return t.list, t.err }

func (t *told) Unpublish(_ context.Context, volumeID, nodeID string) error {
	t.got = volumeID + " " + nodeID
	return nil
}

func TestUnpublishFindsTheNode(t *testing.T) {
	nodes := []string{"worker-1@192.0.2.21", "worker-10@192.0.2.30"}
	for want, given := range map[string][]string{
		nodes[0]: {"worker-1", "WORKER-1", "worker-1@192.0.2.21", "worker-1@203.0.113.9"},
		nodes[1]: {"worker-10"},
		"":       {"worker", "worker-2", "", "@192.0.2.21", "192.0.2.21"},
	} {
		for _, node := range given {
			p := &told{list: nodes}
			id, err := unpublish(t.Context(), p, "tank/v", node)
			if want == "" {
				if !errors.Is(err, fault.NotFound) || p.got != "" || !strings.Contains(err.Error(), strings.Join(nodes, ", ")) {
					t.Errorf("%q: %v, told %q", node, err, p.got)
				}
				continue
			}
			if err != nil || id != want || p.got != "tank/v "+want {
				t.Errorf("%q: %q, %v, told %q", node, id, err, p.got)
			}
		}
	}
	if _, err := unpublish(t.Context(), &told{}, "tank/v", "worker-1"); err == nil || !strings.Contains(err.Error(), "no node") {
		t.Errorf("published nowhere: %v", err)
	}
	gone := errors.New("volume tank/v does not exist")
	if _, err := unpublish(t.Context(), &told{err: gone}, "tank/v", "worker-1"); !errors.Is(err, gone) {
		t.Errorf("no such volume: %v", err)
	}
}
