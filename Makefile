# Each target sets up what it needs in .venv first; a second run finds it done.
PYTHON ?= python3

VENV := .venv
BIN := $(VENV)/bin
CXX_SOURCES = git ls-files --cached --others --exclude-standard \
  'cc/*.cc' 'cc/*.h' 'graph_passes/*.cc' 'graph_passes/*.h' 'kernels/*.cc' 'kernels/*.h' 'kernels/*.cuh' 'tests/tvm/*.cc' 'tests/tf/*.cc'
STAMPS := $(VENV)/.stamps
EXTRAS := cpu,generate,cuda-build,rpc,plots,test,lint

# Folder of the CMake build, as setup.py names it.
CMAKE_BUILD = build/cmake-$$($(BIN)/python -c 'import sys; print(sys.implementation.cache_tag)')

.PHONY: demo test lint format bench build clean
.DELETE_ON_ERROR:

demo: build
	$(BIN)/python -m tf_tvm_ops.tools.demo

test: build $(STAMPS)/models
	$(BIN)/python -m pytest -n logical --maxprocesses 8 --dist worksteal

bench: build
	$(BIN)/tf-tvm-ops bench

lint: build
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/clang-format --dry-run -Werror $$($(CXX_SOURCES))
	MYPYPATH=$(CMAKE_BUILD)/stage $(BIN)/mypy -p tf_tvm_ops
	printf '%s\n' cc/python/*.cc cc/dispatch/*.cc | \
	  xargs -P 2 -n 1 $(BIN)/clang-tidy --quiet -p $(CMAKE_BUILD)

format: build
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .
	$(BIN)/clang-format -i $$($(CXX_SOURCES))

# Always asked, since CMake knows best what a change to sources or tables affects; without one it
# takes half a second.
build: $(STAMPS)/installed
	@$(BIN)/python setup.py --quiet build_ext --inplace

# Without build isolation, so that TensorFlow and TVM are not downloaded a second time.
$(STAMPS)/installed: $(STAMPS)/build-requirements setup.py pyproject.toml
	$(BIN)/pip install --quiet --no-build-isolation --editable '.[$(EXTRAS)]'
	touch $@

# Models that tests rewrite, without what they name as dependencies: see the file.
$(STAMPS)/models: tests/requirements-models.txt | $(STAMPS)/installed
	$(BIN)/pip install --quiet --no-deps --requirement $<
	touch $@

$(STAMPS)/build-requirements: pyproject.toml
	$(PYTHON) -m venv $(VENV)
	mkdir -p $(STAMPS)
	$(BIN)/python -c "import importlib, sys; \
	  toml = importlib.import_module('tomllib' if sys.version_info >= (3, 11) else 'pip._vendor.tomli'); \
	  project = toml.load(open('pyproject.toml', 'rb')); \
	  print(*project['build-system']['requires'], sep='\n')" > $@.txt
	$(BIN)/pip install --quiet --requirement $@.txt
	touch $@

clean:
	rm -rf build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis
	rm -rf tf_tvm_ops/lib tf_tvm_ops/packs tf_tvm_ops/share tf_tvm_ops/_native.*.so tf_tvm_ops/_build_info.py
	find cc kernels tools tf_tvm_ops tests -name __pycache__ -prune -exec rm -rf {} +
