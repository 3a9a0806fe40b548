# Everything runs from .venv, which `make setup` builds from the lock file. Needs Python 3.11+, Java 17+ and make.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# Test processes: each has its own lab and Spark session (about 3 GiB), and half of the time they wait.
JOBS ?= 4
READY := $(VENV)/.ready

.DEFAULT_GOAL := help

.PHONY: help
help: ## print this list
	@grep -E '^[a-z-]+:.*## ' Makefile | sed -E 's/^([a-z-]+):.*## (.*)/make \1|\2/' | awk -F'|' '{printf "  %-12s %s\n", $$1, $$2}'

.PHONY: setup
setup: $(READY) ## build .venv, so that .venv/bin/playhead runs

$(READY): requirements.lock pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "Python 3.11 or newer is needed: make PYTHON=python3.12 setup" >&2; exit 2; }
	@command -v java >/dev/null || [ -n "$$JAVA_HOME" ] || { echo "Java 17 or newer is needed" >&2; exit 2; }
	@echo "setting up $(VENV) (once; PySpark is a large download)" >&2
	@$(PYTHON) -m venv $(VENV)
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements.lock
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation -e .
	@touch $(READY)

.PHONY: demo
demo: setup ## start the lab and run the demo on it
	@$(BIN)/playhead demo

.PHONY: lint
lint: setup ## format check, lint, types, layers
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports

.PHONY: unit
unit: setup ## the tests that need no server (under a minute)
	$(BIN)/pytest tests/unit -m "not soak" -n 2

.PHONY: test
test: setup ## lint, then every test on real parts (under half an hour on 2 cores, once the jars are there)
	@$(MAKE) --no-print-directory -j2 --output-sync=target lint unit
	@$(BIN)/python tests/quick_java.py
	$(BIN)/pytest tests/contract tests/integration -m "not soak" -n $(JOBS) --dist loadfile --no-loadscope-reorder

.PHONY: soak
soak: setup ## long tests: many kills, large grids, many examples (about two and a half hours)
	HYPOTHESIS_PROFILE=soak $(BIN)/pytest tests/unit --timeout 1800
	$(BIN)/pytest -m soak --timeout 3600

.PHONY: bench
bench: setup ## speed against named peers; needs kcat and jq
	$(BIN)/python benchmarks/run.py

.PHONY: format
format: setup ## format the code with ruff and apply its fixes
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

.PHONY: lock
lock: setup ## resolve the dependencies again into requirements.lock
	$(BIN)/python -m pip install --quiet uv
	$(BIN)/uv pip compile pyproject.toml --all-extras --group dev --universal --python-version 3.11 --generate-hashes --no-header --no-annotate --quiet -o requirements.lock

.PHONY: clean
clean: ## remove .venv and caches
	rm -rf $(VENV) .mypy_cache .ruff_cache .import_linter_cache .hypothesis dist
