// Package sanityv0 is a conformance suite for csi.v0, the Container Storage
// Interface in version 0.2.0. It talks to any endpoint over gRPC, from outside,
// as an orchestrator would, and judges the answers by the error tables of the
// specification.
//
// It is not a test of one driver: it knows nothing of how volumes are made, and
// what only the node's own filesystem can tell (mount lines, data) it asks of a
// Host, which may be the machine it runs on or a fake.
//
// # Running
//
// Run drives the suite as subtests of a Go test; Execute drives it without the
// testing package and returns a Report. The same options are flags of the
// program in cmd/csi-v0-sanity and of this package's own test binary:
//
//	go test ./test/sanity/v0 -run '^TestEndpoint$' -v -args \
//		--endpoint unix:///run/csi.sock --parameters protocol=nfs --multi-node
//
// The plugin must be otherwise idle: the suite compares the list of volumes
// before and after, and reads it in pages. Volume names carry a random part, so
// an earlier run that was killed does not disturb the next one. A check can be
// run alone (--only); it makes the volumes that it needs.
//
// # Checks
//
// A Check has a name (topic/behaviour) and cites the part of the specification
// that it holds the plugin to. Checks run one after the other and share a few
// volumes, since a lifecycle on a real machine takes seconds. A failed check
// resets the shared volumes, so one fault does not spread into the next check.
// Some rules hold for every answer (a message in each error, no details, the
// limits of field sizes, no secret): they are observed on every call, and the
// wire/ checks at the end report them.
//
// # Mutants
//
// A suite is worth as much as the faults that it sees. MustFail runs it on a
// plugin with one deliberate fault and asserts that the named check fails:
//
//	func TestMutants(t *testing.T) {
//		for _, m := range mutants {
//			t.Run(m.name, func(t *testing.T) {
//				o := startPlugin(t, m) // sanityv0.Options for its socket
//				sanityv0.MustFail(t, o, m.caught)
//			})
//		}
//	}
//
// A plugin that runs in a process of its own is judged by the program instead:
// csi-v0-sanity --must-fail CHECK exits with 0 only when that check failed.
// This package holds itself to the same measure: its tests keep an honest
// reference plugin in memory and a table of its mutants, at least one for each
// check (see mutants_test.go).
package sanityv0
