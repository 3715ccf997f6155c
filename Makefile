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

.PHONY: help check test torture bench bench-peers blocking lint types user-types layers format demo docs lock lowest notebooks package clean
.DEFAULT_GOAL := help

help: ## show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "make %-11s %s\n", $$1, $$2 }' Makefile

check: lint types layers test ## run all checks; required before a change is merged

test: $(READY) ## run the tests
	@$(RUN) pytest -q -n $(JOBS) --dist worksteal $(ARGS)

torture: $(READY) ## 100 kills (REMIT_KILLS), 500 random trees (REMIT_TREES), Ctrl-C at 1000 moments (REMIT_INTERRUPTS) and 300 lines (REMIT_INTERRUPT_LINES)
	@REMIT_KILLS="$${REMIT_KILLS:-100}" $(RUN) pytest -q tests/journal -k "random_moments or killed_again" $(ARGS)
	@REMIT_TREES="$${REMIT_TREES:-500}" $(RUN) pytest -q tests/laws/test_uvloop.py $(ARGS)
	@REMIT_INTERRUPTS="$${REMIT_INTERRUPTS:-1000}" REMIT_INTERRUPT_LINES="$${REMIT_INTERRUPT_LINES:-300}" \
	  $(RUN) pytest -q tests/tasks/test_ctrl_c.py $(ARGS)

# TIMES whole runs, one after another, because a shared machine is sometimes fast and sometimes slow.
bench: $(READY) ## measure remit against a bare loop (TIMES=1), and write docs/performance.md
	@$(RUN) compileall -q src # as for an installed package, so that the import times do not include the compiler
	@case "$(TIMES)" in ''|*[!0-9]*|0*) echo "TIMES=$(TIMES) is not a number of runs; use 1 or more" >&2; exit 2;; esac
	@rm -rf "$(VENV)/bench" && mkdir "$(VENV)/bench"
	@for number in $$(seq $(TIMES)); do \
	  PEERS_HOME="$(PEERS_HOME)" "$(VENV)/bin/python" benchmarks/compare.py bench \
	    --peers $(PEERS) --reps 5 --out "$(VENV)/bench/$$number-results.json" && \
	  "$(VENV)/bin/python" benchmarks/own.py --out "$(VENV)/bench/$$number-own.json" || exit 1; \
	done
	@"$(VENV)/bin/python" benchmarks/draw.py $$(for number in $$(seq $(TIMES)); do echo "$(VENV)/bench/$$number-results.json" "$(VENV)/bench/$$number-own.json"; done)

blocking: $(READY) ## measure how long hostile replies and results block the event loop (ARGS="--only grep,ls")
	@"$(VENV)/bin/python" benchmarks/blocking.py $(ARGS)

bench-peers: $(READY) ## set up seven other frameworks, each in its own environment, and measure them with remit
	@PEERS_HOME="$(PEERS_HOME)" "$(VENV)/bin/python" benchmarks/compare.py setup
	@PEERS_HOME="$(PEERS_HOME)" "$(VENV)/bin/python" benchmarks/compare.py bench --reps 3 --out "$(VENV)/peers.json"

lint: $(READY) ## check the format and the rules
	@$(RUN) ruff format --check --quiet --diff .
	@$(RUN) ruff check --quiet .

types: $(READY) ## check the types
	@$(RUN) pyright --pythonpath "$(VENV)/bin/python"

user-types: $(READY) ## check the types as users see them, with pyright and mypy (tests/typing)
	@REQUIRE_TYPES=1 $(RUN) pytest -q tests/typing

layers: $(READY) ## check which package imports which
	@$(RUN) pytest -q tests/test_project.py -k "layer or cycle"

format: $(READY) ## format the code
	@$(RUN) ruff check --quiet --fix-only .
	@$(RUN) ruff format --quiet .

demo: $(INSTALLED) ## show a live tree of agents that survey this folder: no API key
	@$(RUN) remit demo
	@echo "To run remit in this folder: $(VENV)/bin/remit"

# Strict: any warning, such as a link to a page or heading that does not exist, fails the build.
docs: $(READY) ## build the documentation site and check its links (build/site/index.html)
	@echo "Writing the reference from the code."
	@"$(VENV)/bin/python" docs/build_reference.py docs/reference
	@echo "Building the site."
	@rm -rf build/site
	@$(RUN) sphinx --quiet --fail-on-warning --keep-going --jobs auto -d build/doctrees docs build/site
	@"$(VENV)/bin/python" docs/check_site.py build/site
	@echo "Open build/site/index.html in a browser."

