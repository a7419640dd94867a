#!/bin/sh
# Make a virtual environment with exactly the pinned packages, and aotc itself in place.
# Usage: ci/setup.sh VENV LOCK [PYTHON], where LOCK is a file of requirements/, without .lock
set -eu
venv=$1
lock=$2
wanted=${3:-}

fits() {
    "$1" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null
}

# A folder left by an interrupted run, or one whose Python is gone, is made anew.
if ! { fits "$venv/bin/python" && "$venv/bin/python" -m pip --version >/dev/null 2>&1; }; then
    for python in ${wanted:-python3 python python3.13 python3.12 python3.11}; do
        fits "$python" && break
        python=
    done
    if [ -z "$python" ]; then
        echo "aotc needs Python 3.11 or later: name one with make PYTHON=/path/to/python" >&2
        exit 1
    fi
    "$python" -m venv --clear "$venv" || {
        echo "$python cannot make a virtual environment; on Debian and Ubuntu:" >&2
        echo "    apt-get install python3-venv" >&2
        exit 1
    }
fi
install() {
    "$venv/bin/python" -m pip install --quiet --disable-pip-version-check --require-hashes "$@"
}
torch=
if [ "$lock" = sources ]; then
    # Its build for the CPU where pip finds that, else the one of the index.
    torch=requirements/torch-cpu.lock
    install --no-deps -r "$torch" 2>/dev/null || torch=requirements/torch.lock
fi
install ${torch:+-r "$torch"} -r "requirements/$lock.lock"
"$venv/bin/python" -m pip install --quiet --disable-pip-version-check --no-deps \
    --no-build-isolation -e .
