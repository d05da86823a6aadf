package sanityv0

import (
	"context"
	"regexp"
	"slices"
	"strings"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
)

// mutant is the reference with one deliberate fault.
type mutant struct {
	// name is the fault, in words.
	name string
	// caught is the check that must see it.
	caught string
	// fault wraps the calls of the honest plugin; nil for none.
	fault fault
	// setup changes the plugin, options what the suite is told; nil for nothing.
	setup   func(r *reference)
	options func(o *Options, r *reference)
	// controllerOnly serves the controller at a socket of its own, and puts the
	// fault there only.
	controllerOnly bool
}

// fault stands before the honest plugin, on the side of the server. next is the
// honest answer. It may look at and change what the plugin holds, under its lock.
type fault func(ctx context.Context, r *reference, req proto.Message, next func(proto.Message) (proto.Message, error)) (proto.Message, error)

func (f fault) interceptor(r *reference) grpc.UnaryServerInterceptor {
	if f == nil {
		return nil
	}
	return func(ctx context.Context, req any, _ *grpc.UnaryServerInfo, next grpc.UnaryHandler) (any, error) {
		return f(ctx, r, req.(proto.Message), func(m proto.Message) (proto.Message, error) {
			resp, err := next(ctx, m)
			if err != nil {
				return nil, err
			}
			return resp.(proto.Message), nil
		})
	}
}

// The suite sees each fault, by the check that is named for it.
func TestMutants(t *testing.T) {
	skipWithEndpoint(t)
	for _, m := range mutants() {
		t.Run(strings.ReplaceAll(m.caught, "/", ".")+"/"+m.name, func(t *testing.T) {
			r := newReference()
			if m.setup != nil {
				m.setup(r)
			}
			var o Options
			if m.controllerOnly {
				o = r.options(t, r.serve(t, nil))
				o.ControllerEndpoint = r.serve(t, m.fault.interceptor(r))
			} else {
				o = r.options(t, r.serve(t, m.fault.interceptor(r)))
			}
			if m.options != nil {
				m.options(&o, r)
			}
			// What these two report is gathered in all the others.
			topic, _, _ := strings.Cut(m.caught, "/")
			if !*wholeSuite && topic != "wire" && topic != "cleanup" {
				o.Only = regexp.MustCompile("^" + topic + "/")
			}
			MustFail(t, o, m.caught)
		})
	}
}

// No check is for show: each has a mutant that it must see.
func TestEveryCheckHasAMutant(t *testing.T) {
	for _, ck := range Checks() {
		if !slices.ContainsFunc(mutants(), func(m mutant) bool { return m.caught == ck.Name }) {
			t.Errorf("no mutant is caught by %s", ck.Name)
		}
	}
	t.Logf("%d mutants", len(mutants()))
}

// MustFail itself fails on a plugin without a fault.
func TestMustFailRejectsAnHonestPlugin(t *testing.T) {
	skipWithEndpoint(t)
	r := newReference()
	tb := &recorder{TB: t}
	MustFail(tb, r.options(t, r.serve(t, nil)), "identity/vendor-version-is-set")
	if !tb.failed {
		t.Error("MustFail took an honest plugin for a faulty one")
	}
}

// recorder is a TB that keeps a failure to itself.
type recorder struct {
	testing.TB
	failed bool
}

func (r *recorder) Errorf(string, ...any) { r.failed = true }

// both applies several faults, the first outermost.
func both(faults ...fault) fault {
	if len(faults) == 1 {
		return faults[0]
	}
	return func(ctx context.Context, r *reference, req proto.Message, next func(proto.Message) (proto.Message, error)) (proto.Message, error) {
		return faults[0](ctx, r, req, func(m proto.Message) (proto.Message, error) {
			return both(faults[1:]...)(ctx, r, m, next)
		})
	}
}

// asks changes requests of a type before the honest plugin sees them.
func asks[Req proto.Message](edit func(r *reference, req Req)) fault {
	return func(_ context.Context, r *reference, req proto.Message, next func(proto.Message) (proto.Message, error)) (proto.Message, error) {
		if m, ok := req.(Req); ok {
			r.mu.Lock()
			edit(r, m)
			r.mu.Unlock()
		}
		return next(req)
	}
}

