"""Reason codes of trust, loading, running and comparing: G, C, R, and the gates of a proof."""

from __future__ import annotations

from typing import Final

from aotc.base.codes.reason import BUG, FINDING, INPUT, NO, USAGE, Row

# fmt: off
LOADING: Final[tuple[Row, ...]] = (
    # signing and trust
    ("AOTC-G001", "no signature", NO,
     "The artifact has no OMS signature bundle.",
     "Get the artifact from its builder again, with its attestations folder."),
    ("AOTC-G002", "unknown key", NO,
     "No signature of the artifact is by a trusted key.",
     "Pass the signer's public key with --key or --trust, if you trust it."),
    ("AOTC-G003", "signature is invalid", NO,
     "The signature does not match the signed bytes: the bundle or the key was altered.",
     "Get the artifact from its builder again."),
    ("AOTC-G004", "signature bundle is malformed", NO,
     "The file is not a sigstore bundle v0.3 with a DSSE envelope and an OMS v1.0 statement.",
     "Get the artifact from its builder again."),
    ("AOTC-G005", "digest mismatch", NO,
     "The content of a file is not what was signed.",
     "Get the artifact from its builder again; do not load it."),
    ("AOTC-G006", "file missing", NO,
     "A signed file is not in the artifact.",
     "Get the artifact from its builder again."),
    ("AOTC-G007", "unlisted file", NO,
     "The artifact holds a file that was not signed.",
     "Remove the file, or get the artifact from its builder again."),
    ("AOTC-G008", "link or special file", NO,
     "The artifact holds a symbolic link, a hard link, or something that is neither a regular file nor a folder.",
     "Copy the artifact as plain files (cp -rL)."),
    ("AOTC-G009", "manifest is malformed", NO,
     "aotc.json or manifest.json does not match its schema; each problem is shown with its path.",
     "Get the artifact from its builder again."),
    ("AOTC-G010", "manifest version is not supported", NO,
     "This release does not read the manifest's major version: most often the artifact was made by a newer aotc.",
     "Update aotc: use the release that built the artifact, or a newer one."),
    ("AOTC-G011", "required feature is unknown", NO,
     "The artifact needs a feature that this release does not know, so it could be misread.",
     "Use a newer aotc."),
    ("AOTC-G012", "artifact exceeds the limits", NO,
     "The artifact has more files, deeper folders or larger JSON documents than the limits for reading allow.",
     "Get the artifact from its builder again."),
    ("AOTC-G013", "trust file cannot be used", INPUT,
     "The trust file is empty or not a list of PEM public keys.",
     "Write one or more 'BEGIN PUBLIC KEY' blocks into it."),
    ("AOTC-G014", "manifest contradicts itself", NO,
     "aotc.json, manifest.json and the signed files do not agree.",
     "Get the artifact from its builder again."),
    ("AOTC-G015", "not an aotc artifact", NO,
     "The path is neither a folder with payload/aotc.json nor a packed artifact.",
     "Give the NAME.aotc folder that 'aotc build' wrote, or the file that 'aotc pack' made of it."),
    ("AOTC-G016", "signed with a development key", FINDING,
     "The signature is by this user's own development key, which other machines do not trust.",
     "Sign releases with --key."),
    ("AOTC-G017", "manifest has a newer minor version", FINDING,
     "The manifest's minor version is newer than this release supports; unknown optional fields are ignored.",
     "Use a newer aotc to see all fields."),
    ("AOTC-G018", "attestation by an unknown key", FINDING,
     "Another signature or attestation is by a key that is not trusted, so it was ignored.",
     "Pass the signer's public key with --trust, if you trust it."),
    ("AOTC-G047", "attestation was made by a newer aotc", FINDING,
     "A trusted key signed an attestation of a later version than this release supports. It was ignored, so a policy "
     "that requires this kind of attestation finds it missing.",
     "Update aotc to have it counted."),
    # compatibility
    ("AOTC-C001", "operating system differs", NO,
     "The artifact holds no code for this operating system.",
     "Build for this operating system."),
    ("AOTC-C002", "architecture differs", NO,
     "The artifact was optimized for another CPU architecture.",
     "Build for this architecture."),
    ("AOTC-C003", "libc differs or is too old", NO,
     "The ONNX Runtime that the artifact needs is built for another C library, or for a newer one.",
     "Use a host with the libc that the message names."),
    ("AOTC-C004", "ISA features differ", NO,
     "A variant requires CPU features that this host does not have. Or, if the message says 'exactly', it holds the "
     "memory layout of its build host, and does not fit a CPU with more features either.",
     "Build on a host like this one, or add a variant for any CPU. For quantized models see AOTC-N010."),
    ("AOTC-C005", "ONNX Runtime missing or out of range", NO,
     "The host has no ONNX Runtime, or one outside the range that the artifact was proven with.",
     "Install the ONNX Runtime version that the message names."),
    ("AOTC-C006", "execution provider missing", NO,
     "The host's ONNX Runtime does not have an execution provider that the variant needs.",
     "Install the extra or plugin for it."),
    ("AOTC-C007", "driver missing or too old", NO,
     "The NVIDIA driver is missing, is older than the variant requires, or does not support the CUDA version that the "
     "variant requires.",
     "Update the driver."),
    ("AOTC-C008", "compute capability differs", NO,
     "No GPU of this host has a compute capability that the variant was compiled for.",
     "Build for this GPU's compute capability."),
    ("AOTC-C009", "no variant runs on this host", NO,
     "Every variant has at least one requirement that this host does not meet; each is shown.",
     "Build for this host, or change the host as the reasons say."),
    ("AOTC-C010", "a faster variant does not fit this host", FINDING,
     "The portable variant runs; a faster one in the artifact requires other CPU features.",
     "For the best speed, rebuild on a host like this one."),
    ("AOTC-C011", "requirement could not be checked", FINDING,
     "The target file does not state a property that the artifact requires.",
     "Add the field to the target file, or verify on the host itself."),
    ("AOTC-C012", "plugin library differs", NO,
     "The library of an execution provider plugin on this host is not the one that the artifact was built and proven "
     "with: its digest differs, although its version may be the same.",
     "Install the plugin package again, or rebuild with the library of this host."),
    ("AOTC-C013", "provider does not rate the compiled model as optimal", NO,
     "The execution provider itself compared the artifact's compatibility string with this host, and its verdict is "
     "not 'optimal'. ONNX Runtime alone would still load the model.",
     "Rebuild for this host, or record a waiver in the profile if the slower model is acceptable."),
    ("AOTC-C014", "faster variant is for other CPUs", FINDING,
     "The artifact also holds a faster form of this variant, for CPUs with more features, such as VNNI. A build on "
     "this host would give the variant that runs here.",
     "Nothing to do."),
    ("AOTC-C022", "library of custom operators is for another Python", NO,
     "A library of custom operators that the artifact needs calls Python, and was built for another version of it than "
     "the one that loads.",
     "Load it with that Python, or rebuild with a library for this one."),
    ("AOTC-C023", "library of custom operators is not at hand", NO,
     "The artifact does not ship a library of custom operators that its model needs, and none that is named on this "
     "host has its digest.",
     "Name the library of the build: AOTC_CUSTOM_OPS=PATH, or aotc.load(..., custom_ops=[PATH])."),
    ("AOTC-C020", "CUDA libraries are missing", FINDING,
     "ONNX Runtime for CUDA is installed, but libraries of CUDA or cuDNN that it needs were found neither in NVIDIA's "
     "Python packages, nor on LD_LIBRARY_PATH, nor in the system's folders. A session on CUDA would be refused.",
     "Install them with: pip install 'onnxruntime-gpu[cuda,cudnn]'."),
    ("AOTC-C021", "torch requires another cuDNN", FINDING,
     "torch and ONNX Runtime load cuDNN under the same name, and a process keeps the one that was loaded first. The "
     "installed torch requires another version than the one that was found.",
     "Install the cuDNN version that torch requires, if ONNX Runtime accepts it too, or keep the two in separate "
     "environments."),
    # runtime
    ("AOTC-R001", "input names differ", NO,
     "The call lacks an input of the model, or gives one that the model does not have.",
     "Pass exactly the inputs that 'aotc inspect' lists."),
    ("AOTC-R002", "input type differs", NO,
     "The element type or kind of an input is not the model's.",
     "Convert the array to the type that the message names."),
    ("AOTC-R003", "input rank differs", NO,
     "An input has more or fewer dims than the model's.",
     "Reshape the array."),
    ("AOTC-R004", "input size differs", NO,
     "A fixed dim has another size, or related dims disagree.",
     "Pass the size that the message names."),
    ("AOTC-R005", "ONNX Runtime failed", NO,
     "The session failed while it ran; its message is shown.",
     "Check the values of the inputs; if they are right, report the model."),
    ("AOTC-R006", "store entry is damaged", NO,
     "The store's copy of the artifact no longer has the digests that were verified.",
     "Remove the entry that the message names, and load again."),
    ("AOTC-R007", "store cannot be written", INPUT,
     "The user's own store cannot be created or written, or its disk is full.",
     "Free space, or point AOTC_STORE at a folder of yours."),
    ("AOTC-R008", "session could not be created", NO,
     "ONNX Runtime refused a verified model on this host; its message is shown.",
     "Use the ONNX Runtime version that the manifest names, or rebuild."),
    ("AOTC-R009", "compared with another model", FINDING,
     "The model file to compare with is not the one that the artifact was built from.",
     "Give the model that the artifact was built from, or read the ratio with that in mind."),
    ("AOTC-R010", "dim has size 0", NO,
     "An input has a dim of size 0, at which the original model was seen to fail when the artifact was built.",
     "Do not call the model with nothing in this dim."),
    ("AOTC-R011", "array is not contiguous", NO,
     "The elements of an input of model.bind are not contiguous in memory, where each call reads them anew.",
     "Pass numpy.ascontiguousarray(array)."),
    ("AOTC-R012", "requests were not recorded", FINDING,
     "The file of recorded shapes could not be written; the requests themselves were answered.",
     "Free space, or choose a file in a folder that this process can write to."),
    ("AOTC-R013", "no variant was built for these sizes", NO,
     "The variant for the sizes of this call exceeded the placement budgets at build time, and the profile's "
     "fallback policy is reject-route.",
     "Call with sizes of another variant, or raise the budgets and rebuild."),
    ("AOTC-R014", "cache cannot be used", INPUT,
     "The user's own build cache cannot be created, read or written.",
     "Free space, point AOTC_CACHE at a folder of yours, or build with --no-cache."),
    ("AOTC-R015", "damaged cache entry was dropped", FINDING,
     "The content of a build cache entry does not match the recorded digests. The entry was removed, and its content "
     "was built again.",
     "Nothing to do. If it happens again, check the disk."),
    ("AOTC-R020", "loaded model cannot be copied or pickled", NO,
     "A loaded model holds sessions, locks and an entry of the store that belong to one process, so it cannot be "
     "pickled or copied.",
     "Send the artifact's path to each worker process, and call aotc.load there once, not for each call."),
    ("AOTC-R021", "call has the wrong form", NO,
     "The inputs of a call are not a mapping from names to arrays, or the outputs are not a list of names. ONNX "
     "Runtime's own run takes the outputs first.",
     "Call model.run({NAME: array}), with names that model.inputs lists. Output names are the second argument: "
     "model.run({NAME: array}, [OUTPUT])."),
    ("AOTC-R022", "tensor is on another device", NO,
     "A tensor that was given to a bound call is in the memory of another device than the model's. Tensors are never "
     "copied between GPUs implicitly.",
     "Move it to the model's device, pass a host array, or load the model with device= of the tensor's GPU."),
    ("AOTC-R023", "model does not match the manifest", NO,
     "The session of a verified model has other inputs or outputs than the manifest names, or names that are not text. "
     "Both were signed, so no call could be answered as promised.",
     "Get the artifact from its builder again, and report it to them."),
    ("AOTC-R024", "CUDA graph cannot be captured", NO,
     "ONNX Runtime captures no CUDA graph of a model with control flow, with nodes on the CPU, or with values that the "
     "CPU reads; or a captured graph gave other answers than a run without it. As a finding: such calls run without a "
     "graph, or the least used graph was dropped for another size; or a golden answer of a size that was captured behind "
     "a load differs, and calls of that size are refused.",
     "Write 'on_refusal: run' under cuda.graphs in the profile to run such calls without a graph, or 'capture: none'."),
    ("AOTC-R025", "no such device", NO,
     "CUDA shows no GPU with this index to this process; CUDA_VISIBLE_DEVICES may hide some, or all if it is empty.",
     "Use one that 'aotc doctor' lists."),
    ("AOTC-R026", "model belongs to the parent process", NO,
     "The process was forked after the model was loaded. ONNX Runtime's threads and what it has on a device are not in "
     "the child, where a call could wait for them forever.",
     "Call aotc.load in the child, after the fork: under gunicorn in the hook post_fork or at the start of the "
     "application without preload_app, under multiprocessing in an initializer, or with the start method spawn. "
     "Processes share the store's files."),
    ("AOTC-R027", "input value is not allowed", NO,
     "The profile states which values of the input callers may pass, and the call has another one, or NaN. Nothing "
     "was run.",
     "Pass values as stated: `aotc inspect` shows them; or rebuild with a profile that states others."),
    ("AOTC-R028", "library of custom operators cannot be loaded", NO,
     "ONNX Runtime could not load a library of custom operators that the artifact ships or requires, or two have "
     "operators of one domain.",
     "Do as the message says. The folder of the store, or of temporary files, may be mounted without the right to run "
     "code (noexec): name another one with --store or TMPDIR."),
    ("AOTC-R035", "CUDA was used before the process was forked", NO,
     "The process that this one was forked from had loaded a model on CUDA, whose driver does not work in the child.",
     "Load no model on the GPU before the fork: under gunicorn without preload_app. Or start children by spawn or "
     "forkserver."),
    ("AOTC-R036", "GPU failed", NO,
     "A kernel ended in an error after which CUDA refuses everything else in this process: an illegal address or "
     "instruction, a launch that failed or took too long, an error of the GPU's memory, or a reset of the driver. Calls "
     "of all models on this GPU fail from now on; other processes are not affected.",
     "End the process and start it again. If it happens again, look for Xid errors in the kernel's log (dmesg), and "
     "build anew on this machine, which tries its captured graphs."),
    ("AOTC-R037", "GPU is taken by another process", NO,
     "CUDA shows the GPU, and gives this process no context on it: another process has it in exclusive mode, or it is "
     "being reset.",
     "End the other process, which nvidia-smi names, use another GPU, or have the mode changed: nvidia-smi -c DEFAULT."),
    ("AOTC-R050", "output cannot be carried", NO,
     "A bound call was asked to have an input read next what an output holds. Both must have one type and one shape, "
     "each output may go to one input, neither may be padded, and no other input may be in the input's memory.",
     "Give the input the size that the output has: a decoder's caches get a fixed capacity that way. Or pass the output "
     "to the next call yourself."),
    ("AOTC-R052", "worker's environment differs", NO,
     "A machine of a cluster has another aotc, Python, onnx, ONNX Runtime or numpy than the one that started the fleet, or "
     "does not require a token. It is not used: what it builds would not be what is built elsewhere. CPUs and "
     "GPUs may differ, and so may ONNX Runtime's package, but not its minor version.",
     "Install the same versions on it, from one lock file, or take it out of the cluster."),
    ("AOTC-R053", "job lost its workers", NO,
     "Each worker that ran the job ended without an answer: killed, out of memory, with its machine, or it was "
     "silent for ten minutes beyond the job's time. Other jobs went on.",
     "See Ray's logs of these machines. If it is memory, state needs.memory_bytes in the fleet's file."),
    ("AOTC-R054", "files of a job were changed on the way", NO,
     "A file that a job reads, or that came back of it, does not have the digest that its sender stated.",
     "Run it again. If it happens again, look for faulty memory, disks or a shared folder without locks."),
    ("AOTC-R055", "no worker is left", NO,
     "No machine of the cluster can be used: none has cores, all were refused, or all were lost.",
     "See the refusals of each machine, mend it, and run the command again: what is finished is not built again."),
    ("AOTC-R056", "clock of a worker is far off", NO,
     "What a worker signs has the times of its clock. It is not used while that is more than a minute off.",
     "Synchronise the clocks (NTP)."),
    ("AOTC-R057", "host has too little memory for a call", NO,
     "ONNX Runtime asked for memory for the activations of a call on the CPU, and was not given it: by the system, by a "
     "limit of the process (ulimit, a container), or as the sizes of the call ask for more than any machine has. The "
     "model still serves smaller calls.",
     "Compare the sizes with what 'aotc inspect' says of memory, give the process more, or state 'max' of the dims in "
     "the profile so that such calls are refused before they run."),
    ("AOTC-R058", "arena on the GPU is limited", NO,
     "The artifact limits the memory that a session takes on the GPU (cuda.memory in the profile), and this call needs "
     "more. The device itself may have room.",
     "Raise the limit, or take 'limit: plan', which has room for the largest size that the artifact allows."),
    ("AOTC-R999", "internal error", BUG,
     "This is a bug in aotc.",
     "Report it with the traceback that --debug prints."),
    # policy
    ("AOTC-G019", "policy is malformed", INPUT,
     "The trust policy, or the file of root keys, does not match its schema or contradicts itself; each problem is "
     "shown with its path. Nothing of such a policy is used.",
     "Correct the field that the message names; 'aotc trust check' checks a policy."),
    ("AOTC-G020", "policy is expired or not yet valid", NO,
     "The current time is outside the period for which the trust policy is valid.",
     "Get the current policy from whoever signs it."),
    ("AOTC-G021", "policy is not signed by enough root keys", NO,
     "This host has root keys, so it takes only a trust policy that enough different root keys signed, and ignores "
     "every other source of trust.",
     "Have the policy signed by the holders of root keys: 'aotc trust sign'."),
    ("AOTC-G022", "policy rollback", NO,
     "A policy of this name with a higher sequence has been used on this host, so this one is outdated.",
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
     "The rule requires a kind of attestation, and the artifact has none of that kind that is for this channel and "
     "signed by a key of the policy.",
     "Add the attestation with 'aotc attest', signed by a key that the rule names."),
    ("AOTC-G026", "too few distinct signers", NO,
     "Fewer distinct keys than the rule's threshold signed the required attestation. A key counts once, whatever its "
     "name is and however often it signed.",
     "Have more of the rule's signers sign it."),
    ("AOTC-G027", "key may not sign this", NO,
     "The policy knows the key that made the attestation, but does not allow it to sign this kind of attestation.",
     "Sign with a key that has this usage, or add the usage to the key in the policy."),
    ("AOTC-G028", "key is revoked or outside its validity period", NO,
     "The policy revokes the key, or the current time is outside the period for which the policy allows it.",
     "Sign again with a valid key."),
    ("AOTC-G029", "artifact is revoked", NO,
     "The policy revokes this artifact by its id.",
     "Use another build of the model."),
    ("AOTC-G030", "artifact rollback", NO,
     "A later release of the artifact of this name was accepted on this host, or the policy requires a later one. Or "
     "only one of the two states a version, so that they cannot be compared.",
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
    ("AOTC-G034", "policy limit exceeded", NO,
     "The artifact is larger, or has more files or attestations, than the policy allows.",
     "Raise the limit in the policy, or make the artifact smaller."),
    ("AOTC-G035", "trust state cannot be used", INPUT,
     "The file that remembers the highest sequences seen cannot be read, written or understood. It is never recreated "
     "automatically, because that would forget what must not be rolled back. If the file does not exist and cannot be "
     "created, as in a container with a read-only file system, nothing can be remembered.",
     "Restore a damaged file from a backup, or give its folder back to this user; remove it only if a rollback is "
     "impossible. If it cannot be written, set XDG_STATE_HOME to a folder that persists."),
    ("AOTC-G036", "clock was set back", NO,
     "The clock of this host is more than an hour behind a time that it has shown before, so it cannot be known what "
     "has expired.",
     "Set the clock. If it was wrong before, correct the trust state as 'aotc explain AOTC-G035' says."),
    # keys
    ("AOTC-G037", "certificate is invalid", NO,
     "The signer's certificate is issued by a trusted CA, but this certificate or one of its issuers is not valid "
     "for this signature: it is outside its validity period, not for code signing, a CA certificate itself, on "
     "another curve than P-256 or P-384, too weak, or has a critical extension that is not understood. Commands that sign "
     "refuse a certificate outside its validity period too, as nobody would accept the signature.",
     "Sign with a valid certificate for code signing. If the clock of this host is wrong, set it."),
    ("AOTC-G038", "certificate is not from a trusted CA", NO,
     "No chain of issuer names and signatures leads from the signer's certificate to a certificate authority that is "
     "trusted here.",
     "If you trust the CA, add it to the trust policy; ask the signer to put the intermediate CAs into the bundle."),
    ("AOTC-I033", "signer command failed", INPUT,
     "The program of the signer file could not be started, failed, took too long, or did not return a signature of the "
     "given bytes by its public key. The last of its messages is shown. Nothing was signed.",
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
    ("AOTC-G042", "policy is not the one for this host", NO,
     "The host's root keys signed the policy, but this host accepts another one: the policy that its file of root keys "
     "names. A policy of another name would start "
     "a sequence of its own, and bypass the policy that applies here.",
     "Give the policy that the message names. To rename it, let the new policy state that it replaces the old one "
     "('aotc trust add POLICY --name NEW'), and have the roots sign it; or have the administrator write the file of "
     "root keys again ('aotc trust root --name NAME')."),
    ("AOTC-G044", "revocation of an unknown key", FINDING,
     "An entry of revoked.keys is not the id of a key that the policy knows. A key's id is the SHA-256 digest of its "
     "public key's PEM as OpenSSL writes it, in 64 lowercase hexadecimal digits.",
     "Revoke the key by its name in the policy, or remove the entry."),
    ("AOTC-G045", "trust state is not kept", FINDING,
     "With --unsafe-no-trust-state, nothing is added to the trust state: an older policy, an older release, or a clock "
     "that was set back will not be noticed later.",
     "Set XDG_STATE_HOME to a folder that persists, and remove the option."),
    ("AOTC-G048", "policy expires soon", FINDING,
     "The trust policy expires within its warning period: 14 days, or its warn_days. After that nothing is accepted by "
     "it. Within it a host cannot know by itself whether a later policy exists.",
     "Get the next policy from whoever signs it."),
    ("AOTC-G049", "policy does not take artifacts from the repository", NO,
     "The rule of the trust policy that is for the artifact names repositories of registries, and the artifact comes "
     "from another one. Weights are not fetched then. A folder, a packed file and an entry of a store come from no "
     "registry: of them the signatures alone decide.",
     "Take the artifact from a repository that the rule names, or add this one to 'repositories' of the rule."),
    ("AOTC-G050", "reproduction does not suffice", NO,
     "A rule requires that somebody built the artifact again with the same bytes. The attestation says that this came out "
     "otherwise: only a part of it could be built there, or other bytes gave the same answers.",
     "Have it built again on a host like the builder's; or state in the rule which outcome suffices."),
    ("AOTC-G051", "reproduction is not independent", NO,
     "The reproduction is signed by who signed the artifact itself or its provenance: by that key, or by another key of that "
     "name in the policy. It says nothing that was not said already.",
     "Have somebody else build it again: aotc reproduce ARTIFACT --model MODEL --attest --key KEY."),
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
     "or a name that does not mean the same on every system.",
     "Remove or rename what the message names; if it was signed, build the artifact again."),
    # attestations
    ("AOTC-I036", "attestation cannot be made", INPUT,
     "The requested statement is not valid, is in the artifact already, or cannot be added to it.",
     "Correct what the message names."),
    ("AOTC-I037", "keyless signing failed", INPUT,
     "There is no usable identity token, a sigstore service refused or did not answer in time, or its answer does not "
     "verify for the identity of the token. Nothing was added to the artifact.",
     "Get a new identity token for the audience 'sigstore', and check that the services can be reached."),
    ("AOTC-I038", "private key is readable by others", FINDING,
     "The permissions of the file let users other than its owner read the signing key, and anyone who has it can "
     "sign as you.",
     "Remove these permissions (chmod 600). If others may have read the key, make a new one and revoke this one."),
    ("AOTC-I068", "no tag to take the release from", INPUT,
     "'--release' without a version takes the version from the tag that started the CI job. This job was started for a "
     "branch or a pull request, or the CI system is not known to aotc.",
     "Start the job for a tag, or give --release VERSION."),
    ("AOTC-I069", "tag is not a version", INPUT,
     "'--release' without a version takes the version from the tag that started the CI job. A version is one to four "
     "numbers separated by dots, optionally after a 'v'.",
     "Name the tag after the version, such as v1.4.0, or give --release VERSION."),
    ("AOTC-N009", "qualification failed", NO,
     "On this host, the artifact did not load as promised, its answers differ from the golden ones, or it holds no "
     "fixture that a loaded variant can be compared with. Nothing was signed.",
     "Fix the reasons that are shown, or build for this host. A variant in static int8 is only compared on the user's "
     "data: build with --embed-fixtures."),
    # store
    ("AOTC-R016", "store is not safe to use", INPUT,
     "Users other than root, the user of this process and the user that AOTC_SYSTEM_STORE_OWNER names can change the "
     "store, or a folder on its path: they own it, or may write to it. They could replace its content between the "
     "check and the use. Or the store was given as system-wide, but its file system does not record owners.",
     "Have its owner remove the permission (chmod go-w) and check its content, or install into a folder of your own "
     "(--store, AOTC_STORE). If you trust its owner, name them in AOTC_SYSTEM_STORE_OWNER."),
    ("AOTC-R017", "store entry is in use", NO,
     "A process has loaded the artifact from the store, or is installing it.",
     "Close the model, or try again later."),
    # comparing artifacts
    ("AOTC-I059", "neither an artifact nor a model that can be compared", INPUT,
     "'aotc diff' compares artifacts and ONNX models (NAME.onnx), and --html draws two artifacts. One of the two paths "
     "is another file, or is a model where a page is wanted.",
     "Export the model to ONNX, or name an artifact; for a page, build the model first."),
    ("AOTC-I060", "unknown area of a comparison", USAGE,
     "--fail-on names an area that does not exist, or a ratio that is not a valid number for it.",
     "Name areas that 'aotc diff --help' lists; exactness, memory and size may have a ratio, such as size:1.05."),
    ("AOTC-I061", "artifacts differ", NO,
     "The two artifacts differ in an area that --fail-on names, or by more than its ratio. An area that could not be "
     "compared fails too.",
     "Look at the differences that are listed. If they are intended, leave the area out or raise its ratio."),
    ("AOTC-I083", "not the model that the artifact was built from", INPUT,
     "Values inside an artifact are compared with those of the model that it was built from. The given model is "
     "another file, or its external data differs.",
     "Give the model whose sha256 'aotc inspect' shows as the source."),
    ("AOTC-I084", "no inputs for the comparison", INPUT,
     "The artifact holds no fixture, no inputs were given, and none can be made: an input is text or a sequence.",
     "Give inputs with --fixtures."),
    ("AOTC-I085", "variant accepts none of the inputs", INPUT,
     "None of the fixtures has sizes that the variant accepts, or that can be padded to its buckets.",
     "Give inputs of matching sizes with --fixtures, or name another variant with --variant."),
    ("AOTC-N037", "out of tolerance on these inputs", NO,
     "On this host and these inputs, an output of a variant differs from the model's by more than the manifest's "
     "tolerance, or breaches its gate (gates.outputs of the profile). The first node out of tolerance and the worst "
     "node are shown.",
     "Keep the nodes that are shown in float32, or lower 'optimization' in the profile. With -o FOLDER, the smallest "
     "failing part is written: if it is a single kernel, report it to ONNX Runtime."),
    ("AOTC-N038", "errors accumulate", FINDING,
     "An output is out of tolerance, but no single node is when it reads the model's own values: each node adds a "
     "little error.",
     "Look at the nodes that add most. The tolerance for the variant's arithmetic may be too narrow for so deep a "
     "model."),
    ("AOTC-N039", "reading inner values changed the answers", FINDING,
     "To read a value inside a graph, it is made an output, which prevents fusion and in-place computation. With these "
     "outputs, the variant gave other bits than without them, so the errors by node are those of another form of the "
     "graph.",
     "Take the errors by node as a hint. The errors of outputs are those of the unchanged variant."),
    ("AOTC-I062", "graph or weights cannot be compared", FINDING,
     "The model of an artifact, or a file of its weights, cannot be read as the manifest describes it. Everything else "
     "is compared.",
     "Check the artifact with 'aotc verify'."),
    # gates: how good outputs, and a task, must stay
    ("AOTC-N020", "output gate breached", NO,
     "An output of a variant breaches a limit that the profile states under gates.outputs, even if it is within the "
     "tolerance. Nothing was built; '--report FILE' holds what was measured.",
     "Build in a higher precision, or keep the nodes that cause the error in float32 (keep_float32). If the error is "
     "acceptable, change the limit in the profile."),
    ("AOTC-N021", "output gate cannot be judged", NO,
     "A limit under gates.outputs has no meaning for this output: the original's answer is all NaN or infinity, is "
     "zero so that no ratio exists, or has rows that are too short to disagree. A gate that cannot be judged does not "
     "pass.",
     "Give real inputs with --fixtures, or state the limit only for outputs for which it makes sense."),
    ("AOTC-N022", "values that no gate covers", FINDING,
     "Some values of the original's answer are NaN or infinite. The variant's answer must have them at the same "
     "places; the limits of the output's gate apply to the other values.",
     "Give real inputs with --fixtures."),
    ("AOTC-N023", "limit below the model's own noise", FINDING,
     "The original model in float32 differs from its own float64 answers by more than a tolerance or a limit allows, "
     "so no variant in float32 can be expected to pass. The message names both.",
     "Raise the limit above the noise, or compare with the original in float32: 'gates: {against: float32}'."),
    ("AOTC-N024", "task metric dropped", NO,
     "On the labelled set of gates.task, the variant's metric is lower than the original's by more than max_drop. "
     "Nothing was built; '--report FILE' holds what was measured.",
     "Build in a higher precision, keep nodes in float32 (keep_float32), calibrate with more data, or allow a larger "
     "drop."),
    ("AOTC-N025", "task metric cannot be judged", NO,
     "The metric of gates.task has no value: every answer is NaN, no class occurs, every label is ignored, or the "
     "function returned no finite number. Or the original's own metric is 0, so that every variant would pass. A gate "
     "that cannot be judged does not pass.",
     "Check the labels, and the output that gates.task names, with the original model."),
    ("AOTC-N026", "float64 reference is partly in float32", FINDING,
     "With 'gates: {against: float64}', the expected answers are those of the model in float64. Some of its nodes have "
     "no float64 kernel in ONNX Runtime's CPU provider, are control flow, or are quantized. These compute in float32, "
     "and their own error is part of the expected answers.",
     "Nothing to do. If all nodes are named, the noise that is shown has no meaning."),
    ("AOTC-N027", "task function failed", INPUT,
     "The function that gates.task names could not be imported, or raised an error. The message is the function's own, "
     "with the line in its file.",
     "Fix the function. It is called with the output and the labels of the whole set, as numpy arrays, and returns a "
     "number; modules are found beside the profile and in the working directory."),
    ("AOTC-I078", "gate for an unknown output", INPUT,
     "The profile states a gate or a task for an output that the model does not have.",
     "Name an output that 'aotc inspect MODEL' lists, or '*' for all outputs that are not named."),
    ("AOTC-I093", "gate for an unknown axis", INPUT,
     "The profile states an axis by whose slices an output is judged, and the output has fewer axes.",
     "State an axis from 0 on, or from -1 back; or leave it out, so that the slices of all axes are judged."),
    ("AOTC-I079", "labelled set cannot be used", INPUT,
     "The data of gates.task is missing, cannot be read, or does not fit the model's inputs: names, types, shapes or "
     "sizes.",
     "Give a .npz file, or a folder of .npz files, with an array for each input whose first axis counts the samples."),
    ("AOTC-I080", "labels do not match", INPUT,
     "The labels of gates.task are missing, differ in number from the samples, or do not fit the metric: their type, "
     "shape or range.",
     "Give labels along the first axis: integers from 0 to the number of classes - 1, in the output's shape without "
     "its class axis; for an output of text, text. Write ignore_label for values that do not count."),
    ("AOTC-I081", "metric does not fit the output", INPUT,
     "The metric of gates.task cannot be computed from the output that it names, because of its type, rank or number "
     "of classes.",
     "Name another output or metric, or your own function as module:function."),
)
# fmt: on
