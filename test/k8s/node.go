package main

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// guest is the name of the virtual machine.
const guest = "k8s"

// Images of the test itself; the node's script names the first one, too.
const (
	pause = "localhost/pause:1"
	shell = "localhost/busybox:1"
)

// tools are what pods of the test run.
var tools = []string{"awk", "cat", "df", "echo", "grep", "ls", "sh", "sleep", "sync"}

// writeImages writes the images of an installation, under the names that it has for
// them, and those of the test.
func (c *cluster) writeImages(ctx context.Context) (string, error) {
	text, err := c.kubectl(ctx, "get", "-k", installed, "-o", "json")
	if err != nil {
		return "", err
	}
	names, err := imageNames([]byte(text))
	if err != nil {
		return "", err
	}
	list := []image{
		{name: pause, program: c.program("busybox"), args: []string{"sleep", "2147483647"}},
		{name: shell, program: c.program("busybox"), links: tools},
	}
	for _, name := range names {
		program, _, _ := strings.Cut(base(name), ":")
		switch program {
		case "tarn":
			program = "bin/tarn"
		case "livenessprobe":
			program = filepath.Join(c.built, "livenessprobe")
		case "csi-node-driver-registrar":
			program = filepath.Join(c.built, "registrar")
		default:
			program = c.program(program)
		}
		list = append(list, image{name: name, program: program})
	}
	return fmt.Sprintf("%d images", len(list)), writeImages(c.path("images.tar"), list)
}

// imageNames are the images of all containers in a list of objects.
func imageNames(text []byte) ([]string, error) {
	var list struct {
		Items []struct {
			Spec struct {
				Template struct {
					Spec struct {
						Containers []struct{ Image string }
					}
				}
			}
		}
	}
	if err := json.Unmarshal(text, &list); err != nil {
		return nil, err
	}
	found := map[string]bool{}
	for _, o := range list.Items {
		for _, container := range o.Spec.Template.Spec.Containers {
			found[container.Image] = true
		}
	}
	return slices.Sorted(maps.Keys(found)), nil
}

// startNode boots the guest that is the node, with its kubelet, and waits until it
// is ready.
func (c *cluster) startNode(ctx context.Context) (string, error) {
	if err := c.writeKubeconfig("kubelet", guestsServer, c.tokens["kubelet"]); err != nil {
		return "", err
	}
	tree, err := os.Getwd()
	if err != nil {
		return "", err
	}
	err = c.daemon("node", filepath.Join(tree, "hack/vm/run"), "--name", guest, "--net", "host", "--memory", "3072",
		"--timeout", fmt.Sprint(limit.Seconds()), "--disk", "6G", "--disk", "4G", "--share", c.programs, "--share", c.dir, "--",
		"hack/k8s/node", nodeName, "/mnt/"+base(c.programs), "/mnt/"+base(c.dir))
	if err != nil {
		return "", err
	}
	if err := c.wait(ctx, "condition=Ready", "node/"+nodeName); err != nil {
		return "", err
	}
	const versions = "jsonpath={.status.nodeInfo.kubeletVersion}, {.status.nodeInfo.containerRuntimeVersion}, Linux {.status.nodeInfo.kernelVersion}"
	return c.kubectl(ctx, "get", "node", nodeName, "-o", versions)
}

// onNode runs a command on the node and returns what it printed.
func (c *cluster) onNode(ctx context.Context, args ...string) (string, error) {
	return c.output(ctx, "hack/vm/exec", append([]string{guest, "--timeout", "60", "--"}, args...)...)
}
