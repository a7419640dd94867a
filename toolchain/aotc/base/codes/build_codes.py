"""Reason codes of a build: O (optimize), P (placement), N (numerics), M (memory)."""

from __future__ import annotations

from typing import Final

from aotc.base.codes.reason import FINDING, INPUT, NO, Row

# fmt: off
BUILDING: Final[tuple[Row, ...]] = (
    # optimize
    ("AOTC-O001", "optimization failed", INPUT,
     "ONNX Runtime could not optimize a model that it can load.",
     "Report the model to ONNX Runtime, with its message as shown."),
    ("AOTC-O002", "variant skipped: the build host differs from the target", FINDING,
     "At its highest level, ONNX Runtime's optimizer writes the CPU memory layout of the build host into the graph. "
     "The build host and the target have different CPU features, so this variant was left out; the portable variant is "
     "used.",
     "To get the faster variant, build on a host with the target's CPU features."),
    ("AOTC-O003", "optimization level lowered", FINDING,
     "The variant was built, and proven, at a lower level of ONNX Runtime's optimizer than requested. At the requested "
     "level, the optimizer failed, the optimized graph did not load, its answers differed from the original's by more "
     "than the tolerance, or its integer products would saturate on some CPUs. The message says which, and the "
     "evidence records the cost.",
     "Nothing to do. To allow only one level, set 'optimization' in a variant of the profile. Report the model to ONNX "
     "Runtime."),
    ("AOTC-O004", "fixed sizes were not written into the graph", FINDING,
     "ONNX Runtime cannot optimize the graph with the requested sizes written into it, so the graph keeps its free "
     "dims. Calls must still have the requested sizes.",
     "Nothing to do. To avoid it, give the dim a range (MIN..MAX)."),
    ("AOTC-O005", "opset was converted", FINDING,
     "The execution provider has kernels for an older operator set that it lacks for the model's own, or integers are "
     "written at a later one. So the graph was converted, and compared with the original.",
     "Nothing to do. To keep the model's operator set, write 'opset: keep' in the profile."),
    ("AOTC-O006", "tuning evidence cannot be used", INPUT,
     "The measurements do not decide between the candidates of this profile: the evidence is from a build without "
     "--tune, it covers other candidates, or no candidate passed.",
     "Give the evidence of a build with --tune of the same profile, or tune again."),
    ("AOTC-O007", "tuned on another model", FINDING,
     "The candidate was chosen by measurements of another model, such as an earlier training of this one. Everything "
     "that the artifact promises was proven for this model; whether the choice is the fastest was not measured.",
     "Build with --tune to measure this model."),
    ("AOTC-O008", "weights rewritten so that integer products do not saturate", FINDING,
     "On x86-64 CPUs without VNNI, ONNX Runtime's kernels for unsigned activations and signed weights saturate, so the "
     "same model gives different answers there. The weights were rewritten with the sign of the activations, and their "
     "zero points shifted by the same amount. This changes no product, and is exact on every CPU.",
     "Nothing to do. For targets with VNNI, the artifact also holds a faster variant that requires it."),
    ("AOTC-O009", "faster variant was left out", FINDING,
     "A variant whose integer products require VNNI would be faster on hosts that have it, but it could not be built "
     "or proven. Those hosts use the portable variant.",
     "Nothing to do. Raise max_variants if the message names it."),
    ("AOTC-O010", "reference had to be optimized", FINDING,
     "ONNX Runtime has no kernel for an operator of the original model, but it has one for the operator by which its "
     "optimizer replaces it. So the reference that variants are compared with is the model at the lowest optimization "
     "level that runs.",
     "Nothing to do. To compare variants with the model as it is, export it with operators that ONNX Runtime runs "
     "without optimization."),
    ("AOTC-O011", "fusion needs a package that is not installed", INPUT,
     "Graphs for CUDA are fused by rewrite rules of onnxscript, which is not installed.",
     "Install aotc with the extra gpu, or set 'fusion: none' for CUDA in the profile."),
    ("AOTC-O012", "graph was not fused for CUDA", FINDING,
     "The build tries to fuse attention, activations and normalizations into operators for which CUDA has faster "
     "kernels. Here a rule failed on the graph, CUDA has no kernel for a fused operator, the fused graph did not load, "
     "or it gave other answers. The graph is used unfused, and was proven as such.",
     "Nothing to do. To skip the attempt, write 'fusion: none' for CUDA in the profile."),
    ("AOTC-O013", "channels-last layout was not used on CUDA", FINDING,
     "The build tries to run convolutions with channels last (NHWC), for which CUDA has faster kernels. The graph did "
     "not run in that layout, or gave other answers, so it keeps the model's layout, channels first (NCHW).",
     "Nothing to do. To skip the attempt, write 'layout: nchw' for CUDA in the profile."),
    ("AOTC-O019", "the model's own precision is kept", FINDING,
     "With 'precision: auto', no lower precision of the variant's first provider passed all gates, or none was faster. "
     "The message lists the precisions that were tried, and why each was rejected.",
     "Nothing to do. To see which nodes make a precision inexact, build with that precision. For static int8, give "
     "calibration data."),
    ("AOTC-O014", "activations were not observed", FINDING,
     "Static quantization needs the range of each activation. Some activations were never computed on the calibration "
     "data, such as those of a branch that is never taken. Their nodes stay in float32.",
     "Give calibration data that reaches them, or use 'form: dynamic'."),
    ("AOTC-O016", "block quantization needs a package that is not installed", INPUT,
     "Weights are quantized in blocks by a tool of ONNX Runtime that needs onnx_ir, which is not installed.",
     "Install onnx-ir, or choose 'form: dynamic' or 'form: static' for int8."),
    ("AOTC-O017", "both forms of a quantized variant were timed", FINDING,
     "A quantized variant has two forms: a portable form, whose weights are written so that they saturate on no CPU, "
     "and a form with the model's own weights, which requires VNNI. Both were proven, and timed in alternating runs on "
     "the build host. The times are in the evidence and not in the payload, so that equal builds have equal payloads.",
     "Nothing to do. A host with VNNI uses the form that requires it."),
    ("AOTC-O018", "VNNI form is not faster", FINDING,
     "On the build host, the form of a quantized variant that requires VNNI is not faster than the portable form: it "
     "adds bytes and gains nothing there. It stays in the artifact, because equal inputs must give equal payloads, and "
     "times differ from build to build.",
     "If the hosts are like the build host, leave it out with 'vnni_variants: none' in the profile."),
    ("AOTC-O020", "candidates cannot be measured here", INPUT,
     "'--tune' runs all candidates and takes the fastest, but this machine cannot run the execution provider of one of "
     "them. Without that candidate, the choice would depend on this machine, and not on speed.",
     "Tune on a machine that can run it, and pass the artifact of that build to '--tuned-from' here. Or build without "
     "'--tune'."),
    # placement
    ("AOTC-P001", "node is on a provider that the profile does not allow", NO,
     "A node was placed on an execution provider that the profile's fallback policy does not allow, or none of the "
     "variant's providers can run it.",
     "Allow the provider under 'fallback' in the profile, or change the model."),
    ("AOTC-P002", "placement budget exceeded", NO,
     "The nodes, compute, partitions or transfers of a variant exceed a budget of the profile.",
     "Change the budget that the message names, or the model."),
    ("AOTC-P003", "placement differs from the manifest", NO,
     "On this host, ONNX Runtime placed nodes on other execution providers than the manifest promises.",
     "Use the ONNX Runtime version that the manifest names, or rebuild."),
    ("AOTC-P004", "execution provider is not available", INPUT,
     "The profile or the artifact requires an execution provider that this ONNX Runtime does not have, or that is "
     "installed but offers no device on this machine.",
     "Install the extra for it if it supports this machine. Otherwise use another profile, such as edge, or remove the "
     "provider from the profile."),
    ("AOTC-P005", "compilation failed", NO,
     "An execution provider claimed nodes but could not compile them, and no other provider of the profile may run "
     "them. The provider's own message is shown.",
     "Add a provider that can run the nodes to the profile, such as cpu, or change the model."),
    ("AOTC-P006", "nodes were left to the next provider", FINDING,
     "An execution provider claimed nodes that it then could not compile. A smaller part of them was compiled instead, "
     "or the next provider of the profile runs them.",
     "Nothing to do if the budgets are met. Otherwise change the model at the nodes that the message names."),
    ("AOTC-P007", "no such execution provider", INPUT,
     "The profile lists an execution provider that is neither built in nor described under plugins.",
     "Correct the name, or describe the provider under plugins."),
    ("AOTC-P008", "placement difference was waived", FINDING,
     "ONNX Runtime placed nodes differently from the build, or the execution provider does not rate the compiled model "
     "as optimal for this host. The artifact records a waiver for exactly this.",
     "To build without the waiver, rebuild on a host like this one."),
    ("AOTC-P009", "variant was dropped", FINDING,
     "A variant exceeds the placement budgets. By the profile's fallback policy, another variant takes its calls "
     "(alternate-variant), or they are refused (reject-route).",
     "To keep the variant, raise the budgets that the message names, or change the model."),
    ("AOTC-P010", "unknown compute capability", INPUT,
     "The profile or target names a compute capability that the compiler does not know.",
     "Use one of those that the message lists."),
    ("AOTC-P011", "control flow is not compiled by the provider", FINDING,
     "A compiled part cannot lie in a subgraph of a control-flow operator, so the nodes of the subgraph go to the next "
     "provider of the profile.",
     "Nothing to do if the budgets are met."),
    ("AOTC-P012", "note from an execution provider", FINDING,
     "An execution provider reports something about the graph without refusing a node: for example, that nodes run on "
     "the CPU although it has kernels for them.",
     "Nothing to do if the budgets are met."),
    ("AOTC-P013", "provider computes wrong results", FINDING,
     "For the same inputs, the results of an execution provider for some nodes differ from the CPU's by more than the "
     "tolerance. The next provider of the profile runs these nodes, and the complete variant was proven again.",
     "Nothing to do if the budgets are met. Report the nodes to the provider's vendor."),
    ("AOTC-P014", "CUDA graphs cannot be captured", NO,
     "ONNX Runtime captures a run as a CUDA graph only if the graph has no control flow and all nodes are on CUDA, "
     "except those that compute shapes. The profile asks for captures, and the nodes in the message prevent them.",
     "Change the model at these nodes, or write 'cuda: {graphs: {on_refusal: run}}' in the profile to run without "
     "captures."),
    ("AOTC-P015", "captured CUDA graphs do not hold beside each other", NO,
     "All captured sizes were tried together, as a load holds them, in a process of their own: captured in turn, then "
     "replayed in random order. The process crashed or hung, CUDA failed, or an answer was another one than before. As "
     "a finding: the variant is in another form, with a session for each captured size or without graphs.",
     "Write 'cuda: {graphs: {on_refusal: run}}' in the profile to run without captures where no form holds, capture "
     "fewer sizes, and report the model to ONNX Runtime."),
    # numerics
    ("AOTC-N001", "parity breach", NO,
     "An output of a variant differs from that of the original model (CPU, optimizations off) by more than the "
     "tolerance, or one of its slices does by its own scale: a channel, a row, or a part that the graph joins; or too "
     "many of its whole numbers, truth values or texts differ, or some that were decided clearly. The message says by "
     "which rule.",
     "Build the variant at a lower optimization level (variants: optimization: basic), in the model's own precision "
     "(precision: keep), or on another provider (providers: [cpu]). If the error is acceptable, raise the parity "
     "tolerances in the profile (of slices: max_slice), name the one axis whose slices matter "
     "(gates.outputs.NAME.axis), or of whole numbers state how many must agree (gates.outputs.NAME.min_agreement with "
     "replaces_tolerance)."),
    ("AOTC-N002", "variant was not proven", NO,
     "A variant could not be run on the build host as its target runs it, so nothing shows that its answers are those "
     "of the model. A build refuses it unless that is allowed. Then its gate 'proof' is not judged, and every report of "
     "the build, 'inspect' and 'verify' say so, with the command that proves it.",
     "Build on a host that can run it, or give --allow-unproven (in the profile: 'unproven: allow'), and prove it on the "
     "device with 'aotc attest --qualify'."),
    ("AOTC-N003", "acceptance failed", NO,
     "When the artifact was loaded, an output for a fixture differed from the golden output by more than the "
     "tolerance: this host computes other results than the build host.",
     "Check the ONNX Runtime version and the CPU, or rebuild for this host."),
    ("AOTC-N005", "reference output is not finite", FINDING,
     "The original model gives NaN or infinity for a fixture. For these values, parity only checks that the variant "
     "has them at the same places.",
     "Give real inputs with --fixtures."),
    ("AOTC-N006", "no fixture is embedded", FINDING,
     "The artifact has no fixture on which a load of the variant could compare outputs. Either no fixture fits into "
     "the profile's fixtures.max_bytes, or the variant is in static int8, which is only compared on the user's data "
     "(calibration data and fixtures), and this data is not embedded. Random inputs would not do: they may lie outside "
     "the ranges that were observed on the data.",
     "Raise fixtures.max_bytes in the profile, or bound the dims to smaller sizes. For static int8, give "
     "--embed-fixtures, which puts some samples of the calibration data into the artifact too."),
    ("AOTC-N007", "padding changes the answer", NO,
     "For padded inputs, the cropped answer differs from the original model's answer to the unpadded inputs by more "
     "than the tolerance: an operator reduces over the padded dim, and no mask excludes the padding.",
     "Set a pad value that the model ignores (inputs.NAME.pad), give the model a mask, or use outside: route or reject "
     "for this dim."),
    ("AOTC-N008", "precision is not available", INPUT,
     "No execution provider of a variant can compute in the precision that the profile asks for.",
     "Choose another precision or another provider."),
    ("AOTC-N010", "answers depend on the CPU", FINDING,
     "The model multiplies unsigned by signed 8-bit numbers that are not constants. On x86-64, ONNX Runtime computes "
     "such products exactly only on CPUs with VNNI. The variant therefore requires a CPU like the one on which it was "
     "proven.",
     "To let it run on any CPU, quantize the model with operands of the same sign, or with 7-bit weights."),
    ("AOTC-N011", "half precision was not applied", FINDING,
     "The profile asks for float16 or bfloat16, but the model is quantized, is in another half precision already, or "
     "computes nothing in float32. It was left as it is, and computes as with 'precision: keep'.",
     "Build from the original float32 model, or write 'precision: keep'."),
    ("AOTC-N012", "no node can compute in half precision", INPUT,
     "Every node must stay in float32: its constants or its activations exceed the range of the type, or the execution "
     "provider has no kernel for it in that type.",
     "Choose 'precision: keep' or 'tf32', or the other half precision: bfloat16 has the range of float32."),
    ("AOTC-N013", "activations could not be observed", FINDING,
     "To find activations that exceed the range of a half-precision type, the build runs the model in float32 on the "
     "inputs of its fixtures and calibration data. It could not do so, and only constants and kernels decided which "
     "nodes stay in float32; or some samples of the data did not run, and were left out. The comparison with the "
     "original still decides whether the variant is built.",
     "Give inputs of the sizes of this variant with --fixtures."),
    ("AOTC-N014", "quantization was not applied", FINDING,
     "The profile asks for int8 or int4, but the model is quantized or in half precision already, or has no float32 "
     "weights. It was left as it is, and computes as with 'precision: keep'.",
     "Build from the original float32 model, or write 'precision: keep'."),
    ("AOTC-N015", "no node can be quantized", INPUT,
     "No node of the model can compute with integers or store its weights as integers: it has no product with constant "
     "weights, the profile keeps all of them in float32, or integers would cost more than they gain.",
     "Choose 'precision: keep', or another form under 'quantization'."),
    ("AOTC-N070", "little was quantized", FINDING,
     "Fewer than half of the model's products with constant weights, or of the bytes of their weights, are in lower "
     "precision: the form does not have the operator, or the others would cost more than they gain. The variant is "
     "hardly smaller or faster than the model.",
     "Give data with --calibration, with which convolutions are quantized too; try 'precision: auto'; or keep the "
     "model's precision."),
    ("AOTC-N071", "operator set has no integers", INPUT,
     "The model's operator set is from before the operators of quantization, and it could not be raised: a node has no "
     "counterpart in a later one, the converted graph answers otherwise, or the profile says 'opset: keep'.",
     "Export the model at opset 13 or later, or convert it with onnx.version_converter; 'quantization: {form: weights}' "
     "needs no later opset."),
    ("AOTC-N072", "operator set was not raised", FINDING,
     "Before opset 13 a weight has one scale for all of its channels, which is less exact. The graph could not be "
     "raised to it: a node has no counterpart there, or the converted graph answers otherwise.",
     "Nothing to do if the gates pass. Else export the model at opset 13 or later."),
    ("AOTC-N073", "model has no product to quantize", INPUT,
     "Integers are for products with constant weights, LSTM and tables of embeddings: the model has none that the form "
     "knows. Its other operators would only round.",
     "Choose 'precision: keep'."),
    ("AOTC-N016", "no such node to keep in float32", INPUT,
     "A name under 'keep_float32' is not the name of a node of the model, or a pattern with * matches none.",
     "Use node names as 'aotc inspect' shows them, or as a build that breached a gate names them."),
    ("AOTC-N017", "quantization setting does not fit the form", INPUT,
     "A setting under 'quantization' in the profile is not possible in the form in which the variant is quantized "
     "(static, dynamic or weights), or the execution provider has no kernel for it.",
     "Choose one of the values that the message expects, or another form."),
    ("AOTC-N019", "calibration data was not used", FINDING,
     "Calibration data was given, but no variant needs it: none has the precision int8 or auto, or computes in half "
     "precision. The data was not read.",
     "Choose 'precision: int8', or leave out the calibration data."),
    ("AOTC-N028", "weights are only stored in half precision", FINDING,
     "ONNX Runtime's CPU provider has few kernels for float16 and none for bfloat16. The weights are stored in that "
     "type, which halves their size, and are converted to float32 when the artifact is loaded. Calls take as much time "
     "and memory as in float32.",
     "Nothing to do if a smaller artifact is what you want. For faster calls, use openvino, a GPU, or 'precision: "
     "int8'."),
    ("AOTC-N035", "precision was chosen without measuring", FINDING,
     "With 'precision: auto', the fastest form that passes is chosen. This host cannot run the variant, so nothing was "
     "timed: the forms were compared with the original as far as this host can, and the first to pass was chosen. They "
     "were tried in the provider's order of precisions, which begins with the one that is fastest on most devices.",
     "To measure it, build on a host that can run the variant. '--tuned-from' repeats that choice elsewhere."),
    ("AOTC-N036", "nodes are kept in float32 so that the gates pass", FINDING,
     "With 'precision: auto', a lower precision breached its gates at first. With the named nodes in float32, it "
     "passes. They are recorded in the manifest, as keep_float32 of the variant.",
     "Nothing to do. To build the same without trials, copy the precision and keep_float32 into the profile, or give "
     "--tuned-from."),
    ("AOTC-N031", "nodes that cause the error were found", NO,
     "A variant in a lower precision breaches its gates, but passes if the named nodes stay in float32. They were "
     "found by comparing values inside the variant with those of the model, and by trying sets of nodes.",
     "Add the line with the nodes to the profile, or use 'precision: auto', which does so by itself."),
    ("AOTC-N033", "search for the nodes that cause the error failed", FINDING,
     "A variant in a lower precision breaches its gates, and the search for the nodes that cause the error, or the "
     "comparison of the values inside the variant, could not be completed.",
     "The message says why. If a limit ended the search, raise limits.seconds or limits.memory_bytes in the profile."),
    ("AOTC-N034", "no small set of nodes causes the error", NO,
     "A variant in a lower precision breaches its gates, but passes with all nodes in float32, so the error comes from "
     "the precision. No smaller set of nodes that must stay in float32 was found within the trials that the profile "
     "allows.",
     "Raise blame.trials in the profile, calibrate on more data, or choose a higher precision."),
    ("AOTC-N029", "values exceed the range of half precision", FINDING,
     "On the inputs of the fixtures, the named nodes compute values above the largest number of the type, which would "
     "become infinite. These nodes stay in float32, and so do the nodes that read their results.",
     "Nothing to do. To compute all nodes in half precision, scale down the weights before these nodes, or use "
     "bfloat16, which has the range of float32."),
    ("AOTC-N030", "nodes cannot be kept in float32", FINDING,
     "The execution provider switches to half precision for all of its nodes at once, and the profile lists no "
     "provider after it that could run the nodes under keep_float32. They are computed in half precision.",
     "Add cpu to the profile's providers after this one: it then computes these nodes in float32."),
    ("AOTC-N053", "whole numbers differ where they were decided narrowly", FINDING,
     "Values of an output that an ArgMax, a TopK, a rounding or a comparison makes of floats are not those of the "
     "original model. They are few, or rounded values that are off by little on average, and the floats that decide "
     "them were as near to the other decision as the tolerance allows them to be off, so that either value is right.",
     "Nothing to do. To allow fewer, state max_differing of the arithmetic under parity in the profile, or "
     "min_agreement under gates.outputs."),
    ("AOTC-N040", "equal calls gave different bytes", FINDING,
     "A variant was called several times with the same input on the same host, and its answers differ in their bytes. "
     "The calls ran one after the other; under load, more values may differ. The message names the outputs, how many "
     "values differ and by how much, and the provider setting with which all calls gave the same bytes. If no setting "
     "is named, an operator itself is not repeatable, such as a scatter that writes the same element several times.",
     "If equal bytes matter more than speed, set in the profile what the message names, or change the operator in the "
     "model. To compare more calls, write 'repeatability: {runs: 100}'."),
    ("AOTC-N045", "output shows nothing", FINDING,
     "In all fixtures, the original model's answer was empty, NaN or infinite, one value throughout, at the ends of a "
     "Clip, a Sigmoid or the like, or the same for all inputs. A variant that computes something else could give the "
     "same answers, so the comparison proves nothing about this output. The same is said of a part that a Concat joins "
     "to others near the output. Other inputs were searched for, and none showed more.",
     "Give real inputs with --fixtures. If the output is the same for every input of the model, there is nothing to "
     "do."),
    ("AOTC-N046", "lower precision was not proven", NO,
     "The variant computes in a lower precision than the model, and the answers that it is compared on show nothing of "
     "an output, or of a part that a Concat joins to it: they are empty, NaN, one value throughout, saturated, or the "
     "same for all inputs. A variant that answers wrongly would pass.",
     "Give real samples with --fixtures, or with --calibration for static int8; or build with 'precision: keep'."),
    ("AOTC-N047", "inputs were searched for", FINDING,
     "The inputs that were generated first showed nothing of an output, or did not run a branch. Further inputs were "
     "searched for: by sign and scale, in the ranges of images, around numbers that the model compares with, and with "
     "other truth values, integers and sizes. Variants are compared on those found, too.",
     "Nothing to do. Real inputs (--fixtures) say more than values that were searched for."),
    ("AOTC-N048", "branch was not run by the proof", FINDING,
     "No fixture runs a branch of an If, the body of a loop, or more than one trip of a loop, and no input was found "
     "that does. The comparison proves nothing about it. 'aotc inspect' shows what was run.",
     "Give inputs that run it with --fixtures. To make it a gate, write 'gates: {branches: all}' in the profile."),
    ("AOTC-N049", "gate on branches failed", NO,
     "The profile asks with 'gates: {branches: all}' that the fixtures run all branches of every If and the bodies of "
     "all loops. The message names those that none ran.",
     "Give inputs that run them with --fixtures."),
    ("AOTC-N050", "gate on branches of a model without any", INPUT,
     "The profile states 'gates: {branches: all}', and the model has no If, Loop or Scan.",
     "Remove the gate from the profile."),
    ("AOTC-N051", "branches were not observed", FINDING,
     "Which branches and loops the fixtures run is observed in a copy of the model with added nodes. ONNX Runtime did "
     "not run this copy, or a run was too long to be listed, so that it is not fully known.",
     "Nothing to do; the variants are compared as usual."),
    ("AOTC-N058", "original model answers otherwise than before", NO,
     "The original model, run by the ONNX Runtime that is installed, answers the same inputs otherwise than in the "
     "document or folder of kept answers, by more than the tolerance of its arithmetic (parity.float32 and others in "
     "the profile). Its artifact is proven against the new answers, so that nothing else tells.",
     "Find out which of the two versions is right before the new one is taken. If the new answers are right, keep them: "
     "run 'aotc check-models' with --output FILE --force, or --keep-answers FOLDER --renew-answers."),
    ("AOTC-N059", "answers differ from those of the earlier artifact", NO,
     "On an input of the artifact that --against names, the new artifact answers otherwise than the earlier one, or "
     "than its golden outputs where that cannot be run here, by more than the looser tolerance of the two.",
     "'aotc diff OLD NEW' on a build without --against shows what else changed. If the new answers are right, build "
     "without --against."),
    ("AOTC-N060", "answers cannot be compared with the earlier artifact", NO,
     "There is nothing to compare the new artifact with: the one that --against names has no fixture, or the new one "
     "accepts none of its inputs, and neither has golden outputs for the same inputs.",
     "Name an artifact with fixtures (fixtures.max_bytes in its profile) of sizes that both accept, or build without "
     "--against."),
    ("AOTC-N061", "earlier artifact is of another model", INPUT,
     "The artifact that --against names has other inputs or outputs than the model: other names or element types, or "
     "another number of dims. Its answers say nothing of this one.",
     "Name an earlier artifact of the same model, or build without --against."),
    ("AOTC-N062", "answers depend on random numbers", FINDING,
     "The judge compared the named outputs with the first draw of the seeds, which every call has with 'seed', and the "
     "first one after a load with 'free'; or, with 'as-input', with the random numbers that the fixtures pass. Other "
     "numbers were not compared.",
     "Nothing to do. With 'as-input' and --fixtures you say with which numbers outputs are compared."),
    ("AOTC-N063", "answers do not repeat in spite of seeds", INPUT,
     "The model was run twice on equal inputs, each time from the seeds of its nodes, and the named output has other "
     "bytes: something draws random numbers that no seed governs.",
     "Export the model for inference, or let its random numbers be inputs (--random as-input)."),
    ("AOTC-N064", "bound calls do not draw anew", INPUT,
     "Each call of the artifact draws random numbers anew from their seeds. A bound call runs one session over and over, "
     "which goes on from draw to draw.",
     "Call run, or build with --random free, or with --random as-input and bind the random numbers as well."),
    ("AOTC-N075", "lower precision is slower than the model's own", FINDING,
     "The build times each variant in a lower precision in turn with the same variant in 'keep'. Calls of this one take "
     "longer, by more than the noise: at least 1.03 times as long, and the 90 % interval of the ratio lies above 1. The "
     "message has both medians, and the operators that take longer. On the CPU provider, times are the processor time "
     "of one thread.",
     "Choose 'precision: auto', which takes the fastest form, another form under 'quantization', or 'precision: keep'. "
     "If the precision is for size or memory, write 'goal: size' or 'goal: memory' in the profile."),
    ("AOTC-N076", "lower precision does not meet its goal", FINDING,
     "The profile says with 'goal' what a lower precision is for. With 'size', the weights of the variant are not "
     "smaller than in 'keep'; with 'memory', a process that makes one call does not take less memory.",
     "Choose another precision or another form under 'quantization', or 'precision: keep'."),
    ("AOTC-N077", "calls are slower, and the goal is not speed", FINDING,
     "Calls of a variant in a lower precision take longer than those of the same variant in 'keep', by more than the "
     "noise. The profile says with 'goal' that the precision is for size or for memory.",
     "Nothing to do. To have a limit, write 'budgets: {speedup: 0.8}' in the profile."),
    ("AOTC-N078", "exporter changed the answers", NO,
     "The ONNX model that the framework's exporter made answers otherwise than the framework itself, on the same inputs "
     "and without any optimization: the exporter is to blame.",
     "Report it to the exporter, with the node and module that 'aotc debug parity' names; or change the code that is "
     "named; or install a newer version."),
    ("AOTC-N065", "weights alone are computed with more exactly", FINDING,
     "In the quickest form of weights alone on CPUs, products multiply integers of 8 bits, for which activations are "
     "quantized in each call, and tables of embeddings have the bits of products. Its answers breached a limit. In the "
     "form that was built, products compute in float32, which is slower, and tables have 8 bits. The evidence records "
     "the cost.",
     "To build it without trying the other one, write what the message names under 'quantization' in the profile. The "
     "quickest form is more exact with 'symmetric: false' or a smaller 'block_size'."),
    ("AOTC-N081", "nodes do not run in half precision", FINDING,
     "A kernel of the execution provider failed in half precision, though it was chosen for this type: cuDNN, for "
     "example, may have no algorithm for a convolution in float16. These nodes, and those with the same operator, "
     "attributes and shapes of weights, compute in float32.",
     "Nothing to do if the budgets are met. Name the nodes under 'keep_float32' in the profile to save the build the "
     "attempt that fails."),
    # memory and budgets
    ("AOTC-N055", "times were measured on a busy machine", FINDING,
     "The build times warm calls of each variant. Here equal calls took very different times, or the process that made "
     "them often waited for a CPU on which something else ran. The answers are proven all the same, but times of this "
     "build, and what 'precision: auto' or '--tune' chose by times, may be those of a busy machine.",
     "Build again with --no-cache while nothing else runs, or measure the artifact with 'aotc bench', before you plan "
     "with its times."),
    ("AOTC-M001", "artifact exceeds its size budget", NO,
     "The payload is larger than budgets.artifact_bytes.",
     "Raise the budget, remove variants, or use a smaller model."),
    ("AOTC-M002", "peak memory exceeds its budget", NO,
     "A variant used more memory at the largest shape than budgets.peak_memory_bytes.",
     "Raise the budget, or lower the largest shape."),
    ("AOTC-M003", "load time exceeds its budget", NO,
     "A variant took longer to load than budgets.load_seconds.",
     "Raise the budget, or use a profile with a native variant."),
    ("AOTC-M004", "device has too little memory", NO,
     "The memory of the GPU is not enough for the weights, for the activations of a call, or for its buffers.",
     "Free memory on the device, capture fewer or smaller sizes (cuda.graphs; each of a graph with convolutions has "
     "weights of its own, unless 'sessions: one' is stated), or choose another GPU."),
    ("AOTC-M005", "lower precision is not as fast as its budget says", NO,
     "The profile limits with budgets.speedup how many times as fast a variant in a lower precision must be as the same "
     "variant in 'keep'. The median of the ratios that were measured in turn is below it, or no lower precision that "
     "passes was faster at all.",
     "Choose another precision or form ('precision: auto' takes the fastest), or lower the budget."),
    ("AOTC-M006", "speedup budget has no baseline", INPUT,
     "The profile states budgets.speedup, and there is nothing to judge: no variant is in a lower precision, or this "
     "host could not time one beside the same variant in 'keep'.",
     "Ask for a lower precision, build on a host that can run the variant, or remove budgets.speedup."),
    ("AOTC-M008", "planned memory exceeds its budget", NO,
     "By the memory plan of a variant, corrected by what was observed, its process takes more than "
     "budgets.peak_memory_bytes: what it holds beside calls, and what calls of the largest size need, as many at "
     "once as budgets.concurrency says. The message has the size at which that begins.",
     "Raise the budget, lower the largest size or budgets.concurrency, or choose a smaller precision."),
    ("AOTC-M009", "device memory exceeds its budget", NO,
     "What a variant took of the GPU once it had run, and the activations of budgets.concurrency calls at once, are more "
     "than budgets.device_memory_bytes.",
     "Raise the budget, lower the largest size or budgets.concurrency, or capture fewer sizes."),
    ("AOTC-M010", "a memory plan is below what was observed", FINDING,
     "ONNX Runtime's arena had more bytes in use in calls of a size than the plan says, by more than 15 % and 1 MB: a "
     "kernel needs room of which the plan knows nothing.",
     "Budgets are judged with the plan multiplied by that. Tell us which operator stands at the peak."),
    ("AOTC-M011", "no memory plan", FINDING,
     "Which memory calls take could not be planned, although the CPU provider runs all nodes: the message says why. "
     "Nodes of other providers have no plan either, which 'aotc inspect' says.",
     "Read what was observed at build ('aotc inspect'), which has the sizes of the fixtures alone."),
    ("AOTC-M012", "a memory budget is below the weights", NO,
     "budgets.device_memory_bytes is less than the weights of a variant: no size of a call can meet it.",
     "Raise the budget, or choose a smaller precision or model."),
    ("AOTC-M013", "no plan to take the arena's limit from", NO,
     "The profile states cuda.memory.limit_bytes: plan. Such a limit is made of what the build plans and observes of "
     "the variant on its GPU. Here there is no GPU, ONNX Runtime gives no statistics, or the graph has no plan there: "
     "the message says which.",
     "Build on a machine with the GPU that will serve, or state the limit in bytes."),
    ("AOTC-M014", "an arena on the GPU takes more than its calls need", FINDING,
     "By the plan, an arena that doubles takes over a quarter and 64 MiB more of the GPU for calls of all sizes than "
     "one that grows by what is asked for, and keeps it.",
     "State cuda.memory.growth: exact, or cuda.memory.limit_bytes: plan, if others need the GPU too."),
    ("AOTC-M015", "ONNX Runtime's statistics of memory are not known", FINDING,
     "The build observes each variant in a process of its own, by what ONNX Runtime counts of its allocators. That is "
     "reached by its C API, in the library beside the Python module. This build of ONNX Runtime has none, counts "
     "nothing, or cannot be given the inputs in that way: the message says which. No figure stands in for them.",
     "Nothing to do if the figures are not wanted. Else install ONNX Runtime's own wheel, 1.23 or newer."),
    ("AOTC-M016", "memory grows from call to call", FINDING,
     "A session was called with all sizes of its fixtures in turn, up to 1000 times. After a first round of two calls "
     "of each size its arenas, or the process beside them, still took more memory.",
     "Plan with the figure that the evidence has at the end. Fewer sizes (buckets), or sizes nearer to each other, "
     "let an arena reuse what it has."),
    ("AOTC-M017", "arena's limit is less than the weights", NO,
     "The profile limits the arena that a session has on the GPU with cuda.memory.limit_bytes. The weights of the "
     "nodes there do not even fit, so no call could run.",
     "Raise the limit above what 'aotc inspect' says of weights, use a lower precision, or leave the limit out."),
    ("AOTC-M020", "shrinking and captured graphs exclude each other", INPUT,
     "The profile states cuda.memory.shrink beside cuda.graphs. A captured graph is replayed with the addresses that it "
     "was captured with, which must not be given back.",
     "Leave one of them out. Captured graphs do not grow: each has the memory of its own sizes."),
)
# fmt: on
