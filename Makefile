# Each target works as the first command on a fresh clone: Python >= 3.11, pip and make are all it needs.
PYTHON ?= python3
BIN := .venv/bin
STAMP := .venv/.installed
EXTRAS := test,dev,amd,cuda,plots
WORKERS ?= 2
ARGS ?=

.PHONY: help install demo test test-torch golden lint types format lock clean
.DEFAULT_GOAL := help

help:
	@echo "make demo    compile and run the examples, and show what was generated"
	@echo "make test    run the tests                (ARGS='-k name' to choose, WORKERS=n)"
	@echo "make test-torch  the tests of the PyTorch front end, in an environment of its own (TORCH=... is what pip installs)"
	@echo "make golden  write the stage texts of tests/golden anew, after a change that is to change the code"
	@echo "make lint    ruff check and format check  (make format mends)"
	@echo "make types   basedpyright, strict"

# The stamp makes a second call instant; a change of the project file or the lock installs again.
$(STAMP): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "Treadle needs Python >= 3.11; set PYTHON=/path/to/python3.11" >&2; exit 1; }
	@test -x $(BIN)/python || $(PYTHON) -m venv .venv
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[$(EXTRAS)]'
	@$(BIN)/python -m compileall -q src
	@touch $@

install: $(STAMP)

demo: $(STAMP)
	@$(BIN)/python examples/demo.py $(ARGS)

test: $(STAMP)
	@$(BIN)/python -m pytest -n $(WORKERS) $(ARGS)

# PyTorch is large and no part of the usual environment; TORCH names the version, as in TORCH=torch==2.11.0. Its builds for GPUs bring
# CUDA libraries of their own versions, so the lock holds for everything else.
TORCH ?= torch
test-torch: .venv-torch/.installed
	@.venv-torch/bin/python -m pytest -n $(WORKERS) tests/pytorch $(ARGS)

.venv-torch/.installed: pyproject.toml constraints.txt
	@test -x .venv-torch/bin/python || $(PYTHON) -m venv .venv-torch
	@sed '/^nvidia-/d; /^cuda-/d' constraints.txt > .venv-torch/constraints.txt
	@.venv-torch/bin/python -m pip install --quiet --disable-pip-version-check --constraint .venv-torch/constraints.txt --editable '.[test]' '$(TORCH)' transformers diffusers
	@touch $@

lint: $(STAMP)
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .

# The texts of stages that tests/golden compares with; read the difference before you commit it.
golden: $(STAMP)
	@$(BIN)/python -m pytest -q tests/golden --update-golden

types: $(STAMP)
	@$(BIN)/basedpyright

format: $(STAMP)
	@$(BIN)/ruff check --fix .
	@$(BIN)/ruff format .

# Rewrites the lock from what is installed now.
lock: $(STAMP)
	@{ sed -n '/^#/p' constraints.txt; $(BIN)/python -m pip freeze --exclude-editable --exclude cuda-core; sed -n '/^hatchling==/p' constraints.txt; } > .venv/lock.txt
	@mv .venv/lock.txt constraints.txt

clean:
	rm -rf .venv .venv-torch build dist .pytest_cache .ruff_cache .hypothesis
