package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"github.com/tarn-csi/tarn/pkg/app"
	"github.com/tarn-csi/tarn/pkg/config"
	"github.com/tarn-csi/tarn/pkg/volume"
)

func orphansCommand() *cobra.Command {
	c := &cobra.Command{
		Use:   "orphans",
		Short: "List what no volume claims, and remove it",
		Long: "Print a table of what is on this storage host and no volume claims: datasets, unfinished\n" +
			"copies, deleted volumes and what keeps them, what other tools' snapshots hold, exports and\n" +
			"targets. With --remove, what is marked yes is removed after a confirmation, and what is\n" +
			"marked stopped too if no daemon serves the pools. What others made is never removed.",
		Args: cobra.NoArgs,
	}
	flags := config.Bind(c.Flags())
	asJSON := c.Flags().Bool("json", false, "print JSON")
	remove := c.Flags().Bool("remove", false, "remove what can be removed, after a confirmation on the terminal")
	yes := c.Flags().Bool("yes", false, "with --remove: do not ask")
	c.RunE = func(c *cobra.Command, _ []string) (err error) {
		cfg, err := flags.Load()
		if err != nil {
			return err
		}
		volumes, err := app.Look(cfg, silent())
		if err != nil {
			return err
		}
		list, err := volumes.Orphans(c.Context())
		if *asJSON {
			err = errors.Join(printJSON(c.OutOrStdout(), list), err)
		} else {
			err = errors.Join(volume.PrintOrphans(c.OutOrStdout(), list), err)
		}
		wanted := volume.Removable(list)
		if !*remove || len(wanted) == 0 {
			return err
		}
		if !*yes {
			if refused := confirm(c.Context(), wanted); refused != nil {
				return errors.Join(err, refused)
			}
		}
		removed, removeErr := volumes.RemoveOrphans(c.Context(), wanted)
		for _, o := range removed {
			c.PrintErrln("removed", o.Kind, o.Name)
		}
		return errors.Join(err, removeErr, volumes.Close())
	}
	return c
}

// confirm asks the person at the terminal; nobody else can answer.
func confirm(ctx context.Context, list []volume.Orphan) error {
	if _, err := unix.IoctlGetTermios(int(os.Stdin.Fd()), unix.TCGETS); err != nil {
		return errors.New("nothing is removed: the standard input is no terminal at which somebody could confirm it; give --yes")
	}
	fmt.Fprintf(os.Stderr, "Remove %d of these? Type yes: ", len(list))
	answer := make(chan string, 1)
	go func() {
		line, _ := bufio.NewReader(os.Stdin).ReadString('\n') // an end of input is no yes
		answer <- strings.TrimSpace(line)
	}()
	select {
	case line := <-answer:
		if line == "yes" {
			return nil
		}
	case <-ctx.Done():
	}
	return errors.New("nothing is removed")
}
