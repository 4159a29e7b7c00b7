# Every target makes the environment it needs: `make demo` in a fresh clone is enough.
PYTHON ?= python3
PIP = .venv/bin/pip install --quiet --disable-pip-version-check --constraint constraints.txt
DEMO ?= loadeval-demo
# Tests wait for processes and threads that they start: three test processes keep two CPUs busy,
# with one thread of computing each. WORKERS=0 is one process.
WORKERS ?= $(shell echo $$(( ($$(nproc) * 3 + 1) / 2 )))
# A file's tests share what they prepare. What is compiled is kept, whatever the environment says.
PYTEST = OMP_NUM_THREADS=1 PYTHONDONTWRITEBYTECODE= .venv/bin/pytest \
	--numprocesses=$(WORKERS) --dist=loadfile
# The lowest versions that pyproject.toml allows; of typer the lowest that works beside today's click.
LOWEST = "numpy==1.24.*" "jinja2==3.1.0" "markupsafe==2.1.0" "matplotlib==3.8.0" \
	"nvidia-ml-py==12.560.30" "psutil==5.9.0" "rich==13.7.0" "typer==0.16.0" \
	"torch==2.1.0" "pillow==10.0.0"
CORE = tests/data tests/core tests/estimate tests/report tests/probes tests/test_evaluator.py
# What is different in each torch.
INSIDE_TORCH = tests/adapters/test_torch_stages.py tests/adapters/test_stages_compatibility.py
# It needs jagged tensors, of torch 2.2.
NOT_LOWEST = -k "not nested_tensor"
# `make test-pythons` tests those of them that are on PATH.
PYTHONS ?= python3.10 python3.11 python3.12 python3.13 python3.14
TORCH ?= torch
NOT_NEWEST = $(shell grep '^torch==' constraints.txt)
# On which of them `make release-check` trains the demo: torch takes long to install.
DEMO_PYTHONS ?= python3.11
TEST_PACKAGES = pytest pytest-cov pytest-timeout pytest-xdist hypothesis scipy

.PHONY: demo test check nightly golden before-after coverage test-lowest test-newest test-pythons release-check test-frameworks test-programs lint types docs bench truth intervals predict promises faults injected hangs fuzz soak gpu peer-suites clean

demo: .venv/.demo  ## train on real images, in alternate mode, and compare
	.venv/bin/loadeval demo --output $(DEMO)

test: .venv/.test  ## what is quick, and depends on no clock (under 3 minutes on two CPUs)
	$(PYTEST) --dist=worksteal -m "not check" tests

check: .venv/.dev docs  ## all tests: every loader, frameworks, faults, hangs, documents, browsers (some 40 minutes)
	$(PYTEST) --hypothesis-profile=thorough --no-skips tests bench/gpu
	.venv/bin/python -m bench.hangs.run --times 5

nightly: check faults promises truth intervals predict soak fuzz before-after test-programs test-lowest test-newest test-pythons release-check gpu  ## what takes hours, and is a rate rather than a yes or no
	$(PYTEST) --hypothesis-profile=random tests

golden: .venv/.test  ## write the whole outputs in tests/golden anew, and print what changed: read it line by line; and docs/json.md and docs/run-log.md
	$(PYTEST) --dist=worksteal --rewrite-golden tests/test_golden.py tests/test_log_bytes.py tests/test_api.py tests/attach/test_whole.py tests/report/test_text.py
	.venv/bin/python -m bench.json_page

coverage: .venv/.dev  ## branches that `make test` runs, subprocesses included: a report, and no limit
	$(PYTEST) --dist=worksteal -m "not check" --cov tests

test-lowest: .venv-lowest/.done  ## the quick tests of the core, with the lowest versions
	$(call test-core,.venv-lowest) $(INSIDE_TORCH) -o filterwarnings=default $(NOT_LOWEST)

test-newest:  ## the same with the newest versions of all but torch, whatever constraints.txt says
	[ -e .venv-newest ] || { $(PYTHON) -m venv .venv-newest && echo "*" > .venv-newest/.gitignore; }
	.venv-newest/bin/pip install --quiet --disable-pip-version-check --upgrade \
		--upgrade-strategy eager $(TEST_PACKAGES) pillow "$(NOT_NEWEST)" --editable ".[attach,report]"
	.venv-newest/bin/pip check
	$(call test-core,.venv-newest) $(INSIDE_TORCH)

test-pythons:  ## the quick tests of the core, with each Python that is installed (2 minutes each)
	@for python in $(PYTHONS); do \
		if $$python -c "" 2> /dev/null; then $(MAKE) test-$$python || exit; \
		else echo "no $$python here: not tested"; fi; \
	done

test-python3.%: .venv-3.%/.done
	$(call test-core,.venv-3.$*) $(if $(wildcard .venv-3.$*/no-torch),$(WITHOUT_TORCH))

test-core = OMP_NUM_THREADS=1 $(1)/bin/python -m pytest --numprocesses=$(WORKERS) --dist=worksteal \
	-m "not check" $(CORE)
WITHOUT_TORCH = -k "not this_machine" \
	$(shell grep -rlE "^(import|from) torch" $(CORE) | sed "s,^,--ignore=,; s,/conftest.py,,")

release-check: .venv-release/.done  ## build a release twice, and try its wheel in clean environments (5 minutes for each Python)
	.venv-release/bin/python bench/release/check.py $(PYTHONS) --demo $(DEMO_PYTHONS)

test-frameworks: .venv/.dev  ## inside Lightning, Accelerate, Trainer, Ignite, Keras
	$(PYTEST) tests/frameworks

