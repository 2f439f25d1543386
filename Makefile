# Everything sets itself up: only python3 (3.11 or newer) and make are assumed.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
SHARED ?= ../shared
READY := $(VENV)/.ready
INCIDENTS := src/loadpath/examples

.PHONY: demo test lint types unit accuracy bench clean

$(READY): pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install -q --disable-pip-version-check -e . $$($(PYTHON) -c "import tomllib; print(' '.join(repr(d) for d in tomllib.load(open('pyproject.toml', 'rb'))['dependency-groups']['dev']))")
	touch $@

test: lint types unit

lint: $(READY)
	$(BIN)/ruff check src tests
	$(BIN)/ruff format --check src tests

types: $(READY)
	$(BIN)/mypy

unit: $(READY)
	$(BIN)/pytest -n 2

clean:
	rm -rf $(VENV) dist .mypy_cache .ruff_cache .pytest_cache .hypothesis
