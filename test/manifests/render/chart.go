package render

import (
	"context"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
	"helm.sh/helm/v4/pkg/chart/common"
	"helm.sh/helm/v4/pkg/chart/common/util"
	"helm.sh/helm/v4/pkg/chart/v2/lint"
	"helm.sh/helm/v4/pkg/chart/v2/lint/support"
	"helm.sh/helm/v4/pkg/chart/v2/loader"
	chartutil "helm.sh/helm/v4/pkg/chart/v2/util"
	"helm.sh/helm/v4/pkg/engine"
)

// Newest is the version of Kubernetes that has every field.
const Newest = "v1.37.2"

// Chart is the chart's folder.
func Chart() string { return filepath.Join(Root(), "deploy/helm/tarn") }

// Values reads one of the chart's examples, ci/NAME-values.yaml.
func Values(name string) (map[string]any, error) {
	raw, err := os.ReadFile(filepath.Join(Chart(), "ci", name+"-values.yaml"))
	if err != nil {
		return nil, err
	}
	values := map[string]any{}
	return values, yaml.Unmarshal(raw, &values)
}

// Template renders the chart for a version of Kubernetes, with the values checked
// by the schema.
func Template(release string, values map[string]any, kubernetes string) ([]Object, error) {
	chart, err := loader.Load(Chart())
	if err != nil {
		return nil, err
	}
	version, err := common.ParseKubeVersion(kubernetes)
	if err != nil {
		return nil, err
	}
	if !chartutil.IsCompatibleRange(chart.Metadata.KubeVersion, version.Version) {
		return nil, fmt.Errorf("the chart is for Kubernetes %s, and this is %s", chart.Metadata.KubeVersion, version)
	}
	capabilities := common.DefaultCapabilities.Copy()
	capabilities.KubeVersion = *version
	all, err := util.ToRenderValues(chart, values, common.ReleaseOptions{Name: release, Namespace: "tarn", IsInstall: true, Revision: 1}, capabilities)
	if err != nil {
		return nil, err
	}
	// Strict: a value that no file has is an error.
	files, err := engine.Engine{Strict: true}.RenderWithContext(context.Background(), chart, all)
	if err != nil {
		return nil, err
	}
	var list []Object
	for _, name := range slices.Sorted(maps.Keys(files)) {
		if !strings.HasSuffix(name, ".yaml") {
			continue // notes, and parts
		}
		objects, err := Objects([]byte(files[name]))
		if err != nil {
			return nil, fmt.Errorf("%s: %w\n%s", name, err, files[name])
		}
		list = append(list, objects...)
	}
	return list, nil
}

// Lint is helm lint.
func Lint(values map[string]any) []support.Message {
	return lint.RunAll(Chart(), values, "tarn").Messages
}
