# Everything a person or a CI job runs. All of it lives in .venv, which any target makes from nothing.
PYTHON ?= python3
ARGS ?=
WORKERS ?= 3
SITE ?= site
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip -qq --disable-pip-version-check install
# Python keeps what it compiled: else every program that a test starts compiles the library anew.
unexport PYTHONDONTWRITEBYTECODE
# Temporary files are in memory where there is plenty: on some disks a file costs more than a test. They are removed.
MEMORY := $(shell awk '$$1 == "MemAvailable:" && $$2 > 12000000' /proc/meminfo 2>/dev/null | grep -q . \
	&& df -Pk /dev/shm 2>/dev/null | awk 'NR == 2 && $$4 > 8000000 { print $$6 }')
SUITE = work=$$(mktemp -d $(or $(MEMORY),$${TMPDIR:-/tmp})/kairo-suite.XXXXXX) && trap 'rm -rf "$$work"' EXIT INT TERM && \
	chmod 755 "$$work" && TMPDIR="$$work" $(BIN)/python -m pytest -n $(WORKERS)
ANOTHER := Name another one: make $(or $(MAKECMDGOALS),test) PYTHON=python3.12
PIN_FILES := constraints.txt pyproject.toml scripts/pins.py
THIRD_PARTY := $(wildcard tests/third_party/*)

.DEFAULT_GOAL := help
.PHONY: help demo machines long test rest test-all coverage browser frontends phoenix check format bench pictures interop room docs docs-site shape build constraints clean

help: ## this list
	@grep -E '^[a-z-]+:.*##' Makefile | sed -E 's/^([a-z-]+):.*## */  make \1	/' | expand -t 22
	@echo 'Another Python: make demo PYTHON=python3.12.  More arguments: make demo ARGS="--json".'
	@echo 'The suite in one process, as a debugger wants it: make test WORKERS=0.'

demo: $(VENV)/.demo ## a team on the embedded model in five scenes, from nothing, offline once installed
	@$(BIN)/kairo demo $(ARGS)

machines: $(VENV)/.dev ## a run of 200 tasks on four workers over PostgreSQL, two of which are killed
	@$(BIN)/python -m kairo_team.examples.many_machines $(ARGS)

test: $(VENV)/.dev ## the suite: what shows each behaviour once, without a server, in under five minutes on two idle cores
	@$(SUITE) -m "not exhaustive and not service and not bench and not browser and not long" $(ARGS)
	@echo "Left out: tests on PostgreSQL and rare cases (make rest), and in a browser (make browser, with Chromium)."

test-all: test rest ## `make test`, then `make rest`

rest: $(VENV)/.dev ## what `make test` leaves out: PostgreSQL, the other event loop, all mutants, rare seeds
	@$(SUITE) -m "(exhaustive or service) and not bench and not browser and not long" --hypothesis-profile=exhaustive $(ARGS)

long: $(VENV)/.dev ## what takes many minutes: laws with many examples, faults and mutants of a cluster, kits over workers
	@$(SUITE) -m "(long or hypothesis) and not bench and not browser" --hypothesis-profile=exhaustive --timeout=3600 --ignore=tests/mutants tests $(ARGS)
	@$(BIN)/python -m pytest -m long --timeout=3600 tests/mutants $(ARGS)

coverage: $(VENV)/.dev ## `make test` with its coverage by branch, which takes half as long again; of a part: ARGS=tests/governance
	@$(SUITE) -m "not exhaustive and not bench and not browser and not long" --cov --cov-report=term:skip-covered $(ARGS)

browser: $(VENV)/.browser ## the tests in a browser; they need Chromium, of the machine or from .venv/bin/playwright install chromium
	@$(BIN)/python -m pytest -n 2 -m browser $$(grep -rl --include="test_*.py" "mark\.browser" tests) $(ARGS)

frontends: $(VENV)/.frontends ## the client of AG-UI, in Node, asks a served team; node and npm have to be there
	@KAIRO_FRONTENDS=$(VENV)/frontends $(BIN)/python -m pytest tests/serve/test_ag_ui_client.py $(ARGS)

phoenix: $(VENV)/.phoenix ## traces in Phoenix, in a browser, and as Logfire and Langfuse send them; installs 700 MB into .venv/phoenix
	@KAIRO_PHOENIX=$(VENV)/phoenix $(BIN)/python -m pytest -m "browser or real_time" tests/telemetry/test_phoenix.py tests/telemetry/test_trace_programs.py $(ARGS)

check: $(VENV)/.dev ## lint, format and types: ruff, mypy strict, pyright strict
	@$(BIN)/ruff check
	@$(BIN)/ruff format --check
	@$(BIN)/mypy & mypy=$$!; $(BIN)/pyright --pythonpath $(BIN)/python; code=$$?; wait $$mypy && exit $$code

format: $(VENV)/.dev ## rewrite the sources the way `make check` wants them
	@$(BIN)/ruff check --fix-only
	@$(BIN)/ruff format

bench: $(VENV)/.dev ## the benchmarks
	@$(BIN)/python -m benchmarks $(ARGS)

interop: $(VENV)/.dev ## agents of other libraries and programs at a governed address; installs 2 GB into .venv/interop
	@$(BIN)/python -m scripts.interop $(ARGS)

room: $(VENV)/.dev ## resolve this library beside others and write the table of it
	@$(BIN)/python -m scripts.room $(ARGS)

docs: $(VENV)/.dev ## run every example in README.md and docs/, and check every link
	@$(BIN)/python -m pytest tests/test_docs.py tests/test_docs_site.py tests/test_tutorial.py $(ARGS)

pictures: $(VENV)/.browser ## take the pictures of the report and the console in docs/ again, in Chromium
	@$(BIN)/python -m scripts.report_pictures
	@$(BIN)/python -m scripts.console_pictures

docs-site: $(VENV)/.docs ## the site of the documentation in site/, every link checked; open site/index.html
	@$(BIN)/python -m scripts.docs_site $(SITE)

shape: $(VENV)/.python ## how long the files and functions are, and how the English reads
	@$(BIN)/python -m scripts.shape $(ARGS)

build: $(VENV)/.dev ## sdist and wheel in dist/, checked as an index checks them, and their bill of materials
	@rm -rf dist
	@$(BIN)/python -m build --no-isolation --outdir dist
	@$(BIN)/twine check --strict dist/*
	@$(BIN)/check-wheel-contents dist/*.whl
	@$(BIN)/pyroma -n 8 .
	@$(BIN)/python scripts/licences.py --sbom > dist/kairo-team.cdx.json

constraints: $(VENV)/.dev ## pin every dependency anew, with hashes
	@$(BIN)/uv pip compile -q pyproject.toml --all-extras --group browser --group dev --group docs --group model \
		--universal --python-version 3.11 --generate-hashes --no-emit-index-url --no-header --upgrade -o constraints.txt

clean: ## remove .venv and everything generated
	@rm -rf $(VENV) dist site .coverage .mypy_cache .pytest_cache .ruff_cache .hypothesis

# The environment, in layers. A stamp is newer than the files it was installed from.
$(VENV)/.python:
	@command -v $(PYTHON) >/dev/null || { echo "There is no '$(PYTHON)' here. $(ANOTHER)" >&2; exit 1; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
		echo "kairo-team needs Python 3.11 or newer; '$(PYTHON)' is $$($(PYTHON) --version 2>&1). $(ANOTHER)" >&2; exit 1; }
	@$(PYTHON) -m venv $(VENV)
	@touch $@

$(VENV)/.demo: $(PIN_FILES) | $(VENV)/.python
	@$(call install,what the demo needs (130 MB; about a minute),cli console local build model)

$(VENV)/.dev: $(PIN_FILES) $(shell find $(THIRD_PARTY) -type f ! -name '*.pyc') | $(VENV)/.python
	@$(call install,all extras and the development tools (270 MB; about two minutes),all dev model,$(THIRD_PARTY:%=./%))
	@touch $(VENV)/.demo

$(VENV)/.browser: $(VENV)/.dev
	@$(call install,what drives a browser in tests (170 MB),browser)

$(VENV)/.frontends: $(VENV)/.dev
	@npm install --silent --no-audit --no-fund --prefix $(VENV)/frontends @ag-ui/client@1.0.0
	@touch $@

$(VENV)/.phoenix: $(VENV)/.browser
	@$(PYTHON) -m venv $(VENV)/phoenix
	@$(BIN)/uv pip install -q --python $(VENV)/phoenix/bin/python arize-phoenix==20.26.1 langfuse==5.0.4 logfire==5.4.0 -e .
	@touch $@

$(VENV)/.docs: $(VENV)/.dev
	@$(call install,what builds the site (60 MB),docs)

# $(1) what it is, in words; $(2) the extras and groups; $(3) packages of others that lie here.
define install
	start=$$(date +%s); echo "Installing $(1) into $(VENV) ..." && \
	$(BIN)/python scripts/pins.py $(2) > $@-pins.txt && \
	$(PIP) --require-hashes --no-deps -r $@-pins.txt && \
	$(PIP) --no-deps --no-build-isolation -e . $(3) && \
	touch $@ && echo "Installed in $$(( $$(date +%s) - start )) s."
endef
