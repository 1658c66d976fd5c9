# Each target sets itself up in .venv. Needed: python3 (3.11 or newer) with pip. Another one: make study PYTHON=python3.12
# pip's own settings hold (PIP_INDEX_URL, PIP_EXTRA_INDEX_URL): on Linux they decide which build of torch comes.
PYTHON ?= python3
ARGS ?=
BIN := .venv/bin
# By its exact version and first, for a range may bring a build for another CUDA, and gigabytes with it.
TORCH := torch==2.13.0
PIP := $(BIN)/python -m pip install -qq --no-compile --no-warn-conflicts --disable-pip-version-check
# Python compiles what is imported at the first import, a third of all that is installed, and keeps it.
unexport PYTHONDONTWRITEBYTECODE
# With garbage looked for less often, which otherwise takes a tenth of the time
NBDEV_TEST := $(BIN)/python -c 'import gc; from nbdev.test import nbdev_test; gc.set_threshold(20_000, 20, 20); \
  nbdev_test(n_workers=2, timing=True)'
LIMIT := $(if $(shell command -v timeout),timeout 600)
# What the published site is rendered with; .github/workflows/docs.yaml installs it.
QUARTO := 1.7.34
COMMA := ,
say = @printf '\n%s  %s\n' "$$(date +%H:%M:%S)" $(1)

.DEFAULT_GOAL := help
.PHONY: help study test site docs quarto notebooks export bench mutants faults coverage audit constraints clean

help: ## Show this list
	@grep -hE '^[a-z]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z]+):.*## /  make \1	/' | expand -t 22

study: .venv/.study ## Train every head on the Gene Ontology and print the table (ARGS="--help" lists what can be chosen)
	@$(BIN)/rolebregman study $(ARGS)

# nbdev_test forks its workers, and torch's threads do not survive a fork.
test notebooks: export OMP_NUM_THREADS ?= 1
test notebooks: export TOKENIZERS_PARALLELISM := false

test: .venv/.dev ## Check everything: notebooks in step with the library, lint, notebooks, site, tests
	$(call say,"1/4  notebooks clean; library and README.md are what they make")
	@$(BIN)/python tools/check_sync.py
	@$(BIN)/python tools/build_readme.py --check
	$(call say,"2/4  ruff")
	@$(BIN)/ruff check --quiet
	$(call say,"3/4  nbdev_test: every notebook runs through; beside it the site$(COMMA) which takes one core")
	@mkdir -p _proc && { $(BIN)/python tools/build_site.py >_proc/site.log 2>&1 & site=$$!; \
	  $(LIMIT) $(NBDEV_TEST); run=$$?; \
	  wait $$site; built=$$?; tail -n 40 _proc/site.log; exit $$((run || built)); }
	$(call say,"4/4  pytest")
	@$(BIN)/python -m pytest -n 2 --dist worksteal

site: .venv/.dev ## Render the notebooks into _site/html
	@$(BIN)/python tools/build_site.py

# nbdev_docs writes a README.md of its own, so the one that make notebooks makes comes last, also where Quarto fails.
docs: quarto .venv/.dev ## Render the notebooks into _docs with Quarto, as the published site is
	@export PYTHONPATH=.:tools; $(BIN)/nbdev_docs; code=$$?; $(BIN)/python tools/build_readme.py && exit $$code

notebooks: .venv/.dev ## Execute all notebooks in place, then write the library and README.md from them
	@$(BIN)/python tools/execute_notebooks.py $(if $(ROLEBREGMAN_MIRROR),--flags 'mirror slow')
	@$(MAKE) --no-print-directory export
	@$(BIN)/python tools/build_readme.py

quarto:
	@command -v quarto >/dev/null || { echo "make docs needs Quarto $(QUARTO) on the PATH; make site needs none" >&2; \
	  exit 1; }

