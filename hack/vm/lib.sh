# Read by the scripts beside it: where things are, and the two Go programs behind them.
# shellcheck shell=bash

vm_dir=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")" && pwd -P)
TARN_TREE=$(cd -- "$vm_dir/../.." && pwd -P)
TARN_VM_CACHE=${TARN_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/tarn}
export TARN_TREE TARN_VM_CACHE

# hash_of FILE...: sixteen digits of what is in the files.
hash_of() { cat -- "$@" | sha256sum | cut -c1-16; }

# build_tools: vmctl for this host and the agent for the guests, built once for every state of their source.
build_tools() {
  local key tools temp
  key=$(cd "$vm_dir" && hash_of $(find vmctl agent internal -type f ! -name '*_test.go' | LC_ALL=C sort))
  tools=$TARN_VM_CACHE/vm-tools-$key
  if [[ ! -d $tools ]]; then
    mkdir -p "$TARN_VM_CACHE"
    temp=$(mktemp -d "$TARN_VM_CACHE/vm-tools.XXXXXX")
    (cd "$TARN_TREE" && CGO_ENABLED=0 hack/go build -trimpath -ldflags '-s -w' -o "$temp/" ./hack/vm/vmctl ./hack/vm/agent)
    chmod 755 "$temp"
    mv -T "$temp" "$tools" 2>/dev/null || rm -rf "$temp" # another runner was faster
  fi
  vmctl=$tools/vmctl
  TARN_VM_AGENT=$tools/agent
  export TARN_VM_AGENT
}
