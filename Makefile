# Everything sets itself up: only python3 (3.11 or newer) and make are assumed.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
SHARED ?= ../shared
READY := $(VENV)/.ready
INCIDENTS := src/loadpath/examples

.PHONY: demo test lint types unit test-timing test-engines accuracy bench docs clean

$(READY): pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install -q --disable-pip-version-check -e '.[dev]'
	touch $@

test: lint types unit

lint: $(READY)
	$(BIN)/ruff check src tests docs accuracy benchmarks
	$(BIN)/ruff format --check src tests docs accuracy benchmarks

types: $(READY)
	$(BIN)/mypy

unit: $(READY)
	$(BIN)/pytest -n 2 -m "not timing"

# Exactness in real time: one at a time, nothing beside them.
test-timing: $(READY)
	$(BIN)/pytest -m timing

# Real engines on the CPU: llama.cpp, and vLLM in an environment of its own (3 GB), which is skipped with the reason
# where it cannot be made. ENGINES=all starts it for more kinds of models.
ENGINES ?= some
test-engines: $(READY)
	-$(BIN)/python benchmarks/environments.py vllm
	LOADPATH_REAL_ENGINES=$(ENGINES) $(BIN)/pytest tests/real_engines --durations=5 -rs

# Sets itself up, then reads a bundled incident: a server that was refused for want of KV cache.
demo: $(READY)
	$(BIN)/loadpath read $(INCIDENTS)/kv-bf16-refused.log || test $$? -eq 1  # 1: an error was found in it

# The score on the development corpus (../shared); skipped where that folder is not there.
accuracy: $(READY)
	@if [ ! -d $(SHARED)/corpus ]; then echo "accuracy: skipped, $(SHARED)/corpus is not here"; exit 0; fi; \
	$(PYTHON) $(SHARED)/tools/score_incidents.py --cases $(SHARED)/corpus/incidents.jsonl --keys $(SHARED)/corpus/keys.jsonl \
		--command '$(BIN)/loadpath read --json -' --jobs 2 $(ACCURACY); \
	$(BIN)/python accuracy/whole.py --folder $(SHARED)/corpus/whole; \
	$(PYTHON) $(SHARED)/tools/score_planner.py --facts $(SHARED)/corpus/memory-facts.jsonl \
		--command '$(BIN)/loadpath plan' --jobs 2 $(PLANNER)

bench: $(READY)
	$(BIN)/python benchmarks/bench.py

docs: $(READY)
	$(BIN)/python docs/generate.py

clean:
	rm -rf $(VENV) .venv-engines .venv-rivals dist .mypy_cache .ruff_cache .pytest_cache .hypothesis
