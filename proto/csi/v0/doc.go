// Package csiv0 is the Go binding of csi.v0, the Container Storage Interface
// in version 0.2.0, generated from csi.proto by hack/generate.sh. It is the
// only binding of csi.v0 that may be linked into a program: message names
// register once.
package csiv0
