# Every target sets up what it needs: a fresh machine needs Python 3.11 or later and make.
PYTHON ?=
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.dev
SOURCES := toolchain tests benchmarks examples/digits/demo.py examples/serve ci

.DEFAULT_GOAL := help
.PHONY: help setup demo test test-all test-integration test-previous test-sources test-fleet test-sweeps test-zoo test-plain test-intel test-slow test-conformance ids kernels fuzz lint format bench schemas compat docs site lock clean

help:  ## show this list
	@awk -F':.*## ' '/^[a-z-]+:.*## / {printf "  %-16s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

# Set-up writes into one folder: never twice at once.
.NOTPARALLEL:

$(VENV)/.%: requirements/%.lock pyproject.toml ci/setup.sh
	sh ci/setup.sh $(VENV) $* $(PYTHON)
	touch $@

setup: $(STAMP)  ## make .venv with all pinned packages

demo: $(VENV)/.demo  ## build, verify, inspect and run a real model; then flip a byte
	$(BIN)/python examples/digits/demo.py

# In the order of the files: the small ones come last, so that neither worker waits for the other.
PYTEST := python -m pytest -n 2 --dist loadfile --no-loadscope-reorder -q

# What goes through every byte, place or moment of something, or waits for what takes long.
SWEEPS := tests/attacks/costs tests/attacks/moments/test_interrupted_calls.py \
	tests/attacks/contents/test_hostile_text.py tests/attacks/contents/test_mutation.py \
	tests/attacks/contents/test_swaps.py tests/cli/interruption/test_kills.py \
	tests/cli/refusals/test_broken_places.py tests/fuzz/test_fuzzing.py
# Of the tests of whole builds, a line through each subject, which CI has time for.
LINE := $(addprefix tests/integration/,answers/test_answers_of_artifacts.py \
	$(addprefix building/test_,own_gate.py promises_kept.py reproducible.py tune.py) \
	$(addprefix interop/test_,official_schemas.py ort_package.py securesystemslib.py) \
	$(addprefix loading/test_,accepted_before.py bind.py carry.py load.py shape_routing.py) \
	$(addprefix models/test_,checked_answers.py engine_models.py) \
	precision/test_integer_variants.py providers/test_no_device.py \
	signing/test_attest.py trust/test_trust.py)
