# Each target makes the environment .venv first, where it is missing or its lock has changed. Needs Python 3.11 or newer.
.DEFAULT_GOAL := help
.PHONY: help setup chromium firefox mosquitto judges cql-peers peers-lock atlas demo serve docs warm quick test reach soak check bench lock clean

BIN := .venv/bin
STAMP := .venv/ready
ARGS ?=
JUDGES := .venv/judges
ATLAS := viz/atlas/countries-110m.json
export NODE_PATH := $(CURDIR)/$(JUDGES)/node_modules
# The tests of a file stay together, and what takes longest comes first.
SPREAD := --maxprocesses=4 --dist loadfile --no-loadscope-reorder
# Many tests of the whole wait for other processes: one worker more than there are processors fills these waits. Two more
# took as long on two processors, and a page was too slow for a test.
WORKERS := $(shell echo $$(($$(getconf _NPROCESSORS_ONLN) + 1)))
# A test that has not ended after ten minutes waits for something that never happens. Its worker ends with a traceback of
# each thread, and one other takes over, at most once; what the test started, such as a server, may be left running.
HANGING := --max-worker-restart=1 -o faulthandler_timeout=600 -o faulthandler_exit_on_timeout=true
CHECK := $(BIN)/ruff check . && $(BIN)/ruff format --check . && $(BIN)/mypy && $(BIN)/lint-imports --no-cache
# Bytecode is kept, also where the environment forbids it: else each process that a test starts compiles all it imports.
quick test soak: export PYTHONDONTWRITEBYTECODE :=
# Workers take all processors: threads of BLAS that wait for one cost a sixth of what the tests of kriging take.
quick test: export OPENBLAS_NUM_THREADS := 1

help: ## print the targets
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "  make %-8s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

$(STAMP): requirements.lock pyproject.toml tools/setup.sh
	@PYTHON="$(PYTHON)" sh tools/setup.sh
	@touch $@
	@# An archive of Spark's classes shortens each later start; nobody waits for it.
	@nohup $(BIN)/python -m ingest.spark.appcds >.venv/archive.log 2>&1 </dev/null &
	@# Compiled loops of kriging, joins and continuous queries, so that no large query and no stream waits for the compiler; targets that
	@# need `warm` compile them at once, and not twice at the same time.
	@$(if $(filter setup warm quick test,$(MAKECMDGOALS)),:,nohup sh -c "$(BIN)/python -m hypergrid.interpolation.warm; \
	    $(BIN)/python -m hypergrid.wo_join.warm; \
	    $(BIN)/python -m hypergrid.continuous.engine.warm" >.venv/warm.log 2>&1 </dev/null &)

setup: warm ## the environment alone: .venv, the archive that makes Spark start faster, and compiled loops
	@$(BIN)/python -m ingest.spark.appcds

$(ATLAS): tools/atlas/package-lock.json
	@sh tools/atlas/fetch.sh $(@D)
	@if [ -e $@ ]; then touch $@; fi

atlas: $(ATLAS) ## coast and borders of the maps, which a wheel that is built afterwards contains

demo: $(STAMP) $(ATLAS) ## the whole way once: sample data, ingest, a map, the page (ARGS=--no-serve ends instead)
	$(BIN)/hypergrid demo $(ARGS)

serve: $(STAMP) $(ATLAS) ## the web API and the page (ARGS are those of hypergrid serve)
	$(BIN)/hypergrid serve $(ARGS)

docs: $(STAMP) ## the guide, which hypergrid serve then shows under /docs (ARGS=--out FOLDER writes it elsewhere)
	$(BIN)/python -m tools.docs.build $(ARGS)

chromium:
	@# The shell without windows opens pages in half the time; where there is none, any Chromium will do.
	@sh tools/debian_package.sh chromium-headless-shell "the browser tests" chromium chromium-browser google-chrome

firefox:
	@sh tools/debian_package.sh firefox-esr "the tasks in Firefox" firefox

