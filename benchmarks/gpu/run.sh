#!/bin/sh
# Runs one part of the GPU kit within nine minutes; README.md beside this file says how, and what comes back.
#
#   sh benchmarks/gpu/run.sh PART        # hbct_objectives, ..., throughput, tests
#
# PACK    what pack.sh made: wheels and data; without its wheels, what is installed is used
# OUT     folder of the results
# CELLS   finished steps, shared by the parts that run on one machine
# SUITES  the file of the suites
# SPEED   how throughput is measured; the peak is that of an H100 or H200 in bfloat16
# DEVICE, SECONDS_AT_MOST, PYTHON: see below
set -eu
cd "$(dirname "$0")/../.."
SUITES=${SUITES:-benchmarks/gpu/suites.py}
parts=$(sed -n 's/^def \([a-z_]*\)() -> Suite:/\1/p' "$SUITES" | tr '\n' ' ')
part=${1:?"is missing: one of ${parts}throughput tests"}
PACK=${PACK:-.gpu}
OUT=${OUT:-runs/gpu}
CELLS=${CELLS:-/tmp/limpet-cells}
PYTHON=${PYTHON:-python3}
DEVICE=${DEVICE:-cuda}
SPEED=${SPEED:---batch 1024 --steps 200 --peak-tflops 989}
SECONDS_AT_MOST=${SECONDS_AT_MOST:-510}
mkdir -p "$OUT"
if [ -d "$PACK/wheels" ]; then
    site=$(mktemp -d)
    "$PYTHON" -m pip install --quiet --no-index --no-deps --no-compile --target "$site" "$PACK"/wheels/*.whl
    export PYTHONPATH="$site"
fi
[ ! -d "$PACK/data" ] || export LIMPET_DATA="$PACK/data"

status=0
case $part in
throughput)
    timeout "$SECONDS_AT_MOST" "$PYTHON" benchmarks/training_speed.py --device "$DEVICE" --out "$OUT" \
        $SPEED || status=$? # several words
    ;;
tests)
    grep -rl --include='*.py' 'mark\.gpu' tests |
        xargs timeout "$SECONDS_AT_MOST" "$PYTHON" -m pytest -q -m gpu > "$OUT/tests.txt" 2>&1 || status=$?
    tail -n 40 "$OUT/tests.txt"
    ;;
*)
    found=$(mktemp -d)
    timeout --signal INT "$SECONDS_AT_MOST" \
        "$PYTHON" -c 'import sys; from limpet_bench.cli import main; sys.exit(main())' \
        run "$SUITES:$part" --device "$DEVICE" --cache "$CELLS" --out "$found/leaderboard" || status=$?
    # What was finished when the time was up is kept too: the records of finished steps hold their scores.
    mkdir -p "$CELLS" "$found/records"
    (cd "$CELLS" && find . -name cell.json | tar cf - -T -) | tar xf - -C "$found/records"
    tar czf "$OUT/$part.tar.gz" -C "$found" .
    ;;
esac
exit "$status"
