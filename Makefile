# Every target creates .venv if needed. PYTHON names the interpreter that it is created from.
PYTHON ?= python3
BIN := .venv/bin
STAMP := .venv/.installed

MAKEFLAGS += --no-print-directory
.DEFAULT_GOAL := help
.PHONY: help venv check test test-all soak bench demo screenshots clean

help:
	@echo "make demo      kill a running pipeline and watch it recover"
	@echo "make test      run the tests"
	@echo "make test-all  run all tests, including those that take minutes"
	@echo "make soak      run random pipelines under random faults: MINUTES=n SEED=n"
	@echo "make check     check style, types, import layers and links"
	@echo "make bench     run a short form of every benchmark"
	@echo "make screenshots  make the pictures of the console in docs/images again"
	@echo "make clean     delete everything that the other targets created"

venv: $(STAMP)
	@:

$(STAMP): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Python 3.11 or newer is required: make PYTHON=...")'
	@test -x $(BIN)/python || $(PYTHON) -m venv .venv
	@echo "installing into .venv"
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev]'
	@$(BIN)/python -c 'from resurgence.engine.spark.java import find_java; find_java()' 2>/dev/null \
		|| $(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[java]'
	@touch $@

check: venv
	@$(BIN)/ruff check --quiet
	@$(BIN)/ruff format --check --quiet
	@$(BIN)/mypy --no-error-summary
	@$(BIN)/lint-imports --no-logo
	@$(BIN)/python scripts/check_docs.py

# Two processes, each with its own Spark session, because much of the time is spent waiting. Both must
# collect the same tests in the same order, hence the fixed hash seed. Most queries run once, so the
# JVM's optimising compiler would cost more time than it saves.
PYTEST := JDK_JAVA_OPTIONS="-XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=256m" PYTHONHASHSEED=0 $(BIN)/python -m pytest -n 2 --dist loadfile --no-loadscope-reorder

# The tests start about a hundred JVMs. An archive built in the background would be ready too late.
ARCHIVE := $(BIN)/python -m resurgence.engine.spark.class_archive || echo "no class-data archive: JVMs start slower"

SERVERS := $(BIN)/python -m tests.servers

test: venv
	@$(ARCHIVE)
	@$(SERVERS) s3 kafka iceberg schema-registry chromium
	@$(PYTEST) -m "not long"

# Random tests use a new seed each time; SEED=n repeats a run.
test-all: SEED ?= $(shell $(PYTHON) -c 'import random; print(random.randrange(2**32))')
test-all: venv
	@$(ARCHIVE)
	@$(SERVERS) s3 gcs azure kafka iceberg schema-registry helm chromium
	@seed=$(SEED); echo "random tests: SEED=$$seed"; \
		HYPOTHESIS_PROFILE=exploring $(PYTEST) --hypothesis-seed=$$seed

soak: venv
	@$(BIN)/python -m tests.soak --minutes $(or $(MINUTES),10) $(if $(SEED),--seed $(SEED))

bench: venv
	@$(ARCHIVE)
	@$(SERVERS) s3 kafka
	@$(BIN)/python -m benchmarks.short

demo: venv
	@$(BIN)/python -m resurgence.cli.commands.demo

screenshots: venv
	@$(SERVERS) chromium
	@$(BIN)/python -m scripts.screenshots

clean:
	@rm -rf .venv .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis dist
	@find . -name __pycache__ -type d -prune -exec rm -rf {} +
