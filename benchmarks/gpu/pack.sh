#!/bin/sh
# Packs what a machine with nothing but Python and a CUDA build of torch lacks, below 60 MiB: wheels and data.
#
#   LIMPET_DATA=FOLDER sh benchmarks/gpu/pack.sh     # writes .gpu; TARGET is the machine's Python, 3.12 when left out
set -eu
cd "$(dirname "$0")/../.."
PACK=${PACK:-.gpu}
PYTHON=${PYTHON:-.venv/bin/python}
TARGET=${TARGET:-3.12}
LARGEST=61440 # KiB
rm -rf "$PACK"
mkdir -p "$PACK/wheels" "$PACK/data"
"$PYTHON" -m pip wheel --quiet --no-deps --wheel-dir "$PACK/wheels" . ./bench
# What limpet[train] and limpet-bench need beside what usually comes with PyTorch; see README.md. Charts are not drawn
# there: vl-convert-python alone would take 30 MiB.
needed="altair annotated-types attrs cyclopts docstring_parser jsonschema jsonschema-specifications lightning-fabric
    lightning-utilities pydantic pydantic_core referencing rich-rst rpds-py tomli_w typing-inspection typing_extensions"
for name in $needed; do
    grep -i "^$name==" constraints.txt
done > "$PACK/needed.txt"
"$PYTHON" -m pip download --quiet --no-deps --only-binary=:all: --implementation cp --python-version "$TARGET" \
    --platform manylinux_2_28_x86_64 --platform manylinux_2_17_x86_64 --platform manylinux2014_x86_64 \
    --dest "$PACK/wheels" --requirement "$PACK/needed.txt"
cp -r "${LIMPET_DATA:?"is the folder that holds tiny-imagenet-32"}/tiny-imagenet-32" "$PACK/data/"
chmod -R u+w "$PACK/data"
size=$(du -sk "$PACK" | cut -f1)
echo "$PACK: $size KiB"
[ "$size" -lt "$LARGEST" ] || { echo "$PACK is larger than $LARGEST KiB." >&2; exit 1; }
