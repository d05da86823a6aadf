package sanityv0

import (
	"slices"

	"google.golang.org/grpc/codes"
)

// wireChecks report what was seen on all calls of the run.
func wireChecks() []Check {
	reports := func(r rule) func(*C) {
		return func(c *C) { c.audit.report(c, r) }
	}
	return []Check{
		{Name: "wire/every-error-has-a-message", Section: "3, every RPC", run: checkMessages},
		{Name: "wire/no-error-has-details", Section: "3, every RPC", run: reports(ruleDetails)},
		{Name: "wire/answers-have-no-unknown-fields", Section: "2, field numbers", run: reports(ruleFields)},
		{Name: "wire/strings-are-at-most-128-bytes", Section: "3, size limits", run: reports(ruleStrings)},
		{Name: "wire/maps-are-at-most-4-kib", Section: "3, size limits", run: reports(ruleMaps)},
		{Name: "wire/no-answer-holds-a-secret", Section: "3, size limits", needs: needSecrets, run: reports(ruleSecrets)},
	}
}

func checkMessages(c *C) {
	if c.audit.errors == 0 && c.o.Only == nil {
		c.Errorf("no call of the whole run was answered with an error")
	}
	c.Logf("%d errors, %d of them ABORTED; %d volumes and %d stages in all", c.audit.errors, c.audit.aborted, c.ledger.made, c.ledger.stages)
	c.audit.report(c, ruleMessage)
}

func cleanupChecks() []Check {
	return []Check{
		{Name: "cleanup/everything-can-be-undone", Section: "3, undoing", run: checkTeardown},
		{Name: "cleanup/no-mount-is-left", Section: "3, NodeUnpublishVolume", needs: needNode, run: checkNoMounts},
		{Name: "cleanup/no-volume-is-left", Section: "3, DeleteVolume", needs: needVolumes | needList, run: checkNoVolumes},
	}
}

func checkTeardown(c *C) {
	// The mounts are counted in the next check, so the paths are remembered.
	paths := slices.Clone(c.paths)
	for _, err := range c.teardown() {
		c.Errorf("%v", err)
	}
	c.paths = paths
}

func checkNoMounts(c *C) {
	for _, path := range c.paths {
		c.wantMounted(path, 0, "at the end of the run")
	}
}

// checkNoVolumes compares with the list from before the first check.
func checkNoVolumes(c *C) {
	all, _, err := c.listAll(0)
	c.want(err, "ListVolumes", codes.OK)
	left := map[string]bool{}
	for _, v := range all {
		left[v.GetId()] = true
		if !c.before[v.GetId()] {
			c.Errorf("the volume %q is left", v.GetId())
		}
	}
	for id := range inOrder(c.before) {
		if !left[id] {
			c.Errorf("the volume %q was there before the run and is gone", id)
		}
	}
}
