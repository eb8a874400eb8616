# One way in for everything: make demo | test | test-slow | sweep | lint | bench.
#
# Each target sets up what it needs, once: in the active virtual environment, else in .venv, which is made on first use.
# `make test PYTHON=/path/to/python` uses that interpreter as it is and installs nothing.

VIRTUAL_ENV ?= $(CURDIR)/.venv
ifdef PYTHON
  base :=
  full :=
else
  PYTHON := $(VIRTUAL_ENV)/bin/python
  # A stamp lies in the environment and names this checkout: either may be thrown away and made anew.
  stamp := $(VIRTUAL_ENV)/xla_torch-$(shell pwd | cksum | cut -d' ' -f1)
  base := $(stamp)-base
  full := $(stamp)-full
endif

install := $(PYTHON) -m pip install --quiet --disable-pip-version-check -c constraints.txt -e

# Each pytest worker keeps to one thread; the workers share the cores between them.
pytest = OMP_NUM_THREADS=1 $(PYTHON) -m pytest -q -n auto --dist worksteal

.PHONY: setup demo test test-slow sweep lint bench clean
.DEFAULT_GOAL := test

setup: $(full)

demo: $(base)
	$(PYTHON) -m xla_torch.demo

test: $(full)
	$(pytest) -m "not slow" $(ARGS)

# pytest exits with 5 where nothing is marked slow.
test-slow: $(full)
	$(pytest) -m slow tests $(ARGS) || [ $$? -eq 5 ]

# Every documented function with every element type and in every form, against real XLA; writes xla_torch/ops/README.md.
sweep: $(full)
	OMP_NUM_THREADS=1 $(PYTHON) tests/sweep.py --write $(ARGS)

lint: $(full)
	$(PYTHON) -m ruff check .
	$(PYTHON) -m pyright --pythonpath $(PYTHON)

bench: $(full)
	@for script in tests/benchmarks/*.py; do echo "== $$script"; $(PYTHON) $$script || exit 1; done

clean:
	rm -rf .venv build dist *.egg-info .pytest_cache .ruff_cache .hypothesis

$(VIRTUAL_ENV)/bin/python:
	python3 -m venv $(VIRTUAL_ENV)

ifneq ($(base),)
$(base): pyproject.toml constraints.txt | $(VIRTUAL_ENV)/bin/python
	$(install) .
	@touch $@

$(full): pyproject.toml constraints.txt | $(VIRTUAL_ENV)/bin/python
	$(install) '.[test]'
	@touch $(base) $@
endif