# pytest takes files of a folder that it ignores for ignored, so the folders are named.
QUICK := $(filter-out tests/integration/ tests/gpu/ tests/sources/ tests/fleet/,$(wildcard tests/*/))

test: lint  ## linters, types, and the tests that CI runs
	$(BIN)/$(PYTEST) $(SWEEPS:%=--ignore=%) $(QUICK) $(LINE)

test-integration: $(STAMP)  ## the tests of whole builds, all of them (half an hour)
	$(BIN)/$(PYTEST) tests/integration

test-all: lint  ## all tests in one run, but for the sweeps (three quarters of an hour)
	$(BIN)/$(PYTEST) $(SWEEPS:%=--ignore=%) tests

test-sweeps: TESTS := $(SWEEPS)
test-sweeps: $(STAMP)  ## every byte changed, every place that refuses, every moment interrupted (15 minutes), or TESTS=…
	$(BIN)/$(PYTEST) $(TESTS)

# The minor version of ONNX Runtime before; all else is that of .venv.
PREVIOUS := $(VENV)-previous
$(PREVIOUS)/.previous: requirements/previous.lock ci/setup.sh $(STAMP)
	sh ci/setup.sh $(PREVIOUS) previous $(BIN)/python
	$(BIN)/python -c 'import site; print(*site.getsitepackages())' \
		>"$$($(PREVIOUS)/bin/python -c 'import site; print(*site.getsitepackages())')/newest.pth"
	touch $@

test-previous: TESTS := tests
test-previous: $(PREVIOUS)/.previous  ## the tests on the version of ONNX Runtime before, or TESTS=…
	$(PREVIOUS)/bin/python -c 'import onnxruntime; print("ONNX Runtime", onnxruntime.__version__)'
	$(PREVIOUS)/bin/$(PYTEST) $(TESTS)

# Frameworks stand in an environment of their own.
$(VENV)-sources/.sources: requirements/sources.lock requirements/torch-cpu.lock requirements/torch.lock pyproject.toml ci/setup.sh
	sh ci/setup.sh $(VENV)-sources sources $(PYTHON)
	touch $@

test-sources: TESTS := tests/sources
test-sources: $(VENV)-sources/.sources  ## sources of builds (PyTorch, JAX, scikit-learn …), or TESTS=…
	$(VENV)-sources/bin/$(PYTEST) $(TESTS)

# Ray stands in an environment of its own.
$(VENV)-fleet/.fleet: requirements/fleet.lock pyproject.toml ci/setup.sh
	sh ci/setup.sh $(VENV)-fleet fleet $(PYTHON)
	touch $@

test-fleet: TESTS := tests/fleet
test-fleet: $(VENV)-fleet/.fleet  ## fleets on a cluster of Ray with several nodes, or TESTS=…
	$(VENV)-fleet/bin/python -m pytest -q $(TESTS)

test-zoo: $(VENV)-sources/.sources  ## 33 architectures, built with no flags and called at five sizes (half an hour)
	$(VENV)-sources/bin/python -m pytest -q -m slow tests/sources/test_zoo.py

# As an AMD EPYC with AVX2 shows itself: no AVX-512, VNNI or AMX, and OpenVINO offers no device.
PLAIN := AOTC_HOST_ISA="sse4_1 sse4_2 avx avx2 fma f16c" \
	AOTC_HOST_WITHOUT=OpenVINOExecutionProvider
test-plain: TESTS := tests
test-plain: $(STAMP)  ## the tests as on a CPU with AVX2 alone, or TESTS='tests/unit …' of them
	$(PLAIN) $(BIN)/$(PYTEST) $(TESTS)

test-intel: TESTS := tests
test-intel: $(STAMP)  ## what needs OpenVINO, as on an Intel CPU (by qemu-user and a C compiler: slow)
	sh ci/emulate.sh $(VENV) Haswell $(VENV)-haswell
	$(VENV)-haswell/bin/$(PYTEST) -m "openvino and not slow" $(TESTS)

test-slow: $(STAMP)  ## the tests that take long, each command started as a user starts it
	AOTC_TESTS_START=anew $(BIN)/python -m pytest -m slow -q

test-conformance: UPDATE :=
test-conformance: $(STAMP)  ## the backend suite of onnx, against what is kept; UPDATE=1 keeps it anew
	$(BIN)/python ci/conformance.py $(if $(UPDATE),--update)

ids: KEEP :=
ids: AGAINST :=
ids: $(STAMP)  ## ten artifact ids against those kept for this host; KEEP=1, or AGAINST=REVISION
	$(BIN)/python ci/artifact_ids.py $(if $(KEEP),--keep) $(if $(AGAINST),--against $(AGAINST))

kernels: RUNTIME := $(BIN)/python
kernels: $(STAMP)  ## the table of kernels that ONNX Runtime registers, that of RUNTIME=PYTHON
	$(BIN)/python ci/kernel_tables.py $(RUNTIME)

fuzz: SECONDS := 600
fuzz: $(STAMP)  ## fuzz readers of untrusted files and whole checkouts, for SECONDS=600 three times
	$(BIN)/python tests/fuzz --seconds $(SECONDS)
	$(BIN)/python tests/fuzz --checkouts 20000 --seconds $(SECONDS)
	$(BIN)/python tests/fuzz --checkouts 2000 --builds --seconds $(SECONDS)

lint: $(STAMP)  ## ruff and mypy --strict (the dependency rule is among the tests)
	$(BIN)/ruff check $(SOURCES)
	$(BIN)/ruff format --check $(SOURCES)
	$(BIN)/mypy toolchain benchmarks ci examples/digits/demo.py examples/serve/app.py

format: $(STAMP)  ## format the sources
	$(BIN)/ruff check --fix-only -q $(SOURCES)
	$(BIN)/ruff format -q $(SOURCES)

bench: $(STAMP)  ## measure, and write docs/benchmarks.md (about 45 minutes)
	$(BIN)/python -m benchmarks

schemas: $(STAMP)  ## generate the JSON Schemas from the records
	$(BIN)/python ci/schemas.py --write

compat: $(STAMP)  ## keep an artifact of this release in manifests/compat, for every later one
	$(BIN)/python ci/make_compat.py

docs: $(STAMP)  ## generate the pages of codes, of conformance and of wings, and the pictures
	$(BIN)/python ci/generate_docs.py --write
	$(BIN)/python ci/conformance.py --page
	$(BIN)/python ci/architecture --write
	$(BIN)/python ci/pictures/draw_pictures.py --write

# Sphinx and its theme stand in an environment of their own.
$(VENV)-site/.site: requirements/site.lock pyproject.toml ci/setup.sh
	sh ci/setup.sh $(VENV)-site site $(PYTHON)
	touch $@

site: $(VENV)-site/.site  ## build the website in build/site; fails on a warning or a broken link
	$(VENV)-site/bin/python ci/site/build_site.py

lock: $(STAMP)  ## pin all dependencies (LOCK_OPTIONS=--upgrade: to newer releases)
	sh ci/lock.sh $(BIN)/python $(LOCK_OPTIONS)

clean:  ## remove what was built
	@# The demo's store is read-only.
	[ ! -d build ] || chmod -R u+w build
	rm -rf build dist .mypy_cache .ruff_cache .pytest_cache
