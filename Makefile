# Octavo. Every target sets up what it needs; nothing has to be activated. `make help` lists them.
SHELL := /bin/bash
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help setup check test test-quick test-long test-gpu conformance demo bench format clean clean-all

VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
PYTHON ?=
KEEP ?=
ALL ?=
CORPUS ?=
CORPORA ?=
ARGS ?=

export RAY_USAGE_STATS_ENABLED := 0
export TOKENIZERS_PARALLELISM := false

help: ## list the targets
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):[^#]*## /\1|/' | \
		while IFS='|' read -r target text; do printf '  make %-11s %s\n' "$$target" "$$text"; done

setup: $(READY) ## make .venv and install the locked requirements (other targets do it too)

$(READY): requirements.lock requirements-uv.lock pyproject.toml
	@set -e; \
	if [ ! -x $(BIN)/python ]; then \
		python=$$(PYTHON='$(PYTHON)' .ci/find-python); \
		echo "Making $(VENV) with $$python"; \
		"$$python" -m venv --clear $(VENV); \
	fi; \
	if ! $(BIN)/uv --version 2>/dev/null | grep -qF "$$(sed -n 's/^uv==\([^ ]*\).*/\1/p' requirements-uv.lock)"; then \
		$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements-uv.lock \
			|| echo "uv could not be installed; going on with pip"; \
	fi; \
	echo "Installing the locked requirements (a few minutes and 7 GB the first time)"; \
	if [ -x $(BIN)/uv ] && $(BIN)/uv pip install --quiet --compile-bytecode --python $(BIN)/python --require-hashes -r requirements.lock; then :; else \
		echo "uv could not install the lock; trying pip"; \
		$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements.lock; \
	fi; \
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation --editable .; \
	touch $(READY)

check: $(READY) ## formatting, lint, types, dependency rules, architecture tests
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-logo
	$(BIN)/python -m pytest -q tests/architecture

test: $(READY) ## the tests
	$(BIN)/python -m pytest -q -m "not (long or gpu)" $(ARGS)

test-quick: $(READY) ## only tests that start neither a JVM nor Ray
	$(BIN)/python -m pytest -q -m "not (jvm or ray or slow or long or gpu)" $(ARGS)

test-long: $(READY) ## the tests, those that take minutes too
	$(BIN)/python -m pytest -q -m "not gpu" $(ARGS)

test-gpu: $(READY) ## the tests that need a GPU
	$(BIN)/python -m pytest -q -m gpu $(ARGS)

conformance: $(READY) ## the MCP conformance suite and other makers' clients (also in make test)
	$(BIN)/python -m pytest -q -m conformance tests/conformance $(ARGS)

demo: $(READY) ## the whole product on a real corpus (KEEP=1 leaves it serving, ALL=1 reads every package)
	$(BIN)/octavo demo $(if $(KEEP),--keep) $(if $(ALL),--all) $(ARGS)

bench: $(READY) ## retrieval quality: lexical on one BEIR folder (CORPUS=DIR), all modes on many (CORPORA=FOLDER)
	@test -n "$(CORPUS)$(CORPORA)" || { echo "say which: make bench CORPUS=DIR (a folder in BEIR form), or CORPORA=FOLDER (a folder of such)"; exit 2; }
	$(BIN)/python -m benchmarks.quality $(if $(CORPORA),--all "$(CORPORA)",--corpus "$(CORPUS)" --mode lexical) $(ARGS)

format: $(READY) ## rewrite the code as ruff formats it
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

clean: ## remove caches and the demo's store
	rm -rf .octavo-demo .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache build *.egg-info
	find . -name __pycache__ -not -path './$(VENV)/*' -prune -exec rm -rf {} +

clean-all: clean ## remove .venv and .conformance too
	rm -rf $(VENV) .conformance
