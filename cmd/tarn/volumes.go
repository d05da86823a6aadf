package main

import (
	"encoding/json"
	"errors"
	"io"
	"strings"

	"github.com/sirupsen/logrus"
	"github.com/spf13/cobra"

	"github.com/tarn-csi/tarn/pkg/app"
	"github.com/tarn-csi/tarn/pkg/config"
	"github.com/tarn-csi/tarn/pkg/ident"
	"github.com/tarn-csi/tarn/pkg/manifest"
	"github.com/tarn-csi/tarn/pkg/volume"
)

func volumesCommand() *cobra.Command {
	c := &cobra.Command{
		Use:   "volumes",
		Short: "List the volumes of this storage host, and what the kernel really exports",
		Long: "Print a table of the volumes of this storage host, read from ZFS, mountd's table and\n" +
			"configfs. It changes nothing, and needs no daemon. The exit status is 1 when a pool\n" +
			"cannot be read; what the others have is printed all the same.\n\n" +
			"With --pv-yaml, print Kubernetes' PersistentVolume objects of all volumes instead, for a\n" +
			"cluster that was lost. What is left out (deleted volumes, unfinished copies, damaged\n" +
			"volumes) and what needs a person is told on stderr, and the exit status is 1 then.",
		Args: cobra.NoArgs,
	}
	flags := config.Bind(c.Flags())
	asJSON := c.Flags().Bool("json", false, "print JSON, with exact bytes")
	asPV := c.Flags().Bool("pv-yaml", false, "print PersistentVolume objects as YAML")
	classNames := c.Flags().StringSlice("storage-class", nil, "with --pv-yaml: storage class of the objects that have a claim, as NAME or KIND=NAME, such as nfs=NAME or iscsi/xfs=NAME; repeatable")
	c.MarkFlagsMutuallyExclusive("json", "pv-yaml")
	c.MarkFlagsMutuallyExclusive("json", "storage-class")
	c.RunE = func(c *cobra.Command, _ []string) error {
		cfg, err := flags.Load()
		if err != nil {
			return err
		}
		classes, err := manifest.ParseClasses(*classNames)
		if err != nil {
			return err
		}
		if len(classes) > 0 && !*asPV {
			return errors.New("--storage-class belongs to --pv-yaml")
		}
		volumes, err := app.Look(cfg, silent())
		if err != nil {
			return err
		}
		if *asPV {
			return printPersistentVolumes(c, cfg.DriverName, volumes, classes)
		}
		list, err := volumes.Inventory(c.Context())
		if *asJSON {
			return errors.Join(printJSON(c.OutOrStdout(), list), err)
		}
		return errors.Join(volume.PrintInventory(c.OutOrStdout(), list), err)
	}
	return c
}

// printPersistentVolumes prints the objects on stdout, and what is to be seen to
// on stderr.
func printPersistentVolumes(c *cobra.Command, driver string, volumes *volume.Service, classes manifest.Classes) error {
	list, left, err := volumes.Lasting(c.Context())
	objects, told := manifest.PersistentVolumes(driver, list, classes)
	for _, l := range left {
		c.PrintErrf("left out: %s: %s\n", ident.Printable(l.Dataset), strings.ReplaceAll(l.Why, "\n", " "))
	}
	for _, line := range told {
		c.PrintErrln(line)
	}
	if err := errors.Join(manifest.Write(c.OutOrStdout(), objects), err); err != nil {
		return err
	}
	if len(left)+len(told) > 0 {
		return exitCode(1)
	}
	return nil
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
