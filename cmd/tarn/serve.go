package main

import (
	"os"

	"github.com/spf13/cobra"

	"github.com/tarn-csi/tarn/pkg/app"
	"github.com/tarn-csi/tarn/pkg/config"
)

func serveCommand() *cobra.Command {
	c := &cobra.Command{
		Use:   "serve",
		Short: "Serve the CSI services on a unix socket",
		Args:  cobra.NoArgs,
	}
	flags := config.Bind(c.Flags())
	c.RunE = func(c *cobra.Command, _ []string) error {
		cfg, err := flags.Load()
		if err != nil {
			return err
		}
		log, err := app.NewLog(cfg, os.Stderr)
		if err != nil {
			return err
		}
		return app.Run(c.Context(), cfg, log)
	}
	return c
}