// answers changes honest answers of a type, and what the plugin holds.
func answers[Resp proto.Message](edit func(r *reference, resp Resp)) fault {
	return after(func(r *reference, _ proto.Message, resp Resp) { edit(r, resp) })
}

// after does something when a request was answered with OK.
func after[Req, Resp proto.Message](do func(r *reference, req Req, resp Resp)) fault {
	return func(_ context.Context, r *reference, req proto.Message, next func(proto.Message) (proto.Message, error)) (proto.Message, error) {
		resp, err := next(req)
		if err != nil {
			return nil, err
		}
		in, isReq := req.(Req)
		out, isResp := resp.(Resp)
		if isReq && isResp {
			r.mu.Lock()
			do(r, in, out)
			r.mu.Unlock()
		}
		return resp, nil
	}
}

// recodes gives some errors of requests of a type another code.
func recodes[Req proto.Message](from, to codes.Code, when func(Req) bool) fault {
	return func(_ context.Context, _ *reference, req proto.Message, next func(proto.Message) (proto.Message, error)) (proto.Message, error) {
		resp, err := next(req)
		if m, ok := req.(Req); ok && status.Code(err) == from && (when == nil || when(m)) {
			return nil, status.Error(to, status.Convert(err).Message())
		}
		return resp, err
	}
}

// refuses answers some requests of a type with an error.
func refuses[Req proto.Message](code codes.Code, when func(r *reference, req Req) bool) fault {
	return func(_ context.Context, r *reference, req proto.Message, next func(proto.Message) (proto.Message, error)) (proto.Message, error) {
		if m, ok := req.(Req); ok {
			r.mu.Lock()
			refuse := when(r, m)
			r.mu.Unlock()
			if refuse {
				return nil, status.Error(code, "refused by the mutant")
			}
		}
		return next(req)
	}
}

// pretends answers some requests of a type with OK and does nothing.
func pretends[Req, Resp proto.Message](when func(r *reference, req Req) bool) fault {
	return func(_ context.Context, r *reference, req proto.Message, next func(proto.Message) (proto.Message, error)) (proto.Message, error) {
		if m, ok := req.(Req); ok {
			r.mu.Lock()
			pretend := when(r, m)
			r.mu.Unlock()
			if pretend {
				return empty[Resp](), nil
			}
		}
		return next(req)
	}
}

// forgives answers with OK what the honest plugin answers with a code.
func forgives[Req, Resp proto.Message](code codes.Code) fault {
	return func(_ context.Context, _ *reference, req proto.Message, next func(proto.Message) (proto.Message, error)) (proto.Message, error) {
		resp, err := next(req)
		if _, ok := req.(Req); ok && status.Code(err) == code {
			return empty[Resp](), nil
		}
		return resp, err
	}
}

// forgets hides a part of what the plugin holds from requests of a type: hide
// takes it away and returns what puts it back.
func forgets[Req proto.Message](hide func(r *reference, req Req) (putBack func())) fault {
	return func(_ context.Context, r *reference, req proto.Message, next func(proto.Message) (proto.Message, error)) (proto.Message, error) {
		m, ok := req.(Req)
		if !ok {
			return next(req)
		}
		r.mu.Lock()
		putBack := hide(r, m)
		r.mu.Unlock()
		defer func() {
			r.mu.Lock()
			putBack()
			r.mu.Unlock()
		}()
		return next(req)
	}
}

func empty[M proto.Message]() M {
	var none M
	return none.ProtoReflect().New().Interface().(M)
}

// has reports whether the named volume of the suite is the one of that id.
func (r *reference) has(id, topic string) bool {
	v := r.volumes[id]
	return v != nil && strings.HasSuffix(v.request.GetName(), "-"+topic)
}

// forSeveral reports whether the volume of that id was made for several nodes.
func (r *reference) forSeveral(id string) bool {
	v := r.volumes[id]
	return v != nil && multi(v.request.GetVolumeCapabilities()[0])
}
