# Everything here makes .venv by itself on first use and installs again only when
# pyproject.toml or constraints.txt changed. `make` alone lists the targets.

PYTHON ?= python3
JOBS ?= 2
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check install --quiet -c constraints.txt
CORE := $(VENV)/.installed-core
DEV := $(VENV)/.installed-dev

# Torch in one thread per process and two processes beat two threads in one: the tests are small.
PYTEST := OMP_NUM_THREADS=1 TOKENIZERS_PARALLELISM=false HF_HUB_OFFLINE=1 \
          $(BIN)/python -m pytest -n $(JOBS) --dist worksteal

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help demo test check soak lint format bench study clean

help:  ## list the targets
	@grep -hE '^[a-z]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | sort | \
	  awk -F '\t' '{printf "  make %-8s %s\n", $$1, $$2}'

demo: $(CORE)  ## the story in minutes: tiny models write, and a page shows it
	@$(BIN)/anyorder demo

test: lint  ## ruff, mypy and the quick suite
	@$(PYTEST) -m 'not long'

check: $(DEV)  ## the long suite
	@$(PYTEST) -m 'long and not soak' --timeout 1500 || { code=$$?; \
	  if [ $$code -eq 5 ]; then echo 'make check: there are no long tests'; else exit $$code; fi; }

soak: $(DEV)  ## tests that are too long for `make check`
	@$(PYTEST) -m soak --timeout 7200

lint: $(DEV)  ## ruff (rules and format) and mypy
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy

format: $(DEV)  ## let ruff repair what it can
	@$(BIN)/ruff check --fix --exit-zero .
	@$(BIN)/ruff format .

bench: $(DEV)  ## every benchmark, into docs/performance.md (20 minutes; SCRIPTS="flexmdm": some)
	@$(BIN)/python benchmarks/page.py $(SCRIPTS)

study: $(CORE)  ## the paper's questions asked of tiny models, into docs/results.md (ARGS="--help")
	@$(BIN)/python -m studies $(ARGS)

clean:  ## remove caches and builds; .venv and runs/ stay
	rm -rf build dist .mypy_cache .pytest_cache .ruff_cache .hypothesis
	find src tests benchmarks recipes studies -name __pycache__ -type d -prune -exec rm -rf {} +

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
	  echo "anyorder needs Python 3.11 or newer, and '$(PYTHON)' is not (it is: $$($(PYTHON) --version 2>&1))."; \
	  echo "Name another one: make PYTHON=python3.12 ..."; exit 1; } >&2
	@$(PYTHON) -m venv $(VENV)

# torch first and alone, so that nothing else can ask for another release of it; the build tools
# next, pinned like the rest, so that the editable install needs no build environment of its own.
$(CORE): pyproject.toml constraints.txt | $(BIN)/python
	@echo 'Installing anyorder into $(VENV); the first time takes a few minutes.'
	@$(PIP) torch
	@$(PIP) hatchling editables
	@$(PIP) --no-build-isolation -e '.[report]'
	@touch $@

$(DEV): $(CORE)
	@echo 'Installing the development tools into $(VENV).'
	@$(PIP) --no-build-isolation -e '.[dev]'
	@touch $@
