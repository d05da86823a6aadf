package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// strict makes the API server refuse fields that it does not know, and kubectl fail
// at a warning, such as one about an interface that will go.
var strict = []string{"apply", "--validate=strict", "--warnings-as-errors"}

const deploy = "deploy/kubernetes"

// charts are the chart's examples, by what is installed together.
var charts = []struct {
	name   string
	values []string
}{
	{"combined", []string{"combined"}},
	{"split", []string{"split-nfs", "split-iscsi"}},
	{"appliance", []string{"appliance"}},
}

// takesManifests lets the API server take all manifests, each installed and removed.
func (c *cluster) takesManifests(ctx context.Context) error {
	if err := c.step(ctx, "unknown fields are refused", c.isStrict); err != nil {
		return err
	}
	overlays, err := folders(deploy + "/overlays")
	if err != nil {
		return err
	}
	for _, name := range overlays {
		if err := c.takes(ctx, "overlay "+name, c.overlay(name)); err != nil {
			return err
		}
	}
	components, err := folders(deploy + "/components")
	if err != nil {
		return err
	}
	for _, name := range components {
		if name == "snapshots" {
			continue // in the overlays already
		}
		if err := c.takes(ctx, "combined with "+name, c.component(name)); err != nil {
			return err
		}
	}
	for _, chart := range charts {
		err := c.step(ctx, "chart "+chart.name, func(ctx context.Context) (string, error) { return c.takesChart(ctx, chart.values) })
		if err != nil {
			return err
		}
	}
	return nil
}

// folders are the names of the folders in one.
func folders(dir string) (names []string, err error) {
	entries, err := os.ReadDir(dir)
	for _, e := range entries {
		if e.IsDir() {
			names = append(names, e.Name())
		}
	}
	return names, err
}

// isStrict makes sure that the API server does refuse: one of its own objects, and
// one of a definition.
func (c *cluster) isStrict(ctx context.Context) (string, error) {
	for _, object := range []string{
		`{"apiVersion": "storage.k8s.io/v1", "kind": "CSIDriver", "metadata": {"name": "x"}, "spec": {"attachRequire": true}}`,
		`{"apiVersion": "snapshot.storage.k8s.io/v1", "kind": "VolumeSnapshotClass", "metadata": {"name": "x"}, "driver": "x", "deletionPolicy": "Delete", "attachRequire": true}`,
	} {
		_, err := c.feed(ctx, object, append(strict, "-f", "-")...)
		if err == nil {
			return "", errors.New("it was taken: " + object)
		}
		if !strings.Contains(err.Error(), `unknown field "`) {
			return "", err
		}
	}
	return "", nil
}

// overlay is an overlay of deploy/kubernetes: its folder.
func (c *cluster) overlay(name string) func() (string, error) {
	return func() (string, error) { return filepath.Join(deploy, "overlays", name), nil }
}

// component is the overlay that a person writes to have a component too.
func (c *cluster) component(name string) func() (string, error) {
	return func() (string, error) {
		folder := c.path("kustomize-" + name)
		if err := os.MkdirAll(folder, 0o755); err != nil {
			return "", err
		}
		absolute, err := filepath.Abs(deploy)
		if err != nil {
			return "", err
		}
		tree, err := filepath.Rel(folder, absolute) // kustomize takes no other path
		if err != nil {
			return "", err
		}
		text := fmt.Sprintf("resources: [%s/overlays/combined]\ncomponents: [%s/components/%s]\n", tree, tree, name)
		return folder, os.WriteFile(filepath.Join(folder, "kustomization.yaml"), []byte(text), 0o644)
	}
}

// takes installs what a folder is kustomized to, and removes it. That returns when
// the controllers have removed the last object.
func (c *cluster) takes(ctx context.Context, title string, write func() (string, error)) error {
	return c.step(ctx, title, func(ctx context.Context) (string, error) {
		folder, err := write()
		if err != nil {
			return "", err
		}
		out, err := c.kubectl(ctx, append(strict, "-k", folder)...)
		if err != nil {
			return "", err
		}
		_, err = c.kubectl(ctx, "delete", "--ignore-not-found", "-k", folder) // a token goes with its account
		return fmt.Sprintf("%d objects", strings.Count(out, "\n")), err
	})
}

// takesChart installs and removes the chart, rendered once for each of the values,
// in a namespace such as docs/install.md makes for it.
func (c *cluster) takesChart(ctx context.Context, values []string) (string, error) {
	text, err := c.output(ctx, filepath.Join(c.built, "chart"), values...)
	if err != nil {
		return "", err
	}
	if _, err := c.kubectl(ctx, "create", "namespace", "tarn"); err != nil {
		return "", err
	}
	if _, err := c.kubectl(ctx, "label", "namespace", "tarn", "pod-security.kubernetes.io/enforce=privileged"); err != nil {
		return "", err
	}
	out, err := c.feed(ctx, text, append(strict, "-f", "-")...)
	if err != nil {
		return "", err
	}
	if _, err := c.feed(ctx, text, "delete", "--ignore-not-found", "-f", "-"); err != nil {
		return "", err
	}
	_, err = c.kubectl(ctx, "delete", "namespace", "tarn")
	return fmt.Sprintf("%d objects", strings.Count(out, "\n")), err
}
