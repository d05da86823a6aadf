// Command livenessprobe stands in for kubernetes-csi's, which is not to be had as a
// Go module: GET /healthz asks the driver's Probe.
package main

import (
	"context"
	"errors"
	"flag"
	"log"
	"time"

	"github.com/tarn-csi/tarn/test/k8s/csi"
)

func main() {
	socket := flag.String("csi-address", "/run/csi/socket", "the driver's socket")
	address := flag.String("http-endpoint", "", "where GET /healthz is answered")
	limit := flag.Duration("probe-timeout", time.Second, "of a Probe")
	flag.Parse()
	driver, err := csi.Connect(*socket)
	if err != nil {
		log.Fatal(err)
	}
	log.Fatal(csi.Serve(*address, *limit, func(ctx context.Context) error {
		ready, err := driver.Ready(ctx)
		if err == nil && !ready {
			err = errors.New("the driver is not ready")
		}
		return err
	}))
}
