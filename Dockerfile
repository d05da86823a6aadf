# Tarn's image: the static binary and nothing else. With --host-root every tool (zfs, exportfs, iscsiadm, mkfs, mount) is
# the host's, so none is in here, and none can be of another version than the host's kernel wants.
#
#     docker build --build-arg VERSION=$(git describe --tags --always) -t ghcr.io/tarn-csi/tarn:dev .
#
# Both images can be others, where no registry is reachable: --build-arg GO_IMAGE=localhost/go --build-arg BASE_IMAGE=localhost/base
ARG GO_IMAGE=docker.io/library/golang:1.26.8
ARG BASE_IMAGE=scratch

FROM ${GO_IMAGE} AS build
WORKDIR /src
# The modules are a layer of their own: they change seldom.
COPY go.mod go.sum ./
RUN go mod download
COPY cmd cmd
COPY pkg pkg
COPY proto proto
ARG VERSION=dev
RUN CGO_ENABLED=0 go build -buildvcs=false -trimpath -ldflags "-s -w -X github.com/tarn-csi/tarn/pkg/app.Version=${VERSION}" -o /tarn ./cmd/tarn

FROM ${BASE_IMAGE}
ARG VERSION=dev
LABEL org.opencontainers.image.title="Tarn" \
      org.opencontainers.image.description="CSI plugin: ZFS pools as container storage, over NFS and iSCSI" \
      org.opencontainers.image.source="https://github.com/tarn-csi/tarn" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.version="${VERSION}"
COPY --from=build /tarn /tarn
# Root, and no USER: chroot(2), mount(2), the ioctls of /dev/zfs, configfs and iscsid's socket are for root alone, and
# nothing of what the process does could be done without them. See docs/security.md.
ENTRYPOINT ["/tarn"]
CMD ["serve"]
