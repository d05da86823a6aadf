package event

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/tarn-csi/tarn/pkg/kube"
	"github.com/tarn-csi/tarn/pkg/volume"
)

const (
	volumesPath = "/api/v1/persistentvolumes/"
	reviewPath  = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
	// terminating is the cause of a refusal in a namespace that is being deleted.
	terminating = "NamespaceTerminating"
)

// tell tells one thing. What concerns no object of this cluster is told nobody.
func (t *Teller) tell(ctx context.Context, st *state, now time.Time) error {
	about, ok := t.cfg.Pod, t.cfg.Pod.Name != ""
	if !st.wide() {
		var err error
		if about, ok, err = t.object(ctx, *st.volume); err != nil {
			return t.refused(ctx, err, "get", "persistentvolumes", "")
		}
	}
	if !ok {
		return nil
	}
	e := Make(t.cfg.Driver, about, st.key, st.reason, st.message, now)
	path := "/api/v1/namespaces/" + e.Metadata.Namespace + "/events"
	err := t.cfg.API.Create(ctx, path, e, nil)
	if kube.Code(err) != http.StatusConflict {
		return t.refused(ctx, err, "create", "events", e.Metadata.Namespace)
	}
	// It was told before, and how often, the answer to a change says.
	var known Event
	path += "/" + e.Metadata.Name
	err = t.cfg.API.Patch(ctx, path, map[string]any{"message": e.Message, "lastTimestamp": e.LastTimestamp}, &known)
	if err == nil {
		err = t.cfg.API.Patch(ctx, path, map[string]any{"count": known.Count + 1}, nil)
	}
	return t.refused(ctx, err, "patch", "events", e.Metadata.Namespace)
}

// object is what a volume's event is about: its claim, or its PersistentVolume
// while none is bound, or the pod for which it was made. What the dataset says of
// its owner is a hint; false where this cluster has no such object.
func (t *Teller) object(ctx context.Context, v volume.Entry) (Reference, bool, error) {
	if v.Ephemeral {
		ok := objectName.MatchString(v.Owner.Pod) && objectName.MatchString(v.Owner.Namespace)
		return Reference{APIVersion: "v1", Kind: "Pod", Namespace: v.Owner.Namespace, Name: v.Owner.Pod}, ok, nil
	}
	name := v.Owner.Volume
	if name == "" {
		_, name, _ = strings.Cut(v.ID, "/") // a provisioner names the volume as its object
	}
	if !objectName.MatchString(name) {
		return Reference{}, false, nil
	}
	var pv struct {
		Metadata metadata `json:"metadata"`
		Spec     struct {
			CSI struct {
				Driver       string `json:"driver"`
				VolumeHandle string `json:"volumeHandle"`
			} `json:"csi"`
			ClaimRef Reference `json:"claimRef"`
		} `json:"spec"`
		Status struct {
			Phase string `json:"phase"`
		} `json:"status"`
	}
	err := t.cfg.API.Get(ctx, volumesPath+name, &pv)
	if kube.Code(err) == http.StatusNotFound {
		return Reference{}, false, nil
	}
	if err != nil {
		return Reference{}, false, err
	}
	if pv.Spec.CSI.Driver != t.cfg.Driver || pv.Spec.CSI.VolumeHandle != v.ID {
		return Reference{}, false, nil
	}
	claim := pv.Spec.ClaimRef
	if pv.Status.Phase == "Bound" && objectName.MatchString(claim.Name) && objectName.MatchString(claim.Namespace) {
		return Reference{APIVersion: "v1", Kind: "PersistentVolumeClaim", Namespace: claim.Namespace, Name: claim.Name, UID: claim.UID}, true, nil
	}
	return Reference{APIVersion: "v1", Kind: "PersistentVolume", Name: name, UID: pv.Metadata.UID}, true, nil
}

// refused judges an error of a request. One that is of a namespace, such as its
// quota or that it is not there, or of one event must not keep the others from
// theirs: that is logged, and no error. What this account may not do anywhere is
// errForbidden.
func (t *Teller) refused(ctx context.Context, err error, verb, resource, namespace string) error {
	var refusal *kube.Error
	if !errors.As(err, &refusal) {
		return err
	}
	if verb == "create" && slices.Contains([]int{http.StatusBadRequest, http.StatusNotFound, http.StatusUnprocessableEntity}, refusal.Code) {
		t.shut(namespace, refusal)
		return nil
	}
	if refusal.Code != http.StatusForbidden {
		return err
	}
	if slices.Contains(refusal.Causes, terminating) {
		return nil
	}
	var review struct {
		Status struct {
			Allowed bool `json:"allowed"`
		} `json:"status"`
	}
	err = t.cfg.API.Create(ctx, reviewPath, map[string]any{
		"apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectAccessReview",
		"spec": map[string]any{"resourceAttributes": map[string]string{"verb": verb, "resource": resource}},
	}, &review)
	if err != nil && kube.Code(err) != http.StatusForbidden {
		return err
	}
	if !review.Status.Allowed {
		return fmt.Errorf("%w: this service account may not %s %s: give it the role that deploy/ has, or set `events: false`: %v", errForbidden, verb, resource, refusal)
	}
	t.shut(namespace, refusal)
	return nil
}

// shut logs once that a namespace takes no event.
func (t *Teller) shut(namespace string, refusal error) {
	if t.closed[namespace] {
		return
	}
	t.closed[namespace] = true
	t.cfg.Log.WithError(refusal).WithField("namespace", namespace).Warn("an event is refused there")
}
