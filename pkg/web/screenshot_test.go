//go:build screenshot

package web

import (
	"context"
	"errors"
	"fmt"
	"image"
	"image/png"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/tarn-csi/tarn/pkg/node"
	"github.com/tarn-csi/tarn/pkg/op"
	"github.com/tarn-csi/tarn/pkg/run"
	"github.com/tarn-csi/tarn/pkg/volume"
)

// pictures is where the screenshots are left, for people to look at.
const pictures = "../../build/screenshots"

// busy is a host on which something of everything is to be seen.
func busy() Sources {
	var list []volume.Seen
	for i := range 240 {
		v := seen(fmt.Sprintf("pvc-%08x-4c1e-4f0a-9c1b-7d5c2a10b3%02x", i*2654435761, i))
		v.Owner.Claim, v.Owner.Namespace, v.Snapshots = fmt.Sprintf("data-postgres-%d", i), "shop", i%4
		if i%3 == 0 {
			v.Protocol, v.Sessions = volume.ISCSI, 1
		}
		if i%5 == 0 {
			v.PublishedTo, v.Export, v.Sessions = nil, volume.ExportNone, 0
		}
		list = append(list, v)
	}
	list[1].Export, list[1].Conditions = volume.ExportMissing, []volume.Condition{{
		Severity: volume.Inaccessible, Reason: volume.NotMounted, Message: "dataset tank/csi/" + list[1].ID + " is not mounted on the storage host"}}
	s := sources(list...)
	round := s.Round()
	round.Rounds, round.Repairs = 1440, map[volume.Repair]uint64{volume.RepairedExport: 192}
	round.Pools[0].Snapshots = map[string]int{volume.NFS: 61, volume.ISCSI: 34}
	round.Pools = append(round.Pools,
		volume.PoolRound{Name: "fast", Parent: "nvme/k8s/csi", State: "DEGRADED", UsedBytes: 930 << 30, AvailableBytes: 70 << 30, Deleted: 3},
		volume.PoolRound{Name: "archive", Parent: "archive/csi", Err: errors.New("pool archive is not imported: import it"), UsedBytes: 1 << 40, AvailableBytes: 9 << 40})
	s.Round = func() volume.Round { return round }
	s.Tally = func() node.Tally {
		return node.Tally{Ended: time.Now(), Sweeps: 1440, Staged: map[string]int{volume.NFS: 12, volume.ISCSI: 5}, Sessions: 5, Lost: 1}
	}
	s.Children = func() []run.Child {
		return []run.Child{{Line: "iscsiadm -m node -T iqn.2026-01.io.github.tarn-csi:tarn:0f0e -o update -n node.session.auth.password -v [masked]", Since: time.Now().Add(-3 * time.Second)}}
	}
	s.Operations["storage"] = func() []op.Running {
		return []op.Running{{What: "ControllerPublishVolume", Keys: []string{list[3].ID}, Since: time.Now().Add(-2 * time.Second)},
			{What: "DeleteVolume", Keys: []string{list[9].ID}, Since: time.Now().Add(-11 * time.Minute), Overdue: true}}
	}
	return s
}

// The page is drawn by a browser in its light and its dark dress, and on a
// telephone. What is tested is that it is drawn; how it looks is for people.
func TestScreenshots(t *testing.T) {
	browser, err := exec.LookPath("chromium")
	if err != nil {
		t.Fatal("this test needs chromium: make screenshot installs it")
	}
	out, err := filepath.Abs(pictures)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(out, 0o755); err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(Handler(busy()))
	defer server.Close()
	for _, c := range []struct {
		name          string
		width, height int
		scheme        string // as Blink counts them
		bright        bool
	}{{"light", 1280, 1500, "1", true}, {"dark", 1280, 1500, "0", false}, {"narrow", 500, 1500, "1", true}} {
		t.Run(c.name, func(t *testing.T) {
			path := filepath.Join(out, "status-"+c.name+".png")
			_ = os.Remove(path)
			ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
			defer cancel()
			said, err := exec.CommandContext(ctx, browser, "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--hide-scrollbars", "--run-all-compositor-stages-before-draw",
				"--user-data-dir="+t.TempDir(), "--blink-settings=preferredColorScheme="+c.scheme, "--screenshot="+path,
				fmt.Sprintf("--window-size=%d,%d", c.width, c.height), server.URL).CombinedOutput()
			if err != nil {
				t.Fatalf("%v: %s", err, said)
			}
			judge(t, path, c.bright)
		})
	}
}

// judge looks for what a page that was drawn has: a ground of the right
// brightness, many shades of text, and the bars' three colours.
func judge(t *testing.T, path string, bright bool) {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	picture, err := png.Decode(f)
	if err != nil {
		t.Fatal(err)
	}
	counts := map[[3]uint8]int{}
	box := picture.Bounds()
	for y := box.Min.Y; y < box.Max.Y; y++ {
		for x := box.Min.X; x < box.Max.X; x++ {
			counts[rgb(picture, x, y)]++
		}
	}
	ground := rgb(picture, 1, box.Max.Y-2)
	if (int(ground[0])+int(ground[1])+int(ground[2]) > 384) != bright {
		t.Errorf("the ground is %v", ground)
	}
	if len(counts) < 50 {
		t.Errorf("it has %d colours only", len(counts))
	}
	bars := [][3]uint8{{0x1f, 0x6f, 0x8b}, {0x96, 0x65, 0x0a}, {0xb3, 0x26, 0x1e}}
	if !bright {
		bars = [][3]uint8{{0x6c, 0xbd, 0xd8}, {0xe8, 0xb8, 0x5a}, {0xf2, 0x8b, 0x82}}
	}
	for _, color := range bars {
		if counts[color] < 200 {
			t.Errorf("no bar of colour %x: %d points", color, counts[color])
		}
	}
}

func rgb(picture image.Image, x, y int) [3]uint8 {
	r, g, b, _ := picture.At(x, y).RGBA()
	return [3]uint8{uint8(r >> 8), uint8(g >> 8), uint8(b >> 8)}
}
