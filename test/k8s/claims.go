package main

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"slices"
	"strings"
)

// A story is the life of one claim; those of all protocols go side by side.
type story struct{ protocol, class string }

var stories = []story{{"nfs", "tarn-nfs"}, {"iscsi", "tarn-ext4"}}

// What the claims ask for, first and then, and what the application writes.
const (
	small, large  = "1Gi", "2Gi"
	largeKiB      = 2 * 1024 * 1024
	first, second = "written-first", "written-later"
)

//go:embed objects/claim.yaml
var claimYAML string

//go:embed objects/restored.yaml
var restoredYAML string

//go:embed objects/snapshot.yaml
var snapshotYAML string

//go:embed objects/pod.yaml
var podYAML string

// claims lets claims live, from the first to the last day.
func (c *cluster) claims(ctx context.Context) error {
	return c.acts(ctx,
		act{"claims of " + small + " are bound", c.claim},
		act{"pods write a file", c.write},
		act{"pods are deleted, volumes detached", c.deletePods},
		act{"pods made anew find the file", c.read},
		act{"snapshots are ready", c.snapshot},
		act{"pods made anew overwrite the file", c.overwrite},
		act{"claims from the snapshots are bound", c.restore},
		act{"pods find the file as it was", c.readRestored},
		act{"claims grow to " + large + " under their pods", c.expand},
		act{"attributes are changed", c.modify},
		act{"everything is deleted", c.deleteAll},
		act{"no object and no dataset is left", c.isEmpty},
	)
}

// fill puts values into a template.
func (s story) fill(template string, more ...string) string {
	return strings.NewReplacer(append([]string{"PROTOCOL", s.protocol, "CLASS", s.class, "SIZE", small}, more...)...).Replace(template)
}

// each applies an object for each story, and waits until all fulfil a condition.
func (c *cluster) each(ctx context.Context, kind, name, condition, template string, more ...string) error {
	var all, names []string
	for _, s := range stories {
		all = append(all, s.fill(template, more...))
		names = append(names, kind+"/"+s.protocol+name)
	}
	if _, err := c.feed(ctx, strings.Join(all, "---\n"), append(strict, "-f", "-")...); err != nil {
		return err
	}
	return c.wait(ctx, condition, names...)
}

const bound = "jsonpath={.status.phase}=Bound"

func (c *cluster) claim(ctx context.Context) (string, error) {
	err := c.each(ctx, "pvc", "", bound, claimYAML)
	if err != nil {
		return "", err
	}
	return c.kubectl(ctx, "get", "pv", "-o", "jsonpath={.items[*].spec.csi.volumeHandle}")
}

// pods starts a pod for each story. It is ready after its first command, in which
// it has looked at the volume or written to it.
func (c *cluster) pods(ctx context.Context, name, claim, command string) error {
	return c.each(ctx, "pod", name, "condition=Ready", podYAML, "NAME", name, "CLAIM", claim, "COMMAND", command)
}

func (c *cluster) write(ctx context.Context) (string, error) {
	if err := c.pods(ctx, "", "", "echo "+first+" > /data/file && sync"); err != nil {
		return "", err
	}
	return c.kubectl(ctx, "get", "volumeattachments", "-o", "jsonpath=attached: {.items[*].status.attached}")
}

// deletePods deletes the pods of the claims, and waits until the controller has
// unpublished the volumes.
func (c *cluster) deletePods(ctx context.Context) (string, error) {
	for _, s := range stories {
		if _, err := c.kubectl(ctx, "delete", "pod", s.protocol, "--wait=false"); err != nil {
			return "", err
		}
	}
	return "", c.gone(ctx, "pods,volumeattachments")
}

// gone waits until there are no objects of some kinds in the default namespace, or
// outside of all.
func (c *cluster) gone(ctx context.Context, kinds string) error {
	return until(ctx, func(ctx context.Context) error {
		left, err := c.kubectl(ctx, "get", kinds, "-o", "name")
		if err == nil && left != "" {
			err = errors.New("left: " + strings.ReplaceAll(strings.TrimSpace(left), "\n", " "))
		}
		return err
	})
}

func (c *cluster) read(ctx context.Context) (string, error) {
	return "", c.pods(ctx, "", "", "grep -x "+first+" /data/file")
}

