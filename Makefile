# Two commands for people, `make demo` and `make test`; the rest are their parts.
# Each works on a bare Debian machine and installs what is missing.

SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help
.PHONY: help demo test long-test simulate fuzz conformance-kafka defects guarantees soak mutants build lint deploy-check advisories bench \
  install install-tests tools

cache := $(or $(XDG_CACHE_HOME),$(HOME)/.cache)/adtrail
tools := $(cache)/tools

# Outside the checkout, so that every clone shares the 13 minutes that RocksDB and librdkafka take.
export CARGO_TARGET_DIR ?= $(cache)/target
# Tests wait most of the time: for Kafka, for a session that ends, for a state that expires.
export RUST_TEST_THREADS ?= 4
export PATH := $(tools)/bin:$(PATH):$(HOME)/.cargo/bin

# TalkingData's sample is not ours to pass on: README.md says where to get it.
talkingdata := $(or $(ADTRAIL_TALKINGDATA),$(wildcard ../shared/data/talkingdata_sample.csv.gz))

# Each file of tests is a suite, those of one name in several crates are one, and so are units and docs.
suites := suite-of-units suite-of-docs $(addprefix suite-,$(sort $(basename $(notdir \
  $(wildcard tests/*.rs */tests/*.rs) $(patsubst %/main.rs,%.rs,$(wildcard tests/*/main.rs */tests/*/main.rs))))))

# One profile for running, testing, linting and documenting: another would build these again.
cargo_flags := --release --locked

help: ## this list
	@sed -nE 's/^([a-z-]+):.*## (.*)/  make \1\t\2/p' $(MAKEFILE_LIST) | expand -t 26

demo: install ## everything in one process, with made-up traffic, until Ctrl-C
	cargo run $(cargo_flags) --bin adtrail -- demo

test: lint deploy-check ## what CI runs: lint, the tests of all crates, on a real Kafka and Prometheus
	cargo test $(cargo_flags) --workspace --no-run
	# Two at a time, as they wait more than they work; what each says stays together. One that
	# fails keeps no other from telling what it has to say.
	$(MAKE) --keep-going --jobs=2 --output-sync=target --no-print-directory $(suites)
	cargo test $(cargo_flags) --features crash-points --test crash_points
	@if [[ -n "$(talkingdata)" ]]; then set -x; \
	  ADTRAIL_TALKINGDATA="$(talkingdata)" cargo test $(cargo_flags) --test talkingdata -- --ignored; \
	else \
	  echo "test: NOT RUN, as ADTRAIL_TALKINGDATA names no data: tests/talkingdata.rs; see README.md"; \
	fi

suite-%:
	@MAKEFLAGS= cargo test $(cargo_flags) --workspace --no-fail-fast --test $* 2>&1

suite-of-units:
	@MAKEFLAGS= cargo test $(cargo_flags) --workspace --no-fail-fast --lib --bins 2>&1

suite-of-docs:
	@MAKEFLAGS= cargo test $(cargo_flags) --workspace --no-fail-fast --doc 2>&1

build: install ## the adtrail binary
	cargo build $(cargo_flags) --bin adtrail
	@echo "built: $(CARGO_TARGET_DIR)/release/adtrail"

lint: install-tests tools ## format, dependencies and their arrows, clippy and docs without a warning
	cargo fmt --all --check
	cargo fetch --locked
	scripts/check-arrows --offline
	scripts/defects/run --check
	# Offline: what is asked of the network on every run, the advisories, is `make advisories`.
	cargo deny --offline --locked --workspace check --hide-inclusion-graph bans licenses sources
	cargo machete --with-metadata
	cargo clippy $(cargo_flags) --workspace --all-targets -- -D warnings
	RUSTDOCFLAGS="-D warnings" cargo doc $(cargo_flags) --no-deps --workspace

deploy-check: install-tests ## what can be checked of deploy/ and docker-compose.yml without an engine
	promtool check config deploy/prometheus.yml
	promtool test rules deploy/alerts.test.yml
	@if docker compose version >/dev/null 2>&1; then \
	  echo "docker compose config --quiet"; docker compose config --quiet; \
	else \
	  echo "deploy-check: no docker compose here, so its own check is left out; see tests/deploy.rs"; \
	fi

long-test: install ## 10,000 random sets of facts against the reference, in every order, and while state expires; prints its seed
	@seed=$${PROPTEST_RNG_SEED:-$$RANDOM$$RANDOM}; echo "PROPTEST_RNG_SEED=$$seed"; \
	  time PROPTEST_RNG_SEED=$$seed PROPTEST_CASES=10000 \
	  cargo test $(cargo_flags) --package adtrail-store --test reference --test convergence --test expiry

simulate: install ## 10,000 runs of the worker in a simulated world where everything goes wrong; prints the first seed
	@first=$${ADTRAIL_SIM_FROM:-$$RANDOM$$RANDOM}; echo "ADTRAIL_SIM_FROM=$$first"; \
	  time ADTRAIL_SIM_FROM=$$first ADTRAIL_SIM_SEEDS=$${ADTRAIL_SIM_SEEDS:-10000} \
	  cargo test $(cargo_flags) --package adtrail-store --test simulation -- --nocapture whatever

fuzz: install ## 5 hours: what decodes bytes from outside, fed by libFuzzer; ADTRAIL_FUZZ_S=60 for a look; see docs/fuzzing.md
	scripts/fuzz

conformance-kafka: install-tests ## all conformance cases through a real Kafka, the service and HTTP: 5 minutes
	CONFORMANCE_KAFKA="$${CONFORMANCE_KAFKA:-all}" \
	  cargo test $(cargo_flags) --test conformance_kafka -- --nocapture

defects: install-tests ## half an hour: builds with a named defect, each of which the tests have to find
	scripts/defects/run

guarantees: install-tests ## an hour and a half: the faults of docs/guarantees.md at full length; prints what was compared
	scripts/guarantees

soak: install-tests ## half an hour (ADTRAIL_SOAK_MINUTES) at half load: what grows, what is lost, how soon rows are seen
	cargo test $(cargo_flags) --test soak -- --ignored --nocapture

mutants: install ## hours: every small change to the core that no test sees; see docs/mutants.md
	scripts/mutants

advisories: tools ## known security holes among the dependencies; reads a database from the network
	cargo deny --locked --workspace check advisories

bench: install-tests ## the benches, printed as a table; see docs/performance.md
	cargo bench --locked --benches

install:
	@scripts/install
	@scripts/own-target

install-tests:
	@scripts/install --tests
	@scripts/own-target

tools: install
	@scripts/install-tools $(tools)
