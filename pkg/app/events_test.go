package app

import (
	"testing"

	"github.com/sirupsen/logrus"
	logs "github.com/sirupsen/logrus/hooks/test"

	"github.com/tarn-csi/tarn/pkg/config"
)

// Outside a cluster nothing is opened, and nothing is said.
func TestOutsideAClusterNothingIsTold(t *testing.T) {
	log, hook := logs.NewNullLogger()
	log.SetLevel(logrus.DebugLevel)
	t.Setenv("KUBERNETES_SERVICE_HOST", "")
	for _, c := range []config.Config{{Mode: config.All, Events: true}, {Mode: config.Controller, Events: true}, {Mode: config.Controller}, {Mode: config.Node, Events: true}} {
		if k := openCluster(c, log); k != nil || len(hook.AllEntries()) != 0 {
			t.Errorf("%s, %t: %v, the log has %v", c.Mode, c.Events, k, hook.AllEntries())
		}
	}
}
