// Package valid holds the manifests to Kubernetes' own strict decoding, defaults
// and validation, of the version in go.mod.
package valid

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	snapshots "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumesnapshot/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/kubernetes/pkg/api/legacyscheme"
	"k8s.io/kubernetes/pkg/api/pod"
	"k8s.io/kubernetes/pkg/apis/apps"
	_ "k8s.io/kubernetes/pkg/apis/apps/install"
	appsvalidation "k8s.io/kubernetes/pkg/apis/apps/validation"
	"k8s.io/kubernetes/pkg/apis/core"
	_ "k8s.io/kubernetes/pkg/apis/core/install"
	corevalidation "k8s.io/kubernetes/pkg/apis/core/validation"
	"k8s.io/kubernetes/pkg/apis/networking"
	_ "k8s.io/kubernetes/pkg/apis/networking/install"
	networkingvalidation "k8s.io/kubernetes/pkg/apis/networking/validation"
	"k8s.io/kubernetes/pkg/apis/policy"
	_ "k8s.io/kubernetes/pkg/apis/policy/install"
	policyvalidation "k8s.io/kubernetes/pkg/apis/policy/validation"
	"k8s.io/kubernetes/pkg/apis/rbac"
	_ "k8s.io/kubernetes/pkg/apis/rbac/install"
	rbacvalidation "k8s.io/kubernetes/pkg/apis/rbac/validation"
	scheduling "k8s.io/kubernetes/pkg/apis/scheduling/v1"
	"k8s.io/kubernetes/pkg/apis/storage"
	_ "k8s.io/kubernetes/pkg/apis/storage/install"
	storagevalidation "k8s.io/kubernetes/pkg/apis/storage/validation"
	"k8s.io/kubernetes/pkg/capabilities"
	"sigs.k8s.io/yaml"

	"github.com/tarn-csi/tarn/test/manifests/render"
)

// As --allow-privileged=true of the API server, without which no such pod is
// taken anywhere.
func init() {
	capabilities.Initialize(capabilities.Capabilities{AllowPrivileged: true})
}

var codecs = serializer.NewCodecFactory(legacyscheme.Scheme, serializer.EnableStrict)

// validate decodes an object as the API server does under strict validation,
// fills in the defaults, and validates it.
func validate(o render.Object) error {
	raw, err := json.Marshal(o)
	if err != nil {
		return err
	}
	if o.Text("kind") == "VolumeSnapshotClass" {
		// A custom resource: its type is the definition's.
		var class snapshots.VolumeSnapshotClass
		if err := yaml.UnmarshalStrict(raw, &class); err != nil {
			return err
		}
		if class.Driver == "" || class.DeletionPolicy != snapshots.VolumeSnapshotContentDelete && class.DeletionPolicy != snapshots.VolumeSnapshotContentRetain {
			return fmt.Errorf("driver %q, deletionPolicy %q", class.Driver, class.DeletionPolicy)
		}
		return nil
	}
	decoded, err := runtime.Decode(codecs.UniversalDecoder(), raw)
	if err != nil {
		return err
	}
	// What is generated from the types' own marks is apart from what is written by hand.
	versioned, err := runtime.Decode(codecs.UniversalDeserializer(), raw)
	if err != nil {
		return err
	}
	legacyscheme.Scheme.Default(versioned)
	generated := legacyscheme.Scheme.Validate(context.Background(), nil, versioned)
	return append(byHand(decoded), generated...).ToAggregate()
}

func byHand(o runtime.Object) field.ErrorList {
	switch v := o.(type) {
	case *core.Namespace:
		return corevalidation.ValidateNamespace(v)
	case *core.ServiceAccount:
		return corevalidation.ValidateServiceAccount(v)
	case *core.Secret:
		return corevalidation.ValidateSecret(v)
	case *core.ConfigMap:
		return corevalidation.ValidateConfigMap(v)
	case *core.PersistentVolume:
		return corevalidation.ValidatePersistentVolume(v, corevalidation.ValidationOptionsForPersistentVolume(v, nil))
	case *core.PersistentVolumeClaim:
		return corevalidation.ValidatePersistentVolumeClaim(v, corevalidation.ValidationOptionsForPersistentVolumeClaimCreate())
	case *core.Event:
		return corevalidation.ValidateEventCreate(v, corev1.SchemeGroupVersion)
	case *core.Pod:
		return corevalidation.ValidatePodCreate(v, pod.GetValidationOptionsFromPodSpecAndMeta(&v.Spec, nil, &v.ObjectMeta, nil))
	case *apps.StatefulSet:
		return append(priority(v.Spec.Template), appsvalidation.ValidateStatefulSet(v, appsvalidation.StatefulSetValidationOptions{}, pod.GetValidationOptionsFromPodTemplate(&v.Spec.Template, nil))...)
	case *apps.DaemonSet:
		return append(priority(v.Spec.Template), appsvalidation.ValidateDaemonSet(v, pod.GetValidationOptionsFromPodTemplate(&v.Spec.Template, nil))...)
	case *rbac.ClusterRole:
		return rbacvalidation.ValidateClusterRole(v, rbacvalidation.ClusterRoleValidationOptions{})
	case *rbac.ClusterRoleBinding:
		return rbacvalidation.ValidateClusterRoleBinding(v)
	case *rbac.Role:
		return rbacvalidation.ValidateRole(v)
	case *rbac.RoleBinding:
		return rbacvalidation.ValidateRoleBinding(v)
	case *policy.PodDisruptionBudget:
		return policyvalidation.ValidatePodDisruptionBudget(v, policyvalidation.PodDisruptionBudgetValidationOptions{})
	case *networking.NetworkPolicy:
		return networkingvalidation.ValidateNetworkPolicy(v, networkingvalidation.NetworkPolicyValidationOptions{})
	case *storage.StorageClass:
		return storagevalidation.ValidateStorageClass(v)
	case *storage.CSIDriver:
		return storagevalidation.ValidateCSIDriver(v)
	case *storage.VolumeAttributesClass:
		return storagevalidation.ValidateVolumeAttributesClass(v)
	}
	return field.ErrorList{field.InternalError(nil, fmt.Errorf("nobody validates %T", o))}
}

