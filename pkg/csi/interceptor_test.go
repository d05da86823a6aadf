package csi

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"github.com/google/go-cmp/cmp"
	"github.com/sirupsen/logrus"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/tarn-csi/tarn/pkg/fault"
	"github.com/tarn-csi/tarn/pkg/op"
	csiv0 "github.com/tarn-csi/tarn/proto/csi/v0"
)

const (
	create = "/csi.v1.Controller/CreateVolume"
	list   = "/csi.v0.Controller/ListVolumes"
)

// served runs one RPC through the interceptor, and returns its error and log.
type served struct {
	intercept grpc.UnaryServerInterceptor
	log       bytes.Buffer
}

func newServed(level logrus.Level) *served {
	s := &served{}
	log := logrus.New()
	log.SetOutput(&s.log)
	log.SetLevel(level)
	log.SetFormatter(&logrus.JSONFormatter{})
	s.intercept = Interceptor(log, time.Minute)
	return s
}

func (s *served) call(ctx context.Context, method string, req any, handler grpc.UnaryHandler) (any, []map[string]any, error) {
	s.log.Reset()
	resp, err := s.intercept(ctx, req, &grpc.UnaryServerInfo{FullMethod: method}, handler)
	var lines []map[string]any
	for line := range strings.Lines(s.log.String()) {
		fields := map[string]any{}
		if err := json.Unmarshal([]byte(line), &fields); err != nil {
			panic(err)
		}
		lines = append(lines, fields)
	}
	return resp, lines, err
}

func answer(err error) grpc.UnaryHandler {
	return func(context.Context, any) (any, error) { return "answer", err }
}

func TestOneLineAnRPC(t *testing.T) {
	s := newServed(logrus.InfoLevel)
	for _, c := range []struct {
		name, method string
		err          error
		want         map[string]any // nil: no line
	}{
		{"a change", create, nil, map[string]any{"level": "info", "msg": "done", "code": "OK"}},
		{"a read", list, nil, nil},
		{"a refusal", create, fault.New(fault.Exists, "size differs"), map[string]any{"level": "info", "msg": "refused", "code": "AlreadyExists", "reason": "size differs"}},
		{"a refused read", list, fault.New(fault.Aborted, "bad token"), map[string]any{"level": "info", "msg": "refused", "code": "Aborted", "reason": "bad token"}},
		{"a failure", create, errors.New("boom"), map[string]any{"level": "error", "msg": "failed", "code": "Internal", "reason": "boom"}},
		{"a failed read", list, errors.New(""), map[string]any{"level": "error", "msg": "failed", "code": "Internal", "reason": "Internal"}},
	} {
		_, lines, err := s.call(t.Context(), c.method, &csi.CreateVolumeRequest{Name: "pvc-1\n"}, answer(c.err))
		if (err != nil) != (c.err != nil) {
			t.Errorf("%s: got %v", c.name, err)
		}
		if c.want == nil {
			if len(lines) != 0 {
				t.Errorf("%s: logged %v", c.name, lines)
			}
			continue
		}
		if len(lines) != 1 {
			t.Errorf("%s: %d lines: %v", c.name, len(lines), lines)
			continue
		}
		if _, ok := lines[0]["seconds"].(float64); !ok {
			t.Errorf("%s: it does not say how long it took: %v", c.name, lines[0])
		}
		for _, varies := range []string{"seconds", "time", "request"} {
			delete(lines[0], varies)
		}
		c.want["method"], c.want["subject"] = strings.TrimPrefix(c.method, "/"), "pvc-1?"
		if diff := cmp.Diff(c.want, lines[0]); diff != "" {
			t.Errorf("%s: %s", c.name, diff)
		}
	}
}

func TestRequestsAreNumbered(t *testing.T) {
	s := newServed(logrus.DebugLevel)
	for want := range 3 {
		_, lines, _ := s.call(t.Context(), list, &csiv0.ListVolumesRequest{}, answer(nil))
		if len(lines) != 2 || lines[0]["level"] != "debug" || lines[1]["level"] != "debug" {
			t.Fatalf("got %v", lines)
		}
		for _, line := range lines {
			if line["request"] != float64(want+1) {
				t.Errorf("request %v, want %d", line["request"], want+1)
			}
		}
	}
}

func TestC58TheRequestInTheDebugLogIsRedacted(t *testing.T) {
	s := newServed(logrus.TraceLevel)
	for _, req := range []any{
		&csi.NodeStageVolumeRequest{VolumeId: harmless, Secrets: map[string]string{"password": secret}},
		&csiv0.NodeStageVolumeRequest{VolumeId: harmless, NodeStageSecrets: map[string]string{"password": secret}},
	} {
		_, lines, _ := s.call(t.Context(), "/csi.v1.Node/NodeStageVolume", req, answer(nil))
		if content, _ := lines[0]["content"].(string); !strings.Contains(content, harmless) || strings.Contains(s.log.String(), secret) {
			t.Errorf("%T: %s", req, s.log.String())
		}
	}
}

