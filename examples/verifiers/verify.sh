#!/bin/sh
# Verify an artifact with openssl, jq and coreutils: its OMS signature, and every file of its payload.
# Usage: verify.sh ARTIFACT PUBLIC-KEY
set -eu
if [ $# -ne 2 ]; then
    echo "usage: $0 ARTIFACT PUBLIC-KEY" >&2
    exit 2
fi
artifact=$1
key=$2
bundle=$artifact/attestations/oms.sigstore.json
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

jq -er .dsseEnvelope.payload "$bundle" | base64 -d >"$work/statement"
jq -er '.dsseEnvelope.signatures[0].sig' "$bundle" | base64 -d >"$work/signature"

# What is signed is the pre-authentication encoding: type and payload, each with its length in bytes.
type=application/vnd.in-toto+json
length=$(($(wc -c <"$work/statement")))
printf 'DSSEv1 %d %s %d ' "${#type}" "$type" "$length" | cat - "$work/statement" >"$work/message"
openssl dgst -sha256 -verify "$key" -signature "$work/signature" "$work/message"

# The signed list: these files, with these bytes, and nothing else.
jq -er 'select(.predicateType == "https://model_signing/signature/v1.0") | .predicate.resources[]
    | if .algorithm == "sha256" then "\(.digest)  \(.name)" else error("not sha256") end' \
    "$work/statement" >"$work/listed"
cd "$artifact/payload"
sha256sum --strict --quiet --check "$work/listed"
cut -c 67- "$work/listed" | LC_ALL=C sort >"$work/names"
find . ! -type d | cut -c 3- | LC_ALL=C sort | diff "$work/names" -
[ -z "$(find . ! -type d ! -type f)" ] || { echo "not a plain file is among them" >&2; exit 1; }
echo "every file of $artifact/payload is as it was signed"
