package configfs_test

import (
	"fmt"
	"strings"
	"syscall"
)

var backstoreRules = []rule{
	{"HBA of an unknown plugin", func(r *rig) error { return r.fs.Mkdir("target/core/noplugin_1") }, syscall.EINVAL},
	{"HBA without a number", func(r *rig) error { return r.fs.Mkdir("target/core/iblock_x") }, syscall.EINVAL},
	{"HBA without an underscore", func(r *rig) error { return r.fs.Mkdir("target/core/iblock") }, syscall.EINVAL},
	{"HBA with a backstore cannot be removed", func(r *rig) error {
		r.enabled()
		return r.fs.Rmdir(hba)
	}, syscall.ENOTEMPTY},
	{"backstore of a long name", func(r *rig) error {
		r.must(r.fs.Mkdir(hba))
		return r.fs.Mkdir(hba + "/" + strings.Repeat("b", 200))
	}, nil},
	{"enable before the device is named", func(r *rig) error {
		r.must(r.fs.Mkdir(hba), r.fs.Mkdir(back))
		return r.fs.Write(back+"/enable", "1")
	}, syscall.EINVAL},
	{"enable with udev_path alone", func(r *rig) error {
		r.must(r.fs.Mkdir(hba), r.fs.Mkdir(back), r.fs.Write(back+"/udev_path", r.devices[0]))
		return r.fs.Write(back+"/enable", "1")
	}, syscall.EINVAL},
	{"enable with control alone", func(r *rig) error {
		r.must(r.fs.Mkdir(hba), r.fs.Mkdir(back), r.fs.Write(back+"/control", "udev_path="+r.devices[0]))
		return r.fs.Write(back+"/enable", "1")
	}, nil},
	{"enable on a device that does not exist", func(r *rig) error {
		r.backstore(back, "/dev/no-such-device")
		return r.fs.Write(back+"/enable", "1")
	}, syscall.ENOENT},
	{"enable on a device that another backstore has", func(r *rig) error {
		r.enabled()
		r.backstore(back2, r.devices[0])
		return r.fs.Write(back2+"/enable", "1")
	}, syscall.EBUSY},
	{"enable on another device", func(r *rig) error {
		r.enabled()
		r.backstore(back2, r.devices[1])
		return r.fs.Write(back2+"/enable", "1")
	}, nil},
	{"enable after the first backstore of the device was removed", func(r *rig) error {
		r.enabled()
		r.must(r.fs.Rmdir(back))
		r.backstore(back2, r.devices[0])
		return r.fs.Write(back2+"/enable", "1")
	}, nil},
	{"enable twice", func(r *rig) error {
		r.enabled()
		return r.fs.Write(back+"/enable", "1")
	}, syscall.EEXIST},
	{"0 into enable", func(r *rig) error {
		r.enabled()
		return r.fs.Write(back+"/enable", "0")
	}, syscall.EINVAL},
	{"enable tells", func(r *rig) error {
		r.backstore(back, r.devices[0])
		if err := r.expect(back+"/enable", "0"); err != nil {
			return err
		}
		r.must(r.fs.Write(back+"/enable", "1"))
		return r.expect(back+"/enable", "1")
	}, nil},
	{"the device may be named twice before enable", func(r *rig) error {
		r.backstore(back, "/dev/no-such-device")
		r.must(r.fs.Write(back+"/control", "udev_path="+r.devices[0]))
		return r.fs.Write(back+"/enable", "1")
	}, nil},
	{"the device cannot be changed after enable", func(r *rig) error {
		r.enabled()
		return r.fs.Write(back+"/control", "udev_path="+r.devices[1])
	}, syscall.EEXIST},
	{"an unknown word for control is passed over", func(r *rig) error {
		r.backstore(back, r.devices[0])
		return r.fs.Write(back+"/control", "nonsense=1")
	}, nil},
	{"a comma in control ends the path", func(r *rig) error {
		r.backstore(back, r.devices[0])
		r.must(r.fs.Write(back+"/control", "udev_path="+r.devices[0]+",nonsense"))
		return r.fs.Write(back+"/enable", "1")
	}, nil},
	{"udev_path can be changed after enable and proves nothing", func(r *rig) error {
		r.enabled()
		return r.fs.Write(back+"/udev_path", r.devices[1])
	}, nil},
	{"udev_path over 511 bytes", func(r *rig) error {
		r.enabled()
		return r.fs.Write(back+"/udev_path", "/dev/"+strings.Repeat("x", 507))
	}, syscall.EINVAL},
	{"info names the device that is open", func(r *rig) error {
		r.backstore(back, r.devices[0])
		before := r.value(back + "/info")
		r.must(r.fs.Write(back+"/enable", "1"))
		after := r.value(back + "/info")
		if !strings.Contains(before, "\n        Major: 0 Minor: 0") || strings.Contains(after, "\n        Major: 0 Minor: 0") ||
			!strings.Contains(after, "\n        Major: ") || !strings.Contains(after, "UDEV PATH: "+r.devices[0]+"  ") {
			return fmt.Errorf("%q, then %q", before, after)
		}
		return nil
	}, nil},
	{"the serial tells with its label", func(r *rig) error {
		r.must(r.fs.Mkdir(hba), r.fs.Mkdir(back))
		if err := r.expect(back+"/wwn/vpd_unit_serial", "T10 VPD Unit Serial Number: "); err != nil {
			return err
		}
		r.must(r.fs.Write(back+"/wwn/vpd_unit_serial", "abc"))
		return r.expect(back+"/wwn/vpd_unit_serial", "T10 VPD Unit Serial Number: abc")
	}, nil},
	{"the serial can be changed after enable", func(r *rig) error {
		r.enabled()
		return r.fs.Write(back+"/wwn/vpd_unit_serial", "abc")
	}, nil},
	{"the serial cannot be changed while a LUN maps the backstore", func(r *rig) error {
		r.linked()
		return r.fs.Write(back+"/wwn/vpd_unit_serial", "abc")
	}, syscall.EINVAL},
	{"the serial can be changed when no LUN maps the backstore any more", func(r *rig) error {
		r.linked()
		r.must(r.fs.Unlink(lun + "/b"))
		return r.fs.Write(back+"/wwn/vpd_unit_serial", "abc")
	}, nil},
	{"a serial of 254 bytes", func(r *rig) error {
		r.must(r.fs.Mkdir(hba), r.fs.Mkdir(back))
		return r.fs.Write(back+"/wwn/vpd_unit_serial", strings.Repeat("a", 254))
	}, syscall.EOVERFLOW},
	{"emulate_tpu after enable", func(r *rig) error {
		r.enabled()
		r.must(r.fs.Write(back+"/attrib/emulate_tpu", "1"))
		return r.expect(back+"/attrib/emulate_tpu", "1")
	}, nil},
	{"emulate_tpu that is no switch", func(r *rig) error {
		r.enabled()
		return r.fs.Write(back+"/attrib/emulate_tpu", "x")
	}, syscall.EINVAL},
	{"rmdir of a backstore that a LUN maps", func(r *rig) error {
		r.linked()
		return r.fs.Rmdir(back)
	}, syscall.EBUSY},
	{"rmdir of an enabled backstore", func(r *rig) error {
		r.enabled()
		return r.fs.Rmdir(back)
	}, nil},
}

