package main

import (
	"bytes"
	"context"
	"fmt"
	"os/exec"
	"strings"
)

// kubectl runs kubectl as the cluster's administrator and returns what it printed.
func (c *cluster) kubectl(ctx context.Context, args ...string) (string, error) {
	return c.feed(ctx, "", args...)
}

// feed is kubectl that reads a text from its standard input.
func (c *cluster) feed(ctx context.Context, text string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, c.program("kubectl"), append([]string{"--kubeconfig", c.kubeconfig("admin")}, args...)...)
	cmd.Env, cmd.Stdin = c.environment(), strings.NewReader(text)
	return printed(cmd)
}

// wait is kubectl wait for the objects that args name, until ctx ends.
func (c *cluster) wait(ctx context.Context, condition string, args ...string) error {
	// Objects that are not there yet are an error, at once.
	return until(ctx, func(ctx context.Context) error {
		_, err := c.kubectl(ctx, append([]string{"wait", "--for=" + condition, "--timeout=10s"}, args...)...)
		return err
	})
}

// printed returns the standard output of a command; its error says the rest.
func printed(cmd *exec.Cmd) (string, error) {
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	if err := cmd.Run(); err != nil {
		return out.String(), fmt.Errorf("%s: %w: %s%s", strings.Join(cmd.Args, " "), err, strings.TrimSpace(errs.String()), tail(out.String()))
	}
	return out.String(), nil
}

// tail is the end of a text, which may be long, on a line of its own.
func tail(text string) string {
	const most = 1000
	if text = strings.TrimSpace(text); len(text) > most {
		text = "..." + text[len(text)-most:]
	}
	if text != "" {
		text = "\n" + text
	}
	return text
}
