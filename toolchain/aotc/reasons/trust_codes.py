"""Reason codes of trust policies, keys, attestations and the store: G019 to G045, and others."""

from __future__ import annotations

from typing import Final

from aotc.reasons.reason import FINDING, INPUT, NO, Row

# fmt: off
TRUST: Final[tuple[Row, ...]] = (
    # policy
    ("AOTC-G019", "policy is malformed", INPUT,
     "The trust policy, or the file of root keys, does not match its schema or contradicts itself; each problem is "
     "shown with its path. Nothing of such a policy is used.",
     "Correct the field that is named; 'aotc trust check' checks a policy."),
    ("AOTC-G020", "policy is expired or not yet valid", NO,
     "The current time is outside the period for which the trust policy is valid.",
     "Get the current policy from whoever signs it."),
    ("AOTC-G021", "policy is not signed by enough roots", NO,
     "This host has root keys, so it takes only a trust policy that enough different root keys signed, and ignores "
     "every other source of trust.",
     "Have the policy signed by the holders of root keys: 'aotc trust sign'."),
    ("AOTC-G022", "policy rollback", NO,
     "A policy of this name with a higher sequence was used on this host, so this one is outdated.",
     "Get the current policy from whoever signs it."),
    ("AOTC-G023", "no rule matches", NO,
     "No rule of the policy matches the artifact's name and channel, and an artifact that no rule matches is "
     "refused.",
     "Give the right --channel, or add a rule to the policy."),
    ("AOTC-G024", "several rules match", NO,
     "More than one rule of the policy, or more than one channel, matches the artifact, so it is not clear what is "
     "required of it.",
     "Give --channel, or change the rules' patterns so that they do not overlap."),
    ("AOTC-G025", "required attestation is missing", NO,
     "The rule requires an attestation of a kind for which the artifact has none by a key of the policy and for this "
     "channel.",
     "Add the attestation with 'aotc attest', signed by a key that the rule names."),
    ("AOTC-G026", "too few distinct signers", NO,
     "Fewer different keys than the rule's threshold made the required attestation. A key counts once, whatever its "
     "name is and however often it signed.",
     "Have further signers of the rule sign it."),
    ("AOTC-G027", "key may not sign this", NO,
     "The policy knows the key that made the attestation, but does not allow it to sign this kind of attestation.",
     "Sign with a key that has this usage, or add the usage to the key in the policy."),
    ("AOTC-G028", "key is revoked or outside of its validity", NO,
     "The policy revokes the key, or the current time is outside the period for which the policy allows it.",
     "Sign again with a valid key."),
    ("AOTC-G029", "artifact is revoked", NO,
     "The policy revokes this artifact by its id.",
     "Use another build of the model."),
    ("AOTC-G030", "artifact rollback", NO,
     "A later release of the artifact of this name was accepted on this host, or the policy requires a later one.",
     "Use the current artifact. To go back on purpose, list the artifact's full id in the policy: 'aotc trust add "
     "POLICY --allow-rollback ID'."),
    ("AOTC-G031", "builder is not allowed", NO,
     "The provenance names a builder that the rule does not list.",
     "Build with a builder that the rule lists, or add the builder to the rule."),
    ("AOTC-G032", "attestation is too old", NO,
     "The attestation was made longer ago than the rule allows, has expired, or does not say when it was made.",
     "Attest again with 'aotc attest'; add --force if the old attestation is by the same key."),
    ("AOTC-G033", "no qualification for this target", NO,
     "The rule requires that the artifact was qualified on a host like this one, but the artifact's qualifications "
     "are for other hosts, or failed.",
     "Run 'aotc attest --qualify' on a host of this kind."),
    ("AOTC-G034", "limit of the policy is exceeded", NO,
     "The artifact is larger, or has more files or attestations, than the policy allows.",
     "Raise the limit in the policy, or make the artifact smaller."),
    ("AOTC-G035", "trust state is unusable", INPUT,
     "The file that remembers the highest sequences seen cannot be read, written or understood. It is never created "
     "again automatically, because that would forget what must not be rolled back. If there is no such file yet and "
     "none can be written, as in a container with a read-only file system, nothing could be remembered.",
     "Restore a damaged file from a copy, or give its folder back to this user; remove it only if a rollback is "
     "impossible. If it cannot be written, set XDG_STATE_HOME to a folder that persists."),
    ("AOTC-G036", "clock is behind what was seen", NO,
     "The clock of this host is more than an hour behind a time that it has shown before, so what has expired cannot "
     "be known.",
     "Set the clock. If it was wrong before, correct the trust state as 'aotc explain AOTC-G035' says."),
    # keys
    ("AOTC-G037", "certificate is invalid", NO,
     "The signer's certificate is issued by a trusted CA, but this certificate or one of its issuers is not valid "
     "for this signature: it is outside its validity period, not for code signing, a CA certificate itself, on "
     "another curve than P-256, too weak, or has a critical extension that is not understood.",
     "Sign with a valid certificate for code signing. If the clock of this host is wrong, set it."),
    ("AOTC-G038", "certificate is not from a trusted CA", NO,
     "No chain of issuer names and signatures leads from the signer's certificate to a certificate authority that is "
     "trusted here.",
     "If you trust the CA, add it to the trust policy; ask the signer to put the intermediate CAs into the bundle."),
    ("AOTC-I033", "signer command failed", INPUT,
     "The program of the signer file could not be started, failed, took too long, or did not answer with a signature "
     "of the given bytes by its public key. The last of its messages is shown. Nothing was signed.",
     "Run the command by hand with any bytes on its standard input; see the examples of signers."),
    ("AOTC-I034", "password is missing or wrong", INPUT,
     "The key file is encrypted and the password does not decrypt it, or none was given; or the password for a new "
     "key is empty, too long, or was typed differently the second time.",
     "Give it in the file that AOTC_KEY_PASSWORD_FILE names, in AOTC_KEY_PASSWORD, or on a terminal."),
    # packed artifacts
    ("AOTC-G039", "packed artifact is malformed", NO,
     "The file is not, byte for byte, what 'aotc pack' writes: something is compressed, encrypted, listed twice, "
     "overlapping, hidden between or after the files, or described in two ways.",
     "Get the artifact from its builder again. If another program made the zip, unpack it with that program, and "
     "pack the folder with 'aotc pack'."),
    # which policy a host takes
    ("AOTC-G042", "policy is not the one of this host", NO,
     "The host's root keys signed the policy, but this host takes another one: the policy that its file of root keys "
     "names (aotc.root/2) or, if that names none, the first policy that was seen. A policy of another name would "
     "start a sequence of its own, and bypass the policy that applies here.",
     "Give the policy that is named. To rename it, let the new policy say that it replaces the old one ('aotc trust "
     "add POLICY --name NEW'), and have the roots sign it; or have the administrator write the file of root keys "
     "again ('aotc trust root --policy NAME')."),
    ("AOTC-G043", "root keys name no policy", FINDING,
     "The file of root keys has schema aotc.root/1, which does not say which policy this host takes: on a host that "
     "has seen none, any policy that the roots signed becomes the first, even a lax one.",
     "Write it again with 'aotc trust root --policy NAME', and replace the file."),
    ("AOTC-G044", "revocation of an unknown key", FINDING,
     "An entry of revoked.keys is not the id of a key that the policy knows. A key's id is the SHA-256 digest of its "
     "public key's PEM as OpenSSL writes it, in 64 lowercase hexadecimal digits.",
     "Revoke the key by its name in the policy, or remove the entry."),
    ("AOTC-G045", "nothing is remembered", FINDING,
     "With --unsafe-no-trust-state nothing is added to the trust state: an older policy, an older release, or a "
     "clock that was set back will not be noticed later.",
     "Set XDG_STATE_HOME to a folder that persists, and remove the option."),
    # locks
    ("AOTC-G041", "another process holds a lock", INPUT,
     "Another process is changing a file that only one process at a time may change, and did not finish in time; it "
     "is named if the system tells which it is. Or the file system does not support locks. Nothing was changed.",
     "Try again when that process has ended, or end it."),
    # the gate of a build
    ("AOTC-G040", "artifact fails its own gate", NO,
     "Before an artifact appears at the output, the gate verifies it, and new processes load every variant that was "
     "proven here and run its fixtures, as a user would. That failed for the reasons shown, so nothing was "
     "published. The model passed every earlier step, so this is most likely a bug of aotc, or a kernel whose "
     "answers differ between runs.",
     "Report it, with the model and these reasons. If the answers for a fixture differ between runs, exclude its "
     "sizes with --dim NAME=MIN..MAX."),
    ("AOTC-I035", "cannot pack", INPUT,
     "The folder holds what a packed artifact cannot hold: a file outside payload and attestations, an empty folder, "
     "or a name that some system takes for another one.",
     "Remove or rename what is named; if it was signed, build the artifact again."),
    # attestations
    ("AOTC-I036", "attestation cannot be made", INPUT,
     "The requested statement is not valid, is in the artifact already, or cannot be added to it.",
     "Correct what is named."),
    ("AOTC-I037", "keyless signing failed", INPUT,
     "There is no usable identity token, a sigstore service could not be reached in time or refused, or its answer "
     "does not verify for the identity of the token. Nothing was added to the artifact.",
     "Get a new identity token for the audience 'sigstore', and check that the services can be reached."),
    ("AOTC-I038", "private key is readable by others", FINDING,
     "The permissions of the file let users other than its owner read the signing key, and anyone who has it can "
     "sign as you.",
     "Remove these permissions (chmod 600). If others may have read the key, make a new one and revoke this one."),
    ("AOTC-I068", "no tag to take the release from", INPUT,
     "'--release' without a version takes the version from the tag that started the CI job, and none did: the job is "
     "for a branch or a pull request, or this is no CI system that is known by its variables.",
     "Start the job for a tag, or write --release VERSION."),
    ("AOTC-I069", "tag is not a version", INPUT,
     "'--release' without a version takes the version from the tag that started the CI job; a version is one to four "
     "numbers with dots between them, with or without a 'v' before it.",
     "Name the tag after the version, such as v1.4.0, or write --release VERSION."),
    ("AOTC-N009", "qualification failed", NO,
     "On this host the artifact did not load as promised, its answers are not the golden ones, or it holds no "
     "fixture that a loaded variant can be compared with. Nothing was signed.",
     "Fix the reasons that are shown with it, or build for this host. A variant in static int8 is compared with the "
     "user's data alone: build with --embed-fixtures."),
    # store
    ("AOTC-R016", "store is not safe to use", INPUT,
     "Users other than root, the user of this process and the user that AOTC_SYSTEM_STORE_OWNER names can change the "
     "store, or a folder on its path: they own it, or may write to it. They could replace its content between check "
     "and use. Or the store was named as system-wide, and its file system has no owners.",
     "Have its owner remove the permission (chmod go-w) and check its content, or install into a folder of your own "
     "(--store, AOTC_STORE). If you trust its owner, name them in AOTC_SYSTEM_STORE_OWNER."),
    ("AOTC-R017", "store entry is in use", NO,
     "A process has loaded the artifact from the store, or is installing it.",
     "Close the model, or try again later."),
)
# fmt: on
