# `make bench` and `make test` set everything up themselves; `make help` lists the rest.
VENV := .venv
RUN := $(VENV)/bin/python
SECONDS ?= 60
TRAININGS ?= 200
# Three workers, to which tests/scheduler.py gives chains of tests and files: on two cores the third fills the waits of the others.
TESTS := $(RUN) -m pytest -n 3 --dist loadfile --no-loadscope-reorder
export PATH := $(CURDIR)/$(VENV)/bin:$(PATH)
# Tests start hundreds of processes that import the same files: what Python has compiled of them is kept.
unexport PYTHONDONTWRITEBYTECODE
# Open MPI refuses root unless told that it is meant.
export OMPI_ALLOW_RUN_AS_ROOT := 1
export OMPI_ALLOW_RUN_AS_ROOT_CONFIRM := 1

.PHONY: help setup bench test test-ci test-all people lint docs fuzz clean

help: ## this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "make %-8s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

setup: ## the environment in .venv: TensorFlow, Keras, Open MPI, Horovod (PYTHON=python3.12 names another Python)
	@$(or $(PYTHON),python3) scripts/environment.py $(if $(PYTHON),--python $(PYTHON))

bench: setup ## train a grid of models on this machine and report how it scales (ARGS="--ranks 1,2 ...")
	$(RUN) -m harness bench $(ARGS)

test: setup ## the tests, three at a time (ARGS="-k words" for some, ARGS="-n 0 --pdb" for one at a time)
	$(TESTS) -m "not ci and not exhaustive" $(ARGS)

test-ci: setup ## the same, half of the larger tests and a part of the exhaustive tests, which the commit names: what .ci/run runs
	$(TESTS) --rotate $(ARGS)

test-all: setup ## every test, properties with other examples each time (SHARD=3/24: the third of 24 parts)
	$(TESTS) --hypothesis-profile drawn $(if $(SHARD),--shard $(SHARD)) $(ARGS)

lint: setup ## style and types
	$(RUN) -m ruff check .
	$(RUN) -m ruff format --check .
	$(RUN) scripts/plain_words.py
	$(RUN) -m mypy

docs: setup ## the site, into site/ (look at it: python3 -m http.server -d site)
	NO_MKDOCS_2_WARNING=1 $(RUN) -m mkdocs build --strict

people: setup ## every script of tests/ring/people as on CPUs and as on GPUs (an hour on two cores; the tests try each one way)
	RINGSCOPE_EVERY_WAY=1 $(TESTS) tests/ring/test_people.py $(ARGS)

fuzz: setup ## the readers against made-up input, SECONDS (60) for each; TRAININGS (200) random ones on two ranks against one
	@$(RUN) -m pip install -q --disable-pip-version-check -e '.[fuzz]'
	$(RUN) -m tests.fuzz --seconds $(SECONDS)
	$(RUN) -m tests.fuzz.trainings --count $(TRAININGS)

clean: ## remove the environment and caches of tools; kept Horovod wheels stay in ~/.cache/ringscope
	rm -rf $(VENV) $(VENV).log $(VENV).lock build dist site *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find . -name __pycache__ -not -path './$(VENV)/*' -prune -exec rm -rf {} +
