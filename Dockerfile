# syntax=docker/dockerfile:1
# The controller as one static binary on an empty image.
#
#   docker buildx build --platform linux/amd64,linux/arm64 --tag dovetail .

# The toolchain of this image is rustup's for musl, of the platform that is built for: it links statically, has the target
# below already, and the C and assembly of three dependencies (ring, psm, libmimalloc-sys) needs no cross compiler.
#
# A tag can be moved. A release pins what the tag names on its day, by `--build-arg BUILD_IMAGE=rust:1.95-alpine@sha256:…`
# (`docker buildx imagetools inspect rust:1.95-alpine` prints the digest), and its notes say which.
ARG BUILD_IMAGE=rust:1.95-alpine
FROM ${BUILD_IMAGE} AS build
RUN apk add --no-cache ca-certificates gcc musl-dev
# Writes down what the binary is made of.
RUN cargo install --locked --root /tools cargo-cyclonedx@0.5.9
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
    sdk="$(cargo xtask trimmed-sdk)" && \
    cargo build --release --locked --package dovetail --features aws --target "$target" "$sdk" && \
    cp "target/$target/release/dovetail" /dovetail && \
    PATH="/tools/bin:$PATH" cargo cyclonedx --manifest-path crates/dovetail/Cargo.toml --features aws --target "$target" \
      --format json --spec-version 1.5 --override-filename dovetail.cdx && \
    cp crates/dovetail/dovetail.cdx.json /dovetail.cdx.json

FROM scratch
# By which AWS is trusted.
COPY --from=build /etc/ssl/certs/ca-certificates.crt /etc/ssl/certs/ca-certificates.crt
COPY --from=build /dovetail /dovetail
COPY --from=build /dovetail.cdx.json /dovetail.cdx.json
USER 65532:65532
ENTRYPOINT ["/dovetail"]
CMD ["run"]
