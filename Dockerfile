# syntax=docker/dockerfile:1
# The controller as one static binary on an empty image.
#
#   docker buildx build --platform linux/amd64,linux/arm64 --tag dovetail .

# The toolchain of this image is rustup's for musl, of the platform that is built for: it links statically, has the target
# below already, and the C and assembly of three dependencies (ring, psm, libmimalloc-sys) needs no cross compiler.
FROM rust:1.95-alpine AS build
RUN apk add --no-cache gcc musl-dev
WORKDIR /src
COPY Cargo.toml Cargo.lock ./
COPY .cargo .cargo
COPY crates crates
# Members of the workspace that the binary does not use, but Cargo wants to read.
COPY test test
COPY xtask xtask
ARG TARGETARCH
RUN --mount=type=cache,target=/usr/local/cargo/registry \
    --mount=type=cache,target=/src/target,id=target-${TARGETARCH} \
    case "${TARGETARCH:-amd64}" in \
      amd64) target=x86_64-unknown-linux-musl ;; \
      arm64) target=aarch64-unknown-linux-musl ;; \
      *) echo "no build for ${TARGETARCH}" >&2; exit 1 ;; \
    esac && \
    cargo build --release --locked --package provisioner --bin dovetail --target "$target" && \
    cp "target/$target/release/dovetail" /dovetail

FROM scratch
COPY --from=build /dovetail /dovetail
USER 65532:65532
ENTRYPOINT ["/dovetail"]
CMD ["run"]
