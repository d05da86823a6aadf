// Command registrar stands in for kubernetes-csi's node-driver-registrar, which is
// not to be had as a Go module: the kubelet finds its socket, and is told the
// driver's name and socket.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"log"
	"net"
	"os"
	"path/filepath"
	"time"

	"google.golang.org/grpc"
	registration "k8s.io/kubelet/pkg/apis/pluginregistration/v1"

	"github.com/tarn-csi/tarn/test/k8s/csi"
)

// registered is the folder of the kubelet's that the manifests mount here.
const registered = "/registration"

// patience is how long the driver may take to answer; after it the container is
// started anew.
const patience = time.Minute

// server answers the kubelet.
type server struct {
	registration.UnimplementedRegistrationServer
	name, endpoint string
}

func (s *server) GetInfo(context.Context, *registration.InfoRequest) (*registration.PluginInfo, error) {
	return &registration.PluginInfo{Type: registration.CSIPlugin, Name: s.name, Endpoint: s.endpoint, SupportedVersions: []string{"1.0.0"}}, nil
}

// NotifyRegistrationStatus ends the container when the kubelet refuses the driver,
// so that it is tried again.
func (s *server) NotifyRegistrationStatus(_ context.Context, r *registration.RegistrationStatus) (*registration.RegistrationStatusResponse, error) {
	if !r.PluginRegistered {
		log.Fatalf("the kubelet refuses %s: %s", s.name, r.Error)
	}
	log.Printf("%s is registered", s.name)
	return &registration.RegistrationStatusResponse{}, nil
}

func main() {
	socket := flag.String("csi-address", "/run/csi/socket", "the driver's socket")
	endpoint := flag.String("kubelet-registration-path", "", "the same as the kubelet sees it")
	address := flag.String("http-endpoint", "", "where GET /healthz is answered")
	flag.Parse()
	log.Fatal(register(*socket, *endpoint, *address))
}

func register(socket, endpoint, address string) error {
	driver, err := csi.Connect(socket)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	name, err := driver.Name(ctx)
	if err != nil {
		return fmt.Errorf("%s: %w", socket, err)
	}
	path := filepath.Join(registered, name+"-reg.sock")
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	listener, err := net.Listen("unix", path)
	if err != nil {
		return err
	}
	s := grpc.NewServer()
	registration.RegisterRegistrationServer(s, &server{name: name, endpoint: endpoint})
	go func() {
		log.Fatal(csi.Serve(address, time.Second, func(context.Context) error {
			_, err := os.Stat(path)
			return err
		}))
	}()
	return s.Serve(listener)
}
