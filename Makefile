# One way in for everything: make demo | demo-distributed | test | test-slow | oracle | sweep | opinfo | accuracy | fuzz | differential | gradients | soak | zoo |
# pages | notebooks | docs | costs | lint | bench | cuda | versions | release.
#
# Each target sets up what it needs, once: in the active virtual environment, else in .venv, which is made on first use.
# `make test PYTHON=/path/to/python` uses that interpreter as it is and installs nothing.

VIRTUAL_ENV ?= $(CURDIR)/.venv
ifdef PYTHON
  base :=
  jax :=
  full :=
  tools :=
  uv :=
else
  PYTHON := $(VIRTUAL_ENV)/bin/python
  # A stamp lies in the environment and names this checkout: either may be thrown away and made anew.
  stamp := $(VIRTUAL_ENV)/xla_torch-$(shell pwd | cksum | cut -d' ' -f1)
  base := $(stamp)-base
  jax := $(stamp)-jax
  full := $(stamp)-full
  tools := $(stamp)-release
  uv := $(stamp)-versions
endif

install := $(PYTHON) -m pip install --quiet --disable-pip-version-check -c constraints.txt -e

# An editable installation leaves sources as they are. Where PYTHONDONTWRITEBYTECODE is set, as in many containers, each process
# would compile them anew: 0.9 s until the first program is loaded, and not 0.3.
bytecode := @$(PYTHON) -m compileall -q xla_torch grad_rules

# Each pytest worker keeps to one thread; the workers share the cores between them.
pytest = OMP_NUM_THREADS=1 $(PYTHON) -m pytest -q -n auto --dist worksteal

.PHONY: setup demo demo-distributed test test-slow oracle sweep opinfo accuracy fuzz differential gradients soak zoo pages notebooks docs costs lint bench cuda versions release clean
.DEFAULT_GOAL := test

setup: $(full)

demo: $(base)
	$(PYTHON) -m xla_torch.demo

# The same model over four processes, with a checkpoint every few steps, from the beginning. ARGS="--steps 400 --shardings data".
demo-distributed: $(jax)
	rm -rf build/demo-distributed
	OMP_NUM_THREADS=1 $(PYTHON) -m torch.distributed.run --standalone --nproc-per-node 4 --max-restarts 1 \
		-m xla_torch.demo.distributed --checkpoints build/demo-distributed $(ARGS)

test: $(full)
	$(pytest) -m "not slow" $(ARGS)

# The slow tests, and all that the fast ones ask real XLA, asked anew: what is stored of it must still be so; ARGS="--part 0/3" is a
# third of both. Fresh memory is
# filled with a byte, so that an answer which reads what nobody wrote is found each time and not now and then.
test-slow: $(full)
	$(pytest) -m slow $(ARGS)
	MALLOC_PERTURB_=85 $(pytest) -m "not slow" --oracle=xla $(ARGS)

# What needs a GPU, in under ten minutes: the tests marked so, and the table of rivals on CUDA in tests/benchmarks/README.md. Without
# a GPU it says so and fails. ARGS goes to the tests.
cuda: $(full)
	@$(PYTHON) -c 'import torch; torch.cuda.is_available() or exit("make cuda: torch finds no CUDA device on this machine")'
	OMP_NUM_THREADS=4 timeout 280 $(PYTHON) -m pytest -q -n 4 --dist worksteal -m cuda $(shell grep -rl 'mark.cuda' tests --include=test_*.py) $(ARGS)
	timeout 280 $(PYTHON) tests/benchmarks/rivals.py --device cuda --no-compile --runs 3 --limit 20 --write

# What the fast tests ask real XLA, written to tests/data/answers. ARGS="--oracle=xla" asks for what is stored already, too.
oracle: $(full)
	$(pytest) -m "not slow" --store-answers $(ARGS)

# Every documented function with every element type and in every form, against real XLA; writes xla_torch/ops/README.md.
sweep: $(full)
	OMP_NUM_THREADS=1 $(PYTHON) tests/sweep.py --write $(ARGS)

# Elementwise functions of floats against exact values, beside torch and XLA; writes tests/documents/accuracy.md.
accuracy: $(full)
	OMP_NUM_THREADS=1 $(PYTHON) tests/accuracy.py --write $(ARGS)

# The pages that are generated from the code: xla_torch/opcodes/README.md, and the tables in grad_rules/README.md.
pages: $(full)
	PYTHONPATH=$(CURDIR):$(CURDIR)/tests $(PYTHON) -m support.pages

# The documentation site, from docs/, the other pages and the code; it lies in build/site and works from there.
docs: $(full)
	PYTHONPATH=$(CURDIR):$(CURDIR)/tests NO_MKDOCS_2_WARNING=1 $(PYTHON) -m mkdocs build $(ARGS)

# What the notebooks print and draw. Look at the pictures before they are committed. ARGS="notebooks/03*" runs one.
notebooks: $(full)
	PYTHONPATH=$(CURDIR):$(CURDIR)/tests OMP_NUM_THREADS=1 $(PYTHON) tests/make_notebooks.py $(ARGS)

# How many calls, allocations and bytes some programs take: tests/data/costs.txt, which the tests compare.
costs: $(full)
	PYTHONPATH=$(CURDIR):$(CURDIR)/tests $(PYTHON) -m support.costs

