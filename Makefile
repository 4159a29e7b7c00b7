# Every target makes the environment it needs: `make demo` in a fresh clone is enough.
PYTHON ?= python3
PIP = .venv/bin/pip install --quiet --disable-pip-version-check --constraint constraints.txt
DEMO ?= loadeval-demo

.PHONY: demo test lint types bench truth clean

demo: .venv/.demo  ## train on real images, logged and replayed, and compare
	.venv/bin/loadeval demo --output $(DEMO)

test: .venv/.dev  ## the whole suite, with branch coverage of the core
	.venv/bin/pytest --cov

lint: .venv/.dev  ## style and layers
	.venv/bin/ruff check
	.venv/bin/ruff format --check
	.venv/bin/lint-imports

types: .venv/.dev  ## mypy, strict
	.venv/bin/mypy

bench: .venv/.dev  ## nanoseconds added per batch, ours and our peers'
	.venv/bin/python tests/benchmarks/overhead.py

truth: .venv/.dev  ## our estimates beside the truth, and our peers' (some minutes)
	.venv/bin/python tests/benchmarks/truth.py

clean:
	rm -rf .venv

.venv/bin/pip:
	$(PYTHON) -m venv .venv

.venv/.demo: .venv/bin/pip pyproject.toml constraints.txt
	$(PIP) --editable ".[demo]"
	touch $@

.venv/.dev: .venv/bin/pip pyproject.toml constraints.txt
	$(PIP) --editable ".[dev]"
	touch $@ .venv/.demo
