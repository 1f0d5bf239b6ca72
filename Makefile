# Targets that need an environment create .venv first, with the versions in constraints.txt.

# The first of these that is new enough. To use another: make test PYTHON=/path/to/python
PYTHON ?= $(shell for python in python3 python3.13 python3.12 python3.11; do \
	if $$python -c '$(NEW_ENOUGH)' >/dev/null 2>&1; then echo $$python; break; fi; done)
NEW_ENOUGH := import sys; sys.exit(sys.version_info < (3, 11))

BIN := .venv/bin
PIP_INSTALL := $(BIN)/python -m pip install --quiet --constraint constraints.txt

# Settings of the calling shell that would leak into the environment.
unexport PYTHONHOME PYTHONPATH PYTHONSTARTUP
export PIP_DISABLE_PIP_VERSION_CHECK := 1

.DEFAULT_GOAL := help
.PHONY: help demo test test-fast check bench docs paper viewer dist clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "make %-9s  %s\n", $$1, $$2 }' Makefile

demo: .venv/.models ## explain a sentence with the bundled model, in the terminal and as a page
	@mkdir -p build
	$(BIN)/attnflow explain "the author of the books on the old table" --method all \
		--html build/demo.html

test: .venv/.dev .venv/.browser ## run the tests and the examples in docstrings
	$(BIN)/python tools/check_viewer.py --test
	OMP_NUM_THREADS=1 $(BIN)/pytest --numprocesses 2 --dist loadgroup

test-fast: .venv/.dev ## run the tests that take seconds, for the edit loop
	OMP_NUM_THREADS=1 $(BIN)/pytest tests -m "not slow" --numprocesses 2 --quiet

check: .venv/.dev ## check format, lint, types, changelog and the built viewer
	$(BIN)/ruff format --check
	$(BIN)/ruff check
	$(BIN)/mypy
	$(BIN)/python tools/check_changelog.py
	$(BIN)/python tools/check_viewer.py --format
	$(BIN)/python tools/check_viewer.py --types
	$(BIN)/python tools/check_viewer.py

paper: .venv/.dev ## write docs/paper.md and its appendix from docs/results
	$(BIN)/python -m tools.write_paper

viewer: .venv/.dev ## build the viewer from viewer/src
	$(BIN)/python tools/check_viewer.py --write

bench: .venv/.dev ## run the benchmarks of flow, data sets and viewer
	$(BIN)/python -m benchmarks.flow
	$(BIN)/python -m benchmarks.corpus
	$(BIN)/python -m benchmarks.viewer

docs: .venv/.dev ## build the documentation into build/docs
	$(BIN)/python -m tools.write_registry
	$(BIN)/sphinx-build -W -b html docs build/docs
	$(BIN)/python -m tools.check_links build/docs

dist: .venv/.release ## build wheel and sdist into dist, and check them
	rm -rf dist
	$(BIN)/python -m hatchling build -d dist
	$(BIN)/twine check --strict dist/*

clean: ## remove the environment, builds and caches
	rm -rf .venv build dist viewer/node_modules .hypothesis .mypy_cache .pytest_cache .ruff_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

.venv/bin/python:
	@test -n "$(PYTHON)" || { \
		echo "attnflow needs Python 3.11 or newer; none was found." \
			"Specify one: make PYTHON=/path/to/python"; exit 1; }
	@"$(PYTHON)" -c '$(NEW_ENOUGH)' || { \
		echo "attnflow needs Python 3.11 or newer; $(PYTHON) is older." \
			"Specify another: make PYTHON=/path/to/python"; exit 1; }
	"$(PYTHON)" -m venv .venv

# Recent pip for --group; hatchling so that the build needs no isolated environment.
.venv/.runtime: pyproject.toml constraints.txt | .venv/bin/python
	$(PIP_INSTALL) --upgrade pip hatchling
	$(PIP_INSTALL) --no-build-isolation --editable .
	touch $@

.venv/.models: .venv/.runtime
	$(PIP_INSTALL) --no-build-isolation --editable '.[models]'
	touch $@

.venv/.release: .venv/.runtime
	$(PIP_INSTALL) --group release
	touch $@

.venv/.dev: .venv/.runtime
	$(PIP_INSTALL) --group dev
	touch $@

# Browser tests need Chromium. It is installed if that needs no password; otherwise these tests
# are skipped with a message.
.venv/.browser: | .venv/bin/python
	@command -v chromium >/dev/null || test -n "$(CHROMIUM)" || \
		if [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
			apt-get -qq update && apt-get -qq install --yes chromium >/dev/null; \
		else echo "Chromium is not installed: browser tests will be skipped"; fi
	touch $@
