// Package config reads the driver's configuration: a file, then flags above
// it, checked once and as a whole. What comes out is valid.
package config

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/sirupsen/logrus"
	"go.yaml.in/yaml/v3"

	"github.com/tarn-csi/tarn/pkg/chap"
	"github.com/tarn-csi/tarn/pkg/fault"
	"github.com/tarn-csi/tarn/pkg/ident"
)

// DefaultDriverName is frozen: it stands in every volume that an orchestrator
// keeps, and on every parent dataset.
const DefaultDriverName = "io.github.tarn-csi"

// The modes: which services a process serves.
const (
	All        = "all"
	Controller = "controller"
	Node       = "node"
)

// Config is a valid configuration. Its zero value is none.
type Config struct {
	// Endpoint is the socket: unix:///path or a plain path.
	Endpoint string `yaml:"endpoint"`
	// Mode is all, controller or node.
	Mode       string   `yaml:"mode"`
	DriverName string   `yaml:"driverName"`
	Protocols  []string `yaml:"protocols"`

	// NodeName and NodeAddresses make the node's id.
	NodeName      string   `yaml:"nodeName"`
	NodeAddresses []string `yaml:"nodeAddresses"`
	// NodeNetworks restricts which addresses a node id may have.
	NodeNetworks []string `yaml:"nodeNetworks"`
	// MaxVolumesPerNode is how many volumes an orchestrator may publish to a
	// node; zero leaves that to it.
	MaxVolumesPerNode int64 `yaml:"maxVolumesPerNode"`
	// Topology is where the node is: segments by key. On a controller it says
	// that nodes have segments.
	Topology map[string]string `yaml:"topology"`

	// Ephemeral is about volumes that stand in a pod's specification, which a node
	// on the storage host makes; ControllerEndpoint is the socket of the controller
	// that it asks then, in mode node.
	Ephemeral          Ephemeral `yaml:"ephemeral"`
	ControllerEndpoint string    `yaml:"controllerEndpoint"`

	Pools []Pool `yaml:"pools"`
	// PortalHints are addresses of storage hosts, for a node that is to find
	// its own address by the route to them.
	PortalHints []string `yaml:"portalHints"`

	// IQNPrefix and Instance begin every iSCSI name. They must be the same on
	// storage host and nodes.
	IQNPrefix string `yaml:"iqnPrefix"`
	Instance  string `yaml:"instance"`

	// MasterKeyFile holds the key from which all CHAP passwords derive;
	// NodeKeyFile one node's key.
	MasterKeyFile string `yaml:"masterKeyFile"`
	NodeKeyFile   string `yaml:"nodeKeyFile"`

	// HostRoot is where a container sees the host's root; empty outside one.
	HostRoot string `yaml:"hostRoot"`
	// StateDir holds stage records and CHAP pairs; RunDir lock files.
	StateDir string `yaml:"stateDir"`
	RunDir   string `yaml:"runDir"`

	// HTTPAddress is where metrics, health and the status page are served: a
	// literal address and a port. Empty serves them nowhere. Nothing there asks who
	// reads.
	HTTPAddress string `yaml:"httpAddress"`
	// OTLPEndpoint is the OpenTelemetry collector that gets traces, by OTLP over
	// gRPC: http://HOST:PORT or https://HOST:PORT. Empty makes none.
	OTLPEndpoint string `yaml:"otlpEndpoint"`
	// Events lets a controller that is a pod of a Kubernetes cluster tell of
	// conditions by events there.
	Events bool `yaml:"events"`

	// DeleteForeignSnapshots lets the driver destroy other tools' snapshots of a
	// deleted volume, if they have neither clones nor holds.
	DeleteForeignSnapshots bool `yaml:"deleteForeignSnapshots"`

	// OperationTimeout bounds a call that changes a pool or a kernel table.
	OperationTimeout time.Duration `yaml:"operationTimeout"`
	// ReconcileInterval is the pause between two looks at all exports, and on a
	// node at what is left of volumes that are not staged.
	ReconcileInterval time.Duration `yaml:"reconcileInterval"`
	// ISCSIOutage is how long a node holds the I/O of a disk whose target is away
	// before it gives errors; it holds for sessions that begin from then on.
	ISCSIOutage time.Duration `yaml:"iscsiOutage"`

	LogLevel  string `yaml:"logLevel"`
	LogFormat string `yaml:"logFormat"`
}

// Pool is one pool.
type Pool struct {
	// Name is the pool's name in volume ids and parameters.
	Name string `yaml:"name"`
	// Parent is the dataset under which volumes are made.
	Parent string `yaml:"parent"`
	// Addresses are where this host serves the pool, the first one first.
	Addresses []string `yaml:"addresses"`
	// ISCSIPort is the port of the iSCSI portals.
	ISCSIPort uint16 `yaml:"iscsiPort"`
	// CHAP is derived, secrets or none.
	CHAP chap.Mode `yaml:"chap"`
}