lock: $(READY) ## update the pinned versions from pyproject.toml
	@"$(VENV)/bin/python" -m venv --clear "$(VENV)/lock"
	@"$(VENV)/lock/bin/python" -m pip --disable-pip-version-check --quiet install 'pip>=25.1' # for --group
	@"$(VENV)/lock/bin/python" -m pip --disable-pip-version-check --quiet install --group dev --group docs -e .
	@{ echo '# Written by `make lock`.'; "$(VENV)/lock/bin/python" -m pip freeze --exclude-editable; } > $(LOCK)
	@rm -rf "$(VENV)/lock"

# The extras of the group `dev`: only with their names here does uv choose the lowest versions of what they need.
# Compiled at once, as pip does: the warnings of a package's own source would be errors in the tests.
lowest: TESTED := anthropic,openai,google,web,mcp,otel,postgres
lowest: $(READY) ## run the tests with the lowest versions that pyproject.toml allows
	@$(release-venv)
	@"$(VENV)/bin/python" -m venv --clear "$(VENV)/lowest"
	@"$(VENV)/release/bin/python" -m uv pip install --quiet --python "$(VENV)/lowest/bin/python" \
	  --compile-bytecode --resolution lowest-direct --only-binary :all: --no-binary remit --group dev -e '.[$(TESTED)]'
	@"$(VENV)/lowest/bin/python" -m pytest -q -n $(JOBS) --dist worksteal $(ARGS)

# Not in the environment of the tests: notebooks need about 60 packages that nothing else needs.
notebooks: $(READY) ## set up Jupyter and marimo, and run the tests of notebooks
	@"$(VENV)/bin/python" -m venv "$(VENV)/notebooks"
	@"$(VENV)/notebooks/bin/python" -m pip --disable-pip-version-check --quiet install 'pip>=25.1' # for --group
	@"$(VENV)/notebooks/bin/python" -m pip --disable-pip-version-check --quiet install --only-binary :all: \
	  --no-binary remit --constraint $(LOCK) --group notebooks -e .
	@$(RUN) pytest -q tests/observe/display/test_notebooks.py $(ARGS)

package: $(READY) ## build the package and check how an index would show it (dist/)
	@$(release-venv)
	@rm -rf dist
	@"$(VENV)/release/bin/python" -m build --quiet
	@"$(VENV)/release/bin/python" -m twine check --strict dist/*

clean: ## remove the environment and all caches
	rm -rf "$(VENV)" build dist docs/reference .hypothesis .pytest_cache .ruff_cache
	find . -name __pycache__ -prune -exec rm -rf {} +

# The package and its dependencies, in the versions that the tests use. Installing takes up to a minute, so it prints
# the name of each package. The shell reads pip's output line by line; awk and sed would hold it back.
$(INSTALLED): pyproject.toml $(LOCK)
	@"$(VENV)/bin/python" -c 'import pip; $(new-enough)' 2>/dev/null || { $(make-venv); }
	@echo "Installing remit and its dependencies into $(VENV), up to a minute:"
	@echo "  hatchling (to build remit)"
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

# The tools of the `release` group, which nothing else needs.
define release-venv
	"$(VENV)/bin/python" -m venv --clear "$(VENV)/release"; \
	"$(VENV)/release/bin/python" -m pip --disable-pip-version-check --quiet install 'pip>=25.1'; \
	"$(VENV)/release/bin/python" -m pip --disable-pip-version-check --quiet install --only-binary :all: --group release
endef

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
	  if try "$$python"; then echo "Creating the environment $(VENV) with $$python, about 10 seconds."; "$$python" -m venv --clear "$(VENV)"; exit; fi; \
	done; \
	if [ -n "$$unable" ]; then echo "This Python has no ensurepip, so it cannot create an environment." \
	  "On Debian and Ubuntu: apt install $$unable"; \
	else echo "No Python 3.11 or newer found (tried: $$*). Install one, or: make PYTHON=/path/to/python3"; fi >&2; \
	exit 1
endef
