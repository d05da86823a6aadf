package op_test

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tarn-csi/tarn/pkg/fault"
	"github.com/tarn-csi/tarn/pkg/op"
)

// However an operation's context ended, one that does not return holds a thread.
func TestStuckOperationsAreCappedPerGroup(t *testing.T) {
	const most = 8
	for name, leave := range map[string]func(context.Context) (context.Context, context.CancelFunc){
		"own deadline": context.WithCancel,
		"caller's deadline": func(ctx context.Context) (context.Context, context.CancelFunc) {
			return context.WithTimeout(ctx, time.Second)
		},
		"caller hung up": func(ctx context.Context) (context.Context, context.CancelFunc) {
			ctx, cancel := context.WithCancel(ctx)
			time.AfterFunc(time.Second, cancel)
			return ctx, cancel
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				table := op.NewTable()
				dead := op.Spec{What: "read", Group: "pool dead", Timeout: time.Minute, Detached: name == "own deadline"}
				var stuck []*held
				for range most {
					ctx, cancel := leave(t.Context())
					defer cancel()
					stuck = append(stuck, hold(ctx, table, dead))
				}
				if err := table.Do(t.Context(), dead, nothing); err != nil {
					t.Errorf("before any deadline: %v", err)
				}
				time.Sleep(time.Hour)

				err := table.Do(t.Context(), dead, nothing)
				wantKind(t, err, fault.Unavailable)
				if !strings.Contains(err.Error(), "8 operations on pool dead") {
					t.Errorf("the message is %q", err)
				}
				for _, group := range []string{"pool well", ""} {
					if err := table.Do(t.Context(), op.Spec{Group: group}, nothing); err != nil {
						t.Errorf("group %q: %v", group, err)
					}
				}
				close(stuck[0].end)
				synctest.Wait()
				if err := table.Do(t.Context(), dead, nothing); err != nil {
					t.Errorf("after one has ended: %v", err)
				}
				for _, h := range stuck[1:] {
					close(h.end)
				}
			})
		})
	}
}

func TestStuckOperationsWithoutAGroupAreNotCounted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		table := op.NewTable()
		var all []*held
		for range 9 {
			all = append(all, hold(t.Context(), table, op.Spec{Timeout: time.Second}))
		}
		time.Sleep(time.Minute)
		if err := table.Do(t.Context(), op.Spec{}, nothing); err != nil {
			t.Error(err)
		}
		for _, h := range all {
			close(h.end)
		}
	})
}
