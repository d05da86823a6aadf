// Command chart prints the chart as Helm renders it for the newest Kubernetes, with
// the values of examples: chart NAME..., for ci/NAME-values.yaml.
package main

import (
	"fmt"
	"os"

	"sigs.k8s.io/yaml"

	"github.com/tarn-csi/tarn/test/manifests/render"
)

func main() {
	for _, name := range os.Args[1:] {
		if err := show(name); err != nil {
			fmt.Fprintf(os.Stderr, "chart: %s: %v\n", name, err)
			os.Exit(1)
		}
	}
}

func show(name string) error {
	values, err := render.Values(name)
	if err != nil {
		return err
	}
	objects, err := render.Template(name, values, render.Newest)
	if err != nil {
		return err
	}
	for _, o := range objects {
		text, err := yaml.Marshal(o)
		if err != nil {
			return err
		}
		fmt.Printf("%s---\n", text)
	}
	return nil
}
