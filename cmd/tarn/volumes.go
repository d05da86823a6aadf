package main

import (
	"encoding/json"
	"errors"
	"io"

	"github.com/sirupsen/logrus"
	"github.com/spf13/cobra"

	"github.com/tarn-csi/tarn/pkg/app"
	"github.com/tarn-csi/tarn/pkg/config"
	"github.com/tarn-csi/tarn/pkg/volume"
)

func volumesCommand() *cobra.Command {
	c := &cobra.Command{
		Use:   "volumes",
		Short: "List the volumes of this storage host, and what the kernel really exports",
		Long: "Print a table of the volumes of this storage host, read from ZFS, mountd's table and\n" +
			"configfs. It changes nothing, and needs no daemon. The exit status is 1 when a pool\n" +
			"cannot be read; what the others have is printed all the same.",
		Args: cobra.NoArgs,
	}
	flags := config.Bind(c.Flags())
	asJSON := c.Flags().Bool("json", false, "print JSON, with exact bytes")
	c.RunE = func(c *cobra.Command, _ []string) error {
		cfg, err := flags.Load()
		if err != nil {
			return err
		}
		volumes, err := app.Look(cfg, silent())
		if err != nil {
			return err
		}
		list, err := volumes.Inventory(c.Context())
		if *asJSON {
			return errors.Join(printJSON(c.OutOrStdout(), list), err)
		}
		return errors.Join(volume.PrintInventory(c.OutOrStdout(), list), err)
	}
	return c
}

// silent is the log of a command whose output is its answer.
func silent() *logrus.Logger {
	log := logrus.New()
	log.SetOutput(io.Discard)
	return log
}

func printJSON(w io.Writer, v any) error {
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	return e.Encode(v)
}
