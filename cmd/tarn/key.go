package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/tarn-csi/tarn/pkg/chap"
	"github.com/tarn-csi/tarn/pkg/config"
	"github.com/tarn-csi/tarn/pkg/ident"
)

func keyCommand() *cobra.Command {
	c := &cobra.Command{
		Use:   "key [NODE]",
		Short: "Print a node's CHAP key, or make the master key",
		Long: "Print the key from which NODE derives its CHAP passwords; give it to that node\n" +
			"as --node-key-file. With --create the master key is made if there is none.",
		Args: cobra.MaximumNArgs(1),
	}
	file := c.Flags().String("master-key-file", config.Default().StateDir+"/master.key", "file of the CHAP master key")
	create := c.Flags().Bool("create", false, "make the master key if there is none")
	c.RunE = func(c *cobra.Command, args []string) error {
		read := chap.ReadKey
		if *create {
			read = chap.CreateKey
		}
		master, err := read(*file)
		if err != nil {
			return err
		}
		if len(args) == 0 {
			if !*create {
				return fmt.Errorf("name the node whose key is wanted, or give --create")
			}
			_, err = fmt.Fprintln(c.OutOrStdout(), "master key:", *file)
			return err
		}
		node, err := ident.NodeName(args[0])
		if err != nil {
			return err
		}
		_, err = fmt.Fprintln(c.OutOrStdout(), chap.NodeKey(master, node).Hex())
		return err
	}
	return c
}
