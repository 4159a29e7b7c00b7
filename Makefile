# Every target makes the environment it needs: `make demo` in a fresh clone is enough.
PYTHON ?= python3
PIP = .venv/bin/pip install --quiet --disable-pip-version-check --constraint constraints.txt
DEMO ?= loadeval-demo
# One test process for each CPU, with one thread of computing each; WORKERS=0 is one process.
WORKERS ?= logical
PYTEST = OMP_NUM_THREADS=1 .venv/bin/pytest --numprocesses=$(WORKERS) --dist=loadgroup
# They measure sleeps, so that nothing may run beside them.
BY_THE_CLOCK = tests/analysis/findings/test_reproductions.py

.PHONY: demo test test-all test-frameworks lint types docs bench truth peer-suites clean

demo: .venv/.demo  ## train on real images, logged and replayed, and compare
	.venv/bin/loadeval demo --output $(DEMO)

test: .venv/.dev  ## all that is quick, with branch coverage of the core (3 minutes)
	$(PYTEST) --cov -m "not slow" --ignore=tests/frameworks

test-all: .venv/.dev  ## browsers, examples, documents, frameworks and faults too (10 minutes)
	$(PYTEST) --cov --ignore=$(BY_THE_CLOCK)
	.venv/bin/pytest $(BY_THE_CLOCK)

test-frameworks: .venv/.dev  ## inside Lightning, Accelerate, Trainer, Ignite, Keras
	$(PYTEST) tests/frameworks

lint: .venv/.dev  ## style and layers
	.venv/bin/ruff check
	.venv/bin/ruff format --check
	.venv/bin/lint-imports

types: .venv/.dev  ## mypy, strict
	.venv/bin/mypy

docs: .venv/.dev  ## the documentation, in docs/_build/html; a warning is an error
	.venv/bin/sphinx-build -n -W --keep-going -q -b html docs docs/_build/html

bench: .venv/.dev  ## nanoseconds added per batch, ours and our peers'; what probes cost (some minutes)
	.venv/bin/python tests/benchmarks/overhead.py
	.venv/bin/python tests/benchmarks/probes.py
	.venv/bin/python tests/benchmarks/page_speed.py

truth: .venv/.dev  ## our estimates beside the truth, and our peers' (some minutes)
	.venv/bin/python tests/benchmarks/truth.py

peer-suites: .venv/.dev  ## tests of PyTorch, torchdata and DALI against wrapped loaders: make peer-suites SUITES="FILE ..."
	$(PIP) expecttest parameterized
	.venv/bin/python tests/peers/run.py $(SUITES)

clean:
	rm -rf .venv

.venv/bin/pip:
	$(PYTHON) -m venv .venv

.venv/.demo: .venv/bin/pip pyproject.toml constraints.txt
	$(PIP) --editable ".[demo]"
	touch $@

.venv/.dev: .venv/bin/pip pyproject.toml constraints.txt
	$(PIP) --editable ".[dev]"
# LitData asks for torchvision, which does not import beside a torch for the CPU alone.
	$(PIP) --no-deps litdata
	touch $@ .venv/.demo
