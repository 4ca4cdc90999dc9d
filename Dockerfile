# The adtrail binary on a small Debian. Needs BuildKit, which is the default of current engines.
FROM rust:1.95-bookworm AS build
WORKDIR /src
COPY scripts/install scripts/
RUN scripts/install && rm -rf /var/lib/apt/lists/*
COPY . .
# The caches keep RocksDB and librdkafka (13 minutes on two cores) from one build to the next.
RUN --mount=type=cache,target=/usr/local/cargo/registry \
    --mount=type=cache,target=/target \
    CARGO_TARGET_DIR=/target cargo build --release --locked --bin adtrail \
    && install -D /target/release/adtrail /out/adtrail

FROM debian:bookworm-slim
# What the binary is linked to, and certificates for brokers with TLS.
RUN apt-get update \
    && apt-get install -y --no-install-recommends ca-certificates libssl3 libstdc++6 zlib1g \
    && rm -rf /var/lib/apt/lists/*
# New volumes take over the owner and the mode of these directories. The home directory is not created by useradd, which
# would copy files of /etc/skel into it.
RUN useradd --system --uid 10001 --home-dir /var/lib/adtrail --no-create-home adtrail \
    && install -d -m 0700 -o adtrail -g adtrail /var/lib/adtrail /backups
COPY --from=build /out/adtrail /usr/local/bin/adtrail
COPY LICENSE /usr/share/doc/adtrail/
USER adtrail
WORKDIR /var/lib/adtrail
# The store and cached schemas.
VOLUME /var/lib/adtrail
# Users, operators.
EXPOSE 8080 8081
# The first start may have to wait for Kafka. Kubernetes ignores this and has probes.
HEALTHCHECK --interval=10s --timeout=10s --start-period=2m --retries=3 \
    CMD ["adtrail", "health", "--config", "/etc/adtrail/adtrail.toml"]
ENTRYPOINT ["adtrail"]
CMD ["run", "--config", "/etc/adtrail/adtrail.toml"]
