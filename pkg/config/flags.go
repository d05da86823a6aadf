package config

import (
	"os"
	"strings"

	"github.com/spf13/pflag"

	"github.com/tarn-csi/tarn/pkg/chap"
	"github.com/tarn-csi/tarn/pkg/fault"
)

// endpointVariable is how an orchestrator tells where it wants the socket. It
// wins over the file, which is the same for all, and not over a flag.
const endpointVariable = "CSI_ENDPOINT"

// Flags are the command line's settings. Those that were given win over the
// file's.
type Flags struct {
	file      string
	pools     []string
	addresses []string
	chapMode  string
	values    Config
	set       *pflag.FlagSet
}

// Bind adds the flags to a set.
func Bind(set *pflag.FlagSet) *Flags {
	f := &Flags{values: Default(), set: set}
	v := &f.values
	set.StringVar(&f.file, "config", "", "configuration file (YAML)")
	set.StringVar(&v.Endpoint, "endpoint", v.Endpoint, "socket to serve on; "+endpointVariable+" is the same")
	set.StringVar(&v.Mode, "mode", v.Mode, "services to serve: all, controller or node")
	set.StringVar(&v.DriverName, "driver-name", v.DriverName, "name of the driver, and owner of the parent datasets")
	set.StringSliceVar(&v.Protocols, "protocols", v.Protocols, "protocols to offer: nfs, iscsi")
	set.StringVar(&v.NodeName, "node-name", v.NodeName, "name of this node (default: the host name)")
	set.StringSliceVar(&v.NodeAddresses, "node-address", nil, "address from which this node comes; repeatable (default: the source address of the route to the portal)")
	set.StringSliceVar(&v.NodeNetworks, "node-network", nil, "network that node addresses must be in; repeatable")
	set.Int64Var(&v.MaxVolumesPerNode, "max-volumes-per-node", 0, "how many volumes may be published to a node; 0 leaves that to the orchestrator")
	set.StringToStringVar(&v.Topology, "topology", nil, "segment in which this node is, as KEY=VALUE; repeatable")
	set.StringVar(&v.ControllerEndpoint, "controller-endpoint", v.ControllerEndpoint, "socket of the controller that a node on the storage host asks for ephemeral volumes")
	set.StringVar(&v.Ephemeral.Pool, "ephemeral-pool", "", "pool in which ephemeral volumes of pods are made (default: none are)")
	set.Int64Var(&v.Ephemeral.DefaultBytes, "ephemeral-default-bytes", v.Ephemeral.DefaultBytes, "size of an ephemeral volume for which none is asked")
	set.Int64Var(&v.Ephemeral.MaxBytes, "ephemeral-max-bytes", v.Ephemeral.MaxBytes, "largest size of an ephemeral volume")
	set.Int64Var(&v.Ephemeral.MaxVolumes, "ephemeral-max-volumes", v.Ephemeral.MaxVolumes, "how many ephemeral volumes this node has at once")
	set.StringSliceVar(&f.pools, "pool", nil, "pool as NAME=PARENT, such as tank=tank/csi; repeatable")
	set.StringSliceVar(&f.addresses, "address", nil, "address at which the pools of --pool are served; on a node, the storage host's; repeatable")
	set.StringVar(&f.chapMode, "chap", string(chap.Derived), "CHAP mode of the pools of --pool: derived, secrets or none")
	set.StringVar(&v.IQNPrefix, "iqn-prefix", v.IQNPrefix, "begin of iSCSI names (default: iqn.2026-01. and the driver name)")
	set.StringVar(&v.Instance, "instance", v.Instance, "name that tells several Tarn instances apart (default: tarn)")
	set.StringVar(&v.MasterKeyFile, "master-key-file", v.MasterKeyFile, "file of the CHAP master key (default: master.key in the state directory)")
	set.StringVar(&v.NodeKeyFile, "node-key-file", v.NodeKeyFile, "file of this node's CHAP key (default: node.key in the state directory)")
	set.StringVar(&v.HostRoot, "host-root", v.HostRoot, "where a container sees the host's root")
	set.StringVar(&v.StateDir, "state-dir", v.StateDir, "directory for stage records and CHAP pairs")
	set.StringVar(&v.RunDir, "run-dir", v.RunDir, "directory for lock files")
	set.StringVar(&v.HTTPAddress, "http-address", v.HTTPAddress, "port of the loopback address, or ADDRESS:PORT, for metrics, health and the status page (default: none)")
	set.StringVar(&v.OTLPEndpoint, "otlp-endpoint", v.OTLPEndpoint, "OpenTelemetry collector for traces, as http://HOST:PORT (default: none)")
	set.BoolVar(&v.Events, "events", v.Events, "tell users of a Kubernetes cluster by events of conditions on which somebody must act, where this is a pod that may")
	set.BoolVar(&v.DeleteForeignSnapshots, "delete-foreign-snapshots", false, "destroy other tools' snapshots of deleted volumes, if nothing needs them")
	set.DurationVar(&v.OperationTimeout, "operation-timeout", v.OperationTimeout, "limit of a call that changes a pool or a kernel table")
	set.DurationVar(&v.ReconcileInterval, "reconcile-interval", v.ReconcileInterval, "pause between two looks at all exports, or at what is left on a node")
	set.DurationVar(&v.ISCSIOutage, "iscsi-outage", v.ISCSIOutage, "how long a node's disks wait for a target that is away, before they give errors")
	set.StringVar(&v.LogLevel, "log-level", v.LogLevel, "debug, info, warning or error")
	set.StringVar(&v.LogFormat, "log-format", v.LogFormat, "text or json")
	return f
}

