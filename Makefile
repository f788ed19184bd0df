# Everything a developer and CI run, one line each. `make help` lists it.
.DEFAULT_GOAL := help
.PHONY: help install run test quick lint format types imports check bench migration js lock clean
SHELL := /bin/sh
MAKEFLAGS += --no-print-directory

# The first interpreter that is new enough; name another with `make PYTHON=... install`.
PYTHON ?= $(shell for name in python3.11 python3.12 python3.13 python3 python python3.14; do \
	$$name -c 'import sys; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1 && echo $$name && break; done)
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
PIP_FLAGS := --quiet --quiet --disable-pip-version-check --no-input
# Debian's python3 may come without ensurepip: then the pip outside works on the environment.
PIP = $(shell $(BIN)/python -m pip --version >/dev/null 2>&1 && echo $(BIN)/python -m pip \
	|| echo $(PYTHON) -m pip --python $(BIN)/python)

help:  ## This list
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "make %-10s %s\n", $$1, $$2 }' Makefile

install: $(STAMP)  ## Make .venv with everything in it

$(STAMP): requirements-dev.lock pyproject.toml
	@test -n "$(PYTHON)" || { echo "Python 3.11 or newer is needed and was not found on PATH." >&2; exit 1; }
	@echo "Installing into $(VENV) ..."
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV) 2>/dev/null || $(PYTHON) -m venv --clear --without-pip $(VENV)
	@$(MAKE) packages
	@touch $(STAMP)

.PHONY: packages
packages:
	@$(PIP) install $(PIP_FLAGS) --require-hashes -r requirements-dev.lock
	@$(PIP) install $(PIP_FLAGS) --no-deps --no-build-isolation --editable .

run: install  ## Start everything (API, worker, Redis, SQLite) and print how to talk to it
	@exec $(BIN)/paictl dev $(AGENTS)

# More processes than a small machine has cores: tests wait for servers much of the time.
JOBS ?= 4

test: install  ## The tests; ARGS="tests/unit -k fold" picks some
	@$(BIN)/pytest -n $(JOBS) $(ARGS)

quick: install  ## The quicker half of the tests
	@$(BIN)/pytest -n $(JOBS) tests/unit tests/client $(ARGS)

lint: install  ## Style, and that everything is formatted
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .

format: install  ## Mend what lint can mend
	@$(BIN)/ruff check --fix .
	@$(BIN)/ruff format .

types: install  ## mypy --strict and, where Node is there, pyright
	@$(BIN)/mypy
	@if command -v node >/dev/null; then $(BIN)/pyright; else echo "pyright needs Node.js: skipped"; fi

imports: install  ## Who may import whom
	@$(BIN)/lint-imports

check: lint types imports test  ## All of the above

bench: install  ## Speed against floors measured in the same run: a table and bench.json
	@$(BIN)/python -m tests.bench $(ARGS)

migration: install  ## The next migration, from the tables (needs PostgreSQL): make migration NAME="pre add colour"
	@$(BIN)/python scripts/migration.py "$(NAME)"

js: tests/js/node_modules/.package-lock.json  ## The JavaScript client that a test folds runs with

tests/js/node_modules/.package-lock.json: tests/js/package-lock.json
	@cd tests/js && npm ci --silent
	@touch $@

lock: install  ## Resolve the lock files anew, for every platform
	@$(PIP) install $(PIP_FLAGS) uv
	@$(BIN)/uv pip compile $(LOCK_FLAGS) -o requirements.lock
	@$(BIN)/uv pip compile $(LOCK_FLAGS) --group dev -c requirements.lock -o requirements-dev.lock

LOCK_FLAGS := --quiet --upgrade --universal --python-version 3.11 --generate-hashes --no-annotate --no-emit-index-url \
	--custom-compile-command "make lock" --all-extras pyproject.toml

clean:  ## Remove the environment and caches (not .pai: that is data)
	@rm -rf $(VENV) .mypy_cache .ruff_cache .import_linter_cache .hypothesis dist bench.json tests/js/node_modules
	@find . -name __pycache__ -type d -prune -exec rm -rf {} +