var targetRules = []rule{
	{"target name of 223 bytes", func(r *rig) error {
		name := "target/iscsi/iqn." + strings.Repeat("x", 219)
		r.must(r.fs.Mkdir(name))
		return r.fs.Rmdir(name)
	}, nil},
	{"target name of 224 bytes", func(r *rig) error {
		return r.fs.Mkdir("target/iscsi/iqn." + strings.Repeat("x", 220))
	}, syscall.EINVAL},
	{"target name in upper case is another name", func(r *rig) error {
		r.must(r.fs.Mkdir(iqn))
		upper := "target/iscsi/iqn.2026-01.io.example:RULES"
		r.must(r.fs.Mkdir(upper))
		return r.fs.Rmdir(upper)
	}, nil},
	{"portal group of an unknown name", func(r *rig) error {
		r.must(r.fs.Mkdir(iqn))
		return r.fs.Mkdir(iqn + "/group_1")
	}, syscall.EINVAL},
	{"portal group without a number", func(r *rig) error {
		r.must(r.fs.Mkdir(iqn))
		return r.fs.Mkdir(iqn + "/tpgt_x")
	}, syscall.EINVAL},
	{"portal group over 16 bits", func(r *rig) error {
		r.must(r.fs.Mkdir(iqn))
		return r.fs.Mkdir(iqn + "/tpgt_65536")
	}, syscall.EINVAL},
	{"rmdir of a target with a portal group", func(r *rig) error {
		r.group()
		return r.fs.Rmdir(iqn)
	}, syscall.ENOTEMPTY},
	{"rmdir of a portal group with a LUN", func(r *rig) error {
		r.group()
		r.must(r.fs.Mkdir(lun))
		return r.fs.Rmdir(tpg)
	}, syscall.ENOTEMPTY},
	{"rmdir of a portal group with a portal", func(r *rig) error {
		r.group()
		r.must(r.fs.Mkdir(portal))
		return r.fs.Rmdir(tpg)
	}, syscall.ENOTEMPTY},
	{"rmdir of a portal group with an ACL", func(r *rig) error {
		r.group()
		r.must(r.fs.Mkdir(acl))
		return r.fs.Rmdir(tpg)
	}, syscall.ENOTEMPTY},
	{"rmdir of an enabled portal group", func(r *rig) error {
		r.group()
		r.must(r.fs.Write(tpg+"/enable", "1"))
		return r.fs.Rmdir(tpg)
	}, nil},
	{"enable of an empty portal group", func(r *rig) error {
		r.group()
		r.must(r.expect(tpg+"/enable", "0"), r.fs.Write(tpg+"/enable", "1"))
		return r.expect(tpg+"/enable", "1")
	}, nil},
	{"enable twice, disable twice", func(r *rig) error {
		r.group()
		r.must(r.fs.Write(tpg+"/enable", "1"), r.fs.Write(tpg+"/enable", "1"))
		r.must(r.fs.Write(tpg+"/enable", "0"))
		return r.fs.Write(tpg+"/enable", "0")
	}, nil},
	{"enable that is no switch", func(r *rig) error {
		r.group()
		return r.fs.Write(tpg+"/enable", "x")
	}, syscall.EINVAL},
	{"what a portal group begins with", func(r *rig) error {
		r.group()
		for name, want := range map[string]string{
			"authentication": "1", "generate_node_acls": "0", "demo_mode_discovery": "1",
			"demo_mode_write_protect": "1", "prod_mode_write_protect": "0", "cache_dynamic_acls": "0",
		} {
			if err := r.expect(tpg+"/attrib/"+name, want); err != nil {
				return err
			}
		}
		return nil
	}, nil},
	{"a switch that is neither 0 nor 1", func(r *rig) error {
		r.group()
		return r.fs.Write(tpg+"/attrib/authentication", "2")
	}, syscall.EINVAL},
	{"LUN of an unknown name", func(r *rig) error {
		r.group()
		return r.fs.Mkdir(tpg + "/lun/disk_1")
	}, syscall.EINVAL},
	{"LUN without a number", func(r *rig) error {
		r.group()
		return r.fs.Mkdir(tpg + "/lun/lun_x")
	}, syscall.EINVAL},
	{"LUN 0", func(r *rig) error {
		r.group()
		return r.fs.Mkdir(tpg + "/lun/lun_0")
	}, nil},
	{"LUN that maps a backstore before its enable", func(r *rig) error {
		r.backstore(back, r.devices[0])
		r.group()
		r.must(r.fs.Mkdir(lun))
		return r.fs.Symlink(back, lun+"/b")
	}, syscall.ENODEV},
	{"LUN that maps two backstores", func(r *rig) error {
		r.linked()
		r.backstore(back2, r.devices[1])
		r.must(r.fs.Write(back2+"/enable", "1"))
		return r.fs.Symlink(back2, lun+"/c")
	}, syscall.EEXIST},
	{"LUN that maps what is no backstore", func(r *rig) error {
		r.group()
		r.must(r.fs.Mkdir(lun))
		return r.fs.Symlink(tpg, lun+"/b")
	}, syscall.EFAULT},
	{"two LUNs that map one backstore", func(r *rig) error {
		r.linked()
		r.must(r.fs.Mkdir(tpg + "/lun/lun_2"))
		return r.fs.Symlink(back, tpg+"/lun/lun_2/b")
	}, nil},
	{"rmdir of a LUN that maps a backstore", func(r *rig) error {
		r.linked()
		return r.fs.Rmdir(lun)
	}, syscall.ENOTEMPTY},
	{"unlink of the backstore of an enabled target", func(r *rig) error {
		r.access()
		return r.fs.Unlink(lun + "/b")
	}, nil},
	{"portal that is a name", func(r *rig) error {
		r.group()
		return r.fs.Mkdir(tpg + "/np/localhost:3299")
	}, syscall.EINVAL},
	{"portal without a port", func(r *rig) error {
		r.group()
		return r.fs.Mkdir(tpg + "/np/127.0.0.1")
	}, syscall.EINVAL},
	{"IPv6 portal without brackets", func(r *rig) error {
		r.group()
		return r.fs.Mkdir(tpg + "/np/::1:3299")
	}, syscall.EINVAL},
	{"IPv6 portal", func(r *rig) error {
		r.group()
		return r.fs.Mkdir(tpg + "/np/[::1]:3299")
	}, nil},
	{"portal at an address that the host does not have", func(r *rig) error {
		r.group()
		r.must(r.fs.Mkdir(tpg + "/np/[2001:db8::77]:3299"))
		return r.fs.Mkdir(tpg + "/np/192.0.2.77:3299")
	}, nil},
	{"portal where another process listens", func(r *rig) error {
		r.group()
		defer r.listen("127.0.0.1:3299")()
		return r.fs.Mkdir(portal)
	}, syscall.EINVAL},
	{"portal where another target has every address", func(r *rig) error {
		r.group()
		r.must(r.fs.Mkdir(tpg + "/np/0.0.0.0:3299"))
		return r.fs.Mkdir(portal)
	}, syscall.EINVAL},
	{"portal at every address where another target has one", func(r *rig) error {
		r.group()
		r.must(r.fs.Mkdir(portal))
		return r.fs.Mkdir(tpg + "/np/0.0.0.0:3299")
	}, syscall.EINVAL},
	{"portal at every IPv6 address takes those of IPv4 too", func(r *rig) error {
		r.group()
		r.must(r.fs.Mkdir(portal))
		return r.fs.Mkdir(tpg + "/np/[::]:3299")
	}, syscall.EINVAL},
	{"portals of one port at two addresses", func(r *rig) error {
		r.group()
		r.must(r.fs.Mkdir(portal), r.fs.Mkdir(tpg+"/np/127.0.0.2:3299"))
		return r.fs.Mkdir(tpg + "/np/[::1]:3299")
	}, nil},
	{"two spellings of one portal in one group", func(r *rig) error {
		r.group()
		r.must(r.fs.Mkdir(tpg + "/np/[::1]:3299"))
		return r.fs.Mkdir(tpg + "/np/[0:0::1]:3299")
	}, syscall.EINVAL},
	{"two spellings of one portal in two targets", func(r *rig) error {
		r.group()
		r.must(r.fs.Mkdir(tpg + "/np/[::1]:3299"))
		other := iqn + "2"
		r.must(r.fs.Mkdir(other), r.fs.Mkdir(other+"/tpgt_1"))
		err := r.fs.Mkdir(other + "/tpgt_1/np/[0:0::1]:3299")
		_ = r.fs.Rmdir(other + "/tpgt_1/np/[0:0::1]:3299")
		r.must(r.fs.Rmdir(other+"/tpgt_1"), r.fs.Rmdir(other))
		return err
	}, nil},
	{"IPv4 portal in IPv6 form", func(r *rig) error {
		r.group()
		return r.fs.Mkdir(tpg + "/np/[::ffff:127.0.0.1]:3299")
	}, nil},
	{"IPv4 portal in IPv6 form beside itself", func(r *rig) error {
		r.group()
		r.must(r.fs.Mkdir(portal))
		return r.fs.Mkdir(tpg + "/np/[::ffff:127.0.0.1]:3299")
	}, syscall.EINVAL},
	{"portal without a port number", func(r *rig) error {
		r.group()
		return r.fs.Mkdir(tpg + "/np/127.0.0.1:iscsi")
	}, syscall.EINVAL},
	{"two targets at one portal", func(r *rig) error {
		r.group()
		r.must(r.fs.Mkdir(portal))
		other := iqn + "2"
		r.must(r.fs.Mkdir(other), r.fs.Mkdir(other+"/tpgt_1"))
		err := r.fs.Mkdir(other + "/tpgt_1/np/127.0.0.1:3299")
		r.must(r.fs.Rmdir(other+"/tpgt_1/np/127.0.0.1:3299"), r.fs.Rmdir(other+"/tpgt_1"), r.fs.Rmdir(other))
		return err
	}, nil},
	{"rmdir of the portal of an enabled target", func(r *rig) error {
		r.access()
		return r.fs.Rmdir(portal)
	}, nil},
}

