# Two commands set everything up: `make demo` and `make test`. Needs Python 3.11+, pip and make.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
INSTALLED := $(VENV)/.installed

.PHONY: demo test lint format coverage bench docs clean

demo: $(INSTALLED)
	$(BIN)/colonnade demo

test: $(INSTALLED) lint
	$(BIN)/python -m pytest -n 2

lint: $(INSTALLED)
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy

format: $(INSTALLED)
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

coverage: $(INSTALLED)
	$(BIN)/python -m pytest -n 2 --cov --cov-report=term

bench: $(INSTALLED)
	$(BIN)/colonnade bench

docs: $(INSTALLED)
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[docs]'
	$(BIN)/mkdocs build --strict

clean:
	rm -rf $(VENV) build dist site .coverage .coverage.* *.egg-info src/*.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis

$(INSTALLED): pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[dev]'
	touch $(INSTALLED)
