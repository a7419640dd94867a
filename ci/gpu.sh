#!/bin/sh
# Run the GPU's tests on a machine that has one, without a network.
# Usage: ci/gpu.sh [FOLDER], where FOLDER (or AOTC_GPU_WHEELS) holds packed wheels or is a folder in
# which they are unpacked; none: what PYTHON (default: python3) has already.
# Results: gpu-tests.xml (JUnit), gpu-tests.jsonl (figures) and gpu-tests.log in OUT (default: build/gpu).
set -eu
cd "$(dirname "$0")/.."
folder=${1:-${AOTC_GPU_WHEELS:-}}
python=${PYTHON:-python3}
export OUT="${OUT:-$PWD/build/gpu}"
mkdir -p "$OUT"

if ! nvidia-smi --query-gpu=name,driver_version,memory.total,compute_cap --format=csv 2>/dev/null; then
    echo "SKIPPED: nvidia-smi finds no NVIDIA GPU here, so that the tests of tests/gpu are not run." >&2
    exit 0
fi

# From here on, a test that finds no GPU fails.
export AOTC_GPU_REQUIRED=1
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

status=0
# Warnings of other libraries are those of whatever versions this machine has.
"$python" -m pytest -m gpu tests/gpu -p no:cacheprovider -W default --tb=short \
    --junitxml="$OUT/gpu-tests.xml" > "$OUT/gpu-tests.log" 2>&1 || status=$?
tail -n 60 "$OUT/gpu-tests.log"
exit "$status"
