package volume

import (
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/tarn-csi/tarn/pkg/fault"
	"github.com/tarn-csi/tarn/pkg/ident"
	"github.com/tarn-csi/tarn/pkg/zfs"
)

// params are the StorageClass parameters of a volume, checked and with their
// defaults filled in.
type params struct {
	Pool     string
	Protocol string
	// FSType is made on an iSCSI volume where a capability names none.
	FSType string
	Thin   bool
	// Full copies a content source's data, instead of sharing its blocks.
	Full bool
	// ZFS are native properties that the volume gets.
	ZFS map[string]string
	// Squash, AnonUID and AnonGID are how an NFS export maps users.
	Squash           string
	AnonUID, AnonGID uint32
	Root             zfs.Root
	// Ephemeral marks a volume that a node made for one pod, and destroys with it.
	Ephemeral bool
	// MountOptions apply where a capability has none.
	MountOptions string
}

// The defaults of the parameters. They are part of a volume's stored request:
// changing one makes the repeat of an older request incompatible.
const (
	defaultFSType       = "ext4"
	defaultVolBlockSize = 16 << 10
	defaultAnonID       = 65534 // nobody, exports(5)
	maxMountOptions     = 1 << 10
)

// The values of parameter cloneMode.
const (
	cloneLinked = "linked"
	cloneFull   = "full"
)

// zfsProperties is the allow-list of `zfs.<property>` parameters and what each
// may be set to. They are native properties that only change how data is
// stored, never where it is mounted, shared or counted.
var zfsProperties = map[string]struct {
	values   string
	protocol string // empty: both
	mutable  bool   // may change during a volume's life
}{
	"compression":    {values: `on|off|lz4|lzjb|zle|gzip(-[1-9])?|zstd(-([1-9]|1[0-9]))?|zstd-fast(-([1-9]|10|[2-9]0|100|500|1000))?`, mutable: true},
	"recordsize":     {values: `[1-9][0-9]*[KkMm]?`, protocol: NFS, mutable: true},
	"volblocksize":   {values: `[1-9][0-9]*[Kk]?`, protocol: ISCSI},
	"sync":           {values: `standard|always|disabled`, mutable: true},
	"logbias":        {values: `latency|throughput`, mutable: true},
	"atime":          {values: `on|off`, protocol: NFS, mutable: true},
	"xattr":          {values: `on|off|sa|dir`, protocol: NFS},
	"acltype":        {values: `off|noacl|posix|posixacl`, protocol: NFS},
	"copies":         {values: `[123]`, mutable: true},
	"dedup":          {values: `on|off|verify|sha256(,verify)?|sha512(,verify)?|skein(,verify)?|edonr,verify`, mutable: true},
	"primarycache":   {values: `all|none|metadata`, mutable: true},
	"secondarycache": {values: `all|none|metadata`, mutable: true},
	"checksum":       {values: `on|off|fletcher2|fletcher4|sha256|noparity|sha512|skein|edonr`, mutable: true},
}

var known = []string{
	"pool", "protocol", "fsType", "thin", "squash", "anonuid", "anongid",
	"mode", "uid", "gid", "mountOptions", "cloneMode",
}

// The keys by which a node that makes a volume for one pod says so, as the kubelet
// does to it. They are no parameters of a class: sidecars refuse them there.
const (
	ParamEphemeral    = "csi.storage.k8s.io/ephemeral"
	ParamPodName      = "csi.storage.k8s.io/pod.name"
	ParamPodNamespace = "csi.storage.k8s.io/pod.namespace"
)

// KnownParameters returns the names of every parameter, sorted.
func KnownParameters() []string {
	list := slices.Clone(known)
	for p := range zfsProperties {
		list = append(list, "zfs."+p)
	}
	slices.Sort(list)
	return list
}

// ignored reports the keys that orchestrators leave among the parameters: the
// names of secrets of the 0.2 generation, and the newer ones' own prefix.
func ignored(key string) bool {
	if strings.HasPrefix(key, "csi.storage.k8s.io/") {
		return true
	}
	switch key {
	case "csiProvisionerSecretName", "csiProvisionerSecretNamespace",
		"csiControllerPublishSecretName", "csiControllerPublishSecretNamespace",
		"csiNodeStageSecretName", "csiNodeStageSecretNamespace",
		"csiNodePublishSecretName", "csiNodePublishSecretNamespace":
		return true
	}
	return false
}

