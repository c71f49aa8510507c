# Every target sets up what it needs: a virtual environment in .venv, pinned by constraints.txt.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PEERS := .bench-peers
PIP_INSTALL := $(BIN)/python -m pip install --quiet --disable-pip-version-check --no-compile -c constraints.txt

# One process a core, at most four; a file's tests stay together, so that they share what they prepare.
PYTEST := $(BIN)/python -m pytest -n auto --maxprocesses 4 --dist loadfile
# What numba compiles for: a CPU with AVX2 and no AVX-512.
AVX2 := NUMBA_CPU_NAME=x86-64-v3 NUMBA_CPU_FEATURES=+avx2,+fma

# Compile each module once and keep it; without this every process would compile torch anew where the variable is set.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help demo test test-all test-avx2 fuzz lint format bench clean

help:  ## Show this list
	@grep -hE '^[a-z0-9-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 11

demo: $(VENV)/.core  ## Reproduce DG-15 from generated data; writes runs/dg15/report.html
	$(BIN)/toporo reproduce dg15 --source generated --out runs/dg15

test: $(VENV)/.dev  ## Run all tests but the slow ones (those on real data need TOPORO_DATA)
	$(PYTEST) -m 'not slow'

test-all: $(VENV)/.dev  ## Run all tests
	$(PYTEST)

test-avx2: $(VENV)/.dev  ## Run the fused kernel's tests as on a CPU without AVX-512
	$(AVX2) $(PYTEST) tests/topology/test_engine.py tests/topology/test_diffusion.py

fuzz: $(VENV)/.dev  ## Feed damaged files to every reader for MINUTES=5
	$(BIN)/python tools/fuzz.py --minutes $(or $(MINUTES),5)

lint: $(VENV)/.dev  ## Check style, types, layers, dependencies and spelling
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/deptry src
	$(BIN)/codespell README.md CHANGELOG.md CONTRIBUTING.md docs src tests benchmarks examples

format: $(VENV)/.dev  ## Rewrite the sources in the house style
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench: $(VENV)/.dev $(PEERS)/.installed  ## Measure; tables go to benchmarks/results/ (ONLY="start steps" for some)
	$(BIN)/python benchmarks/run.py $(ONLY)

clean:  ## Remove the virtual environment and caches (not runs/)
	rm -rf $(VENV) $(PEERS) .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis

# $@ is touched last, so an interrupted install is done again.
$(VENV)/bin/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "toporo needs Python 3.11 or newer; found $$($(PYTHON) --version). Set PYTHON=/path/to/python3.11"; exit 1; }
	$(PYTHON) -m venv $(VENV)

$(VENV)/.core: pyproject.toml constraints.txt | $(VENV)/bin/python
	@echo "Installing toporo into $(VENV) (a few minutes the first time) ..."
	@$(PIP_INSTALL) -e .
	@touch $@

$(VENV)/.dev: pyproject.toml constraints.txt | $(VENV)/bin/python
	@echo "Installing toporo and its development tools into $(VENV) (a few minutes the first time) ..."
	@$(PIP_INSTALL) -e '.[dev]'
	@touch $@ $(VENV)/.core

# What toporo is measured against, kept apart: none of it is a dependency.
$(PEERS)/.installed: benchmarks/peers.txt | $(VENV)/.dev
	@echo "Installing the benchmarks' peers into $(PEERS) ..."
	@$(PIP_INSTALL) --no-deps --target $(PEERS) --upgrade -r benchmarks/peers.txt
	@touch $@
