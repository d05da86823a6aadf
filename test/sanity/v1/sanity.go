// Package v1 runs the csi.v1 suite of csi-test against a driver, for several
// kinds of volumes in one run, and holds it to a list of what may be left out:
// the suite itself takes a missing capability for a reason to skip.
package v1

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/kubernetes-csi/csi-test/v5/pkg/sanity"
	"github.com/onsi/ginkgo/v2"
	"github.com/onsi/ginkgo/v2/types"
	"github.com/onsi/gomega"
)

// Kind is a way to use volumes.
type Kind struct {
	Name string
	// Address is the driver's endpoint.
	Address string
	// Parameters, Mutable and Snapshot are those of the volume, its mutable ones,
	// and those of a snapshot.
	Parameters, Mutable map[string]string
	// SizeBytes is that of a volume, and ExpandedBytes what it is expanded to.
	SizeBytes, ExpandedBytes int64
	Block                    bool
	// Dir is an existing folder for the target and staging paths.
	Dir string
	// CheckPath is what is at a path, where that is not for the host to say.
	CheckPath func(path string) (sanity.PathKind, error)
	// Only, if set, is a part of the names of the specs that are run; why stands for
	// the others.
	Only, Why string
	// Skips are the specs that may be left out, by a part of their names, and why.
	// Any other that is skipped is a failure, and so is one that is not.
	Skips map[string]string
}

// NeverRun are the specs that no driver of this kind can run.
var NeverRun = map[string]string{
	"ListVolumes pagination should detect volumes added between pages":                                           "csi-test itself has it pending",
	"when publishing more volumes than the node max attach limit":                                                "it makes as many volumes as a node can attach",
	"CreateSnapshot [Controller Server] should succeed when creating a snapshot with accessibility requirements": "snapshots are where their volume is: SNAPSHOT_ACCESSIBILITY_CONSTRAINTS is not offered",
}

func (k Kind) config() sanity.TestConfig {
	c := sanity.NewTestConfig() // with the default IDGen
	c.Address = k.Address
	c.TargetPath = filepath.Join(k.Dir, "target")
	c.StagingPath = filepath.Join(k.Dir, "staging")
	c.TestVolumeSize = k.SizeBytes
	c.TestVolumeExpandSize = k.ExpandedBytes
	c.TestVolumeParameters = k.Parameters
	c.TestVolumeMutableParameters = k.Mutable
	if k.Block {
		c.TestVolumeAccessType = "block"
	}
	c.CheckPath = k.CheckPath
	return c
}

// Run runs every spec for every kind. A process can do that once.
func Run(t *testing.T, kinds ...Kind) {
	t.Helper()
	gomega.RegisterFailHandler(ginkgo.Fail)
	for _, k := range kinds {
		config := k.config()
		ginkgo.Describe(k.Name+":", func() {
			ginkgo.BeforeEach(func() {
				if !strings.Contains(ginkgo.CurrentSpecReport().FullText(), k.Only) {
					ginkgo.Skip(k.Why)
				}
			})
			sc := sanity.GinkgoTest(&config)
			t.Cleanup(sc.Finalize)
		})
	}
	var report types.Report
	ginkgo.ReportAfterSuite("skips", func(r types.Report) { report = r })
	suite, reporter := ginkgo.GinkgoConfiguration()
	reporter.Succinct, reporter.NoColor = true, true
	if !ginkgo.RunSpecs(t, "csi.v1", suite, reporter) {
		t.Error("specs failed")
	}
	for _, k := range kinds {
		if !slices.ContainsFunc(report.SpecReports, func(spec types.SpecReport) bool {
			return strings.HasPrefix(spec.FullText(), k.Name+": ") && spec.State.Is(types.SpecStatePassed)
		}) {
			t.Errorf("%s: no spec ran", k.Name)
		}
		for _, text := range k.unexpected(report.SpecReports) {
			t.Error(text)
		}
	}
}

// unexpected compares what was skipped for a kind with its list.
func (k Kind) unexpected(specs types.SpecReports) []string {
	var faults []string
	used := map[string]bool{}
	for _, spec := range specs {
		name, mine := strings.CutPrefix(spec.FullText(), k.Name+": ")
		if !mine || !spec.State.Is(types.SpecStateSkipped|types.SpecStatePending) {
			continue
		}
		known := !strings.Contains(name, k.Only)
		for part := range k.Skips {
			if strings.Contains(name, part) {
				used[part], known = true, true
			}
		}
		if !known {
			faults = append(faults, fmt.Sprintf("%s: left out: %s: %s", k.Name, name, spec.Failure.Message))
		}
	}
	for part, why := range k.Skips {
		if !used[part] && k.Only == "" {
			faults = append(faults, fmt.Sprintf("%s: %q (%s) is not left out any more: take it off the list", k.Name, part, why))
		}
	}
	return faults
}
