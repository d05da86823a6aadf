package main

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
)

// image is a container image with one program, statically linked.
type image struct {
	name    string   // as the manifests have it
	program string   // the file
	links   []string // its other names
	args    []string // what it is started with
}

// base is the name of a file in its folder.
func base(path string) string { return filepath.Base(path) }

// writeImages writes images into one archive, as `docker save` does. No registry is
// asked for any.
func writeImages(path string, images []image) error {
	out, err := os.Create(path)
	if err != nil {
		return err
	}
	defer out.Close()
	w := tar.NewWriter(out)
	type entry struct {
		Config   string
		RepoTags []string
		Layers   []string
	}
	var index []entry
	for i, one := range images {
		layer, err := one.layer()
		if err != nil {
			return fmt.Errorf("image %s: %w", one.name, err)
		}
		type object = map[string]any
		config, err := json.Marshal(object{
			"architecture": "amd64", "os": "linux",
			"config": object{"Entrypoint": append([]string{"/" + base(one.program)}, one.args...), "Env": []string{"PATH=/"}},
			"rootfs": object{"type": "layers", "diff_ids": []string{fmt.Sprintf("sha256:%x", sha256.Sum256(layer))}},
		})
		if err != nil {
			return err
		}
		e := entry{fmt.Sprintf("%d.json", i), []string{one.name}, []string{fmt.Sprintf("%d.tar", i)}}
		index = append(index, e)
		if err := add(w, e.Config, 0o644, config); err != nil {
			return err
		}
		if err := add(w, e.Layers[0], 0o644, layer); err != nil {
			return err
		}
	}
	text, err := json.Marshal(index)
	if err != nil {
		return err
	}
	if err := add(w, "manifest.json", 0o644, text); err != nil {
		return err
	}
	if err := w.Close(); err != nil {
		return err
	}
	return out.Close()
}

// layer is the image's only layer: the program, and the folders that a pod needs.
func (i image) layer() ([]byte, error) {
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, folder := range []string{"dev/", "etc/", "proc/", "sys/", "tmp/"} {
		if err := w.WriteHeader(&tar.Header{Typeflag: tar.TypeDir, Name: folder, Mode: 0o755}); err != nil {
			return nil, err
		}
	}
	content, err := os.ReadFile(i.program)
	if err != nil {
		return nil, err
	}
	if err := add(w, base(i.program), 0o755, content); err != nil {
		return nil, err
	}
	for _, link := range i.links {
		if err := w.WriteHeader(&tar.Header{Typeflag: tar.TypeSymlink, Name: link, Linkname: base(i.program)}); err != nil {
			return nil, err
		}
	}
	err = w.Close()
	return b.Bytes(), err
}

func add(w *tar.Writer, name string, mode int64, content []byte) error {
	if err := w.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: name, Mode: mode, Size: int64(len(content))}); err != nil {
		return err
	}
	_, err := io.Copy(w, bytes.NewReader(content))
	return err
}
