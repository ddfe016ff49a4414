# Two commands set everything up: `make demo` and `make test`. Needs Python 3.11+, pip and make.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
USABLE := $(VENV)/.usable
INSTALLED := $(VENV)/.installed

# What Python has compiled is kept, also by who asks it not to: tests start many interpreters.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: demo test postgres chromium prometheus quick lint style format tables coverage bench fuzz docs accessible \
	deployment lock clean

# What a user installs, and no more: the demo begins a good while before everything for developers would be there.
demo: $(USABLE)
	$(BIN)/colonnade demo

# Types are checked beside the tests; what is wrong with them is said at the end. Half of the workers mostly wait (tests/conftest.py).
test: $(INSTALLED) style postgres chromium prometheus
	@mkdir -p build; $(BIN)/mypy >build/types.txt 2>&1 & types=$$!; \
	$(BIN)/python -m pytest -n 4 --dist worksteal; tests=$$?; \
	wait $$types || { cat build/types.txt; exit 1; }; exit $$tests

# A test starts a private PostgreSQL server. Without its programs it says why it is skipped; in CI it must not be.
postgres:
	@if command -v initdb >/dev/null || ls /usr/lib/postgresql/*/bin/initdb >/dev/null 2>&1; then :; \
	elif [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
		apt-get update -qq && apt-get install -qq --no-install-recommends postgresql >/dev/null || true; fi

# The same for the live page, which is tested in a real browser.
chromium:
	@if command -v chromium >/dev/null || command -v chromium-browser >/dev/null || command -v google-chrome >/dev/null; then :; \
	elif [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
		apt-get update -qq && apt-get install -qq --no-install-recommends chromium >/dev/null || true; fi

# And for the alerts, which a real Prometheus is asked about.
prometheus:
	@if command -v promtool >/dev/null && command -v prometheus >/dev/null; then :; \
	elif [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
		apt-get update -qq && apt-get install -qq --no-install-recommends prometheus >/dev/null || true; fi

# What a developer wants every minute: style, types, agreements, the codec, the arithmetic, the twins of a few algorithms.
quick: $(INSTALLED) lint
	$(BIN)/python -m pytest -n 2 tests/wire tests/models tests/data tests/agreement/test_imports.py \
		tests/agreement/test_documents.py tests/agreement/test_words.py tests/agreement/test_sizes.py \
		tests/agreement/test_no_algorithm_named.py tests/reference/test_first_order_twin.py

lint: style
	$(BIN)/mypy

style: $(INSTALLED)
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .

format: $(INSTALLED)
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

# What the documents and the exports say of algorithms, commands, settings and results, written from what declares them.
tables: $(INSTALLED)
	$(BIN)/python tools/algorithm_tables.py
	$(BIN)/python tools/command_reference.py
	$(BIN)/python tools/settings_tables.py
	$(BIN)/python tools/reproduction_page.py

coverage: $(INSTALLED)
	$(BIN)/python -m pytest -n 4 --dist worksteal --cov --cov-report=term

bench: $(INSTALLED)
	$(BIN)/colonnade bench

# Harmed bytes for everything that reads bytes; what breaks it is saved in tests/fuzz/corpus. For an hour: make fuzz SECONDS=3600
SECONDS ?= 300
fuzz: $(INSTALLED)
	$(BIN)/python tests/fuzz/fuzz.py --seconds $(SECONDS) --seed $$(date +%s)

# In Chromium, by axe-core: pages of the site, and a run's own.
accessible: docs chromium
	$(BIN)/python tools/accessibility.py

# What deploy/ describes is built, verified and started: as root on Linux, with buildah, systemd and helm. Where Docker Hub cannot
# be reached: make deployment BASE=--debian, over Debian's Python (debootstrap).
BASE ?=
deployment: $(INSTALLED)
	$(BIN)/python -m pip install --quiet kubernetes-validate
	$(BIN)/python tools/deployment.py unit chart image $(BASE)

docs: $(INSTALLED)
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[docs]'
	$(BIN)/mkdocs build --strict

# Versions stay as they are where they still fit; `make lock UPGRADE=--upgrade` takes the newest that constraints.txt allows.
# The comment at the top of the file is kept.
lock:
	$(PYTHON) -m venv build/lock
	build/lock/bin/python -m pip install --quiet uv==0.13.7
	cp requirements.lock build/lock/requirements.txt
	build/lock/bin/uv pip compile pyproject.toml --config-file lock.toml --extra ray --extra sql --extra serve --extra export --extra mlflow --extra tensorboard --extra otel --extra transformers --extra dev \
		--constraint constraints.txt --python-version 3.11 --universal --generate-hashes --no-emit-package torch \
		--no-header --no-emit-index-url --no-emit-find-links $(UPGRADE) --quiet --output-file build/lock/requirements.txt
	sed -n -e '/^#/!q' -e p requirements.lock | cat - build/lock/requirements.txt > build/lock/whole.txt
	mv build/lock/whole.txt requirements.lock
	$(PYTHON) tools/image_lock.py

clean:
	rm -rf $(VENV) build dist site .coverage .coverage.* *.egg-info src/*.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis

$(USABLE): pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable .
	touch $(USABLE)

$(INSTALLED): $(USABLE)
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[dev]'
	touch $(INSTALLED)