test-programs: .venv-programs/.done  ## an unchanged program of fastai's (2 minutes)
	OMP_NUM_THREADS=1 .venv-programs/bin/python -m pytest --numprocesses=$(WORKERS) bench/programs

lint: .venv/.test  ## style, layers and workflows
	.venv/bin/ruff check
	.venv/bin/ruff format --check
	.venv/bin/lint-imports
	.venv/bin/zizmor --offline --pedantic --quiet .github

types: .venv/.test  ## mypy, strict
	.venv/bin/mypy

docs: .venv/.dev  ## the documentation, in docs/_build/html; a warning is an error
	.venv/bin/sphinx-build -n -W --keep-going -q -b html docs docs/_build/html

bench: .venv/.dev  ## nanoseconds added per batch, ours and our peers'; CPU time that looking takes; many ranks (some minutes)
	.venv/bin/python -m bench.overhead
	.venv/bin/python -m bench.looking
	.venv/bin/python -m bench.ranks

promises: .venv/.dev  ## what findings predict, and then measure; reproductions of reported problems; stages that add up (10 minutes)
	OMP_NUM_THREADS=1 .venv/bin/pytest bench/promises

truth: .venv/.dev  ## our estimates beside the truth, and our peers' (some minutes)
	.venv/bin/python -m bench.truth

intervals: .venv/.dev  ## how often intervals contain the truth, by simulation (two minutes)
	.venv/bin/python -m bench.intervals

predict: .venv/.dev  ## throughput under other settings, predicted and then measured, on all CPUs and on two; tune beside a grid search; what the list of what to do brings (some 45 minutes)
	.venv/bin/python -m bench.prediction
	[ $$(nproc) -le 2 ] || .venv/bin/python -m bench.prediction --cpus 2
	.venv/bin/python -m bench.prediction --tune
	.venv/bin/python -m bench.followed

faults: .venv/.dev  ## what is found first in 62 programs with a fault and in their healthy twins, and what the advice brings (20 minutes)
	.venv/bin/python -m bench.faults.run

fuzz: .venv/.dev  ## 100,000 files that were mutated, read and given to the commands (20 minutes)
	.venv/bin/python -m bench.fuzz.run $(FUZZ)

before-after: .venv/.dev  ## figures of the recorded runs that are others than before the redesign
	.venv/bin/python -m bench.before_after

soak: .venv/.dev  ## an hour with everything on, in which nothing may grow; SOAK="--minutes 10" is shorter
	.venv/bin/python -m bench.soak.run $(SOAK)

gpu: .venv/.dev  ## what loadeval says on a GPU beside a referee, into docs/gpu.md (9 minutes); skipped without one
	.venv/bin/python -m bench.gpu.run

injected: .venv/.dev  ## what faults injected into programs do to them, the slow ones too (4 minutes)
	$(PYTEST) tests/injected

hangs: .venv/.dev  ## planted hangs, each of which is to be named 20 of 20 times (30 minutes)
	.venv/bin/python -m bench.hangs.run $(HANGS)

peer-suites: .venv/.dev  ## tests of PyTorch, torchdata and DALI against wrapped loaders: make peer-suites SUITES="FILE ..."
	$(PIP) expecttest parameterized
	.venv/bin/python bench/peers/run.py $(SUITES)

clean:
	rm -rf .venv .venv-lowest .venv-newest .venv-programs .venv-release .venv-3.*

.venv/bin/pip:
	$(PYTHON) -m venv .venv

.venv-lowest/.done: pyproject.toml
	$(call new-environment,$(PYTHON),.venv-lowest,$(LOWEST))
	touch $@

.venv-programs/.done: pyproject.toml bench/programs/constraints.txt
	$(call new-environment,$(PYTHON),.venv-programs,--constraint bench/programs/constraints.txt fastai)
	touch $@

.venv-release/.done: pyproject.toml
	$(PYTHON) -m venv .venv-release
	echo "*" > .venv-release/.gitignore
	.venv-release/bin/pip install --quiet --disable-pip-version-check \
		cyclonedx-bom hatchling mypy "pip>=23" "pyright[nodejs]"
	touch $@

.venv-3.%/.done: pyproject.toml constraints.txt
	$(call new-environment,python3.$*,.venv-3.$*,--constraint constraints.txt)
	$(@D)/bin/pip install --quiet --disable-pip-version-check --constraint constraints.txt \
		--only-binary=:all: $(TORCH) pillow || \
		{ echo "python3.$* has no $(TORCH): tested without it"; touch $(@D)/no-torch; }
	touch $@

# Else make removes it, as a file in between.
.PRECIOUS: .venv-3.%/.done

# An interpreter, a folder, and which versions.
define new-environment
	$(1) -m venv $(2)
	echo "*" > $(2)/.gitignore
	$(2)/bin/pip install --quiet --disable-pip-version-check $(3) $(TEST_PACKAGES) --editable ".[attach,report]"
endef

.venv/.demo: .venv/bin/pip pyproject.toml constraints.txt
	$(PIP) --editable ".[demo]"
	touch $@

.venv/.test: .venv/bin/pip pyproject.toml constraints.txt
	$(PIP) --editable ".[test]"
	touch $@

.venv/.dev: .venv/bin/pip pyproject.toml constraints.txt
	$(PIP) --editable ".[dev]"
# LitData asks for torchvision, which does not import beside a torch for the CPU alone.
	$(PIP) --no-deps litdata
	touch $@ .venv/.demo .venv/.test