// Ephemeral is what a node allows pods' authors.
type Ephemeral struct {
	// Pool is the name of the pool in which volumes are made. Empty makes none.
	Pool string `yaml:"pool"`
	// DefaultBytes is the size of a volume for which none is asked, MaxBytes the
	// largest that may be.
	DefaultBytes int64 `yaml:"defaultBytes"`
	MaxBytes     int64 `yaml:"maxBytes"`
	// MaxVolumes is how many the node has at once.
	MaxVolumes int64 `yaml:"maxVolumes"`
}

// Default returns the configuration that holds where nothing else is said.
func Default() Config {
	return Config{
		Endpoint:   "unix:///run/tarn/csi.sock",
		Mode:       All,
		DriverName: DefaultDriverName,

		ControllerEndpoint: "unix:///run/tarn/csi.sock",

		Events:            true,
		Protocols:         []string{"nfs", "iscsi"},
		Ephemeral:         Ephemeral{DefaultBytes: 1 << 30, MaxBytes: 10 << 30, MaxVolumes: 20},
		StateDir:          "/var/lib/tarn",
		RunDir:            "/run/tarn",
		OperationTimeout:  2 * time.Minute,
		ReconcileInterval: time.Minute,
		ISCSIOutage:       2 * time.Minute,
		LogLevel:          "info",
		LogFormat:         "text",
	}
}

// Read lays a file over c. An unknown key is an error that names its line, and
// so is a second document, which would be ignored.
func (c *Config) Read(path string) error {
	raw, err := os.ReadFile(path)
	if err != nil {
		return fmt.Errorf("read configuration: %w", err)
	}
	decoder := yaml.NewDecoder(bytes.NewReader(raw))
	decoder.KnownFields(true)
	if err := decoder.Decode(c); err != nil && !errors.Is(err, io.EOF) {
		return fmt.Errorf("%s: %w", path, err)
	}
	if err := decoder.Decode(&yaml.Node{}); !errors.Is(err, io.EOF) {
		return fmt.Errorf("%s: more than one YAML document: put all settings into the first", path)
	}
	return nil
}

var (
	domain        = regexp.MustCompile(`^([a-z0-9]([a-z0-9-]*[a-z0-9])?\.)+[a-z0-9]([a-z0-9-]*[a-z0-9])?$`)
	letterAtEnds  = regexp.MustCompile(`^[a-z].*[a-z]$`)
	parentPattern = regexp.MustCompile(`^[A-Za-z][A-Za-z0-9_.:-]*(/[A-Za-z0-9_.:][A-Za-z0-9_.: -]*)+$`)
)

// maxParent leaves room below 255 bytes, the longest dataset name
// (ZFS_MAX_DATASET_NAME_LEN), for a volume and its tombstone with a snapshot.
const maxParent = 80

