#!/usr/bin/env bash
# Regenerates the Go code beside proto/csi/v0/csi.proto.
# Needs protoc (Debian: protobuf-compiler) of exactly the version below, since
# protoc writes its version into what it generates.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

protoc_version=3.21.12
grpc_plugin_version=v1.6.2

found=$(protoc --version) || { echo "generate: protoc is missing: apt-get install protobuf-compiler" >&2; exit 1; }
if [ "$found" != "libprotoc $protoc_version" ]; then
  echo "generate: need protoc $protoc_version, found: $found" >&2
  exit 1
fi

bin=$PWD/build/generate
mkdir -p "$bin"
# From go.mod, so that the generator is always that of the runtime.
hack/go build -o "$bin/protoc-gen-go" google.golang.org/protobuf/cmd/protoc-gen-go
GOBIN=$bin hack/go install "google.golang.org/grpc/cmd/protoc-gen-go-grpc@$grpc_plugin_version"

# The path given to protoc is the name under which the descriptor registers.
cd proto
protoc --proto_path=. \
  --plugin="$bin/protoc-gen-go" --plugin="$bin/protoc-gen-go-grpc" \
  --go_out=. --go_opt=paths=source_relative \
  --go-grpc_out=. --go-grpc_opt=paths=source_relative,require_unimplemented_servers=false \
  csi/v0/csi.proto
