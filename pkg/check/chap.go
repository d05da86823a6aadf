package check

import (
	"context"
	"slices"

	"github.com/tarn-csi/tarn/pkg/chap"
	"github.com/tarn-csi/tarn/pkg/config"
)

// chap names the pools whose targets trust an initiator's name alone.
func (c *Checker) chap(_ context.Context, add func(...Finding)) {
	for _, p := range c.cfg.Pools {
		if p.CHAP == chap.None {
			add(warn("chap of pool "+p.Name, "set chap: derived", "none, so whoever knows a node's initiator name reads its volumes"))
			continue
		}
		add(ok("chap of pool "+p.Name, "%s", p.CHAP))
	}
	if slices.ContainsFunc(c.cfg.Pools, func(p config.Pool) bool { return p.CHAP == chap.Secrets }) {
		add(c.pairs())
	}
}
