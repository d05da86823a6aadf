// Command csi-call makes one call to a CSI socket, for trying things out and
// for tests in several machines. Request and answer are JSON.
//
//	csi-call --endpoint unix:///run/tarn/csi.sock csi.v0.Controller/CreateVolume '{"name":"a", ...}'
package main

import (
	"context"
	"fmt"
	"os"
	"strings"
	"time"

	// Both versions' messages are found by name.
	_ "github.com/container-storage-interface/spec/lib/go/csi"
	"github.com/spf13/cobra"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
	"google.golang.org/protobuf/types/dynamicpb"

	_ "github.com/tarn-csi/tarn/proto/csi/v0"
)

func main() {
	c := &cobra.Command{
		Use:           "csi-call PACKAGE.SERVICE/METHOD [JSON]",
		Short:         "Make one call to a CSI socket",
		Args:          cobra.RangeArgs(1, 2),
		SilenceUsage:  true,
		SilenceErrors: true,
	}
	endpoint := c.Flags().String("endpoint", "unix:///run/tarn/csi.sock", "socket to call")
	timeout := c.Flags().Duration("timeout", 2*time.Minute, "deadline of the call")
	c.RunE = func(c *cobra.Command, args []string) error {
		request := "{}"
		if len(args) == 2 {
			request = args[1]
		}
		answer, err := call(*endpoint, args[0], request, *timeout)
		if err != nil {
			return err
		}
		_, err = fmt.Fprintln(c.OutOrStdout(), answer)
		return err
	}
	if err := c.Execute(); err != nil {
		fmt.Fprintln(os.Stderr, "csi-call:", err)
		os.Exit(1)
	}
}

func call(endpoint, name, request string, timeout time.Duration) (string, error) {
	service, method, ok := strings.Cut(name, "/")
	if !ok {
		return "", fmt.Errorf("%q is not PACKAGE.SERVICE/METHOD", name)
	}
	d, err := protoregistry.GlobalFiles.FindDescriptorByName(protoreflect.FullName(service))
	if err != nil {
		return "", fmt.Errorf("service %s: %w", service, err)
	}
	s, ok := d.(protoreflect.ServiceDescriptor)
	if !ok {
		return "", fmt.Errorf("%s is no service", service)
	}
	m := s.Methods().ByName(protoreflect.Name(method))
	if m == nil {
		return "", fmt.Errorf("service %s has no method %s", service, method)
	}
	in, out := dynamicpb.NewMessage(m.Input()), dynamicpb.NewMessage(m.Output())
	if err := protojson.Unmarshal([]byte(request), in); err != nil {
		return "", fmt.Errorf("request: %w", err)
	}
	conn, err := grpc.NewClient(endpoint, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return "", err
	}
	defer conn.Close()
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	if err := conn.Invoke(ctx, "/"+name, in, out, grpc.WaitForReady(true)); err != nil {
		return "", err
	}
	b, err := protojson.MarshalOptions{UseProtoNames: true}.Marshal(out)
	return string(b), err
}
