# One command a task; `make help` lists them. Everything runs in $(VENV), which `make setup` fills from requirements/*.lock.

VENV   ?= .venv
PYTHON ?=
# More for pytest, e.g. PYTEST_ARGS="-k revoke -x".
PYTEST_ARGS ?=
# Test processes side by side, each with a broker of its own: most tests wait for something. 0: all in one process.
JOBS ?= 6
# The alerts are tested with promtool where it is (Debian: apt install prometheus).
PROMTOOL = $(if $(shell command -v promtool),,and not promtool)
# The desk is tested in a browser where it is (Debian: apt install chromium).
CHROMIUM = $(if $(shell command -v chromium chromium-browser),,and not chromium)
# The official schema of AsyncAPI documents is an npm package, fetched once into the cache.
NPM = $(if $(shell command -v npm),,and not npm)
# Types are checked with mypy; with pyright, too, where it is (CONTRIBUTING).
PYRIGHT = $(if $(shell command -v pyright basedpyright),,and not pyright)
# Its makers' notice to readers of the build's output, about the version after next.
export NO_MKDOCS_2_WARNING := 1
# The tests start hundreds of processes; none of them compiles everything again.
unexport PYTHONDONTWRITEBYTECODE
# A file stays together, for its broker; and they are begun in our own order (tests/schedule.py), not by their size.
DIST := --dist loadfile --no-loadscope-reorder
# Tests that measure time come after the others. They use little of a processor: some side by side do not disturb each other.
TIMING = -n $(if $(filter 0 1,$(JOBS)),0,3) --dist loadfile $(shell grep -rl --include='*.py' 'mark.timing' tests)
BENCH_ARGS  ?=
# More for the demo, e.g. DEMO_ARGS=--kafka.
DEMO_ARGS   ?=
# Which examples, e.g. EXAMPLES="card_fraud worker_loop"; all of them if it is empty.
EXAMPLES    ?=

BIN := $(VENV)/bin

.DEFAULT_GOAL := help
.NOTPARALLEL:
.PHONY: help setup demo picture screenshots examples test test-full test-breaks test-brokers test-prometheus lint-deploy check reference docs docs-serve format bench kafka needs lock clean always

help: ## list the commands
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-15s %s\n", $$1, $$2 }' $(firstword $(MAKEFILE_LIST))

setup: $(VENV)/.ready-dev ## make .venv with the locked versions (PYTHON=… chooses the interpreter)

# With an interpreter given, check every time whether the environment is of that version.
$(VENV)/.ready-%: requirements/%.lock pyproject.toml tools/setup $(if $(PYTHON),always)
	@tools/setup $(VENV) $* $(PYTHON)

# It needs little: a newcomer does not wait for the tools of the tests.
demo: $(VENV)/.ready-demo ## see it work, without a broker to install
	@$(BIN)/keepfast demo $(DEMO_ARGS)

picture: setup ## update the picture of the demo in the README
	@mkdir -p docs/pictures
	$(BIN)/keepfast demo --svg docs/pictures/demo.svg

screenshots: setup kafka ## update the pictures of the desk in the docs (Debian: apt install chromium)
	$(BIN)/python -m tools.screenshots

examples: needs setup kafka ## every service in examples/ on Kafka and PostgreSQL, with faults; ends with an account each
	$(BIN)/python -m examples $(EXAMPLES)

test: needs setup kafka check ## everything CI runs: check, then all tests but the long ones
	$(BIN)/pytest -n $(JOBS) $(DIST) -m "not long and not timing and not brokers and not prometheus $(PROMTOOL) $(CHROMIUM) $(NPM) $(PYRIGHT)" $(PYTEST_ARGS)
	$(BIN)/pytest $(TIMING) -m "timing and not long" $(PYTEST_ARGS)

test-full: export THOROUGH_TESTS := 1
test-full: needs setup kafka check ## the long tests and the examples, too; properties with more examples
	$(BIN)/pytest -n $(JOBS) $(DIST) -m "not timing and not prometheus and not breaks $(PROMTOOL) $(CHROMIUM) $(NPM) $(PYRIGHT)" $(PYTEST_ARGS)
	$(BIN)/pytest $(TIMING) -m timing $(PYTEST_ARGS)
	$(BIN)/python -m examples

test-breaks: needs setup kafka ## break the code of every rule and verify that its tests fail; half an hour
	@tools/needs promtool
	$(BIN)/pytest -m breaks packages/neotool-common/profile_tests $(PYTEST_ARGS)

test-brokers: needs setup kafka ## an app on Kafka 2.8 (with ZooKeeper), 3.3 and 3.9; fetches their jars the first time
	$(BIN)/pytest -n $(JOBS) tests/scenarios/test_an_app_works_on_brokers_without_kip_848.py $(PYTEST_ARGS)

test-prometheus: needs setup kafka ## the alerts and the dashboard against a real Prometheus (Debian: apt install prometheus)
	@tools/needs prometheus promtool
	$(BIN)/pytest -m "prometheus or promtool" tests/monitoring $(PYTEST_ARGS)

lint-deploy: setup ## what `keepfast new` writes for a deployment: hadolint, Kubernetes' and compose's schemas, systemd
	@tools/lint-deploy $(BIN)

check: setup ## format, lint, types, layers, documentation; changes nothing
	@# Beside mypy, which has one core: the rest, and the tests compiled once for all who will run them.
	$(BIN)/mypy & types=$$!; \
	$(BIN)/ruff format --check && $(BIN)/ruff check && $(BIN)/lint-imports --no-logo && \
	$(BIN)/mkdocs build --strict --quiet; rest=$$?; \
	$(BIN)/pytest --collect-only -q >/dev/null; wait $$types && exit $$rest

reference: setup ## write what is derived from the code: docs/reference, and the options of consumers
	$(BIN)/python -m tools.reference

docs: setup ## build the documentation into build/site
	$(BIN)/mkdocs build --strict

docs-serve: setup ## show the documentation while you write it
	$(BIN)/mkdocs serve --strict

format: setup ## put the format right and fix what can be fixed safely
	$(BIN)/ruff format
	$(BIN)/ruff check --fix

bench: needs setup kafka ## keepfast beside the raw client loop
	$(BIN)/python -m bench $(BENCH_ARGS)

kafka: setup ## fetch what the tests' broker needs into the user's cache, once
	@tools/kafka $(BIN)/python

needs: # report missing system packages before anything else starts
	@tools/needs

lock: ## update the locked versions (needs uv on the PATH)
	tools/lock

clean: ## remove the environment and all caches
	rm -rf $(VENV) .mypy_cache .pytest_cache .ruff_cache .import_linter_cache .hypothesis build dist
	find src tests tools examples -name __pycache__ -type d -prune -exec rm -rf {} +
