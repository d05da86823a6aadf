package main

import (
	"context"
	"io"
	"time"

	"github.com/sirupsen/logrus"
	"github.com/spf13/cobra"

	"github.com/tarn-csi/tarn/pkg/app"
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
		Long: "Print a table of what this host needs and has for its mode and protocols, each line OK,\n" +
			"WARN or FAIL, with what to do. Nothing is changed, and a daemon may run meanwhile. The\n" +
			"exit status is 0 when nothing fails, 1 when something does.",
		Args: cobra.NoArgs,
	}
	flags := config.Bind(c.Flags())
	asJSON := c.Flags().Bool("json", false, "print a list of objects with name, status, found and advice")
	c.RunE = func(c *cobra.Command, _ []string) error {
		cfg, err := flags.Load()
		if err != nil {
			return err
		}
		log := logrus.New()
		log.SetOutput(io.Discard)
		checker := check.New(cfg, run.New(log))
		findings := checker.Keys() // a container has them inside
		if err := app.Enter(cfg.HostRoot); err != nil {
			return err
		}
		ctx, cancel := context.WithTimeout(c.Context(), checkTimeout)
		defer cancel()
		findings = append(findings, checker.Run(ctx)...)
		print := check.Print
		if *asJSON {
			print = check.PrintJSON
		}
		if err := print(c.OutOrStdout(), findings); err != nil {
			return err
		}
		if check.Worst(findings) == check.Fail {
			return exitCode(1)
		}
		return nil
	}
	return c
}
