package main

import (
	"context"
	"io"
	"time"

	"github.com/sirupsen/logrus"
	"github.com/spf13/cobra"

	"github.com/tarn-csi/tarn/pkg/check"
	"github.com/tarn-csi/tarn/pkg/config"
	"github.com/tarn-csi/tarn/pkg/run"
)

// checkTimeout bounds all checks together.
const checkTimeout = time.Minute

func checkCommand() *cobra.Command {
	c := &cobra.Command{
		Use:   "check",
		Short: "Say what this host needs and has, and what to do",
		Long:  "Print a table of what this host needs and has. The exit status is 0 when nothing\nfails, 1 when something does.",
		Args:  cobra.NoArgs,
	}
	flags := config.Bind(c.Flags())
	c.RunE = func(c *cobra.Command, _ []string) error {
		cfg, err := flags.Load()
		if err != nil {
			return err
		}
		log := logrus.New()
		log.SetOutput(io.Discard)
		ctx, cancel := context.WithTimeout(c.Context(), checkTimeout)
		defer cancel()
		findings := check.New(cfg, run.New(log)).Run(ctx)
		if err := check.Print(c.OutOrStdout(), findings); err != nil {
			return err
		}
		if check.Worst(findings) == check.Fail {
			return exitCode(1)
		}
		return nil
	}
	return c
}