// priority holds a pod to the priority classes that every cluster has.
func priority(t core.PodTemplateSpec) (list field.ErrorList) {
	name := t.Spec.PriorityClassName
	if name == "" {
		return nil
	}
	for _, c := range scheduling.SystemPriorityClasses() {
		if c.Name == name {
			return nil
		}
	}
	return append(list, field.NotFound(field.NewPath("spec", "priorityClassName"), name))
}

func TestKubernetesTakesTheOverlays(t *testing.T) {
	for _, overlay := range render.Overlays {
		check(t, overlay, func() ([]render.Object, error) { return render.Kustomize(overlay) })
	}
	check(t, "components", func() ([]render.Object, error) { return render.Kustomize("combined", render.Components...) })
}

func TestKubernetesTakesTheChart(t *testing.T) {
	for _, name := range []string{"combined", "split-nfs", "split-iscsi", "appliance"} {
		check(t, name, func() ([]render.Object, error) {
			values, err := render.Values(name)
			if err != nil {
				return nil, err
			}
			values["csiDriver"] = map[string]any{"storageCapacity": true, "preventPodSchedulingIfMissing": true, "nodeAllocatableUpdatePeriodSeconds": 60}
			if name != "appliance" {
				values["ephemeral"] = map[string]any{"pool": "tank"}
			}
			return render.Template(name, values, "v1.37.2")
		})
	}
}

func check(t *testing.T, name string, made func() ([]render.Object, error)) {
	t.Helper()
	objects, err := made()
	if err != nil || len(objects) == 0 {
		t.Errorf("%s: %d objects, %v", name, len(objects), err)
	}
	for _, o := range objects {
		if err := validate(o); err != nil {
			t.Errorf("%s: %s: %v", name, o, err)
		}
	}
}

// What Kubernetes must refuse, so that the above means something.
func TestWhatKubernetesRefuses(t *testing.T) {
	objects, err := render.Kustomize("combined")
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		kind, part string
		change     func(spec map[string]any)
	}{
		{"CSIDriver", "unknown field", func(s map[string]any) { s["attachNeeded"] = true }},
		{"CSIDriver", "nodeAllocatableUpdatePeriodSeconds", func(s map[string]any) { s["nodeAllocatableUpdatePeriodSeconds"] = 5 }},
		{"CSIDriver", "serviceAccountTokenInSecrets", func(s map[string]any) { s["serviceAccountTokenInSecrets"] = true }},
		{"CSIDriver", "fsGroupPolicy", func(s map[string]any) { s["fsGroupPolicy"] = "Never" }},
		{"DaemonSet", "unknown field", func(s map[string]any) { tarn(s)["image_"] = "x" }},
		{"DaemonSet", "privileged", func(s map[string]any) { delete(tarn(s)["securityContext"].(map[string]any), "privileged") }},
		{"DaemonSet", "selector", func(s map[string]any) { s["selector"] = map[string]any{"matchLabels": map[string]any{"a": "b"}} }},
		{"StatefulSet", "mountPath", func(s map[string]any) { tarn(s)["volumeMounts"].([]any)[0].(map[string]any)["mountPath"] = "" }},
		{"StatefulSet", "priorityClassName", func(s map[string]any) { podSpec(s)["priorityClassName"] = "system-critical" }},
	} {
		for _, o := range objects {
			if o.Text("kind") != c.kind {
				continue
			}
			changed := clone(t, o)
			c.change(changed["spec"].(map[string]any))
			if err := validate(changed); err == nil || !strings.Contains(err.Error(), c.part) {
				t.Errorf("%s, %s: %v", c.kind, c.part, err)
			}
		}
	}
}

func podSpec(spec map[string]any) map[string]any {
	return spec["template"].(map[string]any)["spec"].(map[string]any)
}

func tarn(spec map[string]any) map[string]any {
	for _, c := range podSpec(spec)["containers"].([]any) {
		if c := c.(map[string]any); c["name"] == "tarn" {
			return c
		}
	}
	return nil
}

func clone(t *testing.T, o render.Object) render.Object {
	t.Helper()
	raw, err := json.Marshal(o)
	if err != nil {
		t.Fatal(err)
	}
	var c render.Object
	if err := json.Unmarshal(raw, &c); err != nil {
		t.Fatal(err)
	}
	return c
}