// Complete fills in what derives from other settings and checks everything.
// The error names the setting, what it is and what it may be.
func (c *Config) Complete() error {
	if !slices.Contains([]string{All, Controller, Node}, c.Mode) {
		return bad("mode", c.Mode, "all, controller or node")
	}
	// The letters at the ends are csi.v0's wish, the lower case is Kubernetes'.
	if len(c.DriverName) > 63 || !domain.MatchString(c.DriverName) || !letterAtEnds.MatchString(c.DriverName) {
		return bad("driverName", c.DriverName, "a reversed domain of at most 63 lower-case letters, digits, '-' and '.', with a letter at both ends")
	}
	if len(c.Protocols) == 0 {
		return bad("protocols", "", "nfs, iscsi or both")
	}
	for _, p := range c.Protocols {
		if p != "nfs" && p != "iscsi" {
			return bad("protocols", p, "nfs, iscsi or both")
		}
	}
	if _, err := SocketPath(c.Endpoint); err != nil {
		return err
	}
	if err := c.completeHTTP(); err != nil {
		return err
	}
	if u, err := url.Parse(c.OTLPEndpoint); c.OTLPEndpoint != "" &&
		(err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Port() == "" || strings.Trim(u.Path, "/") != "" || u.User != nil || u.RawQuery != "") {
		return bad("otlpEndpoint", c.OTLPEndpoint, "http://HOST:PORT or https://HOST:PORT, such as http://127.0.0.1:4317")
	}
	// fatal and panic are words of logrus', and would hide every error.
	if level, err := logrus.ParseLevel(c.LogLevel); err != nil || level < logrus.ErrorLevel {
		return bad("logLevel", c.LogLevel, "debug, info, warning or error")
	}
	if c.LogFormat != "text" && c.LogFormat != "json" {
		return bad("logFormat", c.LogFormat, "text or json")
	}
	if c.OperationTimeout < time.Second || c.OperationTimeout > time.Hour {
		return bad("operationTimeout", c.OperationTimeout.String(), "from 1s to 1h")
	}
	if c.ReconcileInterval < time.Second || c.ReconcileInterval > 24*time.Hour {
		return bad("reconcileInterval", c.ReconcileInterval.String(), "from 1s to 24h")
	}
	// open-iscsi counts in seconds.
	if c.ISCSIOutage < time.Second || c.ISCSIOutage > 24*time.Hour || c.ISCSIOutage%time.Second != 0 {
		return bad("iscsiOutage", c.ISCSIOutage.String(), "whole seconds, from 1s to 24h")
	}
	if c.IQNPrefix == "" {
		c.IQNPrefix = "iqn.2026-01." + c.DriverName
	}
	if c.Instance == "" {
		c.Instance = "tarn"
	}
	if c.MasterKeyFile == "" {
		c.MasterKeyFile = filepath.Join(c.StateDir, "master.key")
	}
	if c.NodeKeyFile == "" {
		c.NodeKeyFile = filepath.Join(c.StateDir, "node.key")
	}
	for _, path := range []struct{ name, value string }{
		{"stateDir", c.StateDir}, {"runDir", c.RunDir}, {"masterKeyFile", c.MasterKeyFile}, {"nodeKeyFile", c.NodeKeyFile}, {"hostRoot", c.HostRoot},
	} {
		if !filepath.IsAbs(path.value) && (path.name != "hostRoot" || path.value != "") {
			return bad(path.name, path.value, "an absolute path")
		}
	}
	if _, err := c.Naming(); err != nil {
		return fmt.Errorf("iqnPrefix, instance: %w", err)
	}
	if _, err := c.Networks(); err != nil {
		return err
	}
	if c.MaxVolumesPerNode < 0 {
		return bad("maxVolumesPerNode", strconv.FormatInt(c.MaxVolumesPerNode, 10), "a number of volumes, or 0 for no limit")
	}
	if err := checkTopology(c.Topology); err != nil {
		return err
	}
	if err := c.completePools(); err != nil {
		return err
	}
	if err := c.checkEphemeral(); err != nil {
		return err
	}
	return c.completeNode()
}

// The bounds of a volume's size, as everywhere.
const (
	minBytes = 1 << 20
	maxBytes = 1 << 50
)

func (c *Config) checkEphemeral() error {
	if _, err := SocketPath(c.ControllerEndpoint); err != nil {
		return fmt.Errorf("controllerEndpoint: %w", err)
	}
	e := c.Ephemeral
	known := func(p Pool) bool { return p.Name == e.Pool }
	switch {
	case e.MaxBytes < minBytes || e.MaxBytes > maxBytes:
		return bad("ephemeral.maxBytes", strconv.FormatInt(e.MaxBytes, 10), fmt.Sprintf("from %d to %d bytes", minBytes, int64(maxBytes)))
	case e.DefaultBytes < minBytes || e.DefaultBytes > e.MaxBytes:
		return bad("ephemeral.defaultBytes", strconv.FormatInt(e.DefaultBytes, 10), fmt.Sprintf("from %d bytes to ephemeral.maxBytes (%d)", minBytes, e.MaxBytes))
	case e.MaxVolumes < 1:
		return bad("ephemeral.maxVolumes", strconv.FormatInt(e.MaxVolumes, 10), "a number of volumes; none are made without ephemeral.pool")
	case e.Pool != "" && !ident.ValidPool(e.Pool):
		return bad("ephemeral.pool", e.Pool, "the name of a pool in the controller's configuration")
	case e.Pool != "" && c.Mode == All && !slices.ContainsFunc(c.Pools, known):
		return bad("ephemeral.pool", e.Pool, "the name of a configured pool")
	}
	return nil
}

// completeHTTP makes of a port alone that port of the loopback address: who wants
// others to read says so.
func (c *Config) completeHTTP() error {
	if c.HTTPAddress == "" {
		return nil
	}
	address := c.HTTPAddress
	if !strings.Contains(address, ":") {
		address = "127.0.0.1:" + address
	}
	host, port, err := net.SplitHostPort(address)
	_, portErr := strconv.ParseUint(port, 10, 16)
	if err == nil && host != "" {
		_, err = netip.ParseAddr(host)
	}
	if err != nil || portErr != nil {
		return bad("httpAddress", c.HTTPAddress, "a port of the loopback address, such as 9805, or ADDRESS:PORT with a literal address; :9805 is every address of this host")
	}
	c.HTTPAddress = address
	return nil
}

