# Needs Python 3.11 or newer, make and a package index. Installs only into $(VENV).
#   make test ARGS="-k ledger"                        some of the tests
#   make test JOBS=0                                  in one process, for a debugger
#   make test PYTHON=python3.13 VENV=.venv-3.13       another Python, in a separate environment

PYTHON ?=
VENV ?= .venv
ARGS ?=
JOBS ?= auto
TIMES ?= 1
PEERS_HOME ?= $(or $(TMPDIR),/tmp)/peers
# The fastest other framework, if `make bench-peers` has set it up.
PEERS ?= floor,floor_rich,ours,ours_journal$(if $(wildcard $(PEERS_HOME)/agent_framework/bin/python),$(comma)agent_framework)
comma := ,

# Always `python -m`: the scripts in bin/ break in long paths and in paths with spaces.
RUN := "$(VENV)/bin/python" -m
PIP := $(RUN) pip --disable-pip-version-check
LOCK := requirements-dev.txt
INSTALLED := $(VENV)/.installed
READY := $(VENV)/.ready
new-enough := import sys; sys.exit(sys.version_info < (3, 11))

.PHONY: help check test torture bench bench-peers blocking lint types layers format demo lock clean
.DEFAULT_GOAL := help

help: ## show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "make %-11s %s\n", $$1, $$2 }' Makefile

check: lint types layers test ## everything that must hold before a change goes in

test: $(READY) ## run the tests
	@$(RUN) pytest -q -n $(JOBS) --dist worksteal $(ARGS)

torture: $(READY) ## 100 kills (REMIT_KILLS), 500 random trees (REMIT_TREES), Ctrl-C at 1000 moments (REMIT_INTERRUPTS) and 300 lines (REMIT_INTERRUPT_LINES)
	@REMIT_KILLS="$${REMIT_KILLS:-100}" $(RUN) pytest -q tests/journal -k "random_moments or killed_again" $(ARGS)
	@REMIT_TREES="$${REMIT_TREES:-500}" $(RUN) pytest -q tests/laws/test_uvloop.py $(ARGS)
	@REMIT_INTERRUPTS="$${REMIT_INTERRUPTS:-1000}" REMIT_INTERRUPT_LINES="$${REMIT_INTERRUPT_LINES:-300}" \
	  $(RUN) pytest -q tests/tasks/test_ctrl_c.py $(ARGS)

# TIMES whole runs, one after another, because a shared machine is sometimes fast and sometimes slow.
bench: $(READY) ## measure remit against a bare loop (TIMES=1), and write docs/performance.md
	@$(RUN) compileall -q src # as an installed package is: what is measured of the import is not the compiler
	@case "$(TIMES)" in ''|*[!0-9]*|0*) echo "TIMES=$(TIMES) is no number of runs; name 1 or more" >&2; exit 2;; esac
	@rm -rf "$(VENV)/bench" && mkdir "$(VENV)/bench"
	@for number in $$(seq $(TIMES)); do \
	  PEERS_HOME="$(PEERS_HOME)" "$(VENV)/bin/python" benchmarks/compare.py bench \
	    --peers $(PEERS) --reps 5 --out "$(VENV)/bench/$$number-results.json" && \
	  "$(VENV)/bin/python" benchmarks/own.py --out "$(VENV)/bench/$$number-own.json" || exit 1; \
	done
	@"$(VENV)/bin/python" benchmarks/draw.py $$(for number in $$(seq $(TIMES)); do echo "$(VENV)/bench/$$number-results.json" "$(VENV)/bench/$$number-own.json"; done)

blocking: $(READY) ## measure how long hostile replies and results block the event loop (ARGS="--only grep,ls")
	@"$(VENV)/bin/python" benchmarks/blocking.py $(ARGS)