mosquitto:
	@sh tools/debian_package.sh mosquitto "the tests of MQTT"

$(JUDGES)/ready: tools/judges/package-lock.json | $(STAMP)
	@if command -v npm >/dev/null; then \
	    mkdir -p $(JUDGES) && cp tools/judges/package.json tools/judges/package-lock.json $(JUDGES)/ && \
	    npm ci --silent --no-audit --no-fund --ignore-scripts --prefix $(JUDGES) >/dev/null && touch $@ || \
	    echo "npm cannot fetch what judges CoverageJSON and the pages; their tests are skipped"; \
	else echo "without npm the tests by CoverageJSON's reader and by axe are skipped"; fi

judges: $(JUDGES)/ready

# What continuous queries are compared with, in environments of their own, each of a list with hashes (`make peers-lock`
# compiles both); Flink also needs Java, and older libraries. What builds a source distribution is in its list, too.
cql-peers: .venv/cql-peers/ready .venv/cql-peers-flink/ready ## bytewax, csp, Flink and others, for `hypergrid bench cql --case peers`

.venv/cql-peers/ready: tools/cql_peers/peers.lock | $(STAMP)
.venv/cql-peers-flink/ready: tools/cql_peers/flink.lock | $(STAMP)
.venv/cql-peers/ready .venv/cql-peers-flink/ready:
	@$(BIN)/uv venv --quiet --clear --python $(BIN)/python $(@D)
	@$(BIN)/uv pip sync --quiet --python $(@D)/bin/python --require-hashes --build-constraint $< $<
	@touch $@

peers-lock: $(STAMP) ## compile the lists of `cql-peers` anew (ARGS=--upgrade takes the newest versions)
	@for list in peers flink; do \
	    $(BIN)/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-header --no-annotate \
	        --no-emit-index-url --no-emit-find-links $(ARGS) tools/cql_peers/$$list.txt \
	        --output-file tools/cql_peers/$$list.lock || exit 1; \
	done

check: $(STAMP) ## style, types and import layers
	$(CHECK)

warm: $(STAMP)
	@$(BIN)/python -m hypergrid.interpolation.warm
	@$(BIN)/python -m hypergrid.wo_join.warm
	@$(BIN)/python -m hypergrid.continuous.engine.warm

quick: warm ## most tests, with fewer cases of each, after each change (at most 5 minutes; ARGS go to pytest)
	$(BIN)/python -m pytest --quick -n logical $(SPREAD) $(ARGS)

test: chromium firefox mosquitto judges atlas warm ## check, and all tests but the long proofs (40 minutes on two processors; ARGS go to pytest)
	@# Side by side; what the check says comes last.
	@{ $(CHECK); } >.venv/check.log 2>&1 & checking=$$!; \
	$(BIN)/python -m pytest -n $(WORKERS) $(SPREAD) $(HANGING) $(ARGS); tested=$$?; \
	wait $$checking; checked=$$?; cat .venv/check.log; \
	if [ $$checked -ne 0 ]; then echo "make check failed: see above" >&2; fi; exit $$((tested || checked))

reach: chromium firefox mosquitto judges atlas warm ## functions that no command, request, page or Python user reaches (ARGS=--report runs nothing)
	$(BIN)/python -m tests.reach $(ARGS)

soak: $(STAMP) chromium mosquitto judges ## the long proofs
	$(BIN)/python -m pytest -m soak $(ARGS)

bench: $(STAMP) ## time kriging, as JSON
	$(BIN)/hypergrid bench kriging --json $(ARGS)

lock: $(STAMP) ## compile requirements.lock anew from pyproject.toml (ARGS=--upgrade takes the newest versions)
	$(BIN)/uv pip compile --quiet --universal --fork-strategy fewest --all-extras --generate-hashes --no-header --no-annotate \
	    --no-emit-index-url --no-emit-find-links $(ARGS) pyproject.toml --output-file requirements.lock

clean: ## remove the environment, what was built, and the caches
	rm -rf .venv build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
