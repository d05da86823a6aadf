package main

import (
	"context"
	"fmt"
	"time"
)

// patience is how long one step may take: a minute at most on an idle machine.
const patience = 10 * time.Minute

// An act is one step and its title.
type act struct {
	title string
	do    func(context.Context) (string, error)
}

// acts runs steps in turn, up to the first that fails.
func (c *cluster) acts(ctx context.Context, list ...act) error {
	for _, a := range list {
		if err := c.step(ctx, a.title, a.do); err != nil {
			return err
		}
	}
	return nil
}

// step runs one step and prints a line about it: when it ended, how long it took,
// what was found. A step that fails because a daemon has ended says so.
func (c *cluster) step(ctx context.Context, title string, f func(context.Context) (string, error)) error {
	begin := time.Now()
	within, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	found, err := f(within)
	if err != nil {
		if cause := context.Cause(ctx); cause != nil {
			err = fmt.Errorf("%w (%w)", cause, err)
		}
		return fmt.Errorf("%s: %w", title, err)
	}
	now := time.Now()
	fmt.Printf("%6.1fs %6.1fs  %-46s %s\n", now.Sub(c.start).Seconds(), now.Sub(begin).Seconds(), title, found)
	return nil
}

// until tries again and again, until there is no error or ctx ends; then it is the
// last one.
func until(ctx context.Context, try func(context.Context) error) error {
	for {
		err := try(ctx)
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%w: %w", ctx.Err(), err)
		case <-time.After(200 * time.Millisecond):
		}
	}
}
