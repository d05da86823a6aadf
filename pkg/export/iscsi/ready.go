package iscsi

import (
	"context"
	"errors"
	"io/fs"
	"strings"

	"github.com/tarn-csi/tarn/pkg/export/configfs"
	"github.com/tarn-csi/tarn/pkg/fault"
	"github.com/tarn-csi/tarn/pkg/run"
)

var modules = []string{"target_core_mod", "target_core_iblock", "iscsi_target_mod"}

// Ready implements export.Exporter. After a boot the modules are not loaded;
// Ready loads them, with one child process. Where they are it starts none.
func (e *Exporter) Ready(ctx context.Context) error {
	there, err := e.present(fabricDir)
	if there || err != nil {
		return err
	}
	if e.passive {
		return fault.New(fault.Unavailable, "the kernel's iSCSI target is not loaded: it is when `tarn serve` starts, or load %s", strings.Join(modules, ", "))
	}
	if e.runner != nil {
		if _, err := e.runner.Run(ctx, run.Cmd{Tool: "modprobe", Args: append([]string{"-a"}, modules...)}); err != nil {
			return fault.New(fault.Unavailable, "the kernel's iSCSI target cannot be loaded: %w", err)
		}
	}
	there, err = e.present("target")
	if err != nil {
		return err
	}
	if !there {
		return fault.New(fault.Unavailable, "%s/target does not exist: mount configfs there (systemctl start sys-kernel-config.mount) and load %s",
			configfs.Root, strings.Join(modules, ", "))
	}
	return e.change(ctx, func(t tree) error { return notLoaded(t.mkdirShared(fabricDir)) })
}

func (e *Exporter) present(dir string) (bool, error) {
	_, err := e.fs.List(dir)
	if err == nil || errors.Is(err, fs.ErrNotExist) {
		return err == nil, nil
	}
	return false, fault.New(fault.Unavailable, "the kernel's target configuration cannot be read: %w", err)
}
