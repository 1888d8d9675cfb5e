# Everything a newcomer needs: `make demo` and `make test`. Flags go on with ARGS, as in: make demo ARGS="--seconds 10 --agents 64"
SHELL := bash
STAMP := .venv/.installed
BIN := .venv/bin
ARGS ?=

.DEFAULT_GOAL := help
.PHONY: help setup demo test test-all check bench chaos fuzz kube clean

help:  ## show this list
	@grep -hE '^[a-z]+:.*##' $(MAKEFILE_LIST) | sed -E 's/^([a-z]+):[^#]*## (.*)/  make \1\t\2/' | expand -t 16

setup: $(STAMP)  ## create .venv (uv if it is there, else venv and pip) and install the project

$(STAMP): pyproject.toml tools/setup
	@PYTHON="$(PYTHON)" tools/setup
	@touch $@

demo: $(STAMP)  ## 512 agents play through Kafka for 30 s: a live view, then a result table
	@$(BIN)/fleet demo $(ARGS)

test: $(STAMP)  ## run the tests (unit tests, and stories on the embedded Kafka)
	@$(BIN)/python -m pytest -m "not slow" $(ARGS)

test-all: $(STAMP)  ## the same with the slow stories (rebalances, broker faults, flood, redrives killed or asleep)
	@$(BIN)/python -m pytest $(ARGS)

check: $(STAMP)  ## format, lint, types, layering
	@$(BIN)/ruff format --check --quiet . || { echo "error: not formatted; run .venv/bin/ruff format ." >&2; exit 1; }
	@$(BIN)/ruff check --quiet .
	@$(BIN)/mypy
	@$(BIN)/python -m pytest -q tests/test_layering.py

bench: $(STAMP)  ## a short set of benchmarks, each beside its floor in the same run
	@$(BIN)/fleet bench run $(ARGS)

chaos: $(STAMP)  ## kills, rebalances, broker faults, a full disk, a flood: minutes; CHAOS_SEED=n repeats a run, ARGS="storm" picks
	@$(BIN)/python -m tests.chaos $(ARGS)

fuzz: $(STAMP)  ## hostile bytes, led by coverage, for 5 minutes; ARGS="--minutes 60 manifest" picks
	@$(BIN)/python -c "import atheris" 2>/dev/null || { command -v uv >/dev/null && uv pip install --quiet --python $(BIN)/python -e '.[fuzz]' || $(BIN)/python -m pip install --quiet -e '.[fuzz]'; }
	@$(BIN)/python -m tests.fuzz $(ARGS)

kube: $(STAMP)  ## the chart on a real control plane with KEDA, Pods as processes; needs root, Go (once) and 8 minutes; ARGS="keda" picks
	@$(BIN)/python -m tests.kube $(ARGS)

clean:  ## remove .venv and what the tools left in this folder (Kafka's cache stays)
	rm -rf .venv build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis .fuzz
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
