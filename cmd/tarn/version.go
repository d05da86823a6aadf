package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/tarn-csi/tarn/pkg/app"
)

func versionCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "version",
		Short: "Print the version",
		Args:  cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			_, err := fmt.Fprintln(c.OutOrStdout(), "tarn", app.Version, "serving csi.v0 (0.2.0) and csi.v1")
			return err
		},
	}
}
