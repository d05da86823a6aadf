package sanityv0

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"math"
	"os"
	"os/exec"
	"regexp"
	"strconv"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"
)

// Flags are the options as words of a command line.
type Flags struct {
	o       Options
	params  string
	other   string
	secrets string
	size    string
	only    string
	pause   string
	verbose bool
}

// Register adds the flags to a set.
func (f *Flags) Register(fs *flag.FlagSet) {
	fs.StringVar(&f.o.Endpoint, "endpoint", "", "the plugin's `socket` (unix:///path or a path)")
	fs.StringVar(&f.o.ControllerEndpoint, "controller-endpoint", "", "the controller's `socket`, where it is another process")
	fs.StringVar(&f.o.NodeEndpoint, "node-endpoint", "", "the node's `socket`, where it is another process")
	fs.StringVar(&f.params, "parameters", "", "StorageClass parameters, `key=value,...`")
	fs.StringVar(&f.other, "other-parameters", "", "a second valid set of parameters, `key=value,...`, for a repeat that must not fit")
	fs.StringVar(&f.secrets, "secrets", "", "a YAML `file` with the secrets of each RPC (CreateVolumeSecret, ..., NodePublishVolumeSecret)")
	fs.StringVar(&f.size, "size", "64Mi", "volume size, in `bytes` or with Ki, Mi, Gi")
	fs.BoolVar(&f.o.Block, "block", false, "raw block volumes instead of mounted ones")
	fs.StringVar(&f.o.FSType, "fs-type", "", "`filesystem` of mounted volumes; empty: the plugin's default")
	fs.BoolVar(&f.o.RefusesOtherAccess, "refuses-other-access", false, "with these parameters the plugin does not support the other access type")
	fs.StringVar(&f.o.UnsupportedFSType, "unsupported-fs-type", "", "a `filesystem` that the plugin refuses (default no-such-fs; - for none)")
	fs.BoolVar(&f.o.MultiNode, "multi-node", false, "the plugin supports MULTI_NODE_MULTI_WRITER for these volumes")
	fs.StringVar(&f.o.OtherNodeID, "other-node-id", "", "`id` of a second node that the controller knows; it need not run")
	fs.StringVar(&f.o.StagingDir, "staging-dir", "", "existing `directory` for staging paths")
	fs.StringVar(&f.o.TargetDir, "target-dir", "", "existing `directory` for target paths")
	fs.StringVar(&f.pause, "pause-command", "", "`program` to run at each point of a volume's life, with the point as its argument; it may restart the plugin")
	fs.DurationVar(&f.o.Timeout, "timeout", time.Minute, "bound of one call")
	fs.DurationVar(&f.o.RetryFor, "retry-for", 30*time.Second, "how long to repeat what is answered with ABORTED")
	fs.BoolVar(&f.o.Partial, "partial", false, "skip the checks of capabilities that the plugin does not offer")
	fs.StringVar(&f.only, "only", "", "run the checks whose name matches this `expression`")
	fs.BoolVar(&f.verbose, "calls", false, "write one line for each call")
}

// Given reports whether the command line names a plugin to judge.
func (f *Flags) Given() bool {
	return f.o.Endpoint != "" || f.o.ControllerEndpoint != "" || f.o.NodeEndpoint != ""
}

// Options reads the flags. Lines about calls go to w.
func (f *Flags) Options(w io.Writer) (Options, error) {
	o := f.o
	var err error
	if o.Parameters, err = parsePairs(f.params); err != nil {
		return o, fmt.Errorf("parameters: %w", err)
	}
	if o.OtherParameters, err = parsePairs(f.other); err != nil {
		return o, fmt.Errorf("other-parameters: %w", err)
	}
	if o.VolumeSize, err = parseSize(f.size); err != nil {
		return o, fmt.Errorf("size: %w", err)
	}
	if f.secrets != "" {
		data, err := os.ReadFile(f.secrets)
		if err != nil {
			return o, err
		}
		d := yaml.NewDecoder(bytes.NewReader(data))
		d.KnownFields(true)
		if err := d.Decode(&o.Secrets); err != nil {
			return o, fmt.Errorf("%s: %w", f.secrets, err)
		}
	}
	if f.only != "" {
		if o.Only, err = regexp.Compile(f.only); err != nil {
			return o, fmt.Errorf("only: %w", err)
		}
	}
	if f.pause != "" {
		o.Pause = func(ctx context.Context, point string) error {
			cmd := exec.CommandContext(ctx, f.pause, point)
			cmd.Stdout, cmd.Stderr = w, w
			return cmd.Run()
		}
	}
	if f.verbose {
		o.Log = func(format string, args ...any) { _, _ = fmt.Fprintf(w, format+"\n", args...) }
	}
	return o, nil
}

// parsePairs reads key=value,key=value; nothing is nil.
func parsePairs(s string) (map[string]string, error) {
	if s == "" {
		return nil, nil
	}
	m := map[string]string{}
	for pair := range strings.SplitSeq(s, ",") {
		k, v, ok := strings.Cut(pair, "=")
		if !ok || k == "" {
			return nil, fmt.Errorf("%q is not key=value", pair)
		}
		if _, twice := m[k]; twice {
			return nil, fmt.Errorf("%q is given twice", k)
		}
		m[k] = v
	}
	return m, nil
}

// parseSize reads a number of bytes with an optional Ki, Mi, Gi or Ti.
func parseSize(s string) (int64, error) {
	factor := int64(1)
	for i, unit := range []string{"Ki", "Mi", "Gi", "Ti"} {
		if number, ok := strings.CutSuffix(s, unit); ok {
			s, factor = number, int64(1)<<(10*(i+1))
			break
		}
	}
	n, err := strconv.ParseInt(s, 10, 64)
	if err != nil {
		return 0, err
	}
	if n <= 0 || n > math.MaxInt64/factor {
		return 0, errors.New("out of range")
	}
	return n * factor, nil
}