// parseParams checks the parameters. The default pool is the first of the
// configuration; the default protocol is the only one offered.
func (s *Service) parseParams(m map[string]string) (params, error) {
	p := params{
		Pool:   s.order[0],
		FSType: defaultFSType,
		Thin:   true,
		ZFS:    map[string]string{},
		Squash: "none", AnonUID: defaultAnonID, AnonGID: defaultAnonID,
		Root: zfs.Root{Mode: 0o755},
	}
	if offered := s.Protocols(); len(offered) == 1 {
		p.Protocol = offered[0]
	}
	for _, key := range slices.Sorted(maps.Keys(m)) {
		if ignored(key) && key != ParamEphemeral {
			continue
		}
		if err := p.set(key, m[key]); err != nil {
			return params{}, err
		}
	}
	if s.pools[p.Pool] == nil {
		return params{}, fault.New(fault.Invalid, "parameter pool: no pool %q is configured; there are %s", ident.Printable(p.Pool), strings.Join(s.order, ", "))
	}
	if s.cfg.Exporters[p.Protocol] == nil {
		return params{}, fault.New(fault.Invalid, "parameter protocol is %q; this driver serves %s", ident.Printable(p.Protocol), strings.Join(s.Protocols(), ", "))
	}
	return p, p.consistent(m)
}

func (p *params) set(key, value string) error {
	switch key {
	case "pool":
		p.Pool = value
	case "protocol":
		p.Protocol = value
	case "fsType":
		p.FSType = value
	case "thin":
		return parseBool(key, value, &p.Thin)
	case "cloneMode":
		if value != cloneLinked && value != cloneFull {
			return invalidParam(key, value, "linked or full")
		}
		p.Full = value == cloneFull
	case "squash":
		if value != "none" && value != "root" && value != "all" {
			return invalidParam(key, value, "none, root or all")
		}
		p.Squash = value
	case "anonuid":
		return parseID(key, value, &p.AnonUID)
	case "anongid":
		return parseID(key, value, &p.AnonGID)
	case "uid":
		return parseID(key, value, &p.Root.UID)
	case "gid":
		return parseID(key, value, &p.Root.GID)
	case "mode":
		n, err := strconv.ParseUint(value, 8, 32)
		if err != nil || n > 0o7777 {
			return invalidParam(key, value, "an octal mode such as 0775")
		}
		p.Root.Mode = uint32(n)
	case ParamEphemeral:
		return parseBool(key, value, &p.Ephemeral)
	case "mountOptions":
		if len(value) > maxMountOptions || strings.ContainsFunc(value, func(r rune) bool { return r < ' ' || r == 0x7f }) {
			return fault.New(fault.Invalid, "parameter mountOptions must be one line of at most %d bytes", maxMountOptions)
		}
		p.MountOptions = value
	default:
		return p.setZFS(key, value)
	}
	return nil
}

func (p *params) setZFS(key, value string) error {
	name, ok := strings.CutPrefix(key, "zfs.")
	rule, listed := zfsProperties[name]
	if !ok || !listed {
		return fault.New(fault.Invalid, "parameter %q is unknown; known are %s", ident.Printable(key), strings.Join(KnownParameters(), ", "))
	}
	if !regexp.MustCompile(`^(` + rule.values + `)$`).MatchString(value) {
		return invalidParam(key, value, "of the form "+rule.values)
	}
	p.ZFS[name] = value
	return nil
}

// consistent refuses parameters that contradict the protocol: taking them in
// silence would hide a mistake in the StorageClass.
func (p *params) consistent(given map[string]string) error {
	for name := range p.ZFS {
		if only := zfsProperties[name].protocol; only != "" && only != p.Protocol {
			return fault.New(fault.Invalid, "parameter zfs.%s is for protocol %s, and this volume's is %s", name, only, p.Protocol)
		}
	}
	var foreign []string
	if p.Protocol == NFS {
		foreign = []string{"fsType"}
		p.FSType = ""
	} else {
		foreign = []string{"squash", "anonuid", "anongid", "mode", "uid", "gid"}
		p.Squash, p.AnonUID, p.AnonGID, p.Root = "", 0, 0, zfs.Root{}
		if err := checkFSType(p.FSType); err != nil {
			return err
		}
		if _, ok := p.ZFS["volblocksize"]; !ok {
			p.ZFS["volblocksize"] = strconv.Itoa(defaultVolBlockSize)
		}
	}
	for _, key := range foreign {
		if _, ok := given[key]; ok {
			return fault.New(fault.Invalid, "parameter %s is of no use for protocol %s: leave it out", key, p.Protocol)
		}
	}
	return p.normalizeBlocks()
}