func TestSubjectIsTheVolumeOrItsName(t *testing.T) {
	for _, c := range []struct {
		req  any
		want string
	}{
		{&csi.CreateVolumeRequest{Name: "n"}, "n"}, {&csiv0.CreateVolumeRequest{Name: "n"}, "n"}, {&csi.DeleteVolumeRequest{VolumeId: "v"}, "v"},
		{&csiv0.NodePublishVolumeRequest{VolumeId: "v"}, "v"}, {&csi.ListVolumesRequest{}, ""}, {&csi.DeleteVolumeRequest{}, ""}, {nil, ""},
	} {
		if got := subjectOf(c.req); got != c.want {
			t.Errorf("%T: %q, want %q", c.req, got, c.want)
		}
	}
}

func boom() (any, error) { panic("boom") }

func TestAPanicIsAnInternalErrorAndOneLineWithTheStack(t *testing.T) {
	s := newServed(logrus.InfoLevel)
	for name, handler := range map[string]grpc.UnaryHandler{
		"in the call": func(context.Context, any) (any, error) { return boom() },
		"in an operation": func(ctx context.Context, _ any) (any, error) {
			return nil, op.NewTable().Do(ctx, op.Spec{What: "CreateVolume"}, func(context.Context) error { _, err := boom(); return err })
		},
	} {
		_, lines, err := s.call(t.Context(), create, &csi.CreateVolumeRequest{}, handler)
		if st := status.Convert(err); st.Code() != codes.Internal || st.Message() != "panic: boom" {
			t.Errorf("%s: got %v", name, err)
		}
		if len(lines) != 1 || lines[0]["level"] != "error" || !strings.Contains(lines[0]["stack"].(string), "csi.boom") {
			t.Errorf("%s: logged %v", name, lines)
		}
	}
	if resp, _, err := s.call(t.Context(), create, &csi.CreateVolumeRequest{}, answer(nil)); err != nil || resp != "answer" {
		t.Errorf("the next call: %v, %v", resp, err)
	}
}

func TestADeadlineIsGivenWhereTheCallerSetNone(t *testing.T) {
	s := newServed(logrus.InfoLevel)
	within := func(least, most time.Duration) grpc.UnaryHandler {
		return func(ctx context.Context, _ any) (any, error) {
			if end, ok := ctx.Deadline(); !ok || time.Until(end) < least || time.Until(end) > most {
				t.Errorf("the deadline is in %s, %t", time.Until(end), ok)
			}
			return nil, nil
		}
	}
	if _, _, err := s.call(t.Context(), create, nil, within(30*time.Second, time.Minute)); err != nil {
		t.Error(err)
	}
	for _, d := range []time.Duration{20 * time.Second, time.Hour} {
		ctx, cancel := context.WithTimeout(t.Context(), d)
		if _, _, err := s.call(ctx, create, nil, within(d/2, d)); err != nil {
			t.Error(err)
		}
		cancel()
	}
}

func TestADeadlineOfOursIsToldAsOne(t *testing.T) {
	log := logrus.New()
	log.SetOutput(&bytes.Buffer{})
	intercept := Interceptor(log, time.Nanosecond)
	_, err := intercept(t.Context(), nil, &grpc.UnaryServerInfo{FullMethod: create}, func(ctx context.Context, _ any) (any, error) {
		<-ctx.Done()
		return nil, errors.New("signal: killed")
	})
	if status.Code(err) != codes.DeadlineExceeded {
		t.Errorf("got %v", err)
	}
}

// What changes nothing is told at debug level: a probe every few seconds would
// hide the rest.
func TestWhichRPCsChangeSomething(t *testing.T) {
	changing := []string{
		"CreateVolume", "DeleteVolume", "ControllerPublishVolume", "ControllerUnpublishVolume", "ControllerExpandVolume", "ControllerModifyVolume",
		"CreateSnapshot", "DeleteSnapshot", "CreateVolumeGroupSnapshot", "DeleteVolumeGroupSnapshot",
		"NodeStageVolume", "NodeUnstageVolume", "NodePublishVolume", "NodeUnpublishVolume", "NodeExpandVolume",
	}
	seen := map[string]bool{}
	for _, d := range []grpc.ServiceDesc{
		csi.Identity_ServiceDesc, csi.Controller_ServiceDesc, csi.Node_ServiceDesc, csi.GroupController_ServiceDesc,
		csiv0.Identity_ServiceDesc, csiv0.Controller_ServiceDesc, csiv0.Node_ServiceDesc,
	} {
		for _, m := range d.Methods {
			full := "/" + d.ServiceName + "/" + m.MethodName
			seen[m.MethodName] = true
			if want := slices.Contains(changing, m.MethodName); changes(full) != want {
				t.Errorf("%s changes something: %t", full, !want)
			}
		}
	}
	for _, name := range changing {
		if !seen[name] {
			t.Errorf("no service has %s", name)
		}
	}
}