var accessRules = []rule{
	{"ACL name of 223 bytes", func(r *rig) error {
		r.group()
		return r.fs.Mkdir(tpg + "/acls/iqn." + strings.Repeat("x", 219))
	}, nil},
	{"ACL name of 224 bytes is cut without a word", func(r *rig) error {
		r.group()
		name := tpg + "/acls/iqn." + strings.Repeat("x", 220)
		r.must(r.fs.Mkdir(name))
		return r.expect(name+"/info", "No active iSCSI Session for Initiator Endpoint: iqn."+strings.Repeat("x", 219))
	}, nil},
	{"what an ACL begins with", func(r *rig) error {
		r.group()
		r.must(r.fs.Mkdir(acl))
		for file, want := range map[string]string{
			"auth/userid": "", "auth/password": "", "auth/userid_mutual": "", "auth/password_mutual": "",
			"auth/authenticate_target": "0", "attrib/authentication": "-1",
			"info": "No active iSCSI Session for Initiator Endpoint: iqn.2026-01.io.example:node",
		} {
			if err := r.expect(acl+"/"+file, want); err != nil {
				return err
			}
		}
		return nil
	}, nil},
	{"CHAP values tell what was written", func(r *rig) error {
		r.access()
		r.must(r.fs.Write(acl+"/auth/userid", "u"), r.fs.Write(acl+"/auth/password", "p q"))
		r.must(r.expect(acl+"/auth/userid", "u"))
		return r.expect(acl+"/auth/password", "p q")
	}, nil},
	{"the target authenticates itself with both mutual values", func(r *rig) error {
		r.access()
		r.must(r.fs.Write(acl+"/auth/userid_mutual", "u"), r.expect(acl+"/auth/authenticate_target", "0"))
		r.must(r.fs.Write(acl+"/auth/password_mutual", "p"))
		return r.expect(acl+"/auth/authenticate_target", "1")
	}, nil},
	{"a value that begins with NULL counts as not set", func(r *rig) error {
		r.access()
		r.must(r.fs.Write(acl+"/auth/userid_mutual", "u"), r.fs.Write(acl+"/auth/password_mutual", "NULLable"))
		r.must(r.expect(acl+"/auth/password_mutual", "NULLable"))
		return r.expect(acl+"/auth/authenticate_target", "0")
	}, nil},
	{"CHAP password of 255 bytes", func(r *rig) error {
		r.access()
		return r.fs.Write(acl+"/auth/password", strings.Repeat("p", 255))
	}, nil},
	{"CHAP password of 256 bytes", func(r *rig) error {
		r.access()
		return r.fs.Write(acl+"/auth/password", strings.Repeat("p", 256))
	}, syscall.EINVAL},
	{"an ACL's own authentication that is no switch", func(r *rig) error {
		r.access()
		return r.fs.Write(acl+"/attrib/authentication", "2")
	}, syscall.EINVAL},
	{"LUN in an ACL of an unknown name", func(r *rig) error {
		r.group()
		r.must(r.fs.Mkdir(acl))
		return r.fs.Mkdir(acl + "/disk_1")
	}, syscall.EINVAL},
	{"mapping a LUN without a backstore", func(r *rig) error {
		r.group()
		r.must(r.fs.Mkdir(lun), r.fs.Mkdir(acl), r.fs.Mkdir(mapped))
		return r.fs.Symlink(lun, mapped+"/l")
	}, syscall.EINVAL},
	{"mapping what is no LUN", func(r *rig) error {
		r.linked()
		r.must(r.fs.Mkdir(acl), r.fs.Mkdir(mapped))
		return r.fs.Symlink(back, mapped+"/l")
	}, syscall.EFAULT},
	{"mapping the LUN of another target", func(r *rig) error {
		r.linked()
		other := iqn + "2"
		acl := other + "/tpgt_1/acls/iqn.2026-01.io.example:node"
		r.must(r.fs.Mkdir(other), r.fs.Mkdir(other+"/tpgt_1"), r.fs.Mkdir(acl), r.fs.Mkdir(acl+"/lun_1"))
		err := r.fs.Symlink(lun, acl+"/lun_1/l")
		r.must(r.fs.Rmdir(acl+"/lun_1"), r.fs.Rmdir(acl), r.fs.Rmdir(other+"/tpgt_1"), r.fs.Rmdir(other))
		return err
	}, syscall.EINVAL},
	{"write_protect before the mapping is taken and lost", func(r *rig) error {
		r.linked()
		r.must(r.fs.Mkdir(acl), r.fs.Mkdir(mapped), r.expect(mapped+"/write_protect", ""))
		r.must(r.fs.Write(mapped+"/write_protect", "1"), r.expect(mapped+"/write_protect", ""))
		r.must(r.fs.Symlink(lun, mapped+"/l"))
		return r.expect(mapped+"/write_protect", "0")
	}, nil},
	{"write_protect after the mapping", func(r *rig) error {
		r.access()
		r.must(r.expect(mapped+"/write_protect", "0"), r.fs.Write(mapped+"/write_protect", "1"))
		return r.expect(mapped+"/write_protect", "1")
	}, nil},
	{"write_protect that is no switch", func(r *rig) error {
		r.access()
		return r.fs.Write(mapped+"/write_protect", "2")
	}, syscall.EINVAL},
	{"prod_mode_write_protect makes a mapping begin read-only", func(r *rig) error {
		r.linked()
		r.must(r.fs.Write(tpg+"/attrib/prod_mode_write_protect", "1"))
		r.must(r.fs.Mkdir(acl), r.fs.Mkdir(mapped), r.fs.Symlink(lun, mapped+"/l"))
		r.must(r.expect(mapped+"/write_protect", "1"))
		r.must(r.fs.Write(tpg+"/attrib/prod_mode_write_protect", "0"))
		return r.expect(mapped+"/write_protect", "1")
	}, nil},
	{"a mapping goes with the backstore, its link stays, and it does not come back", func(r *rig) error {
		r.access()
		r.must(r.fs.Unlink(lun+"/b"), r.expect(mapped+"/write_protect", ""))
		r.must(r.fs.Symlink(back, lun+"/b"), r.expect(mapped+"/write_protect", ""))
		list, err := r.fs.List(mapped)
		r.must(err)
		if len(list) == 0 {
			return fmt.Errorf("the link is gone")
		}
		r.must(r.fs.Unlink(mapped+"/l"), r.fs.Symlink(lun, mapped+"/l"))
		return r.expect(mapped+"/write_protect", "0")
	}, nil},
	{"rmdir of a LUN that an ACL maps", func(r *rig) error {
		r.access()
		r.must(r.fs.Unlink(lun + "/b"))
		return r.fs.Rmdir(lun)
	}, syscall.EBUSY},
	{"rmdir of an ACL's LUN with its link", func(r *rig) error {
		r.access()
		return r.fs.Rmdir(mapped)
	}, syscall.ENOTEMPTY},
	{"rmdir of an ACL with a LUN", func(r *rig) error {
		r.access()
		return r.fs.Rmdir(acl)
	}, syscall.ENOTEMPTY},
	{"the ACL of an enabled target goes", func(r *rig) error {
		r.access()
		r.must(r.fs.Unlink(mapped+"/l"), r.fs.Rmdir(mapped))
		return r.fs.Rmdir(acl)
	}, nil},
}
