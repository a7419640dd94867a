#!/bin/sh
# Pin every dependency with the hashes of all its files, for Python 3.11 and later on any platform:
# requirements/dev.lock for everything, requirements/demo.lock for building and running alone, gpu.lock for that on
# CUDA, previous.lock for the minor version of ONNX Runtime before, verify.lock for verifying alone and keyless.lock for identities too, requirements/site.lock for the website.
# server-schemas.lock is what tests read the schemas of Triton and KServe in, and never import or install.
# fleet.lock is for the tests of fleets on Ray. model-signing.lock is OpenSSF's verifier, for who has no aotc. sources.lock is for the tests of sources, but for
# torch: torch-cpu.lock is its build for the CPU, torch.lock that of an index, with what it needs of CUDA. None names an index. Usage: ci/lock.sh PYTHON [OPTION...], where --upgrade takes newer releases.
set -eu
python=$1
shift
tools=build/locker
"$python" -m venv --clear "$tools"
"$tools/bin/python" -m pip install --quiet --disable-pip-version-check --require-hashes \
    -r requirements/locker.lock

# A pin of a package with an extra, and before it one without: for pip, the first is not the second.
plain_too='
function flush(  plain) {
    if (block ~ /^[^ ]*\[/) { plain = block; sub(/\[[^]]*\]/, "", plain); printf "%s", plain }
    printf "%s", block
    block = ""
}
/^[a-z0-9]/ { flush() }
{ block = block $0 "\n" }
END { flush() }
'
# Usage: compile LOCK OPTION...; fewest: one version of a package for all Pythons.
compile() {
    lock=requirements/$1.lock
    shift
    "$tools/bin/uv" --no-config pip compile --quiet --universal --python-version 3.11 \
        --fork-strategy fewest --no-strip-extras --generate-hashes --no-header --no-annotate \
        --output-file "$lock" "$@"
    awk "$plain_too" "$lock" >build/plain.lock
    mv build/plain.lock "$lock"
    if grep -nE '^--|://| @ ' "$lock"; then
        echo "$lock names a place" >&2
        exit 1
    fi
}

compile dev --extra cpu --extra dev "$@" pyproject.toml
# The build backend comes along: aotc itself is installed in place, from this checkout.
echo hatchling >build/locker.in
echo editables >>build/locker.in
compile demo --extra cpu --constraints requirements/dev.lock pyproject.toml build/locker.in
compile gpu --extra gpu --constraints requirements/dev.lock pyproject.toml build/locker.in
grep -vE '^onnxruntime==' requirements/dev.lock | grep -oE '^[a-z][^ ]*' >build/previous.constraints
echo 'onnxruntime>=1.31,<1.32' >build/previous.in
compile previous --constraints build/previous.constraints build/previous.in build/locker.in
compile verify --constraints requirements/dev.lock pyproject.toml build/locker.in
compile keyless --extra sigstore --constraints requirements/dev.lock pyproject.toml build/locker.in
printf 'model-signing\npyOpenSSL\n' >build/model-signing.in
compile model-signing --constraints requirements/dev.lock build/model-signing.in
printf 'kserve==0.21.0\ntritonclient==2.73.0\n' >build/server-schemas.in
compile server-schemas --no-deps build/server-schemas.in
compile site --extra site --constraints requirements/dev.lock "$@" pyproject.toml build/locker.in
printf 'pytest>=8\nhypothesis>=6\n' >build/fleet.in
compile fleet --extra fleet --constraints requirements/dev.lock pyproject.toml build/locker.in build/fleet.in
compile sources --extra sources --constraints requirements/dev.lock pyproject.toml build/locker.in
# An index has torch's build for CUDA, of several GB; some machines and folders have the one for the
# CPU, which is another version to pip: ci/setup.sh takes that where pip finds it.
awk '
/^[a-z0-9]/ { torch = /^(torch|triton|cuda-[a-z]*|nvidia-[a-z0-9-]*)[[=]/ }
{ print >(torch ? "requirements/torch.lock" : "build/plain.lock") }
' requirements/sources.lock
mv build/plain.lock requirements/sources.lock
# Of the wheel for Python 3.11 on Linux, x86-64.
cat >requirements/torch-cpu.lock <<END
$(grep -oE '^torch==[^ ]*' requirements/torch.lock)+cpu \\
    --hash=sha256:6746dbcbeb526eb61330b76b41ff1b4eb848951103a892eeb080dfa2b264667b
END
