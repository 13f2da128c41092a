# `make demo` and `make test` do everything on a fresh machine: a virtual environment in .venv, the install, the run.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/installed

.PHONY: demo test docs bench dist release lint format clean

demo: $(STAMP)
	$(BIN)/madamoo demo --out demo-out

test: $(STAMP) lint
	$(BIN)/python -m pytest -n 2

# Notebooks run, and a warning is an error; -T shows where an error comes from.
docs: $(STAMP)
	$(BIN)/python -m sphinx -q -W --keep-going -T -b html docs docs/_build/html

bench: $(STAMP)
	$(BIN)/python benchmarks/speed.py

# The wheel and the source distribution, and whether an index would take them.
dist: $(STAMP)
	rm -rf dist
	$(BIN)/python -m build --outdir dist
	$(BIN)/twine check --strict dist/*

# What users get: the wheel alone in an empty environment, and its selftest.
release: dist
	.ci/try_wheel.sh $(PYTHON)

lint: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-cache --no-logo

format: $(STAMP)
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

$(STAMP): pyproject.toml constraints.txt
	@echo "Installing torch and all packages of demo and tests into $(VENV): two to five minutes, about 3 GB"
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --constraint constraints.txt --editable '.[test]'
	touch $@

clean:
	rm -rf $(VENV) demo-out dist docs/_build
