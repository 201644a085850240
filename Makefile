# Two commands do all the set-up on a fresh machine: `make demo` and `make test`.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# torch, once imported by two test processes, should not fight itself for the same cores
export OMP_NUM_THREADS ?= 1

.PHONY: demo test lint bench docs docs-check release-check clean

$(VENV)/cli: pyproject.toml constraints.txt hatch_build.py $(wildcard src/autogd/engine/c/*)
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e ".[cli]"
	touch $@

$(VENV)/dev: $(VENV)/cli
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e ".[dev]"
	touch $@

demo: $(VENV)/cli  ## a 32-layer network that AGD trains and that Adam and SGD at their defaults do not
	$(BIN)/python -m autogd demo

test: $(VENV)/dev  ## everything, on two processes
	$(BIN)/python -m pytest -n 2 --dist worksteal

lint: $(VENV)/dev  ## ruff and mypy, strict on src
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

bench: $(VENV)/dev  ## step cost and memory on this machine
	OMP_NUM_THREADS=$$(nproc) $(BIN)/python -m autogd bench step

docs: $(VENV)/dev
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e ".[docs]"
	$(BIN)/python -m sphinx -W -b html docs docs/_build/html

docs-check: docs  ## links, images and formulas of the site, in a browser
	$(BIN)/python -m pytest tests/test_site.py

release-check: lint test docs-check  ## what has to hold before a version is tagged; leaves both archives in dist/
	rm -rf dist
	$(BIN)/python -m build
	$(BIN)/python benchmarks/startup.py import

clean:
	rm -rf $(VENV) build dist docs/_build .pytest_cache .mypy_cache .ruff_cache .hypothesis .benchmarks
