package app

import (
	"context"
	"os"

	"github.com/sirupsen/logrus"

	"github.com/tarn-csi/tarn/pkg/config"
	"github.com/tarn-csi/tarn/pkg/event"
	"github.com/tarn-csi/tarn/pkg/kube"
	"github.com/tarn-csi/tarn/pkg/volume"
)

// The variables in which the manifests give the controller's pod its own name.
const (
	podName = "POD_NAME"
	podUID  = "POD_UID"
)

// cluster is the Kubernetes cluster in which the controller is a pod; nil where it
// is none, or where nothing is to be told there.
type cluster struct {
	account *kube.Account
	log     logrus.FieldLogger
}

// openCluster must be called before the root is changed: the account is the
// container's. Volumes are served without a cluster, too.
func openCluster(c config.Config, log logrus.FieldLogger) *cluster {
	if !c.Events || c.Mode == config.Node {
		return nil
	}
	account, err := kube.InPod()
	if err != nil {
		log.WithError(err).Warn("no events are told to the cluster")
	}
	if account == nil {
		return nil
	}
	return &cluster{account, log}
}

// tell tells of conditions until ctx ends.
func (k *cluster) tell(ctx context.Context, c config.Config, round func() volume.Round) {
	defer k.account.Close() //nolint:errcheck // nothing was written
	client := kube.NewClient(k.account, "tarn/"+Version)
	defer client.Close()
	pod := event.Reference{APIVersion: "v1", Kind: "Pod", Namespace: k.account.Namespace, Name: os.Getenv(podName), UID: os.Getenv(podUID)}
	k.log.WithField("pod", pod.Name).Info("conditions are told to the cluster by events")
	event.New(event.Config{Driver: c.DriverName, Pod: pod, API: client, Round: round, Log: k.log}).Run(ctx)
}