// Load returns the valid configuration of file and flags.
func (f *Flags) Load() (Config, error) {
	c := Default()
	if f.file != "" {
		if err := c.Read(f.file); err != nil {
			return Config{}, err
		}
	}
	if e := os.Getenv(endpointVariable); e != "" {
		c.Endpoint = e
	}
	if err := f.overlay(&c); err != nil {
		return Config{}, err
	}
	return c, c.Complete()
}

// overlay copies the flags that were given.
func (f *Flags) overlay(c *Config) error {
	v := f.values
	for name, apply := range map[string]func(){
		"endpoint":                 func() { c.Endpoint = v.Endpoint },
		"mode":                     func() { c.Mode = v.Mode },
		"driver-name":              func() { c.DriverName = v.DriverName },
		"protocols":                func() { c.Protocols = v.Protocols },
		"node-name":                func() { c.NodeName = v.NodeName },
		"node-address":             func() { c.NodeAddresses = v.NodeAddresses },
		"node-network":             func() { c.NodeNetworks = v.NodeNetworks },
		"max-volumes-per-node":     func() { c.MaxVolumesPerNode = v.MaxVolumesPerNode },
		"topology":                 func() { c.Topology = v.Topology },
		"controller-endpoint":      func() { c.ControllerEndpoint = v.ControllerEndpoint },
		"ephemeral-pool":           func() { c.Ephemeral.Pool = v.Ephemeral.Pool },
		"ephemeral-default-bytes":  func() { c.Ephemeral.DefaultBytes = v.Ephemeral.DefaultBytes },
		"ephemeral-max-bytes":      func() { c.Ephemeral.MaxBytes = v.Ephemeral.MaxBytes },
		"ephemeral-max-volumes":    func() { c.Ephemeral.MaxVolumes = v.Ephemeral.MaxVolumes },
		"iqn-prefix":               func() { c.IQNPrefix = v.IQNPrefix },
		"instance":                 func() { c.Instance = v.Instance },
		"master-key-file":          func() { c.MasterKeyFile = v.MasterKeyFile },
		"node-key-file":            func() { c.NodeKeyFile = v.NodeKeyFile },
		"host-root":                func() { c.HostRoot = v.HostRoot },
		"state-dir":                func() { c.StateDir = v.StateDir },
		"run-dir":                  func() { c.RunDir = v.RunDir },
		"http-address":             func() { c.HTTPAddress = v.HTTPAddress },
		"otlp-endpoint":            func() { c.OTLPEndpoint = v.OTLPEndpoint },
		"events":                   func() { c.Events = v.Events },
		"delete-foreign-snapshots": func() { c.DeleteForeignSnapshots = v.DeleteForeignSnapshots },
		"operation-timeout":        func() { c.OperationTimeout = v.OperationTimeout },
		"reconcile-interval":       func() { c.ReconcileInterval = v.ReconcileInterval },
		"iscsi-outage":             func() { c.ISCSIOutage = v.ISCSIOutage },
		"log-level":                func() { c.LogLevel = v.LogLevel },
		"log-format":               func() { c.LogFormat = v.LogFormat },
	} {
		if f.set.Changed(name) {
			apply()
		}
	}
	if len(f.pools) > 0 && len(c.Pools) > 0 {
		return fault.New(fault.Invalid, "pools are given by --pool and by the file: use one of them")
	}
	for _, p := range f.pools {
		name, parent, ok := strings.Cut(p, "=")
		if !ok {
			return fault.New(fault.Invalid, "--pool is %q; it must be NAME=PARENT, such as tank=tank/csi", p)
		}
		c.Pools = append(c.Pools, Pool{Name: name, Parent: parent, Addresses: f.addresses, CHAP: chap.Mode(f.chapMode)})
	}
	if c.Mode == Node && len(f.addresses) > 0 {
		c.PortalHints = f.addresses
	} else if len(f.addresses) > 0 && len(f.pools) == 0 {
		return fault.New(fault.Invalid, "--address belongs to --pool; in a file each pool has its addresses")
	}
	if f.set.Changed("chap") && len(f.pools) == 0 {
		return fault.New(fault.Invalid, "--chap belongs to --pool; in a file each pool has its mode")
	}
	return nil
}
