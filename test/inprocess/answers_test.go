package inprocess

import (
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// answers judges what calls answer.
type answers struct{ t *testing.T }

func (a answers) must(err error) {
	a.t.Helper()
	if err != nil {
		a.t.Fatal(err)
	}
}

func (a answers) wantCode(err error, code codes.Code) {
	a.t.Helper()
	if status.Code(err) != code {
		a.t.Errorf("got %v, want %s", err, code)
	}
}
