#!/bin/sh
# Run the GPU's tests on a machine that has one, without a network.
# Usage: ci/gpu.sh [--part I/N] [FOLDER], where FOLDER (or AOTC_GPU_WHEELS) holds packed wheels or is
# a folder in which they are unpacked; none: what PYTHON (default: python3) has already.
# --part runs one of N parts, where a command may not take as long as all of them do.
# AOTC_GPU_JOBS (default: a quarter of the cores) processes share the GPU; the tests that need it to
# themselves (the mark `alone`) come after those of the last part.
# Results: gpu-tests.xml (JUnit), gpu-tests.jsonl (figures) and gpu-tests.log in OUT (default:
# build/gpu). `python ci/gpu_results.py OUT… -o FILE` merges the JUnit files of parts.
set -eu
cd "$(dirname "$0")/.."
part=1 parts=1
if [ "${1:-}" = --part ]; then
    part=${2%/*} parts=${2#*/}
    shift 2
    if ! [ "$part" -ge 1 ] || ! [ "$part" -le "$parts" ]; then
        echo "--part takes I/N, such as 1/3." >&2
        exit 2
    fi
fi
folder=${1:-${AOTC_GPU_WHEELS:-}}
python=${PYTHON:-python3}
export OUT="${OUT:-$PWD/build/gpu}"
mkdir -p "$OUT"

if ! nvidia-smi --query-gpu=name,driver_version,memory.total,compute_cap --format=csv 2>/dev/null; then
    echo "SKIPPED: nvidia-smi finds no NVIDIA GPU here, so that the tests of tests/gpu are not run." >&2
    exit 0
fi

# From here on, a test that finds no GPU fails.
export AOTC_GPU_REQUIRED=1 PYTHONUNBUFFERED=1
site=
if [ -n "$folder" ]; then
    set -- "$folder"/*.whl
    if [ -e "$1" ]; then
        site=$PWD/build/gpu/site
        # Unpacked once for these wheels.
        wanted=$(ls -l "$folder"/*.whl | cksum)
        if [ "$(cat "$site/.wheels" 2>/dev/null)" != "$wanted" ]; then
            rm -rf "$site"
            # Their dependencies are packed too; what is not, such as torch, PYTHON has.
            "$python" -m pip install --quiet --disable-pip-version-check --no-index --no-deps \
                --no-compile --target "$site" "$@"
            echo "$wanted" > "$site/.wheels"
        fi
    elif [ -d "$folder" ]; then
        site=$folder
    else
        echo "There is no folder $folder." >&2
        exit 2
    fi
fi
export PYTHONPATH="$PWD/toolchain${site:+:$site}${PYTHONPATH:+:$PYTHONPATH}"

"$python" - <<'END' || exit 2
import sys
from importlib.metadata import PackageNotFoundError, version

names = "torch transformers onnxscript cupy-cuda13x jax"
names += " onnxruntime-gpu onnxruntime onnx numpy pytest cuda-bindings"
found = {}
for name in names.split():
    try:
        found[name] = version(name)
    except PackageNotFoundError:
        continue
shown = ", ".join(f"{name} {number}" for name, number in found.items())
print(f"Python {sys.version.split()[0]}, {shown}", flush=True)
if "onnxruntime" in found and "onnxruntime-gpu" in found:
    sys.exit("Both onnxruntime and onnxruntime-gpu are here: pip uninstall onnxruntime")
for name in ("onnxruntime-gpu", "onnx", "pytest"):
    if name not in found:
        sys.exit(f"{name} is missing: pack its wheel, or install it")
END

shares=$PWD/build/gpu/shares
rm -rf "$shares" "$OUT/gpu-tests.jsonl"
mkdir -p "$shares"
# Whoever is cut off finds which tests ran: each is named when it begins.
trap 'cat "$shares"/gpu-tests-*.log > "$OUT/gpu-tests.log"' EXIT
trap 'exit 143' INT TERM
begun=$(date +%s)
# Runs the share $1 of the tests.
share() {
    name=gpu-tests-$(echo "$1" | tr / -)
    # Warnings of other libraries are those of whatever versions this machine has.
    "$python" -m pytest -v -m gpu tests/gpu --share "$1" -p no:cacheprovider -W default --tb=short \
        --junitxml="$shares/$name.xml" > "$shares/$name.log" 2>&1
}
cores=$(getconf _NPROCESSORS_ONLN)
jobs=${AOTC_GPU_JOBS:-$((cores < 8 ? 1 : cores / 4))}
pids=
number=$(((part - 1) * jobs))
while [ "$number" -lt $((part * jobs)) ]; do
    number=$((number + 1))
    share "$number/$((parts * jobs))" &
    pids="$pids $!"
done
status=0
for pid in $pids; do
    ended=0
    wait "$pid" || ended=$?
    # 5: none of the tests is in this share.
    [ "$ended" = 0 ] || [ "$ended" = 5 ] || status=1
done
if [ "$part" = "$parts" ]; then
    share alone || status=1
fi
for log in "$shares"/gpu-tests-*.log; do tail -n 20 "$log"; done
"$python" ci/gpu_results.py "$shares" -o "$OUT/gpu-tests.xml" || status=1
echo "$(($(date +%s) - begun)) s, part $part of $parts, $jobs processes at once"
exit "$status"
