"""The catalogue of reason codes: what `aotc explain CODE` and the generated docs page print.

A code is stable for ever: its meaning is never changed and a retired one is never used again.
Letters: I import and input, S shapes, O optimize, P placement, N numerics, M memory,
G signing and trust, C compatibility, R runtime.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class Reason:
    """One code.  `exit_status` 0 marks a finding that is reported and refuses nothing."""

    code: str
    title: str
    exit_status: int
    explain: str
    mend: str


_NO, _INPUT, _USAGE, _BUG, _FINDING = 1, 3, 2, 70, 0

_ROWS: tuple[tuple[str, str, int, str, str], ...] = (
    # import and input
    (
        "AOTC-I001",
        "no such file",
        _INPUT,
        "The path given does not exist or cannot be read.",
        "Check the path and its permissions.",
    ),
    (
        "AOTC-I002",
        "not an ONNX model",
        _INPUT,
        "The file is empty, truncated, or holds something other than a serialized ONNX ModelProto.",
        "Export or download the model again; compare its size and digest with the source.",
    ),
    (
        "AOTC-I003",
        "external data missing",
        _INPUT,
        "An initializer lives in an external file that is not beside the model.",
        "Put the external data file beside the model, under the name the model gives.",
    ),
    (
        "AOTC-I004",
        "external data truncated",
        _INPUT,
        "An initializer's offset and length reach beyond the end of its external file.",
        "Copy the external data again; compare its size with the source.",
    ),
    (
        "AOTC-I005",
        "external data outside the model's folder",
        _INPUT,
        "An external data location is absolute or climbs out of the model's folder with '..'. "
        "Such a model reads files that its author chose on your machine.",
        "Save the model again with external data beside it (onnx.save with save_as_external_data).",
    ),
    (
        "AOTC-I006",
        "external data is a link",
        _INPUT,
        "An external data file is a symbolic link, has more than one hard link, or is no plain file. "
        "What is read could be changed from elsewhere while the build runs.",
        "Replace the link by a copy of the file.",
    ),
    (
        "AOTC-I007",
        "unknown data type",
        _INPUT,
        "A tensor has an element type that ONNX does not define or that this toolchain cannot read.",
        "Export the model with a standard element type.",
    ),
    (
        "AOTC-I008",
        "opset newer than ONNX Runtime supports",
        _INPUT,
        "The model imports an operator set that the installed ONNX Runtime does not officially support.",
        "Export with a lower opset, or convert it with onnx.version_converter, or use a newer ONNX Runtime.",
    ),
    (
        "AOTC-I009",
        "unknown operator",
        _INPUT,
        "The installed ONNX Runtime has no such operator, domain, version or kernel.",
        "Check the operator's name, domain and version; custom operator libraries are not supported yet.",
    ),
    (
        "AOTC-I010",
        "model is already compiled",
        _INPUT,
        "The model holds com.microsoft::EPContext nodes: another toolchain compiled parts of it for one device. "
        "Their blobs cannot be analysed, specialised or proven.",
        "Build from the original model.",
    ),
    (
        "AOTC-I011",
        "model draws random numbers",
        _INPUT,
        "An operator such as RandomNormal or Multinomial makes the output differ from run to run, "
        "so neither parity nor acceptance can be shown.",
        "Export for inference, or pass the random tensor as an input.",
    ),
    (
        "AOTC-I012",
        "ONNX Runtime refuses the model",
        _INPUT,
        "ONNX Runtime could not create a session for the original model; its own message is given.",
        "Mend the model as the message says; onnx.checker.check_model often names the place.",
    ),
    (
        "AOTC-I013",
        "ONNX Runtime crashed",
        _INPUT,
        "The sandboxed process that loaded or ran the model died of a signal. The build itself is unharmed.",
        "Report the model to ONNX Runtime; the last lines of its log are given.",
    ),
    (
        "AOTC-I014",
        "time limit reached",
        _INPUT,
        "A sandboxed step ran longer than the profile's limit and was ended.",
        "Raise limits.seconds in the profile if the model is merely slow.",
    ),
    (
        "AOTC-I015",
        "memory limit reached",
        _INPUT,
        "A sandboxed step needed more memory than the profile's limit.",
        "Raise limits.memory_bytes in the profile, or lower the bounds of the dims.",
    ),
    (
        "AOTC-I016",
        "IR version newer than ONNX Runtime supports",
        _INPUT,
        "The model's IR version is newer than the installed ONNX Runtime reads.",
        "Save the model with a lower ir_version, or use a newer ONNX Runtime.",
    ),
    (
        "AOTC-I017",
        "output exists",
        _INPUT,
        "The output folder is already there, and a build never overwrites silently.",
        "Choose another output with -o, or replace it with --force.",
    ),
    (
        "AOTC-I018",
        "no space left",
        _INPUT,
        "The file system is full. Nothing half-written was left in the output.",
        "Free space, or point TMPDIR and -o at a larger file system.",
    ),
    (
        "AOTC-I019",
        "an extra is not installed",
        _INPUT,
        "This command needs packages that the base install leaves out.",
        "Install the extra that is named.",
    ),
    (
        "AOTC-I020",
        "two ONNX Runtimes are installed",
        _INPUT,
        "onnxruntime and onnxruntime-gpu write the same files; installed together they break each other.",
        "pip uninstall onnxruntime onnxruntime-gpu, then install the one you want.",
    ),
    (
        "AOTC-I021",
        "no such profile or target",
        _INPUT,
        "The name is neither a built-in nor a readable YAML file.",
        "List the built-ins with 'aotc profile list' or 'aotc target list'.",
    ),
    (
        "AOTC-I022",
        "profile or target is invalid",
        _INPUT,
        "The YAML document does not fit its schema; each problem is given with its path.",
        "Mend the fields that are named; 'aotc profile check FILE' checks again.",
    ),
    (
        "AOTC-I023",
        "key file is unusable",
        _INPUT,
        "The file is not an unencrypted PKCS#8 P-256 private key, or not a PEM public key.",
        "Make a key with 'aotc keygen -o NAME.pem'.",
    ),
    (
        "AOTC-I024",
        "fixtures are unusable",
        _INPUT,
        "The fixture file cannot be read, or its names, types or shapes are not the model's.",
        "Give a .npz whose keys are input names, or a folder of input_N.pb files.",
    ),
    (
        "AOTC-I025",
        "interrupted",
        130,
        "The command was ended by Ctrl-C or a termination signal. Nothing half-written was left.",
        "Run it again.",
    ),
    (
        "AOTC-I026",
        "cannot write the output",
        _INPUT,
        "The output's folder does not exist or may not be written.",
        "Create the folder, or choose another with -o.",
    ),
    (
        "AOTC-I027",
        "argument is unusable",
        _USAGE,
        "An --input, --dim or other argument does not have the form the command takes.",
        "See the command's --help.",
    ),
    (
        "AOTC-I030",
        "onnx.checker rejects the model",
        _FINDING,
        "The checker's verdict is evidence, not a gate: ONNX Runtime runs many models the checker rejects.",
        "None is needed; mend the exporter if you own it.",
    ),
    (
        "AOTC-I031",
        "nodes were renamed",
        _FINDING,
        "Nodes with blank or repeated names got unique ones, so that placement can be reported for each.",
        "None is needed.",
    ),
    (
        "AOTC-I032",
        "initializers are also graph inputs",
        _FINDING,
        "Older exporters list weights among the inputs, which lets a caller override them and stops folding. "
        "The artifact treats them as constants.",
        "None is needed; export with IR version 4 or later.",
    ),
    # shapes
    (
        "AOTC-S001",
        "no working size found",
        _INPUT,
        "The model frees some dims, but no combination of sizes that was tried runs.",
        "State sizes with --dim NAME=VALUE, or give a fixture with --fixtures.",
    ),
    (
        "AOTC-S002",
        "profile names what the model lacks",
        _INPUT,
        "The profile or --dim names an input or dim that is not in the model.",
        "Use the names that 'aotc inspect MODEL' lists.",
    ),
    (
        "AOTC-S003",
        "range is empty",
        _INPUT,
        "A range has min above max, or opt outside of both, or bounds that no allowed size meets.",
        "Write min <= opt <= max.",
    ),
    (
        "AOTC-S004",
        "dim is fixed in the model",
        _INPUT,
        "The profile bounds a dim that the model gives one fixed size.",
        "Remove the dim from the profile, or export the model with a dynamic axis.",
    ),
    (
        "AOTC-S005",
        "size in the stated range does not run",
        _INPUT,
        "The profile allows a size at which ONNX Runtime fails on the original model.",
        "Narrow the range to what the model supports; the error of ONNX Runtime is given.",
    ),
    (
        "AOTC-S006",
        "dim works at one size only",
        _FINDING,
        "The model declares the dim free, but only one size was found to run.",
        "State the size with --dim, or export with a fixed dim.",
    ),
    (
        "AOTC-S007",
        "dims depend on each other",
        _FINDING,
        "Differently named dims must be equal, or one is the sum of others, for the model to run.",
        "None is needed; the relation is recorded and checked at every call.",
    ),
    (
        "AOTC-S008",
        "probing stopped at a limit",
        _FINDING,
        "The range of an unnamed dim was proven up to a limit of work, memory, size, count or time.",
        "Name the dim with --dim NAME=MIN..MAX to bound it yourself.",
    ),
    (
        "AOTC-S009",
        "declared output shape is wrong",
        _FINDING,
        "The model declares an output shape or type that the original model does not produce.",
        "None is needed; do not trust the declared shape.",
    ),
    (
        "AOTC-S010",
        "size outside of the proven range",
        _NO,
        "The call has a size for which nothing was proven at build time.",
        "Rebuild with --dim NAME=MIN..MAX that covers it, or set strict: false in the profile.",
    ),
    (
        "AOTC-S011",
        "related dims are bounded differently",
        _INPUT,
        "Two dims must be equal for the model to run, and the profile bounds them differently.",
        "Give related dims the same bounds.",
    ),
    (
        "AOTC-S012",
        "ONNX Runtime crashes or hangs at a size",
        _FINDING,
        "A run of the original model inside the sandbox died or did not end at these sizes. "
        "They are outside of the proven range.",
        "Do not call the model at these sizes; report it to ONNX Runtime.",
    ),
    (
        "AOTC-S013",
        "range has gaps",
        _FINDING,
        "Sizes between the bounds of a probed range were seen to fail, and no grid of multiples avoids them.",
        "State the sizes you need with --dim NAME=MIN..MAX, or one with --dim NAME=SIZE.",
    ),
    # optimize
    (
        "AOTC-O001",
        "optimization failed",
        _INPUT,
        "ONNX Runtime could not optimize a model that it can load.",
        "Report the model to ONNX Runtime; its message is given.",
    ),
    (
        "AOTC-O002",
        "variant skipped: build host is not the target",
        _FINDING,
        "Level ALL bakes in the CPU layout of the build host. Host and target differ in ISA features, "
        "so that variant was left out; the portable one serves.",
        "Build on a host like the target to get the faster variant.",
    ),
    (
        "AOTC-O003",
        "optimization level lowered",
        _FINDING,
        "ONNX Runtime could not load the graph that its own optimizer wrote at the wanted level, "
        "so a lower level was used.",
        "Report the model to ONNX Runtime.",
    ),
    # placement
    (
        "AOTC-P001",
        "node is not where the profile allows",
        _NO,
        "A node landed on an execution provider that the fallback policy does not allow.",
        "Allow it in the profile's fallback, or change the model.",
    ),
    (
        "AOTC-P002",
        "placement budget exceeded",
        _NO,
        "The share of nodes on an execution provider is outside of the profile's budget.",
        "Raise budgets.providers, or change the model.",
    ),
    (
        "AOTC-P003",
        "placement differs from the promise",
        _NO,
        "ONNX Runtime placed nodes on this host other than it did when the artifact was built.",
        "Use the ONNX Runtime version of the manifest, or rebuild.",
    ),
    (
        "AOTC-P004",
        "execution provider is not available",
        _INPUT,
        "The profile asks for an execution provider that this ONNX Runtime does not have.",
        "Install the extra for it, or remove it from the profile's providers.",
    ),
    # numerics
    (
        "AOTC-N001",
        "parity breach",
        _NO,
        "A variant's output differs from the original model's (CPU, optimizations off) beyond the tolerance.",
        "Raise parity tolerances in the profile if the error is acceptable, or report the pass to blame.",
    ),
    (
        "AOTC-N002",
        "variant was not proven",
        _NO,
        "A variant could not be run on the build host, and the profile does not allow unproven variants.",
        "Build on a host that can run it, or write 'unproven: allow' in the profile.",
    ),
    (
        "AOTC-N003",
        "acceptance failed",
        _NO,
        "At load, a fixture's output differs from the golden one beyond the tolerance: "
        "this host computes something else than the build host did.",
        "Check the ONNX Runtime version and the CPU; rebuild for this host.",
    ),
    (
        "AOTC-N005",
        "reference output is not finite",
        _FINDING,
        "The original model gives NaN or infinity on a fixture; parity there compares their places only.",
        "Give real inputs with --fixtures.",
    ),
    # memory and budgets
    (
        "AOTC-M001",
        "artifact exceeds its size budget",
        _NO,
        "The payload is larger than budgets.artifact_bytes.",
        "Raise the budget, drop variants, or use a smaller model.",
    ),
    (
        "AOTC-M002",
        "peak memory exceeds its budget",
        _NO,
        "A variant used more memory at the largest shape than budgets.peak_memory_bytes.",
        "Raise the budget or lower the largest shape.",
    ),
    (
        "AOTC-M003",
        "load time exceeds its budget",
        _NO,
        "A variant took longer to load than budgets.load_seconds.",
        "Raise the budget, or use a profile with a native variant.",
    ),
    # signing and trust
    (
        "AOTC-G001",
        "no signature",
        _NO,
        "The artifact has no OMS signature bundle.",
        "Get the artifact from its builder again, with its attestations folder.",
    ),
    (
        "AOTC-G002",
        "unknown key",
        _NO,
        "No signature on the artifact is by a trusted key.",
        "Pass the signer's public key with --key or --trust, if you trust it.",
    ),
    (
        "AOTC-G003",
        "signature is invalid",
        _NO,
        "The signature does not match the signed bytes: bundle or key were altered.",
        "Get the artifact from its builder again.",
    ),
    (
        "AOTC-G004",
        "signature bundle is malformed",
        _NO,
        "The file is not a sigstore bundle v0.3 with a DSSE envelope and an OMS v1.0 statement.",
        "Get the artifact from its builder again.",
    ),
    (
        "AOTC-G005",
        "digest mismatch",
        _NO,
        "A file's bytes are not the ones that were signed.",
        "Get the artifact from its builder again; do not load it.",
    ),
    (
        "AOTC-G006",
        "file missing",
        _NO,
        "A signed file is not in the artifact.",
        "Get the artifact from its builder again.",
    ),
    (
        "AOTC-G007",
        "unlisted file",
        _NO,
        "The artifact holds a file that was not signed.",
        "Remove the file, or get the artifact from its builder again.",
    ),
    (
        "AOTC-G008",
        "link or special file",
        _NO,
        "The artifact holds a symbolic link, a hard link, or something that is no plain file or folder.",
        "Copy the artifact as plain files (cp -rL).",
    ),
    (
        "AOTC-G009",
        "manifest is malformed",
        _NO,
        "aotc.json or manifest.json does not fit its schema; each problem is given with its path.",
        "Get the artifact from its builder again.",
    ),
    (
        "AOTC-G010",
        "manifest version is not supported",
        _NO,
        "The manifest's major version is not one that this release reads.",
        "Use the aotc release that built the artifact, or a newer one.",
    ),
    (
        "AOTC-G011",
        "required feature is unknown",
        _NO,
        "The artifact needs a feature that this release does not know, so it could be misread.",
        "Use a newer aotc.",
    ),
    (
        "AOTC-G012",
        "artifact exceeds the limits",
        _NO,
        "The artifact has more files, deeper folders or larger JSON than is read.",
        "Get the artifact from its builder again.",
    ),
    (
        "AOTC-G013",
        "trust file is unusable",
        _INPUT,
        "The trust file is not a list of PEM public keys, or is empty.",
        "Write one or more 'BEGIN PUBLIC KEY' blocks into it.",
    ),
    (
        "AOTC-G014",
        "manifest contradicts itself",
        _NO,
        "aotc.json, manifest.json and the signed files do not agree.",
        "Get the artifact from its builder again.",
    ),
    (
        "AOTC-G015",
        "not an aotc artifact",
        _NO,
        "The path is not a folder with payload/aotc.json.",
        "Give the NAME.aotc folder that 'aotc build' wrote.",
    ),
    (
        "AOTC-G016",
        "signed with a development key",
        _FINDING,
        "The signature is by this user's own development key, which no other machine trusts.",
        "Sign releases with --key.",
    ),
    (
        "AOTC-G017",
        "manifest is newer",
        _FINDING,
        "The manifest's minor version is newer than this release: unknown optional fields are ignored.",
        "Use a newer aotc to see all of it.",
    ),
    (
        "AOTC-G018",
        "attestation by an unknown key",
        _FINDING,
        "A further signature or attestation is by a key that is not trusted; it was not considered.",
        "Pass the signer's public key with --trust, if you trust it.",
    ),
    # compatibility
    (
        "AOTC-C001",
        "operating system differs",
        _NO,
        "No code for this operating system is in the artifact.",
        "Build for this operating system.",
    ),
    (
        "AOTC-C002",
        "architecture differs",
        _NO,
        "The artifact was optimized for another CPU architecture.",
        "Build for this architecture.",
    ),
    (
        "AOTC-C003",
        "libc differs or is too old",
        _NO,
        "The ONNX Runtime the artifact needs is built against another or newer C library.",
        "Use a host with the libc that is named.",
    ),
    (
        "AOTC-C004",
        "ISA features differ",
        _NO,
        "A variant requires exactly the CPU features of its build host, and this host's are others.",
        "Build on a host like this one, or ship the portable variant too.",
    ),
    (
        "AOTC-C005",
        "ONNX Runtime missing or out of range",
        _NO,
        "The host has no ONNX Runtime, or one outside of the range that the artifact was proven with.",
        "Install the ONNX Runtime version that is named.",
    ),
    (
        "AOTC-C006",
        "execution provider missing",
        _NO,
        "The host's ONNX Runtime lacks an execution provider that the variant needs.",
        "Install the extra or plugin for it.",
    ),
    (
        "AOTC-C007",
        "driver missing or too old",
        _NO,
        "The NVIDIA driver is missing or older than the variant requires.",
        "Update the driver.",
    ),
    (
        "AOTC-C008",
        "compute capability differs",
        _NO,
        "No GPU of this host has a compute capability that the variant was compiled for.",
        "Build for this GPU's compute capability.",
    ),
    (
        "AOTC-C009",
        "no variant runs on this host",
        _NO,
        "Every variant has at least one unmet requirement; each is listed.",
        "Build for this host, or change the host as the reasons say.",
    ),
    (
        "AOTC-C010",
        "a faster variant does not fit this host",
        _FINDING,
        "The portable variant runs, and a faster one in the artifact requires other CPU features.",
        "Rebuild on a host like this one for the best speed.",
    ),
    (
        "AOTC-C011",
        "requirement could not be checked",
        _FINDING,
        "The described target says nothing of a requirement of the artifact.",
        "Add the field to the target file, or verify on the host itself.",
    ),
    # runtime
    (
        "AOTC-R001",
        "input names differ",
        _NO,
        "The call lacks an input of the model or gives one it does not have.",
        "Pass exactly the inputs that 'aotc inspect' lists.",
    ),
    (
        "AOTC-R002",
        "input type differs",
        _NO,
        "An input's element type or kind is not the model's.",
        "Convert the array to the type that is named.",
    ),
    (
        "AOTC-R003",
        "input rank differs",
        _NO,
        "An input has more or fewer dims than the model's.",
        "Reshape the array.",
    ),
    (
        "AOTC-R004",
        "input size differs",
        _NO,
        "A fixed dim has another size, or related dims disagree.",
        "Pass the size that is named.",
    ),
    (
        "AOTC-R005",
        "ONNX Runtime failed",
        _NO,
        "The session raised while it ran; its message is given.",
        "Check the values of the inputs; report the model if they are right.",
    ),
    (
        "AOTC-R006",
        "store entry is damaged",
        _NO,
        "The store's copy of the artifact no longer has the digests that were verified.",
        "Remove the entry that is named and load again.",
    ),
    (
        "AOTC-R007",
        "store cannot be written",
        _INPUT,
        "The per-user store cannot be created or written, or is on a full disk.",
        "Free space, or point AOTC_STORE at a folder of yours.",
    ),
    (
        "AOTC-R008",
        "session could not be created",
        _NO,
        "ONNX Runtime refused a verified model on this host; its message is given.",
        "Use the ONNX Runtime version of the manifest, or rebuild.",
    ),
    (
        "AOTC-R999",
        "internal error",
        _BUG,
        "A bug of aotc itself.",
        "Report it with the traceback that --debug prints.",
    ),
)

REASONS: Final[dict[str, Reason]] = {row[0]: Reason(*row) for row in _ROWS}
