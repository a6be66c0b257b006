# Everything a person runs by hand, and what .ci/run runs. `make help` lists the targets.
#
# Every cargo call over the whole workspace names the same packages and features, so that the build, the tests and
# the lints share what they compile.

CARGO     ?= cargo
TARGET    := $(or $(CARGO_TARGET_DIR),target)
WORKSPACE := --workspace --all-features --locked

.DEFAULT_GOAL := help
.PHONY: help demo dist takeover-figures example-postgres example-s3 example-axum test build setup lint fmt clippy docs rules fuzz soak bench clean-test

help: ## Show this list
	@sed -nE 's/^([a-z-]+):.*## (.*)/  make \1\t\2/p' $(MAKEFILE_LIST) | expand -t 24

demo: ## Show a takeover live: a pair, two workers, a stale write refused (no root, no Docker, no database)
	$(CARGO) build --locked --bins -p monolock-failover -p monolock-examples
	@$(TARGET)/debug/pair_demo

example-postgres: ## Show PostgreSQL rows that refuse a stale writer (needs PostgreSQL's programs)
	$(CARGO) run --locked -p monolock-examples --bin postgres_rows

example-s3: ## Show an S3 object that refuses a stale writer (installs an S3 server below target/)
	@[ -n "$$MONOLOCK_EXAMPLE_S3" ] || integration-tests/setup --python
	$(CARGO) run --locked -p monolock-examples --features s3 --bin s3_object

example-axum: ## Show an HTTP service that refuses a stale client
	$(CARGO) run --locked -p monolock-examples --features axum --bin axum_service

FIGURE_RUNS ?= 50

takeover-figures: ## Measure takeovers of a release build, FIGURE_RUNS each, as Markdown on stdout (about a quarter of an hour)
	$(CARGO) build --release --locked --bin monolock-failover -p monolock-failover
	@$(TARGET)/release/monolock-failover drill --markdown --runs $(FIGURE_RUNS) --ttl 3s \
		--scenario kill freeze handover
	@echo
	@$(TARGET)/release/monolock-failover drill --markdown --runs $(FIGURE_RUNS) --ttl 1s --scenario freeze

test: setup build ## Run every test with real servers; installs missing Debian packages where it may
	MONOLOCK_SERVER_BIN=$(abspath $(TARGET))/debug/monolock-server $(CARGO) test $(WORKSPACE) --no-fail-fast

build: ## Build libraries, programs and tests
	$(CARGO) build $(WORKSPACE) --lib --bins --tests --examples

setup: ## Install what the tests need, or say what is missing
	@integration-tests/setup

lint: fmt rules clippy docs ## Check format, dependency rules, clippy and the documentation

fmt:
	$(CARGO) fmt --all --check

clippy:
	$(CARGO) clippy $(WORKSPACE) --all-targets -- -D warnings

docs:
	RUSTDOCFLAGS="-D warnings" $(CARGO) doc $(WORKSPACE) --no-deps

rules:
	@.ci/dependency-rules

SIMULATION_SEEDS ?= 0..10000

.PHONY: simulate
simulate: ## Play SIMULATION_SEEDS of the whole-system simulation on every core
	$(CARGO) build --release --locked -p monolock-simulation
	$(TARGET)/release/monolock-simulation --seeds $(SIMULATION_SEEDS)

DIST := $(TARGET)/dist

dist: ## Build the release programs, with manual pages and shell completions, into target/dist
	$(CARGO) build --release --locked --bins -p monolock-server -p monolock-client -p monolock-failover
	install -D -t $(DIST)/bin $(addprefix $(TARGET)/release/,monolock monolock-server monolock-failover)
	$(DIST)/bin/monolock man --out-dir $(DIST)/share/man/man1
	install -d $(DIST)/share/bash-completion/completions $(DIST)/share/zsh/site-functions \
		$(DIST)/share/fish/vendor_completions.d
	$(DIST)/bin/monolock completions bash > $(DIST)/share/bash-completion/completions/monolock
	$(DIST)/bin/monolock completions zsh > $(DIST)/share/zsh/site-functions/_monolock
	$(DIST)/bin/monolock completions fish > $(DIST)/share/fish/vendor_completions.d/monolock.fish

FUZZ_SECONDS ?= 180
FUZZ_TARGETS ?= $(basename $(notdir $(wildcard fuzz/fuzz_targets/*.rs)))

fuzz: ## Fuzz every target for FUZZ_SECONDS each (needs cargo-fuzz and a nightly toolchain)
	@for name in $(FUZZ_TARGETS); do \
		echo "=== $$name"; \
		mkdir -p fuzz/corpus/$$name; \
		$(CARGO) +nightly fuzz run --sanitizer none $$name fuzz/corpus/$$name fuzz/seeds/$$name -- \
			-max_total_time=$(FUZZ_SECONDS) || exit 1; \
	done

BENCH_SECONDS ?= 7

bench: setup ## Measure against the machine's limit, Redis, PostgreSQL and etcd, BENCH_SECONDS each; prints Markdown
	$(CARGO) build --release --locked -p monolock-server -p monolock-benchmarks
	@$(TARGET)/release/monolock-bench --seconds $(BENCH_SECONDS)

soak: ## Run the pair under 5,000 sessions and faults for half an hour; nothing may grow (MONOLOCK_SOAK_MINUTES)
	$(CARGO) build --release --locked --bins -p monolock-failover
	$(CARGO) test --release --locked -p monolock-integration-tests --test soak -- --include-ignored --nocapture

clean-test: ## Remove what the tests left outside cargo's own files: tools, images, containers
	@integration-tests/setup --clean
