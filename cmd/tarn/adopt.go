package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/tarn-csi/tarn/pkg/app"
	"github.com/tarn-csi/tarn/pkg/config"
	"github.com/tarn-csi/tarn/pkg/volume"
)

func adoptCommand() *cobra.Command {
	c := &cobra.Command{
		Use:   "adopt DATASET --protocol PROTOCOL",
		Short: "Make a volume of a dataset that exists, without touching its data",
		Long: "Make a volume of DATASET, a filesystem (--protocol nfs) or a zvol (--protocol iscsi) in the\n" +
			"same pool as a parent, and print its id and size. It is renamed to below the parent. Nothing\n" +
			"may use it: unmount it first. A running daemon serves it at once.",
		Args: cobra.ExactArgs(1),
	}
	flags := config.Bind(c.Flags())
	var r volume.AdoptRequest
	c.Flags().StringVar(&r.Protocol, "protocol", "", "nfs or iscsi")
	c.Flags().StringVar(&r.Name, "name", "", "the volume's name (default: the last part of the dataset's)")
	c.Flags().StringVar(&r.Pool, "pool-name", "", "which pool of the configuration, where several are possible")
	c.Flags().StringVar(&r.FSType, "fs-type", "", "the filesystem that must be on the zvol (default: the one that is)")
	c.Flags().BoolVar(&r.Block, "block", false, "a block volume, whatever is on the zvol")
	c.Flags().Int64Var(&r.SizeBytes, "size", 0, "bytes of a filesystem's quota (default: its refquota, else what it can grow to now)")
	c.RunE = func(c *cobra.Command, args []string) error {
		cfg, err := flags.Load()
		if err != nil {
			return err
		}
		if r.Protocol == "" {
			return fmt.Errorf("--protocol is missing: nfs for a filesystem, iscsi for a zvol")
		}
		r.Dataset = args[0]
		volumes, err := app.Look(cfg, silent())
		if err != nil {
			return err
		}
		v, err := volumes.Adopt(c.Context(), r)
		if err != nil {
			return err
		}
		_, err = fmt.Fprintf(c.OutOrStdout(), "volume: %s\nsize: %d\n", v.ID, v.CapacityBytes)
		return err
	}
	return c
}
