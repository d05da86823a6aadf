package check

import "testing"

// debian is how a Debian host that serves NFS from ZFS is set up.
var debian = files{
	"run/systemd/system/": "",
	"lib/systemd/system/nfs-server.service": `[Unit]
Description=NFS server and services
DefaultDependencies=no
Requires= network.target proc-fs-nfsd.mount
After= network-online.target local-fs.target
After= proc-fs-nfsd.mount rpcbind.socket nfs-mountd.service

[Service]
Type=oneshot
`,
	"lib/systemd/system/nfs-kernel-server.service":                        "-> nfs-server.service",
	"lib/systemd/system/local-fs.target":                                  "[Unit]\nDescription=Local File Systems\nAfter=local-fs-pre.target\n",
	"lib/systemd/system/zfs-import.target":                                "[Unit]\nDescription=ZFS pool import target\n",
	"lib/systemd/system/zfs-import-cache.service":                         "[Unit]\nBefore=zfs-import.target\n",
	"lib/systemd/system/zfs-mount.service":                                "[Unit]\nDefaultDependencies=no\nAfter=systemd-udev-settle.service\nAfter=zfs-import.target\nBefore=local-fs.target\n",
	"etc/systemd/system/zfs.target.wants/zfs-mount.service":               "-> /lib/systemd/system/zfs-mount.service",
	"etc/systemd/system/zfs-import.target.wants/zfs-import-cache.service": "-> /lib/systemd/system/zfs-import-cache.service",
}

func TestBootOrder(t *testing.T) {
	const mount = "lib/systemd/system/zfs-mount.service"
	const server = "lib/systemd/system/nfs-server.service"
	unordered := debian.with(files{mount: "[Unit]\nDefaultDependencies=no\nAfter=zfs-import.target\n"})
	judge(t, []row{
		{"as Debian has it", debian, nil, OK, []string{"after zfs-mount.service"}},
		{"no systemd", debian.without("run/systemd/system/"), nil, OK, []string{"not kept by systemd"}},
		{"no order", unordered, nil, Fail, []string{"may start before", "After=zfs-mount.service"}},
		{"as advised", unordered.with(files{"etc/systemd/system/nfs-server.service.d/override.conf": "[Unit]\nAfter=zfs-mount.service\n"}), nil, OK, nil},
		{"from the other side", unordered.with(files{"etc/systemd/system/zfs-mount.service.d/x.conf": "[Unit]\nBefore=nfs-server.service\n"}), nil, OK, nil},
		{"by another name", unordered.with(files{"etc/systemd/system/zfs-mount.service.d/x.conf": "[Unit]\nBefore = remote.service \\\n  nfs-kernel-server.service\n"}), nil, OK, nil},
		{"the wrong way round", debian.with(files{mount: "[Unit]\nAfter=nfs-server.service\n", server: "[Unit]\nBefore=zfs-mount.service\n"}), nil, Fail, nil},
		{"a unit of the host's own", debian.with(files{"etc/systemd/system/zfs-mount.service": "[Unit]\nAfter=zfs-import.target\n"}), nil, Fail, nil},
		{"in a comment", unordered.with(files{server: "[Unit]\n#After=zfs-mount.service\n"}), nil, Fail, nil},
		{"a circle", debian.with(files{"lib/systemd/system/local-fs.target": "[Unit]\nAfter=a.target\n", "lib/systemd/system/a.target": "[Unit]\nAfter=local-fs.target\n"}), nil, OK, nil},
		{"not enabled", debian.without("etc/systemd/system/zfs.target.wants/zfs-mount.service"), nil, Warn, []string{"systemctl enable zfs-mount.service"}},
		{"mounted by the generator", debian.without("etc/systemd/system/zfs.target.wants/zfs-mount.service").with(files{"etc/zfs/zfs-list.cache/tank": "tank\t/tank\n"}), nil, OK, nil},
		{"with an empty list", debian.without("etc/systemd/system/zfs.target.wants/zfs-mount.service").with(files{"etc/zfs/zfs-list.cache/tank": ""}), nil, Warn, nil},
		{"nothing imports", debian.without("etc/systemd/system/zfs-import.target.wants/zfs-import-cache.service"), nil, Warn, []string{"zfs-import-cache.service"}},
		{"masked", debian.with(files{"etc/systemd/system/zfs-mount.service": "-> /dev/null"}), nil, Fail, []string{"there is no zfs-mount.service"}},
		{"no server", debian.without(server), nil, Fail, []string{"there is no nfs-server.service"}},
	}, (*Checker).bootOrder)
}
