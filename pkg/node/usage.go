package node

import (
	"context"
	"math"
	"math/bits"
	"strconv"
	"strings"

	"github.com/tarn-csi/tarn/pkg/fault"
	"github.com/tarn-csi/tarn/pkg/run"
)

// Amount is how much there is of something, and how it is divided. Available is
// what a user without privileges can take, so it may be less than what is not
// used.
type Amount struct{ Total, Used, Available int64 }

// Usage is how full a filesystem is. Inodes are all zero where a filesystem does
// not count them.
type Usage struct{ Bytes, Inodes Amount }

// usageFormat is what stat(1) is asked: fundamental block size; blocks in all,
// free, and available; inodes in all and free.
const usageFormat = "%S %b %f %a %c %d"

// Usage implements Host. statfs(2) waits for the server of an NFS mount, so a
// child asks.
func (t *Tools) Usage(ctx context.Context, path string) (Usage, error) {
	out, err := t.run.Run(ctx, run.Cmd{Tool: "stat", Args: []string{"--file-system", "--format=" + usageFormat, "--", path}})
	switch {
	case ctx.Err() != nil:
		return Usage{}, ctx.Err()
	case err != nil:
		return Usage{}, fault.New(fault.Unavailable, "the filesystem does not say how full it is: %w", err)
	}
	return parseUsage(string(out))
}

func parseUsage(text string) (Usage, error) {
	fields := strings.Fields(text)
	n := make([]uint64, len(fields))
	for i, f := range fields {
		var err error
		if n[i], err = strconv.ParseUint(f, 10, 64); err != nil {
			return Usage{}, fault.New(fault.Unavailable, "stat answered %q: %w", text, err)
		}
	}
	if len(n) != strings.Count(usageFormat, "%") {
		return Usage{}, fault.New(fault.Unavailable, "stat answered %q, which is not %q", text, usageFormat)
	}
	block := n[0]
	return Usage{
		Bytes:  amount(block, n[1], n[2], n[3]),
		Inodes: amount(1, n[4], n[5], n[5]),
	}, nil
}

// amount multiplies, and stops at the largest number that can be told: a
// filesystem without a limit may count as many inodes as 64 bits hold.
func amount(unit, total, free, available uint64) Amount {
	times := func(count uint64) int64 {
		high, low := bits.Mul64(unit, count)
		if high > 0 || low > math.MaxInt64 {
			return math.MaxInt64
		}
		return int64(low)
	}
	return Amount{Total: times(total), Used: times(total - min(free, total)), Available: times(available)}
}