lint: $(full)
	$(PYTHON) -m ruff check .
	$(dir $(PYTHON))lint-imports
	$(PYTHON) -m pyright --pythonpath $(PYTHON)

# Mutants of programs, in child processes, for TIME seconds from number SEED on.
TIME ?= 60
SEED ?= 0
fuzz: $(full)
	PYTHONPATH=.:tests OMP_NUM_THREADS=1 $(PYTHON) -m fuzz.fuzz --time $(TIME) --seed $(SEED)

# torch's own database of calls by way of from_torch: tests/data/opinfo.txt.
opinfo: $(full)
	PYTHONPATH=.:tests OMP_NUM_THREADS=1 $(PYTHON) -m support.opinfo

# Drawn programs here and on real XLA, from number SEED on, in child processes. ARGS="--into FILE" keeps what is found, and goes on.
PROGRAMS ?= 1000
differential: $(full)
	PYTHONPATH=.:tests OMP_NUM_THREADS=1 $(PYTHON) -m fuzz.differential --programs $(PROGRAMS) --seed $(SEED) $(ARGS)

# Gradients of drawn programs against difference quotients.
gradients: $(full)
	PYTHONPATH=.:tests OMP_NUM_THREADS=1 $(PYTHON) -m fuzz.gradients --programs $(PROGRAMS) --seed $(SEED)

# Trainings over processes, to one of which something happens, for TIME seconds (an hour, if not said) from number SEED on.
soak: TIME = 3600
soak: $(full)
	PYTHONPATH=.:tests OMP_NUM_THREADS=1 $(PYTHON) -m fuzz.chaos --time $(TIME) --seed $(SEED)

# Models of other people's libraries, in and out, each in a child process; writes tests/zoo/README.md. They have an environment of
# their own, .venv-zoo, which is made on first use. A run that was stopped goes on where it was. ARGS="--only NAME" tries one again.
ZOO ?= $(CURDIR)/.venv-zoo
zoo: $(ZOO)/made
	PYTHONPATH=.:tests OMP_NUM_THREADS=1 $(ZOO)/bin/python -m zoo.zoo $(ARGS)

$(ZOO)/made: pyproject.toml constraints-zoo.txt tests/zoo/torch-libraries.txt
	python3 -m venv $(ZOO)
	$(ZOO)/bin/python -m pip install --quiet --disable-pip-version-check -c constraints-zoo.txt -e '.[test,zoo]'
	$(ZOO)/bin/python -m pip install --quiet --disable-pip-version-check --no-deps -r tests/zoo/torch-libraries.txt
	@touch $@

# An environment for each corner of the supported versions, with the demo, the conformance cases and a tenth of the fast tests in
# it; ARGS="--write" puts the rows into docs/supported-versions.md, ARGS="--only oldest" tries one corner.
versions: $(uv)
	$(PYTHON) tests/versions.py $(ARGS)

# A wheel and an sdist in dist, looked through, and tried in environments that hold nothing else; and the notes, from CHANGELOG.
# ARGS="--python python3.13 --torch 2.12": there alone; each torch is a large download.
release: $(tools)
	$(PYTHON) tests/release.py $(ARGS)

# All that is measured in seconds and bytes. WRITE=1 puts the tables of the first few into tests/benchmarks/README.md; `make pages`
# draws them.
TABLES := rivals first_seconds memory large_programs scaling busy torch_operators jax_functions gradients_against_xla
OTHERS := against_xla bundles collectives constants gradients literals load loops mesh_sizes meshes
bench: $(full)
	@for name in $(TABLES); do echo "== $$name"; $(PYTHON) tests/benchmarks/$$name.py $(if $(WRITE),--write) || exit 1; done
	@for name in $(OTHERS); do echo "== $$name"; $(PYTHON) tests/benchmarks/$$name.py || exit 1; done
	@if [ -x $(ZOO)/bin/python ]; then echo "== libraries"; $(ZOO)/bin/python tests/benchmarks/libraries.py $(if $(WRITE),--write); \
		else echo "libraries: make zoo makes its environment"; fi

clean:
	rm -rf .venv .venv-zoo .venv-versions build dist *.egg-info .pytest_cache .ruff_cache .hypothesis

$(VIRTUAL_ENV)/bin/python:
	python3 -m venv $(VIRTUAL_ENV)

ifneq ($(base),)
$(base): pyproject.toml constraints.txt | $(VIRTUAL_ENV)/bin/python
	$(install) .
	$(bytecode)
	@touch $@

$(jax): pyproject.toml constraints.txt | $(VIRTUAL_ENV)/bin/python
	$(install) '.[jax]'
	$(bytecode)
	@touch $(base) $@

$(full): pyproject.toml constraints.txt | $(VIRTUAL_ENV)/bin/python
	$(install) '.[test]'
	$(bytecode)
	@touch $(base) $(jax) $@

$(tools): pyproject.toml constraints.txt | $(VIRTUAL_ENV)/bin/python
	$(install) '.[release]'
	$(bytecode)
	@touch $(base) $@

$(uv): pyproject.toml | $(VIRTUAL_ENV)/bin/python
	$(PYTHON) -m pip install --quiet --disable-pip-version-check uv
	@touch $@
endif
