PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
MODEL_STAMP := $(VENV)/.model-installed
AGENTS := .agents
AGENTS_STAMP := $(AGENTS)/.installed

.PHONY: setup demo demo-tree test test-agents agents-table check bench clean

setup: $(STAMP)

$(STAMP): pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip
	$(BIN)/python -m pip install --quiet -e '.[dev]'
	@touch $@

$(MODEL_STAMP): $(STAMP)
	$(BIN)/lastword model install
	@touch $@

# The four ways a child can end, against a real model on this machine.
demo: $(MODEL_STAMP)
	$(BIN)/python -m examples.demo

# A root with twenty children, nine more below three of them, a worker killed, a branch cancelled.
demo-tree: setup
	$(BIN)/python -m examples.demo_tree

test: setup
	$(BIN)/python -m pytest

# Real agents, pinned, in a folder of their own (some 3 GB), with a fake model behind them.
test-agents: $(AGENTS_STAMP)
	$(AGENTS)/venv/bin/python -m pytest tests/agents

# The table of docs/children.md, from what the last run of test-agents saw.
agents-table: $(AGENTS_STAMP)
	$(AGENTS)/venv/bin/python -m tests.agents.table

$(AGENTS_STAMP): pyproject.toml tests/agents/requirements.txt tests/agents/package.json
	$(PYTHON) -m venv $(AGENTS)/venv
	$(AGENTS)/venv/bin/python -m pip install --quiet --upgrade pip
	$(AGENTS)/venv/bin/python -m pip install --quiet -e '.[test,claude-agent,deepseek-harness]' \
		-r tests/agents/requirements.txt
	$(AGENTS)/venv/bin/python -m tests.agents.install
	@touch $@

check: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

bench: setup
	$(BIN)/python -m benchmarks

clean:
	rm -rf $(VENV) $(AGENTS) .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache build dist *.egg-info
