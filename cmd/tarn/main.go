// Command tarn is a CSI storage plugin on ZFS, over NFS and iSCSI.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	// The first signal drains; with the handler gone, the second one ends at once.
	context.AfterFunc(ctx, stop)
	err := rootCommand().ExecuteContext(ctx)
	if err == nil {
		return
	}
	var code exitCode
	if errors.As(err, &code) {
		os.Exit(int(code))
	}
	fmt.Fprintln(os.Stderr, "tarn:", err)
	os.Exit(1)
}

func rootCommand() *cobra.Command {
	root := &cobra.Command{
		Use:           "tarn",
		Short:         "ZFS pools as container storage, over NFS and iSCSI",
		SilenceUsage:  true,
		SilenceErrors: true,
	}
	root.AddCommand(serveCommand(), checkCommand(), keyCommand(), versionCommand())
	root.AddCommand(volumesCommand(), orphansCommand(), unpublishCommand(), adoptCommand())
	return root
}

// exitCode is an exit status whose reason was printed already.
type exitCode int

func (e exitCode) Error() string { return fmt.Sprintf("exit status %d", int(e)) }
