"""Reason codes of a build: O (optimize), P (placement), N (numerics), M (memory)."""

from __future__ import annotations

from typing import Final

from aotc.base.codes.reason import FINDING, INPUT, NO, Row

# fmt: off
BUILDING: Final[tuple[Row, ...]] = (
    # optimize
    ("AOTC-O001", "optimization failed", INPUT,
     "ONNX Runtime could not optimize a model that it can load.",
     "Report the model to ONNX Runtime, with the message that is shown."),
    ("AOTC-O002", "variant skipped: build host is not the target", FINDING,
     "Level ALL writes the CPU memory layout of the build host into the graph. Host and target have different ISA "
     "features, so that variant was left out; the portable variant is used.",
     "Build on a host like the target to get the faster variant."),
    ("AOTC-O003", "optimization level lowered", FINDING,
     "At the requested level of ONNX Runtime's optimizer, the model could not be optimized, its graph did not load, "
     "its answers differed from the original's by more than the tolerance, or its integer products would saturate on "
     "some CPUs. So a lower level was used, and proven. The message says which of these it was, and the evidence "
     "says what it costs.",
     "Nothing to do. To allow one level only, set 'optimization' in a variant of the profile; report the model to "
     "ONNX Runtime."),
    ("AOTC-O004", "fixed sizes were left out of the graph", FINDING,
     "ONNX Runtime cannot optimize the graph with the stated sizes written into it, so the graph keeps its free "
     "dims. Calls must still have the stated sizes.",
     "Nothing to do. Bounding the dim with MIN..MAX avoids it."),
    ("AOTC-O005", "opset was converted", FINDING,
     "The execution provider has kernels for an older operator set that it does not have for the model's own, so the "
     "graph was converted, and compared with the original.",
     "Nothing to do. 'opset: keep' in the profile keeps the model's operator set."),
    ("AOTC-O006", "tuning evidence does not fit", INPUT,
     "The evidence that was given holds no measurements of the candidates that this profile makes.",
     "Give the evidence of a build with --tune of the same profile, or tune again."),
    ("AOTC-O007", "tuned on another model", FINDING,
     "The candidate was chosen by measurements of another model, such as an earlier training of this one. All that "
     "the artifact promises is proven for this model; that the choice is the fastest is not.",
     "Build with --tune to measure this model."),
    ("AOTC-O008", "integer products have operands of one sign", FINDING,
     "On x86-64 CPUs without VNNI, ONNX Runtime's kernels for unsigned activations and signed weights saturate, so "
     "the same model gives different answers there. The weights were rewritten with the sign of the activations, and "
     "their zero points moved by the same amount. That changes no product and is exact on every CPU.",
     "Nothing to do. For targets with VNNI, the artifact also holds a faster variant that requires it."),
    ("AOTC-O009", "quicker variant was left out", FINDING,
     "A variant whose integer products require VNNI would be faster on hosts that have it, but could not be made or "
     "proven. The portable variant is used there too.",
     "Nothing to do. Raise max_variants if the message names it."),
    ("AOTC-O010", "reference is optimized", FINDING,
     "ONNX Runtime has no kernel for an operator of the model as it is, but has one for what its optimizer makes of "
     "it. So the reference, to which variants are compared, is the model at the lowest optimization level that runs.",
     "Nothing to do. To have variants compared with the model as it is, export it with operators that ONNX Runtime "
     "runs without optimization."),
    ("AOTC-O011", "fusion needs a library", INPUT,
     "Graphs for CUDA are fused by rules of onnxscript, which is not installed.",
     "Install aotc with the extra gpu, or set 'fusion: none' for CUDA in the profile."),
    ("AOTC-O012", "graph is not fused for CUDA", FINDING,
     "Attention, activations and normalizations were to be fused into operators that CUDA has faster kernels for. The "
     "rules failed on this graph, CUDA lacks a kernel for what they made, or the fused graph did not load or gave other "
     "answers. So the graph is used as it was, and proven.",
     "Nothing to do. 'fusion: none' for CUDA in the profile avoids the attempt."),
    ("AOTC-O013", "images have channels first on CUDA", FINDING,
     "Convolutions were to run with channels last (NHWC), which CUDA has faster kernels for. The graph did not run so, "
     "or gave other answers. So channels come first (NCHW), as in the model.",
     "Nothing to do. 'layout: nchw' for CUDA in the profile avoids the attempt."),
    ("AOTC-O019", "the model's own precision is kept", FINDING,
     "With 'precision: auto', no lower precision that the variant's first provider computes in passed all gates, or "
     "none was quicker. The message says which were tried, and why each was not taken.",
     "Nothing to do. What makes a precision inexact: build with that precision, which names the nodes. For static int8, "
     "give calibration data."),
    ("AOTC-O014", "activations were not observed", FINDING,
     "Static quantization needs the range of each activation. Some were not computed on the calibration data, such as "
     "those of a branch that is never taken. Their nodes stay in float32.",
     "Give calibration data that reaches them, or use 'form: dynamic'."),
    ("AOTC-O016", "blocks of weights need a library", INPUT,
     "Weights in blocks of integers are written by a tool of ONNX Runtime that needs onnx_ir, which is not installed.",
     "Install onnx-ir, or choose 'form: dynamic' or 'form: static' for int8."),
    ("AOTC-O017", "both forms of a quantized variant were timed", FINDING,
     "A quantized variant has two forms: the portable one, whose weights are written so that no CPU saturates, and one "
     "as in the model, which requires VNNI. Both were proven, and timed in alternating runs on the build host. The "
     "times are in the evidence, not in the payload, which is the same whatever they are.",
     "Nothing to do. A host with VNNI takes the quicker form."),
    ("AOTC-O018", "quicker form is no quicker", FINDING,
     "The form of a quantized variant that requires VNNI took as long on the build host as the portable form, so that "
     "it costs bytes and gains nothing there. It is in the artifact all the same: equal inputs give equal payloads, "
     "and times differ from build to build.",
     "Set 'vnni_variants: none' in the profile to leave it out, if the hosts are like the build host."),
    ("AOTC-O020", "candidates cannot be measured here", INPUT,
     "'--tune' runs its candidates and takes the fastest, and this machine cannot run an execution provider of one. "
     "Left out, another provider would be chosen because of the machine, and not because it is faster.",
     "Tune on a machine that can run it, and give the artifact of that build here with '--tuned-from'. Or build "
     "without '--tune'."),
    # placement
    ("AOTC-P001", "node is not where the profile allows", NO,
     "A node was placed on an execution provider that the profile's fallback policy does not allow.",
     "Allow it in the profile's fallback, or change the model."),
    ("AOTC-P002", "placement budget exceeded", NO,
     "Nodes, compute, partitions or transfers exceed the budget that the profile states.",
     "Change the budget that is named, or the model."),
    ("AOTC-P003", "placement differs from the promise", NO,
     "ONNX Runtime placed nodes on this host differently from when the artifact was built.",
     "Use the ONNX Runtime version that the manifest names, or rebuild."),
    ("AOTC-P004", "execution provider is not available", INPUT,
     "The profile or the artifact asks for an execution provider that this ONNX Runtime does not have, or that is "
     "installed but offers no device on this machine.",
     "Install the extra for it if it supports this machine. Otherwise use another profile, such as edge, or remove "
     "it from the profile's providers."),
    ("AOTC-P005", "compilation failed", NO,
     "An execution provider claimed nodes but could not compile them, and no other provider of the profile may run "
     "them. The provider's own message is shown.",
     "Add a provider that can run the nodes to the profile, such as cpu, or change the model."),
    ("AOTC-P006", "nodes were left to the next provider", FINDING,
     "An execution provider claimed nodes but then could not compile them. So a smaller part of them was compiled, "
     "or the next provider of the profile runs them.",
     "Nothing to do if the budgets are met. Otherwise change the model where the message says."),
    ("AOTC-P007", "no such execution provider", INPUT,
     "The profile lists an execution provider that is neither built in nor described under plugins.",
     "Correct the name, or describe the provider under plugins."),
    ("AOTC-P008", "placement difference was waived", FINDING,
     "ONNX Runtime placed nodes differently from the build, or the execution provider does not rate the compiled "
     "model as optimal for this host. The artifact records a waiver for exactly this.",
     "To need no waiver, rebuild on a host like this one."),
    ("AOTC-P009", "variant was dropped", FINDING,
     "A variant exceeds the placement budgets, so the profile's fallback policy gives its calls to another variant "
     "(alternate-variant) or refuses them (reject-route).",
     "To have the variant, raise the budgets that are named, or change the model."),
    ("AOTC-P010", "unknown compute capability", INPUT,
     "The profile or target names a compute capability that the compiler does not know.",
     "Use one of those that the message lists."),
    ("AOTC-P011", "control flow stays outside of the provider", FINDING,
     "A compiled part cannot be inside a subgraph of a control flow operator, so the nodes there go to the next "
     "provider of the profile.",
     "Nothing to do if the budgets are met."),
    ("AOTC-P012", "note of an execution provider", FINDING,
     "An execution provider reports something about the graph that does not make it refuse a node: for example, that "
     "nodes run on the CPU although it has kernels for them.",
     "Nothing to do if the budgets are met."),
    ("AOTC-P013", "provider computes wrongly", FINDING,
     "For the same inputs, the answer of an execution provider for some nodes differs from the CPU's by more than "
     "the tolerance. The next provider of the profile runs these nodes, and the complete variant was proven again.",
     "Nothing to do if the budgets are met; report the nodes to the provider's vendor."),
    ("AOTC-P014", "CUDA graphs cannot be captured", NO,
     "ONNX Runtime captures a run as a CUDA graph only if all nodes are on CUDA, except those that compute shapes, "
     "and no control flow is left. The profile asks for captures, and the nodes that are named prevent them.",
     "Change the model at these nodes, or write 'cuda: {graphs: {refused: run}}' in the profile to run without."),
    # numerics
    ("AOTC-N001", "parity breach", NO,
     "The output of a variant differs from that of the original model (CPU, optimizations off) by more than the "
     "tolerance.",
     "Build the variant at a lower optimization level (variants: optimization: basic), in the model's own precision "
     "(precision: keep), or on another provider (providers: [cpu]). If you accept the error, raise the parity "
     "tolerances in the profile."),
    ("AOTC-N002", "variant was not proven", NO,
     "A variant could not be run on the build host, and the profile does not allow unproven variants.",
     "Build on a host that can run it, or write 'unproven: allow' in the profile."),
    ("AOTC-N003", "acceptance failed", NO,
     "When the artifact was loaded, the output for a fixture differed from the golden output by more than the "
     "tolerance: this host does not compute what the build host did.",
     "Check the ONNX Runtime version and the CPU; rebuild for this host."),
    ("AOTC-N005", "reference output is not finite", FINDING,
     "The original model gives NaN or infinity for a fixture. Parity compares only where these are.",
     "Give real inputs with --fixtures."),
    ("AOTC-N006", "no fixture is embedded", FINDING,
     "No fixture fits into the profile's fixtures.max_bytes, or a variant in static int8 was compared on the user's "
     "data alone (calibration data and fixtures), as ranges that are observed on data say nothing of random numbers, "
     "and this data is not embedded. So a load of the variant is not accepted by comparing outputs.",
     "Raise fixtures.max_bytes in the profile, or bound the dims to smaller sizes. For static int8 give "
     "--embed-fixtures, which puts some samples of the calibration data into the artifact too."),
    ("AOTC-N007", "padding changes the answer", NO,
     "The cropped answer to padded inputs differs from the original model's answer to the unpadded ones by more than "
     "the tolerance: something reduces over the padded dim, and no mask excludes the padding.",
     "State the pad value that the model ignores (inputs.NAME.pad), give it a mask, or use outside: route or reject "
     "for this dim."),
    ("AOTC-N008", "precision is not available", INPUT,
     "No execution provider of a variant can compute in the precision that the profile asks for.",
     "Choose another precision or another provider."),
    ("AOTC-N010", "answers depend on the CPU", FINDING,
     "The model multiplies unsigned by signed 8-bit numbers that are not constants. On x86-64, ONNX Runtime computes "
     "this exactly only on CPUs with VNNI. The variant requires a CPU like the one on which it was proven.",
     "To let it run anywhere, quantize the model with operands of the same sign, or with 7-bit weights."),
    ("AOTC-N011", "half precision was not applied", FINDING,
     "The profile asks for float16 or bfloat16, but the model is quantized, is in another half precision already, or "
     "computes nothing in float32. It was left as it is, and computes as with 'precision: keep'.",
     "Nothing to do, or build from the float32 model that it was made of."),
    ("AOTC-N012", "nothing can compute in half precision", INPUT,
     "Every node must stay in float32: its constants or its activations leave the range of the type, or the execution "
     "provider has no kernel for it in that type.",
     "Choose 'precision: keep' or 'tf32', or the other half precision: bfloat16 has the range of float32."),
    ("AOTC-N013", "activations could not be observed", FINDING,
     "Which activations leave the range of a half-precision type is found by running the model in float32 on the "
     "inputs of its fixtures and calibration data. That was not possible, so only constants and kernels decided "
     "which nodes stay in float32; or samples of the data did not run, and were left out. The comparison with the "
     "original still decides whether the variant is built.",
     "Give inputs of the sizes of this variant with --fixtures."),
    ("AOTC-N014", "quantization was not applied", FINDING,
     "The profile asks for int8 or int4, but the model is quantized or in half precision already, or has no float32 "
     "weights. It was left as it is, and computes as with 'precision: keep'.",
     "Nothing to do, or build from the float32 model that it was made of."),
    ("AOTC-N015", "nothing can be quantized", INPUT,
     "No node of the model can compute with integers or store its weights in them: it has no product with constant "
     "weights, the profile keeps all of them in float32, or integers would cost more than they gain.",
     "Choose 'precision: keep', or another form under 'quantization'."),
    ("AOTC-N016", "no such node to keep in float32", INPUT,
     "A name under 'keep_float32' is not that of a node of the model, and a pattern with * matches none.",
     "Use names as 'aotc inspect' shows them, or as a build that missed a gate names them."),
    ("AOTC-N017", "the model cannot be quantized so", INPUT,
     "What the profile states under 'quantization' does not fit the form in which the variant is quantized.",
     "Choose one of the values that are expected, or another form."),
    ("AOTC-N019", "calibration data without effect", FINDING,
     "Calibration data was named, and no variant observes activations on it: none has the precision int8 or auto, or "
     "computes in half precision. The data was not read.",
     "Choose 'precision: int8', or leave the data out."),
    ("AOTC-N028", "half precision is stored, not computed", FINDING,
     "ONNX Runtime's CPU provider has few kernels for float16 and none for bfloat16. The weights are stored in that "
     "type, which saves half of their bytes, and are converted to float32 when the artifact is loaded: calls take as "
     "much time and memory as in float32.",
     "Nothing to do if the size is what you want. For faster calls take openvino or a GPU, or 'precision: int8'."),
    ("AOTC-N035", "precision was chosen without measuring", FINDING,
     "With 'precision: auto', the quickest form that passes is taken. This host cannot run the variant, so the forms "
     "were compared with the original as far as that is possible here, and the first that passed was taken: in the "
     "order of the provider's precisions, which begins with the one that is the quickest on most devices.",
     "To have it measured, build on a host that runs the variant. '--tuned-from' repeats that choice elsewhere."),
    ("AOTC-N036", "nodes stay in float32 so that the answers pass", FINDING,
     "With 'precision: auto', a lower precision did not pass its gates as it was. The nodes that are named make it "
     "inexact: with them in float32 it passes. They stand in the manifest, as keep_float32 of the variant.",
     "Nothing to do. To build the same without trials, write the precision and keep_float32 into the profile, or give "
     "--tuned-from."),
    ("AOTC-N031", "nodes to blame for the error", NO,
     "A variant in a lower precision breaches its gates, and passes with the named nodes in float32. They were found "
     "by comparing the values inside of the variant with those of the model, and by trying sets of nodes.",
     "Write the line with the nodes into the profile, or ask for 'precision: auto', which does so by itself."),
    ("AOTC-N033", "nodes to blame could not be searched", FINDING,
     "A variant in a lower precision breaches its gates. The search for the nodes to blame, or the comparison of the "
     "values inside, could not be made.",
     "See what was found. Raise limits.seconds or limits.memory_bytes in the profile if the search ended by these."),
    ("AOTC-N034", "no few nodes are to blame", NO,
     "A variant in a lower precision breaches its gates. It passes with all nodes in float32, so precision makes the "
     "error, but no smaller set of nodes that passes was found within the trials of the profile.",
     "Raise blame.trials in the profile, calibrate on more data, or choose a higher precision."),
    ("AOTC-N029", "values leave the range of half precision", FINDING,
     "On the inputs of the fixtures, the nodes that are named make numbers that are larger than the type's largest, "
     "which would be infinite. They stay in float32, and so do the nodes that read their results.",
     "Nothing to do. To have all in half precision, scale the weights before these nodes, or take bfloat16, which has "
     "the range of float32."),
    ("AOTC-N030", "nodes cannot be kept in float32", FINDING,
     "The execution provider computes in half precision by an option for all of its nodes, and the profile names no "
     "other provider after it that could take the nodes under keep_float32. They are computed in half precision.",
     "Add cpu to the providers, behind that one: it then computes these nodes in float32."),
    ("AOTC-N040", "equal calls had different bytes", FINDING,
     "A variant was called again with the same input, and its answers had other bytes than before, within the same "
     "host. These calls run alone, one after the other: under load more may differ. The message names the outputs, how "
     "many values differ by how much, and the setting of the provider with which all calls had the same bytes. Without such a setting an operator itself is not repeatable, such as a "
     "scatter that writes one place several times.",
     "Set what the message names in the profile, if equal bytes matter more than speed; or change the model's "
     "operator. More calls are compared with 'repeatability: {runs: 100}'."),
    # memory and budgets
    ("AOTC-M001", "artifact exceeds its size budget", NO,
     "The payload is larger than budgets.artifact_bytes.",
     "Raise the budget, remove variants, or use a smaller model."),
    ("AOTC-M002", "peak memory exceeds its budget", NO,
     "A variant used more memory at the largest shape than budgets.peak_memory_bytes.",
     "Raise the budget or lower the largest shape."),
    ("AOTC-M003", "load time exceeds its budget", NO,
     "A variant took longer to load than budgets.load_seconds.",
     "Raise the budget, or use a profile with a native variant."),
    ("AOTC-M004", "device has too little memory", NO,
     "The memory of the GPU did not suffice for the weights, for the activations of a call, or for its buffers.",
     "Free memory on the device, capture fewer or smaller sizes (cuda.graphs), or choose another GPU."),
)
# fmt: on