bench-peers: $(READY) ## set up seven other frameworks, each in an environment of its own, and measure them with remit
	@PEERS_HOME="$(PEERS_HOME)" "$(VENV)/bin/python" benchmarks/compare.py setup
	@PEERS_HOME="$(PEERS_HOME)" "$(VENV)/bin/python" benchmarks/compare.py bench --reps 3 --out "$(VENV)/peers.json"

lint: $(READY) ## check the format and the rules
	@$(RUN) ruff format --check --quiet --diff .
	@$(RUN) ruff check --quiet .

types: $(READY) ## check the types
	@$(RUN) pyright --pythonpath "$(VENV)/bin/python"

layers: $(READY) ## check which room imports which
	@$(RUN) pytest -q tests/test_project.py -k "layer or cycle"

format: $(READY) ## put the code into its one format
	@$(RUN) ruff check --quiet --fix-only .
	@$(RUN) ruff format --quiet .

demo: $(INSTALLED) ## show a live tree of agents that survey this folder: no API key
	@$(RUN) remit demo
	@echo "To run remit in this folder: $(VENV)/bin/remit"

lock: $(READY) ## write the pinned versions anew, from pyproject.toml
	@"$(VENV)/bin/python" -m venv --clear "$(VENV)/lock"
	@"$(VENV)/lock/bin/python" -m pip --disable-pip-version-check --quiet install -e '.[dev]'
	@{ echo '# Written by `make lock`.'; "$(VENV)/lock/bin/python" -m pip freeze --exclude-editable; } > $(LOCK)
	@rm -rf "$(VENV)/lock"

clean: ## remove the environment and all caches
	rm -rf "$(VENV)" build dist .hypothesis .pytest_cache .ruff_cache
	find . -name __pycache__ -prune -exec rm -rf {} +

# The package and its dependencies, in the versions that the tests use. Installing takes up to a minute, so it prints
# the name of each package. The shell reads pip's output line by line; awk and sed would hold it back.
$(INSTALLED): pyproject.toml $(LOCK)
	@"$(VENV)/bin/python" -c 'import pip; $(new-enough)' 2>/dev/null || { $(make-venv); }
	@echo "Installing remit and its dependencies into $(VENV):"
	@{ $(PIP) --quiet install --only-binary :all: --constraint $(LOCK) hatchling && \
	   $(PIP) install --no-build-isolation --constraint $(LOCK) -e . || echo Failed; } | \
	 while read -r word name rest; do \
	   case "$$word" in Collecting) echo "  $${name%%[<>=!~;[]*}" ;; Installing) echo "  copying files" ;; Failed) exit 1 ;; esac; \
	 done
	@touch "$@"

# The tools for developing remit.
$(READY): $(INSTALLED)
	@echo "Installing the tools for tests and checks into $(VENV)."
	@$(PIP) --quiet install --only-binary :all: -r $(LOCK)
	@touch "$@"

# The first Python that is new enough and can create environments; Debian ships one that cannot.
define make-venv
	unable=; \
	try() { \
	  "$$1" -c '$(new-enough)' 2>/dev/null || return 1; \
	  "$$1" -c 'import ensurepip, venv' 2>/dev/null && return; \
	  unable=$$("$$1" -c 'import sys; print("python%d.%d-venv" % sys.version_info[:2])'); return 1; \
	}; \
	if [ -n "$(PYTHON)" ]; then set -- "$(PYTHON)"; \
	else set -- python3 python3.14 python3.13 python3.12 python3.11; fi; \
	for python in "$$@"; do \
	  if try "$$python"; then echo "Creating the environment $(VENV) with $$python."; "$$python" -m venv --clear "$(VENV)"; exit; fi; \
	done; \
	if [ -n "$$unable" ]; then echo "This Python has no ensurepip, so it cannot create an environment." \
	  "On Debian and Ubuntu: apt install $$unable"; \
	else echo "No Python 3.11 or newer found (tried: $$*). Install one, or: make PYTHON=/path/to/python3"; fi >&2; \
	exit 1
endef
