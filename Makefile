# make app    a virtual environment with the pinned packages, then the app with its demo
# make test   the same, with what the tests need; linters, type check, all tests
# make lint   linters and type check alone
# make clean  removes what these made; keeps runs and uploads (.nuscope)
#
# Variables: PYTHON (3.11 or 3.12), VENV, PYTEST_ARGS; of the app PORT, ADDRESS (what it listens on) and SERVER_NAME (what browsers call it).

SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := app
.DELETE_ON_ERROR:
.PHONY: app test lint clean chromium

PYTHON ?= $(shell for p in python3.11 python3.12 python3 python; do \
	"$$p" -c 'import sys; sys.exit(not (3, 11) <= sys.version_info[:2] < (3, 13))' 2>/dev/null && { echo "$$p"; break; }; done)
VENV ?= .venv
ADDRESS ?= localhost
SERVER_NAME ?= localhost
PORT ?= 8501
PYTEST_ARGS ?=

RUN := $(VENV)/bin/python
# Settings that would send an install elsewhere than into the environment are set aside; indexes, certificates and proxies are kept.
PIP := env -u PIP_TARGET -u PIP_PREFIX -u PIP_ROOT -u PIP_NO_DEPS -u PIP_DRY_RUN -u PYTHONHOME -u PYTHONPATH \
	PIP_USER=0 PIP_REQUIRE_VIRTUALENV=0 PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_INPUT=1 $(RUN) -m pip
# Where there is a desktop, the app opens a browser; elsewhere it prints its address.
HEADLESS := $(if $(or $(DISPLAY),$(WAYLAND_DISPLAY),$(filter Darwin,$(shell uname -s))),false,true)

app: $(VENV)/.stamp-app
	@exec $(RUN) -m streamlit run app.py --server.address=$(ADDRESS) --server.port=$(PORT) --browser.serverAddress=$(SERVER_NAME) \
		--server.headless=$(HEADLESS)

test: lint chromium
	HF_HUB_OFFLINE=1 MPLBACKEND=Agg $(RUN) -m pytest $(PYTEST_ARGS)

lint: $(VENV)/.stamp-test
	$(RUN) -m ruff check .
	$(RUN) -m pyright --pythonpath $(RUN)
	$(VENV)/bin/hadolint Dockerfile

$(VENV)/bin/python:
	@[[ -n "$(PYTHON)" ]] || { echo "Nuscope needs Python 3.11 or 3.12: install one, or name it: make PYTHON=/path/to/python3.11" >&2; exit 1; }
	@"$(PYTHON)" -c 'import ensurepip' 2>/dev/null \
		|| { echo "$(PYTHON) cannot make virtual environments: on Debian and Ubuntu, apt-get install python3-venv" >&2; exit 1; }
	"$(PYTHON)" -m venv "$(VENV)"

$(VENV)/.stamp-app: requirements.txt | $(VENV)/bin/python
	$(PIP) install --quiet -r requirements.txt
	@touch $@

# The groups of pyproject.toml are read by Python itself, so that an older pip will do.
$(VENV)/.stamp-test: pyproject.toml $(VENV)/.stamp-app
	$(RUN) -c 'import tomllib; p = tomllib.load(open("pyproject.toml", "rb")); \
		open("$(VENV)/test.txt", "w").write("\n".join(p["project"]["optional-dependencies"]["test"])); \
		open("$(VENV)/test-no-deps.txt", "w").write("\n".join(p["tool"]["nuscope"]["test-no-deps"]))'
	$(PIP) install --quiet -r requirements.txt -r $(VENV)/test.txt
	$(PIP) install --quiet --no-deps -r $(VENV)/test-no-deps.txt
	@touch $@

# A real browser for the tests in tests/browser. Without one they skip, except where CI=true, where that is an error.
chromium:
	@found() { command -v chromium || command -v chromium-browser || command -v google-chrome; }; \
	found >/dev/null && exit 0; \
	if command -v apt-get >/dev/null; then \
		if [[ $$(id -u) = 0 ]]; then root=(); elif [[ -t 0 ]]; then root=(sudo); else root=(sudo -n); fi; \
		{ "$${root[@]}" apt-get -qq update \
			&& "$${root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get -qq install -y --no-install-recommends chromium fonts-dejavu-core; } \
			>/dev/null || true; \
	fi; \
	found >/dev/null && exit 0; \
	if [[ "$${CI:-}" = true ]]; then echo "No Chromium, and it could not be installed: the browser tests cannot run." >&2; exit 1; fi; \
	echo "No Chromium, and it could not be installed: the browser tests will be skipped." >&2

clean:
	rm -rf "$(VENV)" .pytest_cache .ruff_cache .hypothesis build dist *.egg-info
	find . -name __pycache__ -type d -not -path './.git/*' -prune -exec rm -rf {} +
