"""Codes of policies and of what they demand: G019 to G045."""

from __future__ import annotations

from typing import Final

from aotc.reasons.reason import FINDING, INPUT, NO, Row

# fmt: off
TRUST: Final[tuple[Row, ...]] = (
    # policy
    ("AOTC-G019", "policy is malformed", INPUT,
     "The trust policy, or the file of root keys, does not fit its schema or contradicts itself; each problem "
     "is given with its path. A policy is taken as a whole or not at all.",
     "Correct the field that is named; 'aotc trust check' tests a policy."),
    ("AOTC-G020", "policy is expired or not yet valid", NO,
     "The present time is outside of the period for which the trust policy was made.",
     "Get the current policy from whoever signs it."),
    ("AOTC-G021", "policy is not signed by enough roots", NO,
     "This host has root keys, so that only a trust policy that enough distinct ones of them signed is taken, "
     "and nothing else vouches.",
     "Have the policy signed by the holders of root keys: 'aotc trust sign'."),
    ("AOTC-G022", "policy rollback", NO,
     "A policy of this name with a higher sequence was used on this host, so this one was replaced.",
     "Get the current policy from whoever signs it."),
    ("AOTC-G023", "no rule matches", NO,
     "No rule of the policy matches the artifact's name and channel, and what no rule matches is denied.",
     "Give the right --channel, or add a rule to the policy."),
    ("AOTC-G024", "several rules match", NO,
     "More than one rule of the policy, or more than one channel, fits the artifact, so that it is not clear "
     "what is required of it.",
     "Give --channel, or make the rules' patterns disjoint."),
    ("AOTC-G025", "required attestation is missing", NO,
     "The rule requires an attestation of a kind that no key of the policy made for this artifact and channel.",
     "Add the attestation with 'aotc attest', signed by a key that the rule names."),
    ("AOTC-G026", "too few distinct signers", NO,
     "Fewer distinct keys than the rule's threshold made the required attestation. A key counts once, whatever "
     "it is called and however often it signed.",
     "Have further signers of the rule sign it."),
    ("AOTC-G027", "key may not sign this", NO,
     "The policy knows the key that made the attestation, and does not allow it this kind of attestation.",
     "Sign with a key that has this usage, or add the usage to the policy."),
    ("AOTC-G028", "key is revoked or outside of its validity", NO,
     "The policy revokes the key, or the present time is outside of the period that it gives the key.",
     "Sign anew with a valid key."),
    ("AOTC-G029", "artifact is revoked", NO,
     "The policy revokes this artifact by its id.",
     "Use another build of the model."),
    ("AOTC-G030", "artifact rollback", NO,
     "A later release of the artifact of this name was accepted on this host, or the policy demands a later one.",
     "Use the current artifact; to go back on purpose, list the artifact's full id in the policy: "
     "'aotc trust add POLICY --allow-rollback ID'."),
    ("AOTC-G031", "builder is not allowed", NO,
     "The provenance names a builder that the rule does not list.",
     "Build where the rule demands, or add the builder to the rule."),
    ("AOTC-G032", "attestation is too old", NO,
     "The attestation was made longer ago than the rule allows, has expired, or does not say when it was made.",
     "Attest again: 'aotc attest', with --force where the old attestation is by the same key."),
    ("AOTC-G033", "no qualification for this target", NO,
     "The rule demands that the artifact was qualified on a host like this one, and the qualifications that are "
     "there are for others, or did not pass.",
     "Run 'aotc attest --qualify' on a host of this kind."),
    ("AOTC-G034", "limit of the policy is exceeded", NO,
     "The artifact is larger, or has more files or attestations, than the policy allows.",
     "Raise the limit in the policy, or make the artifact smaller."),
    ("AOTC-G035", "trust state is unusable", INPUT,
     "The file that remembers the highest sequences seen cannot be read, written or understood. It is never "
     "begun anew by itself, since that would forget what must not be rolled back. Where there is no such file "
     "yet and none can be written, as in a container whose files may only be read, nothing could be remembered.",
     "Restore a damaged file from a copy, or give its folder back to this user; remove it only if a rollback is "
     "out of the question. Where it cannot be written, point XDG_STATE_HOME at a folder that is kept."),
    ("AOTC-G036", "clock is behind what was seen", NO,
     "The clock of this host shows a time more than an hour before one that it has shown already, so that "
     "nothing can be said of what has expired.",
     "Set the clock; if it was wrong before, correct the trust state as 'aotc explain AOTC-G035' says."),
    # keys
    ("AOTC-G037", "certificate is invalid", NO,
     "The signer's certificate leads to a trusted CA, but it or one on the way may not vouch for this now: it is "
     "outside of its period, not for signing code, a CA itself, on another curve than P-256, too weak, or holds a "
     "critical extension that is not understood.",
     "Sign with a valid certificate for code signing; set the clock of this host if it is wrong."),
    ("AOTC-G038", "certificate is by no trusted CA", NO,
     "No chain of names and signatures leads from the signer's certificate to a certificate authority that is "
     "trusted here.",
     "Add the CA to the trust policy, if you trust it; have the signer put the CAs between into the bundle."),
    ("AOTC-I033", "signer command failed", INPUT,
     "The program of the signer file could not be started, failed, took too long, or answered something that is "
     "no signature of the given bytes by its public key. What it said last is given. Nothing was signed.",
     "Run the command by hand with any bytes on its standard input; see the examples of signers."),
    ("AOTC-I034", "password is missing or wrong", INPUT,
     "The key file is encrypted and the password does not open it, or none was given; or a new key's password is "
     "empty, too long, or was typed differently the second time.",
     "Give it in the file that AOTC_KEY_PASSWORD_FILE names, in AOTC_KEY_PASSWORD, or on a terminal."),
    # packed artifacts
    ("AOTC-G039", "packed artifact is malformed", NO,
     "The file is not, byte for byte, as 'aotc pack' writes a zip of these files: something is compressed, "
     "encrypted, listed twice, overlapping, hidden between or behind the files, or described in two ways.",
     "Get the artifact from its builder again; a zip by another program is to be unpacked by that, and its "
     "folder packed with 'aotc pack'."),
    # the policy that a host takes
    ("AOTC-G042", "policy is not the one of this host", NO,
     "The host's root keys signed the policy, and the host takes another one: that which its file of root keys "
     "names (aotc.root/2), or, where that names none, the first one that was seen. A policy of another name "
     "would begin with a sequence of its own, and put the one that holds here aside.",
     "Give the policy that is named. To rename it, have it say that it replaces the old one, by 'aotc trust add "
     "POLICY --name NEW', and have the roots sign that; or have the administrator write the file of root keys "
     "anew, by 'aotc trust root --policy NAME'."),
    ("AOTC-G043", "root keys name no policy", FINDING,
     "The file of root keys is of aotc.root/1, which does not say which policy this host takes: where nothing "
     "was seen yet, any policy that the roots signed is the first, however lax it is.",
     "Write it anew with 'aotc trust root --policy NAME', and put it in its place."),
    ("AOTC-G044", "revocation of an unknown key", FINDING,
     "An entry of revoked.keys is the id of no key that the policy knows. A key's id is the sha256 of its "
     "public key's PEM as OpenSSL writes it, in 64 small hexadecimal digits.",
     "Revoke the key by its name in the policy, or remove the entry."),
    ("AOTC-G045", "nothing is remembered", FINDING,
     "With --unsafe-no-trust-state nothing is added to the trust state: what is seen now does not keep an older "
     "policy, an older release, or a clock that was set back from being taken later.",
     "Point XDG_STATE_HOME at a folder that is kept, and leave the option out."),
    # locks
    ("AOTC-G041", "another process holds a lock", INPUT,
     "A file that only one process at a time may change is being changed by another one, which did not end in "
     "time; it is named where the system tells. Or the file system has no locks. Nothing was changed.",
     "Try again when that process has ended, or end it."),
    # what a build does before it publishes
    ("AOTC-G040", "artifact fails its own gate", NO,
     "Before an artifact appears at the output, the gate judges it, and fresh processes load every variant that "
     "was proven here and run its fixtures, as a user would. That ended with the reasons that are given, so "
     "nothing was published. The model passed every step before, so this is most likely a bug of aotc, or a "
     "kernel that does not answer the same twice.",
     "Report it, with the model and these reasons. Where a fixture does not answer the same twice, leave its "
     "sizes out with --dim NAME=MIN..MAX."),
    ("AOTC-I035", "cannot pack", INPUT,
     "The folder holds what a packed artifact cannot: a file beside payload and attestations, an empty folder, "
     "or a name that some system takes for another one.",
     "Remove or rename what is named; what was signed has to be built again."),
    # attestations
    ("AOTC-I036", "attestation cannot be made", INPUT,
     "What is to be said of the artifact makes no sense, is said already, or cannot be added to it.",
     "Correct what is named."),
    ("AOTC-I037", "keyless signing failed", INPUT,
     "There is no usable identity token, a service of sigstore could not be reached in time or refused, or what "
     "it answered does not verify for the identity of the token. Nothing was added to the artifact.",
     "Get a fresh identity token for the audience 'sigstore', and see that the services can be reached."),
    ("AOTC-I038", "private key is readable by others", FINDING,
     "The permissions of the file let others than its owner read the key that signs, and who has it signs as you.",
     "Take them away (chmod 600); where others may have read the key, make a new one and revoke this one."),
    ("AOTC-N009", "qualification failed", NO,
     "On this host the artifact did not load as promised, or its answers are not the golden ones, or it holds "
     "no fixture to compare with. Nothing was signed.",
     "Mend the reasons that are given with it, or build for this host."),
    # store
    ("AOTC-R016", "store is not safe to use", INPUT,
     "Others than root, the user of this process and the user whom AOTC_SYSTEM_STORE_OWNER names may change the "
     "store, or a folder that leads to it: it is theirs, or they may write it. They could swap what is in it between "
     "check and use. Or the store was named as system-wide, and its file system keeps no owners.",
     "Have its owner take the permission away (chmod go-w) and look at what is in it, or install anew into a "
     "folder of your own (--store, AOTC_STORE). If you trust its owner, name them in AOTC_SYSTEM_STORE_OWNER."),
    ("AOTC-R017", "store entry is in use", NO,
     "A process has loaded the artifact from the store, or is installing it.",
     "Close the model, or try again later."),
)
# fmt: on
