package main

import (
	"context"
	"os"
	"path/filepath"
	"time"
)

// diagnose writes what a failure is understood by beside the daemons' logs: the
// objects, what happened to them, and what the pods printed. What cannot be had,
// since nothing runs that would tell, is left out.
func (c *cluster) diagnose() error {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	for name, ask := range map[string]func() (string, error){
		"objects.txt": func() (string, error) {
			return c.kubectl(ctx, "get", "nodes,pods,pvc,pv,volumeattachments,volumesnapshots,volumesnapshotcontents", "-A", "-o", "wide")
		},
		"events.txt": func() (string, error) { return c.kubectl(ctx, "get", "events", "-A", "--sort-by=.lastTimestamp") },
		"pods.txt":   func() (string, error) { return c.kubectl(ctx, "describe", "pods", "-A") },
		"pods.log":   func() (string, error) { return c.podLogs(ctx) },
	} {
		text, err := ask()
		if err != nil {
			text += "\n" + err.Error() + "\n"
		}
		if err := os.WriteFile(filepath.Join(c.logs(), name), []byte(text), 0o644); err != nil {
			return err
		}
	}
	return nil
}
