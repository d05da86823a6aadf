package release

import (
	"context"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/tarn-csi/tarn/pkg/fault"
)

// Nobody uses the path, and the kernel lets go of it in a second to come: that
// is no precondition for anybody to meet.
func TestAPathInTheExportCacheIsUnavailableForAWhile(t *testing.T) {
	h, dir := newHost(t), t.TempDir()
	for _, cache := range caches {
		h.write(filepath.Join(h.proc, "net/rpc", cache, "content"), "#path domain(flags)\n"+escape(dir)+"\t192.0.2.1(rw)\n")
		h.write(filepath.Join(h.proc, "net/rpc", cache, "flush"), strconv.FormatInt(time.Now().Unix()+3600, 10)+"\n")
	}
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	if err := h.Release(ctx, Held{Dir: dir}); fault.Kind(err) != fault.Unavailable {
		t.Errorf("%v", err)
	}
	if err := h.exportCache(ctx, t.TempDir()); err != nil {
		t.Errorf("another path: %v", err)
	}
}