func (c *cluster) snapshot(ctx context.Context) (string, error) {
	return "", c.each(ctx, "volumesnapshot", "", "jsonpath={.status.readyToUse}=true", snapshotYAML)
}

func (c *cluster) overwrite(ctx context.Context) (string, error) {
	if _, err := c.deletePods(ctx); err != nil {
		return "", err
	}
	return "", c.pods(ctx, "", "", "echo "+second+" > /data/file && sync")
}

func (c *cluster) restore(ctx context.Context) (string, error) {
	return "", c.each(ctx, "pvc", "-restored", bound, restoredYAML)
}

func (c *cluster) readRestored(ctx context.Context) (string, error) {
	return "", c.pods(ctx, "-restored", "-restored", "grep -x "+first+" /data/file")
}

// expand lets the claims grow while their pods run. A pod ends by itself when its
// filesystem is larger.
func (c *cluster) expand(ctx context.Context) (string, error) {
	for _, s := range stories {
		patch := fmt.Sprintf(`{"spec": {"resources": {"requests": {"storage": %q}}}}`, large)
		if _, err := c.kubectl(ctx, "patch", "pvc", s.protocol, "-p", patch); err != nil {
			return "", err
		}
	}
	if err := c.wait(ctx, "jsonpath={.status.capacity.storage}="+large, "pvc/nfs", "pvc/iscsi"); err != nil {
		return "", err
	}
	if err := c.wait(ctx, "jsonpath={.status.phase}=Succeeded", "pod/nfs", "pod/iscsi"); err != nil {
		return "", err
	}
	return c.kubectl(ctx, "get", "pods", "nfs", "iscsi", "-o", "jsonpath=df: {.items[*].status.containerStatuses[0].state.terminated.message}")
}

// modify gives the claims a VolumeAttributesClass.
func (c *cluster) modify(ctx context.Context) (string, error) {
	for _, s := range stories {
		if _, err := c.kubectl(ctx, "patch", "pvc", s.protocol, "-p", `{"spec": {"volumeAttributesClassName": "tarn-zstd"}}`); err != nil {
			return "", err
		}
	}
	if err := c.wait(ctx, "jsonpath={.status.currentVolumeAttributesClassName}=tarn-zstd", "pvc/nfs", "pvc/iscsi"); err != nil {
		return "", err
	}
	found, err := c.onNode(ctx, "zfs", "list", "-H", "-r", "-t", "filesystem,volume", "-o", "compression", "tank/csi")
	if err == nil && strings.Count(found, "zstd\n") != len(stories) {
		err = fmt.Errorf("compression is %q", found)
	}
	return "compression=zstd", err
}

func (c *cluster) deleteAll(ctx context.Context) (string, error) {
	if _, err := c.kubectl(ctx, "delete", "pods,volumesnapshots,pvc", "--all", "--wait=false"); err != nil {
		return "", err
	}
	return "", c.gone(ctx, "pods,volumesnapshots,pvc,volumesnapshotcontents,volumeattachments,pv")
}

// kept are the datasets that stay, empty: docs/limitations.md.
var kept = []string{"tank", "tank/csi", "tank/csi/.tombstones", "tank/csi/.incoming"}

// isEmpty looks at the pool, at what the host still serves, and at what it still
// uses.
func (c *cluster) isEmpty(ctx context.Context) (string, error) {
	datasets, err := c.onNode(ctx, "zfs", "list", "-H", "-r", "-t", "all", "-o", "name", "tank")
	if err != nil {
		return "", err
	}
	for name := range strings.Lines(datasets) {
		if !slices.Contains(kept, strings.TrimSpace(name)) {
			return "", fmt.Errorf("datasets are left:\n%s", datasets)
		}
	}
	for _, look := range [][]string{
		{"find", "/etc/exports.d", "-type", "f"},
		{"find", "/sys/kernel/config/target", "-mindepth", "2", "-maxdepth", "2", "(", "-name", "iqn.*", "-o", "-name", "iblock_*", ")"},
		{"find", "/sys/class/iscsi_session", "-mindepth", "1"},
		{"awk", "/kubernetes.io~csi/ { print $2 }", "/proc/mounts"},
	} {
		left, err := c.onNode(ctx, look...)
		if err == nil && left != "" {
			err = fmt.Errorf("%s: %s", strings.Join(look, " "), left)
		}
		if err != nil {
			return "", err
		}
	}
	return "", nil
}
