package main

import (
	"archive/tar"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"testing"
)

func TestArchiveOfImages(t *testing.T) {
	dir := t.TempDir()
	program := filepath.Join(dir, "prog")
	if err := os.WriteFile(program, []byte("program"), 0o755); err != nil {
		t.Fatal(err)
	}
	archive := filepath.Join(dir, "images.tar")
	images := []image{{name: "localhost/a:1", program: program, links: []string{"b"}}, {name: "localhost/c:1", program: program, args: []string{"x"}}}
	if err := writeImages(archive, images); err != nil {
		t.Fatal(err)
	}
	files := unpack(t, archive)
	var index []struct {
		Config   string
		RepoTags []string
		Layers   []string
	}
	if err := json.Unmarshal(files["manifest.json"], &index); err != nil || len(index) != 2 {
		t.Fatalf("%s: %v", files["manifest.json"], err)
	}
	for i, e := range index {
		var config struct {
			Config struct{ Entrypoint []string }
			Rootfs struct {
				Digests []string `json:"diff_ids"`
			}
		}
		if err := json.Unmarshal(files[e.Config], &config); err != nil {
			t.Fatal(err)
		}
		if want := fmt.Sprintf("sha256:%x", sha256.Sum256(files[e.Layers[0]])); config.Rootfs.Digests[0] != want {
			t.Errorf("the layer's digest is %s, not %s", config.Rootfs.Digests[0], want)
		}
		if got, want := fmt.Sprint(config.Config.Entrypoint), []string{"[/prog]", "[/prog x]"}[i]; got != want {
			t.Errorf("%s starts %s", e.RepoTags[0], got)
		}
	}
}

func unpack(t *testing.T, path string) map[string][]byte {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	files := map[string][]byte{}
	r := tar.NewReader(f)
	for {
		h, err := r.Next()
		if err == io.EOF {
			return files
		}
		if err != nil {
			t.Fatal(err)
		}
		if files[h.Name], err = io.ReadAll(r); err != nil {
			t.Fatal(err)
		}
	}
}