export: .venv/.dev ## Clean the notebooks, write the library from them, and what each package hands on
	@$(BIN)/nbdev_clean
	@$(BIN)/nbdev_export
	@$(BIN)/python tools/faces.py

bench: .venv/.dev ## Run the benchmarks and print the budgets (ARGS=--all for the long ones, ARGS=--report for none)
	@$(BIN)/python tests/benchmarks/run.py $(ARGS)

# All three are long, and go on where they were stopped or run a part (ARGS="--help"); guides/trust shows their rows.
mutants: .venv/.dev ## Change the library in one place at a time and see whether a test notices (ARGS="--minutes 60")
	@$(BIN)/python tools/mutants.py $(ARGS)

faults: export OMP_NUM_THREADS ?= 1
faults: .venv/.dev ## Kill, crowd and starve what is written, and work for an hour in the memory of a minute (ARGS="--minutes 5")
	@PYTHONPATH=.:tests $(BIN)/python tools/faults.py $(ARGS)

coverage: export OMP_NUM_THREADS ?= 1
coverage: export TOKENIZERS_PARALLELISM := false
coverage: .venv/.dev ## Branches of the library that no test takes
	@$(BIN)/python -m pytest -n 2 --dist worksteal -q --cov --cov-report=json:_proc/coverage.json
	@$(BIN)/python tools/covered.py _proc/coverage.json

# Asks an index of advisories for every pin, so it needs the network; pip-audit is no part of the checks' environment.
audit: | $(BIN)/pip ## Compare the versions of constraints.txt with known advisories
	@$(PYTHON) -m venv _proc/audit && _proc/audit/bin/pip install -qq pip-audit
	@_proc/audit/bin/pip-audit --no-deps --disable-pip -r constraints.txt

# Resolve every extra anew, with no pins but torch's, and write down what came.
constraints: ## Renew constraints.txt after a change of requirements in settings.ini
	@rm -rf _proc/pins && $(PYTHON) -m venv _proc/pins
	@_proc/pins/bin/pip install -qq $(TORCH)
	@_proc/pins/bin/pip install -qq '.[text,geo,ann,graph,metric,joint,kg,parquet,scale,statistics,dev]'
	@grep '^#' constraints.txt > _proc/pins/constraints.txt
	@_proc/pins/bin/pip freeze --all --exclude pip --exclude rolebregman | sed -E 's/^(torch==[^+]*)\+.*/\1/' >> _proc/pins/constraints.txt
	@mv _proc/pins/constraints.txt constraints.txt && rm -rf _proc/pins
	@echo "constraints.txt holds $$(grep -c == constraints.txt) versions; run make test"

clean: ## Remove .venv and all that was built
	@rm -rf .venv _proc _site _docs *.egg-info .pytest_cache .ruff_cache .hypothesis .benchmarks

# Set-up: the environment, and in it what the study needs or what the checks need.
$(BIN)/pip:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || { \
	  echo "rolebregman needs Python 3.11 or newer, but '$(PYTHON)' is $$($(PYTHON) --version 2>/dev/null || echo missing)." >&2; \
	  echo "Name another one: make $(MAKECMDGOALS) PYTHON=/path/to/python3.11" >&2; exit 1; }
	@echo "Setting up .venv with $$($(PYTHON) --version): one to three minutes, once"
	@$(PYTHON) -m venv .venv || { rm -rf .venv; exit 1; }
	@$(PIP) 'pip>=25' || true  # the one that an old Python brings takes twice as long for what follows

.venv/.study: extras := text
.venv/.dev: extras := text,geo,graph,ann,metric,joint,kg,statistics,dev
.venv/.study .venv/.dev: settings.ini setup.py constraints.txt | $(BIN)/pip
	@echo "  $(TORCH)"
	@$(PIP) -c constraints.txt $(TORCH) setuptools
	@echo "  rolebregman with $(extras)"
	@$(PIP) -c constraints.txt --no-build-isolation -e '.[$(extras)]'
	@touch .venv/.study $@