func (c *Config) completePools() error {
	if c.Mode != Node && len(c.Pools) == 0 {
		return fault.New(fault.Invalid, "no pool is configured: give --pool NAME=PARENT and --address, or a file with pools")
	}
	for i := range c.Pools {
		p := &c.Pools[i]
		if !ident.ValidPool(p.Name) {
			return bad("pools.name", p.Name, fmt.Sprintf("at most %d lower-case letters, digits, '-' and '_', with no '-' or '_' at the ends", ident.MaxPoolName))
		}
		if len(p.Parent) > maxParent || !parentPattern.MatchString(p.Parent) || slices.ContainsFunc(strings.Split(p.Parent, "/"), dots) {
			return bad("pools.parent", p.Parent, fmt.Sprintf("a dataset below a pool, such as tank/csi, of at most %d bytes", maxParent))
		}
		for _, other := range c.Pools[:i] {
			if other.Name == p.Name {
				return fault.New(fault.Invalid, "pools.name %q is given twice; each pool must have its own", p.Name)
			}
			if within(p.Parent, other.Parent) || within(other.Parent, p.Parent) {
				return fault.New(fault.Invalid, "pools.parent %q and %q are one within the other; each pool must have its own", other.Parent, p.Parent)
			}
		}
		if len(p.Addresses) == 0 {
			return fault.New(fault.Invalid, "pools.addresses of %q is empty; it must be the addresses at which the pool is served (--address)", p.Name)
		}
		for _, a := range p.Addresses {
			if _, err := ident.ParseAddress(a); err != nil {
				return fmt.Errorf("pools.addresses of %q: %w", p.Name, err)
			}
		}
		if p.ISCSIPort == 0 {
			p.ISCSIPort = 3260
		}
		if p.CHAP == "" {
			p.CHAP = chap.Derived
		}
		if !p.CHAP.Valid() {
			return bad("pools.chap", string(p.CHAP), "derived, secrets or none")
		}
	}
	return nil
}

func (c *Config) completeNode() error {
	if c.Mode == Controller {
		return nil
	}
	if c.NodeName == "" {
		host, err := os.Hostname()
		if err != nil {
			return fmt.Errorf("the host name is needed as node name: %w", err)
		}
		c.NodeName = host
	}
	if _, err := ident.NodeName(c.NodeName); err != nil {
		return fmt.Errorf("nodeName: %w", err)
	}
	for _, a := range c.NodeAddresses {
		if _, err := ident.ParseAddress(a); err != nil {
			return fmt.Errorf("nodeAddresses: %w", err)
		}
	}
	for _, a := range c.PortalHints {
		if _, err := ident.ParseAddress(a); err != nil {
			return fmt.Errorf("portalHints (--address): %w", err)
		}
	}
	return nil
}

// dots reports whether a component of a dataset's name is one that ZFS refuses.
func dots(component string) bool {
	return strings.Trim(component, ".") == "" || strings.Contains(component, "..")
}

// within reports whether a dataset is another, or below it.
func within(dataset, parent string) bool { return strings.HasPrefix(dataset+"/", parent+"/") }

func bad(setting, value, want string) error {
	return fault.New(fault.Invalid, "%s is %q; it must be %s", setting, value, want)
}

// Naming returns the naming of iSCSI targets and initiators.
func (c *Config) Naming() (ident.Naming, error) { return ident.NewNaming(c.IQNPrefix, c.Instance) }

// Networks returns NodeNetworks as prefixes.
func (c *Config) Networks() ([]netip.Prefix, error) {
	var list []netip.Prefix
	for _, s := range c.NodeNetworks {
		p, err := netip.ParsePrefix(s)
		if err != nil || p.Masked() != p {
			return nil, bad("nodeNetworks", s, "a network such as 192.0.2.0/24")
		}
		list = append(list, p)
	}
	return list, nil
}

// SocketPath reads an endpoint: unix:///path, unix:/path or a plain path.
func SocketPath(endpoint string) (string, error) {
	path := strings.TrimPrefix(strings.TrimPrefix(endpoint, "unix:"), "//")
	const maxSocketPath = 107 // sun_path with its final zero, unix(7)
	if !filepath.IsAbs(path) || len(path) > maxSocketPath || filepath.Clean(path) == "/" || strings.ContainsRune(path, 0) {
		return "", bad("endpoint", endpoint, fmt.Sprintf("unix:///PATH with an absolute path of at most %d bytes", maxSocketPath))
	}
	return filepath.Clean(path), nil
}

// Serves reports whether a protocol is offered.
func (c *Config) Serves(protocol string) bool { return slices.Contains(c.Protocols, protocol) }

// NeedsCHAPKey reports whether passwords are derived for some pool.
func (c *Config) NeedsCHAPKey() bool {
	return c.Serves("iscsi") && slices.ContainsFunc(c.Pools, func(p Pool) bool { return p.CHAP == chap.Derived })
}
