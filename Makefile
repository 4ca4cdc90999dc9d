# `make demo` and `make test` are the main commands; the others are parts of them.
# Each works on a bare Debian machine and installs missing packages.

SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help
.PHONY: help demo test check flaky test-times long-test simulate fuzz conformance-kafka conformance-hbase defects \
  guarantees soak mutants build deb rpm release reproducible try-package lint deploy-check advisories bench bench-peers \
  install install-tests install-packages tools

cache := $(or $(XDG_CACHE_HOME),$(HOME)/.cache)/adtrail
tools := $(cache)/tools

# Outside the checkout, so that all clones share the build of RocksDB and librdkafka, which takes 13 minutes.
export CARGO_TARGET_DIR ?= $(cache)/target
export PATH := $(tools)/bin:$(PATH):$(HOME)/.cargo/bin

# One profile for running, testing, linting and documentation: another would build them again.
cargo_flags := --release --locked

help: ## this list
	@sed -nE 's/^([a-z-]+):.*## (.*)/  make \1\t\2/p' $(MAKEFILE_LIST) | expand -t 26

demo: install ## everything in one process with generated traffic, until Ctrl-C
	cargo run $(cargo_flags) --bin adtrail -- demo

test: install-tests tools ## what CI runs: lint, and all tests, on a real Kafka, HBase and Prometheus
	@scripts/ci

check: install-tests tools ## after a change: format, clippy, unit tests and the contract, without a JVM
	cargo fmt --all --check
	scripts/test -E 'kind(lib) + kind(bin) + test(/^(contract|conformance)::/)'
	cargo clippy $(cargo_flags) --workspace --all-targets -- -D warnings

flaky: install-tests tools ## all tests N times (20): names each test that failed
	scripts/flaky $(or $(N),20)

test-times: ## the slowest tests of the last run, and the starts of services
	scripts/test-times

build: install ## the adtrail binary
	cargo build $(cargo_flags) --bin adtrail
	@echo "built: $(CARGO_TARGET_DIR)/release/adtrail"

deb: install-packages ## a Debian package, in target/packages; see docs/install.md
	scripts/package deb

rpm: install-packages ## an RPM package, in target/packages
	scripts/package rpm

release: install-packages ## deb, rpm, tarball, software bill of materials and SHA256SUMS; the first time 13 minutes
	scripts/package release

reproducible: install-packages ## builds the release in two checkouts and compares the bytes
	scripts/check-reproducible

try-package: install-tests install-packages tools ## installs, upgrades, removes the package of `make deb` in a new Debian root
	lintian --allow-root --fail-on error target/packages/*.deb
	ADTRAIL_PACKAGE=$$(echo target/packages/*.deb) scripts/test --profile long --no-capture --run-ignored only \
	  -E 'binary(brokers) & test(/^package::/)'

lint: install-tests tools ## format, dependencies, clippy and documentation without warnings
	cargo fmt --all --check
	cargo fetch --locked
	scripts/check-arrows --offline
	scripts/check-circles
	scripts/check-words
	scripts/defects/run --check
	# Offline; `make advisories` is the check that needs the network.
	cargo deny --offline --locked --workspace check --hide-inclusion-graph bans licenses sources
	cargo machete --with-metadata
	cargo clippy $(cargo_flags) --workspace --all-targets -- -D warnings
	RUSTDOCFLAGS="-D warnings" cargo doc $(cargo_flags) --no-deps --workspace
	cargo test $(cargo_flags) --workspace --features crash-points --doc

deploy-check: install-tests ## deploy/, its Helm chart and docker-compose.yml, as far as possible without a container engine
	promtool check config deploy/prometheus.yml
	promtool test rules deploy/alerts.test.yml
	scripts/check-chart
	@if docker compose version >/dev/null 2>&1; then \
	  echo "docker compose config --quiet"; docker compose config --quiet; \
	else \
	  echo "deploy-check: docker compose is not installed, so its check is skipped; see tests/brokers/deploy.rs"; \
	fi

long-test: install tools ## 10,000 random sets of facts against the reference, in any order and with expiring state; prints the seed
	@seed=$${PROPTEST_RNG_SEED:-$$RANDOM$$RANDOM}; echo "PROPTEST_RNG_SEED=$$seed"; \
	  time ADTRAIL_TEST_LONG=1 PROPTEST_RNG_SEED=$$seed PROPTEST_CASES=10000 \
	  scripts/test --profile long -E 'binary(decisions) & test(/^(reference|convergence|expiry|expiry_floor|contract::(explanations|shared_ids))::/)'

simulate: install tools ## 10,000 simulated runs of the worker with faults of every kind; prints the first seed
	@first=$${ADTRAIL_SIM_FROM:-$$RANDOM$$RANDOM}; echo "ADTRAIL_SIM_FROM=$$first"; \
	  time ADTRAIL_SIM_FROM=$$first ADTRAIL_SIM_SEEDS=$${ADTRAIL_SIM_SEEDS:-10000} \
	  scripts/test --profile long --no-capture simulation::rows_are

fuzz: install ## 5 hours: fuzzes the decoders of external bytes; ADTRAIL_FUZZ_S=60 for a short run; see docs/fuzzing.md
	scripts/fuzz

conformance-kafka: install-tests tools ## all conformance cases through a real Kafka, the service and HTTP: 5 minutes
	CONFORMANCE_KAFKA="$${CONFORMANCE_KAFKA:-all}" \
	  scripts/test --profile long --no-capture conformance_kafka::

conformance-hbase: install-tests tools ## the same over a real HBase instead of RocksDB
	CONFORMANCE_KAFKA="$${CONFORMANCE_KAFKA:-all}" \
	  scripts/test --profile long --no-capture conformance_hbase::

defects: install-tests tools ## an hour: builds with known defects, each of which the tests must find
	scripts/defects/run

guarantees: install-tests tools ## an hour and a half: the faults of docs/guarantees.md at full length; prints the rows compared
	scripts/guarantees

soak: install-tests tools ## half an hour (ADTRAIL_SOAK_MINUTES) at half load: growth, losses, time until rows are visible
	scripts/test --profile long --no-capture --run-ignored only -E 'binary(soak)'

mutants: install ## hours: mutations of the core that no test detects; see docs/mutants.md
	scripts/mutants

advisories: tools ## known vulnerabilities of dependencies; needs the network
	cargo deny --locked --workspace check advisories

bench: install-tests ## the benches, printed as a table; see docs/performance.md
	cargo bench --locked --benches

bench-peers: install-tests ## only those beside other systems: Flink and Kafka Streams; ClickHouse, DuckDB and PostgreSQL
	cargo bench --locked --bench streams --bench peers

install:
	@scripts/install
	@scripts/own-target

install-tests:
	@scripts/install --tests
	@scripts/own-target

install-packages:
	@scripts/install --packages
	@scripts/own-target
	@scripts/install-tools $(tools) --packages

tools: install
	@scripts/install-tools $(tools)
