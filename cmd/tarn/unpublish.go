package main

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/tarn-csi/tarn/pkg/app"
	"github.com/tarn-csi/tarn/pkg/config"
)

func unpublishCommand() *cobra.Command {
	c := &cobra.Command{
		Use:   "unpublish VOLUME NODE",
		Short: "Close a volume to a node whose orchestrator forgot it",
		Long: "Close VOLUME (its id) to NODE (a node's name or id), and drop its live session. It is for a\n" +
			"publication whose object in the orchestrator is gone: a node that still uses the volume\n" +
			"gets errors from then on. The daemon on --endpoint does it; where none runs, this command.",
		Args: cobra.ExactArgs(2),
	}
	flags := config.Bind(c.Flags())
	c.RunE = func(c *cobra.Command, args []string) error {
		cfg, err := flags.Load()
		if err != nil {
			return err
		}
		ctx, cancel := context.WithTimeout(c.Context(), cfg.OperationTimeout)
		defer cancel()
		node, err := app.Unpublish(ctx, cfg, silent(), args[0], args[1])
		if err != nil {
			return err
		}
		_, err = fmt.Fprintf(c.OutOrStdout(), "volume %s is not published to %s any more\n", args[0], node)
		return err
	}
	return c
}
