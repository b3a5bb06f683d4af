# Understudy as an image of one static binary: no shell, no package, no root. All it writes is below /var/lib/understudy
# (the store) and /run/understudy (its socket), so the root file system can be read-only.
FROM golang:1.26.8-bookworm AS build
WORKDIR /src
COPY go.mod go.sum ./
RUN go mod download
COPY . .
# The binary is stamped with its commit where the context is a whole clone. Where it is an archive, or its .git leads out of
# the context (a linked worktree, a clone that borrows its objects), go would give up on the stamp.
RUN GOFLAGS="$(git status >/dev/null 2>&1 || echo -buildvcs=false)" CGO_ENABLED=0 \
    go build -trimpath -ldflags '-s -w' -o /out/extproc ./cmd/extproc \
 && mkdir -p /out/var/lib/understudy /out/run/understudy /out/etc/ssl/certs \
 && cp /etc/ssl/certs/ca-certificates.crt /out/etc/ssl/certs/

FROM scratch
# A new volume on one of the folders takes over its owner.
COPY --from=build --chown=65532:65532 /out/ /
USER 65532:65532
EXPOSE 9002 9003
HEALTHCHECK --interval=5s --timeout=5s --start-period=30s CMD ["/extproc", "health"]
ENTRYPOINT ["/extproc"]
CMD ["serve", "-c", "/etc/understudy/understudy.yaml"]