// normalizeBlocks checks block sizes and writes them as numbers of bytes, as
// ZFS shows them.
func (p *params) normalizeBlocks() error {
	for _, name := range []string{"recordsize", "volblocksize"} {
		if v, ok := p.ZFS[name]; ok {
			n, limit := parseBlockSize(v), int64(1<<20)
			if name == "volblocksize" {
				limit = 128 << 10
			}
			if n < 512 || n > limit || n&(n-1) != 0 {
				return invalidParam("zfs."+name, v, "a power of two from 512 to "+strconv.FormatInt(limit, 10))
			}
			p.ZFS[name] = strconv.FormatInt(n, 10)
		}
	}
	return nil
}

// parseBlockSize reads 16384, 16K or 1M; zero when it is none of them.
func parseBlockSize(s string) int64 {
	unit := int64(1)
	switch {
	case strings.HasSuffix(strings.ToUpper(s), "K"):
		unit, s = 1<<10, s[:len(s)-1]
	case strings.HasSuffix(strings.ToUpper(s), "M"):
		unit, s = 1<<20, s[:len(s)-1]
	}
	n, err := strconv.ParseInt(s, 10, 32)
	if err != nil {
		return 0
	}
	return n * unit
}

func invalidParam(key, value, want string) error {
	return fault.New(fault.Invalid, "parameter %s is %q; it must be %s", key, ident.Printable(value), want)
}

func parseBool(key, value string, to *bool) error {
	switch value {
	case "true":
		*to = true
	case "false":
		*to = false
	default:
		return invalidParam(key, value, "true or false")
	}
	return nil
}

func parseID(key, value string, to *uint32) error {
	n, err := strconv.ParseUint(value, 10, 32)
	if err != nil || n == 1<<32-1 { // (uid_t)-1 means "no change" to chown(2)
		return invalidParam(key, value, "a numeric id")
	}
	*to = uint32(n)
	return nil
}

// canonical is the form that is stored and compared, one entry a parameter.
func (p params) canonical() map[string]string {
	m := map[string]string{"pool": p.Pool, "protocol": p.Protocol, "thin": strconv.FormatBool(p.Thin)}
	if p.MountOptions != "" {
		m["mountOptions"] = p.MountOptions
	}
	// Not where it is the default: volumes are older than this parameter.
	if p.Full {
		m["cloneMode"] = cloneFull
	}
	if p.Ephemeral {
		m[ParamEphemeral] = "true"
	}
	for k, v := range p.ZFS {
		m["zfs."+k] = v
	}
	if p.Protocol == ISCSI {
		m["fsType"] = p.FSType
		return m
	}
	m["squash"] = p.Squash
	m["anonuid"] = strconv.FormatUint(uint64(p.AnonUID), 10)
	m["anongid"] = strconv.FormatUint(uint64(p.AnonGID), 10)
	m["uid"] = strconv.FormatUint(uint64(p.Root.UID), 10)
	m["gid"] = strconv.FormatUint(uint64(p.Root.GID), 10)
	m["mode"] = strconv.FormatUint(uint64(p.Root.Mode), 8)
	return m
}

// fromCanonical reads back what canonical wrote.
func fromCanonical(m map[string]string) (params, error) {
	p := params{ZFS: map[string]string{}}
	for key, value := range m {
		if err := p.set(key, value); err != nil {
			return params{}, err
		}
	}
	return p, nil
}

// context is what an orchestrator keeps and hands to every later call.
func (p params) context() map[string]string {
	m := map[string]string{"protocol": p.Protocol}
	if p.Protocol == ISCSI {
		m["fsType"] = p.FSType
	}
	if p.MountOptions != "" {
		m["mountOptions"] = p.MountOptions
	}
	if p.Ephemeral {
		m[ParamEphemeral] = "true"
	}
	return m
}
