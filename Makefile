# Two commands to know: `make demo` and `make test`. `make help` lists the others.
# Everything lives in .venv; nothing else is left behind, here or in /tmp.

SHELL := /bin/sh
.SHELLFLAGS := -ec
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help install serve demo proto proto-check fmt lint types test test-slow test-wheel \
        test-compose bench bench-smoke check clean

PYTHON ?= python3
# What to test, such as TESTS=tests/khot or TESTS='tests/khot -k order'; all if empty.
TESTS ?=
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt
INSTALLED := $(VENV)/.installed
NATIVE := $(VENV)/.native

# No __pycache__ among the sources, no cache in the home directory.
export PYTHONPYCACHEPREFIX := $(CURDIR)/$(VENV)/.cache/python
unexport PYTHONDONTWRITEBYTECODE
export BUF_CACHE_DIR := $(CURDIR)/$(VENV)/.cache/buf

# Begins a recipe that may leave temporary files anywhere: they all go.
IN_TMP = tmp=$$(mktemp -d); trap 'rm -rf "$$tmp"' EXIT; trap 'exit 130' INT TERM; export TMPDIR="$$tmp";
PYTEST = $(BIN)/python -m pytest --basetemp="$$tmp/pytest" $(TESTS)
# All tests on all cores; one corner, while working on it, in one process.
CORES = $(if $(TESTS),,-n auto --dist loadgroup --no-loadscope-reorder)

help:  ## List the commands.
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-12s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

install: $(INSTALLED) $(NATIVE)  ## Make the venv, install khot in it, compile the kernels.

$(BIN)/python:
	@$(PYTHON) -c 'import sys; v = sys.version_info; sys.exit(v < (3, 11) and f"khot: Python must be 3.11 or newer; got {v[0]}.{v[1]}. Set PYTHON=/path/to/python3")'
	@$(PYTHON) -m venv $(VENV) || { rm -rf $(VENV); echo "khot: python3 -m venv must work; on Debian: apt install python3-venv" >&2; exit 1; }

$(INSTALLED): pyproject.toml constraints.txt hatch_build.py | $(BIN)/python
	@echo "khot: installing into $(VENV) (a minute or two the first time)"
	@$(IN_TMP) $(PIP) hatchling editables && $(PIP) --no-build-isolation -e '.[dev]'
	@touch $@

$(NATIVE): $(wildcard khot/_native/*.c khot/_native/*.h) khot/_native/build.py | $(INSTALLED)
	@$(BIN)/python khot/_native/build.py
	@[ ! -e khot/_native/libkhot.baseline.so ] || touch $@  # without a compiler: ask again next time

demo: install  ## See it work: a server, a sampling call, a job that chooses 10 of 64 pixels.
	@$(IN_TMP) $(BIN)/python tests/e2e/demo.py

serve: install  ## Run the service on this machine until Ctrl-C.
	@exec $(BIN)/khot-server

proto: install  ## Generate the Python code of the .proto files.
	@$(BIN)/python proto/generate.py

proto-check: install  ## Check that the generated code is what the .proto files say.
	@$(IN_TMP) $(BIN)/python proto/generate.py --check

fmt: install  ## Write: format and fix what can be fixed.
	@$(BIN)/ruff format .
	@$(BIN)/ruff check --fix .
	@$(BIN)/buf format --write proto

lint: install  ## Read only: style of Python, protobuf and container files.
	@$(BIN)/ruff format --check .
	@$(BIN)/ruff check .
	@$(BIN)/buf lint proto
	@$(BIN)/buf format --diff --exit-code proto
	@$(BIN)/python deploy/docker/check.py

types: install  ## Check the types.
	@$(BIN)/mypy

test: install  ## Run the tests.
	@$(IN_TMP) $(PYTEST) $(CORES)

test-slow: install  ## Run the tests that take minutes.
	@$(IN_TMP) $(PYTEST) -m slow $(CORES)

test-wheel: install  ## Build the wheel, with and without a compiler, and use it elsewhere.
	@$(IN_TMP) $(PYTEST) -m wheel

test-compose: install  ## Build the images, start the compose stack, use it, stop it, kill it.
	@$(IN_TMP) $(PYTEST) -m compose -v

bench: install  ## Run the benchmarks; tables here, CSV in tests/bench/results.
	@for file in tests/bench/bench_*.py; do $(BIN)/python "$$file" --out tests/bench/results; done
	@for file in tests/bench/load_jobs.py tests/bench/load_metrics.py tests/bench/load_selection.py tests/bench/load_training.py; do $(BIN)/python "$$file" --out tests/bench/results; done
	@$(BIN)/python tests/bench/load_grpc.py --out tests/bench/results --picture tests/pictures/serving.svg

bench-smoke: install  ## Run every benchmark at tiny sizes.
	@for file in tests/bench/bench_*.py tests/bench/load_grpc.py tests/bench/load_jobs.py tests/bench/load_metrics.py tests/bench/load_selection.py tests/bench/load_training.py; do $(BIN)/python "$$file" --smoke; done

check: lint types proto-check test test-wheel  ## All that must pass before a commit.

clean:  ## Remove the venv and everything built; results that git keeps stay.
	rm -rf $(VENV) dist khot/_native/*.so khot/_native/*.so.tmp
	@[ ! -d tests/bench/results ] || git clean -fdqX tests/bench/results
