#!/bin/sh
# A signer command for keys in a PKCS#11 token: a smart card, an HSM, or SoftHSM.
# Usage: pkcs11-sign.sh MODULE TOKEN-LABEL KEY-ID; the PIN is in $PKCS11_PIN.
#
# Tokens differ in whether they hash (ECDSA-SHA256); all of them sign a digest (ECDSA). The format
# `openssl` of pkcs11-tool is DER; its default, `rs`, is what a signer file calls `raw`.
set -eu
: "${PKCS11_PIN:?is not set}"
openssl dgst -sha256 -binary |
    pkcs11-tool --module "$1" --token-label "$2" --id "$3" --login --pin env:PKCS11_PIN \
        --sign --mechanism ECDSA --signature-format openssl
