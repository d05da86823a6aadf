package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/tarn-csi/tarn/pkg/export/iscsi"
)

const configfs = "/sys/kernel/config/target"

// paths of one volume's target; each has an adapter of its own, as the driver's.
func (b *bare) adapter(i int) string   { return fmt.Sprintf("%s/core/iblock_%d", configfs, 900000+i) }
func (b *bare) backstore(i int) string { return filepath.Join(b.adapter(i), b.prefix) }
func (b *bare) iqn(i int) string {
	return fmt.Sprintf("%s/iscsi/iqn.2026-01.io.example:%s-%d", configfs, b.prefix, i)
}

const initiator = "iqn.2026-01.io.example:node-1"

func write(path, text string) error {
	f, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	_, err = f.WriteString(text)
	return errors.Join(err, f.Close())
}

// targetUp makes backstore, target, LUN, portal and ACL with CHAP, by the writes that
// the driver makes.
func (b *bare) targetUp(ctx context.Context, i int) error {
	device := "/dev/zvol/" + b.dataset(i)
	// A fresh zvol has no device yet, and udev does not name each at its first look.
	tries := 0
	if err := whileBusy(ctx, func() error {
		_, err := os.Stat(device)
		if err == nil {
			return nil
		}
		if tries++; tries > 10 { // some seconds
			err = errors.Join(err, iscsi.AnnounceZvols())
		}
		return errors.Join(err, unix.EBUSY)
	}); err != nil {
		return err
	}
	tpg := b.iqn(i) + "/tpgt_1"
	acl := tpg + "/acls/" + initiator
	for _, do := range []func() error{
		func() error { return os.MkdirAll(b.backstore(i), 0o755) },
		func() error { return write(b.backstore(i)+"/control", "udev_path="+device) },
		func() error { return write(b.backstore(i)+"/udev_path", device) },
		func() error {
			return write(b.backstore(i)+"/wwn/vpd_unit_serial", fmt.Sprintf("%08x%024x", i, len(b.prefix)))
		},
		func() error { return b.enable(ctx, i) },
		func() error { return write(b.backstore(i)+"/attrib/emulate_tpu", "1") },
		func() error { return os.MkdirAll(tpg, 0o755) },
		func() error { return write(tpg+"/attrib/generate_node_acls", "0") },
		func() error { return write(tpg+"/attrib/demo_mode_discovery", "0") },
		func() error { return write(tpg+"/attrib/prod_mode_write_protect", "0") },
		func() error { return write(tpg+"/attrib/authentication", "1") },
		func() error { return os.Mkdir(tpg+"/lun/lun_1", 0o755) },
		func() error { return os.Symlink(b.backstore(i), tpg+"/lun/lun_1/backstore") },
		func() error { return os.Mkdir(tpg+"/np/127.0.0.1:3260", 0o755) },
		func() error { return os.Mkdir(acl, 0o755) },
		func() error { return write(acl+"/auth/userid", "node-1") },
		func() error { return write(acl+"/auth/password", "0123456789abcdef") },
		func() error { return write(acl+"/auth/userid_mutual", "node-1-mutual") },
		func() error { return write(acl+"/auth/password_mutual", "fedcba9876543210") },
		func() error { return os.Mkdir(acl+"/lun_1", 0o755) },
		func() error { return os.Symlink(tpg+"/lun/lun_1", acl+"/lun_1/lun_1") },
		func() error { return write(tpg+"/enable", "1") },
	} {
		if err := do(); err != nil {
			return err
		}
	}
	return nil
}

// enable tries again what the kernel could not open while other zfs commands ran:
// it says ERESTARTSYS, as the driver has it too.
func (b *bare) enable(ctx context.Context, i int) error {
	return whileBusy(ctx, func() error {
		err := write(b.backstore(i)+"/enable", "1")
		if errors.Is(err, unix.Errno(512)) {
			err = errors.Join(err, unix.EBUSY)
		}
		return err
	})
}

func (b *bare) targetDown(i int) error {
	tpg := b.iqn(i) + "/tpgt_1"
	acl := tpg + "/acls/" + initiator
	if err := write(tpg+"/enable", "0"); err != nil {
		return err
	}
	for _, path := range []string{
		acl + "/lun_1/lun_1", acl + "/lun_1", acl, tpg + "/lun/lun_1/backstore", tpg + "/lun/lun_1",
		tpg + "/np/127.0.0.1:3260", tpg, b.iqn(i), b.backstore(i), b.adapter(i),
	} {
		if err := os.Remove(path); err != nil {
			return err
		}
	}
	return nil
}
