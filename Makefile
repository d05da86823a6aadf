# Tarn's targets; `make help` lists them.
# Everything that a target needs beyond Go is installed by the target itself.

SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
export CGO_ENABLED ?= 1

VERSION ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo dev)
LDFLAGS := -s -w -X github.com/tarn-csi/tarn/pkg/app.Version=$(VERSION)
GO := hack/go

.PHONY: help
help: ## List the targets
	@grep -hE '^[a-z0-9-]+:.*##' $(MAKEFILE_LIST) | sort | awk -F':.*## ' '{printf "  %-12s %s\n", $$1, $$2}'

.PHONY: build
build: ## Build bin/tarn, one static binary
	CGO_ENABLED=0 $(GO) build -trimpath -ldflags '$(LDFLAGS)' -o bin/tarn ./cmd/tarn

.PHONY: demo
demo: build ## Provision, mount, write, read and delete volumes on a real pool over NFS and iSCSI
	CGO_ENABLED=0 $(GO) build -trimpath -o bin/demo ./hack/demo
	hack/demo/run

.PHONY: test
test: unit guest machines ## All tests: on this machine, and on real kernels in virtual machines

# Most of these tests wait more than they compute, so that more of them run at once than there are processors.
.PHONY: unit
unit: ## Tests that need neither root nor a virtual machine, with the race detector
	$(MAKE) --no-print-directory -j 3 --output-sync=line unit-race unit-mutants unit-steps

.PHONY: unit-race
unit-race: export GORACE := atexit_sleep_ms=0 # fakes are the test binary again, and each would sleep a second at its end
unit-race:
	$(GO) test -race -p 4 -skip '^TestMutants$$' ./...

.PHONY: unit-mutants
unit-mutants:
	CGO_ENABLED=0 $(GO) test -run '^TestMutants$$' ./test/sanity/v0 ./test/inprocess

.PHONY: unit-steps
unit-steps:
	CGO_ENABLED=0 $(GO) test -tags faults ./pkg/step ./test/faults/steps

.PHONY: guest
guest: build ## Tests on real ZFS, NFS and iSCSI, in virtual machines: each package's contract, and the built daemon
	hack/guest-tests

.PHONY: machines
machines: build ## Tests with two virtual machines: reboot, power loss, a dead node
	CGO_ENABLED=0 $(GO) build -trimpath -o bin/csi-call ./hack/csi-call
	CGO_ENABLED=0 $(GO) test -tags vm -short -count 1 -timeout 40m -run '^TestPair$$' ./test/faults/machines

.PHONY: faults
faults: build ## Everything that can go wrong, in full, a dead server too; TARN_SEED repeats a failure (hours)
	CGO_ENABLED=0 $(GO) build -trimpath -o bin/csi-call ./hack/csi-call
	GORACE=atexit_sleep_ms=0 TARN_LONG=1 $(GO) test -race -count 1 -v -timeout 1h -run '^TestStorm$$' ./test/inprocess
	TARN_TEST_FLAGS=-test.v hack/guest-tests --long ./test/faults ./test/faults/steps
	CGO_ENABLED=0 $(GO) test -tags vm -count 1 -v -timeout 6h ./test/faults/machines

.PHONY: long
long: build ## The guest tests in full: 500 random steps, 2,000 volumes, every point of a cut-off, in a virtual machine (hours)
	TARN_TEST_FLAGS=-test.v hack/guest-tests --long

.PHONY: bench
bench: build ## The RPCs of the storage host beside bare commands, in a virtual machine: build/bench.json (long)
	CGO_ENABLED=0 $(GO) build -trimpath -o bin/bench ./test/bench
	hack/vm/run --cached --memory 8192 --disk 8G --timeout 10800 -- bin/bench # thousands of mounted filesystems take memory

.PHONY: screenshot
screenshot: ## The status page in a headless Chromium: build/screenshots
	command -v chromium >/dev/null || { apt-get update -q && apt-get install -qy --no-install-recommends chromium fonts-dejavu-core; }
	CGO_ENABLED=0 $(GO) test -tags screenshot -count 1 -run '^TestScreenshots$$' ./pkg/web

.PHONY: image
image: ## The container image, built and started by Debian's buildah, without a registry
	hack/image

# Without -count a change would not be noticed, since what the tests read is outside of their module.
.PHONY: manifests
manifests: ## Kustomize and Helm make the same; Kubernetes, systemd and tarn take it (the first run compiles Kubernetes' validation)
	command -v systemd-analyze >/dev/null || { apt-get update -q && apt-get install -qy --no-install-recommends systemd; }
	CGO_ENABLED=0 $(GO) test -tags systemd -count 1 -run '^TestSystemdTakesTheUnits$$' ./test/docs
	cd test/manifests && CGO_ENABLED=0 ../../$(GO) test -count 1 ./...
	cd test/k8s && CGO_ENABLED=0 ../../$(GO) test ./...

.PHONY: k8s
k8s: build ## Real Kubernetes: takes the manifests, and Tarn serves its claims in a virtual machine (the first run compiles it)
	hack/k8s/run

.PHONY: k8s-manifests
k8s-manifests: ## The first part of k8s: a real API server takes every overlay and the chart, strictly
	hack/k8s/run manifests

.PHONY: lint
lint: ## Static checks; exceptions and their reasons stand in .golangci.yml
	hack/lint

.PHONY: generate
generate: ## Generate Go from proto/; leaves no difference
	hack/generate.sh
	git diff --exit-code -- proto

.PHONY: vm-shell
vm-shell: ## A shell in a virtual machine with ZFS, NFS and iSCSI
	hack/vm/shell

.PHONY: fuzz
fuzz: ## Each fuzz target for 30 s
	hack/fuzz

.PHONY: clean
clean: ## Remove what was built here
	rm -rf bin build
