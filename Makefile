# Every target sets up what it needs: a virtual environment in .venv, from the files named in requirements/ and no others.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PEERS := .bench-peers
TOOLS := .tools
INSTALL := -m pip install --quiet --disable-pip-version-check --no-compile
LOCKED := $(INSTALL) --require-hashes --no-deps
LOCK := requirements
# Each step takes only files whose hashes are known: a CPU build of torch where there is one at hand, the rest, what
# torch's builds for GPUs need besides, and toporo itself, built with what is locked.
define SETUP
@$(BIN)/python $(LOCKED) --no-index -r $(LOCK)/cpu.lock 2>/dev/null || true
@$(BIN)/python $(LOCKED) $(LOCKS:%=-r %)
@if grep -qsE '^Requires-Dist: (nvidia|cuda)' $(VENV)/lib/python*/site-packages/torch-*.dist-info/METADATA; then \
  $(BIN)/python $(LOCKED) -r $(LOCK)/cuda.lock; fi
@$(BIN)/python $(INSTALL) --no-deps --no-build-isolation -e .
@$(BIN)/python -m pip --quiet check
endef

# One process a core, at most four; a file's tests stay together, so that they share what they prepare, and files come in
# the order of tests/conftest.py.
PYTEST := $(BIN)/python -m pytest -n auto --maxprocesses 4 --dist loadfile --no-loadscope-reorder
# What numba compiles for: a CPU with AVX2 and no AVX-512.
AVX2 := NUMBA_CPU_NAME=x86-64-v3 NUMBA_CPU_FEATURES=+avx2,+fma

# Compile each module once and keep it; without this every process would compile torch anew where the variable is set.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help demo test test-all test-avx2 golden golden-update docs lint format fuzz torture bench mutants lock audit clean

help:  ## Show this list
	@grep -hE '^[a-z0-9-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 15

demo: $(VENV)/.core  ## Reproduce DG-15 from generated data; writes runs/dg15/report.html
	$(BIN)/toporo reproduce dg15 --source generated --out runs/dg15

test: $(VENV)/.dev  ## Run all tests but the slow ones (those on real data need TOPORO_DATA)
	$(PYTEST) -m 'not slow'

test-all: $(VENV)/.dev  ## Run all tests
	$(PYTEST)

test-avx2: $(VENV)/.dev  ## Run the fused kernel's tests as on a CPU without AVX-512
	$(AVX2) $(PYTEST) tests/topology/test_engine.py tests/topology/test_diffusion.py

golden: $(VENV)/.dev  ## Compute the golden results and compare them with those in tests/golden (parts on real data need TOPORO_DATA)
	$(BIN)/python -m tests.golden $(NAME)

golden-update: $(VENV)/.dev  ## Store the golden results of NAME="dg15 priors" anew; say in the commit why they changed
	@test -n "$(NAME)" || { echo 'Name the parts: make golden-update NAME="dg15 priors". make golden lists them.'; exit 2; }
	$(BIN)/python -m tests.golden --update $(NAME)

docs: $(VENV)/.dev  ## Build the documentation site, offline, every example run; docs/_build/html/index.html
	$(BIN)/python tools/build_site.py

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

fuzz: $(VENV)/.dev  ## Feed damaged files to every reader for MINUTES=5
	FUZZ_MINUTES=$(or $(MINUTES),5) $(BIN)/python -m pytest -n auto --maxprocesses 4 -rP tests/test_fuzz.py

torture: $(VENV)/.dev  ## Kill, interrupt, crowd and starve every command that writes (about an hour; Linux, a C compiler)
	$(BIN)/python tools/torture.py

bench: $(VENV)/.dev $(PEERS)/.installed  ## Measure; tables go to benchmarks/results/ (ONLY="start steps" for some)
	$(BIN)/python benchmarks/run.py $(ONLY)

lock: $(TOOLS)/.installed  ## Renew requirements/*.lock after a change of pyproject.toml (UPGRADE=1: newest releases)
	$(TOOLS)/bin/python tools/lock.py $(if $(UPGRADE),--upgrade)

mutants: $(VENV)/.dev $(TOOLS)/.installed  ## Mutation testing of PACKAGES="topology robust", COUNT=100 mutants each (about ten seconds a mutant)
	$(TOOLS)/bin/python tools/mutants.py $(PACKAGES) --count $(or $(COUNT),100)

audit: $(TOOLS)/.installed  ## Say which locked releases have known vulnerabilities (asks a database on the net)
	@$(TOOLS)/bin/python tools/audit.py

clean:  ## Remove the virtual environments, caches and the built site (not runs/)
	rm -rf $(VENV) $(TOOLS) $(PEERS) docs/_build docs/_pages docs/gallery docs/api/names .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis

# $@ is touched last, so an interrupted install is done again.
$(VENV)/bin/python $(TOOLS)/bin/python: %/bin/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "toporo needs Python 3.11 or newer; found $$($(PYTHON) --version). Set PYTHON=/path/to/python3.11"; exit 1; }
	$(PYTHON) -m venv $*

$(VENV)/.core: LOCKS := $(LOCK)/core.lock
$(VENV)/.core: pyproject.toml $(LOCK)/core.lock | $(VENV)/bin/python
	@echo "Installing toporo into $(VENV) (a few minutes the first time) ..."
	$(SETUP)
	@touch $@

$(VENV)/.dev: LOCKS := $(LOCK)/core.lock $(LOCK)/dev.lock
$(VENV)/.dev: pyproject.toml $(LOCK)/core.lock $(LOCK)/dev.lock | $(VENV)/bin/python
	@echo "Installing toporo and its development tools into $(VENV) (a few minutes the first time) ..."
	$(SETUP)
	@touch $@ $(VENV)/.core

$(TOOLS)/.installed: $(LOCK)/tools.lock | $(TOOLS)/bin/python
	@$(TOOLS)/bin/python $(LOCKED) -r $(LOCK)/tools.lock
	@touch $@

# What toporo is measured against, kept apart: none of it is a dependency.
$(PEERS)/.installed: benchmarks/peers.txt | $(VENV)/.dev
	@echo "Installing the benchmarks' peers into $(PEERS) ..."
	@$(BIN)/python $(INSTALL) --no-deps --target $(PEERS) --upgrade -r benchmarks/peers.txt
	@touch $@
