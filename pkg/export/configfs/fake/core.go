package fake

import (
	"fmt"
	"strconv"
	"strings"
	"syscall"
)

// Device is a block device.
type Device struct {
	Path         string
	Major, Minor uint32
	SizeBytes    int64

	claimed bool // opened with FMODE_EXCL by a backstore
}

// backstore is an iblock device, drivers/target/target_core_iblock.c.
type backstore struct {
	node      *node
	path      string // udev_path= of control
	serial    string
	device    *Device // set when enabled
	exports   int     // LUNs that map it
	attribute map[string]*string
}

// newSubsystem is the directory target.
func (f *FS) newSubsystem(root *node) *node {
	t := newGroup(root, "target")
	t.builtin = true
	t.constants(map[string]string{"version": "Target Engine Core ConfigFS Infrastructure v5.0 on Linux/x86_64\n"})
	core := t.group("core")
	core.group("alua")
	core.mkdir = func(name string) (*node, error) { return f.newHBA(core, name) }
	t.mkdir = func(name string) (*node, error) {
		if name != "iscsi" {
			return nil, syscall.EINVAL // no such fabric module
		}
		return f.newFabric(t), nil
	}
	return t
}

// newHBA is target_core_call_addhbatotarget: PLUGIN_NUMBER.
func (f *FS) newHBA(core *node, name string) (*node, error) {
	plugin, number, ok := strings.Cut(name, "_")
	if !ok || plugin != "iblock" {
		return nil, syscall.EINVAL
	}
	if err := unsigned(number, 32); err != nil {
		return nil, err
	}
	h := newGroup(core, name)
	h.constants(map[string]string{
		"hba_info": "HBA Index: 1 plugin: iblock version: v5.0\n",
		"hba_mode": "0\n",
	})
	h.mkdir = func(name string) (*node, error) { return f.newBackstore(h, name), nil }
	return h, nil
}

func (f *FS) newBackstore(hba *node, name string) *node {
	n := newGroup(hba, name)
	b := &backstore{node: n, attribute: map[string]*string{}}
	n.item = b
	n.attribute("control", nil, b.control)
	n.attribute("enable", func() string { return boolText(b.device != nil) }, func(s string) error { return f.enable(b, s) })
	n.attribute("info", b.info, nil)
	udev, alias := "", ""
	n.attribute("udev_path", func() string { return udev }, func(s string) error {
		if len(s) > 511 { // SE_UDEV_PATH_LEN
			return syscall.EINVAL
		}
		udev = s
		return nil
	})
	n.attribute("alias", func() string { return alias }, func(s string) error { alias = s; return nil })

	attrib := n.group("attrib")
	tpu := "0\n"
	attrib.attribute("emulate_tpu", func() string { return tpu }, func(s string) error {
		v, err := boolean(s)
		if err != nil {
			return err
		}
		if v == "1\n" && b.device == nil {
			return syscall.ENOSYS // no queue yet that could discard
		}
		tpu = v
		return nil
	})
	block := "512\n"
	attrib.attribute("block_size", func() string { return block }, func(string) error { return syscall.EINVAL })
	wwn := n.group("wwn")
	wwn.attribute("vpd_unit_serial",
		func() string { return "T10 VPD Unit Serial Number: " + b.serial + "\n" }, b.setSerial)
	n.group("alua").group("default_tg_pt_gp")
	n.group("pr")
	n.group("statistics")
	n.drop = func() {
		if b.device != nil {
			b.device.claimed = false
		}
	}
	return n
}

// control is iblock_set_configfs_dev_params: unknown words are passed over.
func (b *backstore) control(value string) error {
	for word := range strings.FieldsFuncSeq(value, func(r rune) bool { return r == ',' || r == '\n' }) {
		p, ok := strings.CutPrefix(word, "udev_path=")
		if !ok {
			continue
		}
		if b.device != nil {
			return syscall.EEXIST
		}
		b.path = p
	}
	return nil
}

// enable is target_dev_enable_store: anything with a 1 in it.
func (f *FS) enable(b *backstore, value string) error {
	if !strings.Contains(value, "1") {
		return syscall.EINVAL
	}
	if b.device != nil {
		return syscall.EEXIST
	}
	if b.path == "" {
		return syscall.EINVAL
	}
	d := f.devices[b.path]
	if d == nil {
		return syscall.ENOENT
	}
	if d.claimed {
		return syscall.EBUSY
	}
	d.claimed = true
	b.device = d
	return nil
}

func (b *backstore) info() string {
	status := "DEACTIVATED"
	line := "Major: 0 Minor: 0"
	if b.device != nil {
		status = "ACTIVATED"
		line = fmt.Sprintf("Major: %d Minor: %d  CLAIMED: IBLOCK", b.device.Major, b.device.Minor)
	}
	return fmt.Sprintf("Status: %s  Max Queue Depth: 128  SectorSize: 512  HwMaxSectors: 2048\n"+
		"        iBlock device:   UDEV PATH: %s  readonly: 0\n        %s\n", status, b.path, line)
}

func (b *backstore) setSerial(value string) error {
	if len(value) >= 254 { // INQUIRY_VPD_SERIAL_LEN
		return syscall.EOVERFLOW
	}
	if b.exports > 0 {
		return syscall.EINVAL
	}
	b.serial = strings.TrimSpace(value)
	return nil
}

// boolean is kstrtobool.
func boolean(s string) (string, error) {
	switch {
	case s == "":
	case strings.ContainsRune("1yYtT", rune(s[0])), len(s) > 1 && (s[:2] == "on" || s[:2] == "ON" || s[:2] == "On"):
		return "1\n", nil
	case strings.ContainsRune("0nNfF", rune(s[0])), len(s) > 1 && strings.EqualFold(s[:2], "of"):
		return "0\n", nil
	}
	return "", syscall.EINVAL
}

// zeroOrOne is a number that must be 0 or 1.
func zeroOrOne(s string) (string, error) {
	v, err := strconv.ParseUint(s, 0, 64)
	if err != nil || v > 1 {
		return "", syscall.EINVAL
	}
	return strconv.FormatUint(v, 10) + "\n", nil
}

// unsigned is kstrtoul for a number of so many bits.
func unsigned(s string, bits int) error {
	_, err := strconv.ParseUint(s, 0, 64)
	if err != nil {
		return syscall.EINVAL
	}
	if _, err := strconv.ParseUint(s, 0, bits); err != nil {
		return syscall.ERANGE
	}
	return nil
}

func boolText(b bool) string {
	if b {
		return "1\n"
	}
	return "0\n"
}
