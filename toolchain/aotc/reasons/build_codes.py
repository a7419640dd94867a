"""Codes of building: O (optimize), P (placement), N (numerics), M (memory)."""

from __future__ import annotations

from typing import Final

from aotc.reasons.reason import FINDING, INPUT, NO, Row

# fmt: off
BUILDING: Final[tuple[Row, ...]] = (
    # optimize
    ("AOTC-O001", "optimization failed", INPUT,
     "ONNX Runtime could not optimize a model that it can load.",
     "Report the model to ONNX Runtime; its message is given."),
    ("AOTC-O002", "variant skipped: build host is not the target", FINDING,
     "Level ALL bakes in the CPU layout of the build host. Host and target differ in ISA features, "
     "so that variant was left out; the portable one serves.",
     "Build on a host like the target to get the faster variant."),
    ("AOTC-O003", "optimization level lowered", FINDING,
     "At the wanted level of ONNX Runtime's optimizer the model could not be optimized, its graph did not load, "
     "its answers were not the original's beyond the tolerance, or its integer products would saturate on some CPUs; "
     "so a lower level was taken, and proven. The message says which, and the evidence what it costs.",
     "None is needed. State 'optimization' in a variant of the profile to have one level and no other; "
     "report the model to ONNX Runtime."),
    ("AOTC-O004", "fixed sizes were left out of the graph", FINDING,
     "ONNX Runtime cannot optimize the graph with the stated sizes written into it, so the graph keeps "
     "its free dims. Calls are still held to the stated sizes.",
     "None is needed; bounding the dim with MIN..MAX avoids it."),
    ("AOTC-O005", "opset was converted", FINDING,
     "ONNX Runtime's execution provider has kernels for an older operator set that it lacks for the model's, "
     "so the graph was converted, and compared with the original.",
     "None is needed; 'opset: keep' in the profile leaves the model's."),
    ("AOTC-O006", "tuning evidence does not fit", INPUT,
     "The evidence given to build from does not hold measurements of the candidates that this profile makes.",
     "Give the evidence of a build with --tune of the same profile, or tune again."),
    ("AOTC-O007", "tuned on another model", FINDING,
     "The measurements that chose among the candidates were made of another model, such as an earlier "
     "training of this one. Every promise is proven of this model; that the choice is the quickest is not.",
     "Build with --tune to measure this model."),
    ("AOTC-O008", "integer products have operands of one sign", FINDING,
     "On x86-64 CPUs without VNNI, ONNX Runtime's kernels for unsigned activations and signed weights saturate: the "
     "same model answers otherwise there. The weights were written in the sign of the activations, with their zero "
     "points moved alike, which changes no product and is exact on every CPU.",
     "None is needed. Where the target has VNNI, a quicker variant that requires it stands beside."),
    ("AOTC-O010", "reference is optimized", FINDING,
     "ONNX Runtime has no kernel for an operator of the model as it stands, and has one for what its optimizer "
     "makes of it; so the answers that variants are held to are those of the lowest level that runs.",
     "None is needed; export the model with operators that ONNX Runtime runs as they are to have it compared."),
    ("AOTC-O009", "quicker variant was left out", FINDING,
     "A variant whose integer products require VNNI would be quicker on hosts that have it, and could not be made or "
     "proven. The portable one serves there too.",
     "None is needed; raise max_variants where the message names it."),
    # placement
    ("AOTC-P001", "node is not where the profile allows", NO,
     "A node landed on an execution provider that the fallback policy does not allow.",
     "Allow it in the profile's fallback, or change the model."),
    ("AOTC-P002", "placement budget exceeded", NO,
     "Nodes, compute, partitions or transfers are outside of the budget that the profile states.",
     "Change the budget that is named, or the model."),
    ("AOTC-P003", "placement differs from the promise", NO,
     "ONNX Runtime placed nodes on this host other than it did when the artifact was built.",
     "Use the ONNX Runtime version of the manifest, or rebuild."),
    ("AOTC-P004", "execution provider is not available", INPUT,
     "The profile or the artifact asks for an execution provider that this ONNX Runtime does not have, or "
     "that is installed and offers no device on this machine.",
     "Install the extra for it where the machine is one that it serves; else take another profile, such as edge, or "
     "remove it from the profile's providers."),
    ("AOTC-P005", "compilation failed", NO,
     "An execution provider claimed nodes and could not compile them, and no other provider of the profile "
     "may run them. The provider's own message is given.",
     "Add a provider that can run the nodes to the profile, such as cpu, or change the model."),
    ("AOTC-P006", "nodes were left to the next provider", FINDING,
     "An execution provider claimed nodes and then could not compile them, so a smaller part of them was "
     "compiled, or the next provider of the profile runs them.",
     "None is needed where the budgets hold; else change the model where the message says."),
    ("AOTC-P007", "no such execution provider", INPUT,
     "The profile orders an execution provider that is neither built in nor described under plugins.",
     "Correct the name, or describe the provider under plugins."),
    ("AOTC-P008", "placement difference was waived", FINDING,
     "ONNX Runtime placed nodes other than it did at build, or the execution provider does not call the "
     "compiled model optimal for this host; the artifact records a waiver for just this.",
     "Rebuild on a host like this one to do without the waiver."),
    ("AOTC-P009", "variant was dropped", FINDING,
     "A variant breaches the placement budgets, and the profile's fallback policy leaves its calls to "
     "another variant (alternate-variant) or refuses them (reject-route).",
     "Raise the budgets that are named, or change the model, to have the variant."),
    ("AOTC-P010", "unknown compute capability", INPUT,
     "The profile or target names a compute capability that the compiler does not know.",
     "Use one of those that are named."),
    ("AOTC-P013", "provider computes wrongly", FINDING,
     "What an execution provider makes of some nodes differs from the CPU's answer beyond the tolerance, with the "
     "same inputs. The next provider of the profile runs these nodes, and the whole was proven anew.",
     "None is needed where the budgets hold; report the nodes to the provider's maker."),
    ("AOTC-P012", "note of an execution provider", FINDING,
     "An execution provider has something to say of the graph that refuses no node, such as that nodes it "
     "has kernels for will run on the CPU all the same.",
     "None is needed where the budgets hold."),
    ("AOTC-P011", "control flow stays outside of the provider", FINDING,
     "A compiled part cannot stand inside of a body of control flow, so the nodes there go to the next "
     "provider of the profile.",
     "None is needed where the budgets hold."),
    # numerics
    ("AOTC-N001", "parity breach", NO,
     "A variant's output differs from the original model's (CPU, optimizations off) beyond the tolerance.",
     "Build the variant at a lower optimization level (variants: optimization: basic), in the model's own "
     "precision (precision: keep), or on another provider (providers: [cpu]). Where the error is acceptable "
     "to you, raise the parity tolerances in the profile."),
    ("AOTC-N010", "answers depend on the CPU", FINDING,
     "The model multiplies unsigned by signed 8-bit numbers that are no constants, which ONNX Runtime computes "
     "exactly on CPUs with VNNI alone (x86-64). The variant requires a CPU like the one on which it was proven.",
     "Quantize the model with operands of one sign, or weights in 7 bits, to have it run anywhere."),
    ("AOTC-N002", "variant was not proven", NO,
     "A variant could not be run on the build host, and the profile does not allow unproven variants.",
     "Build on a host that can run it, or write 'unproven: allow' in the profile."),
    ("AOTC-N003", "acceptance failed", NO,
     "At load, a fixture's output differs from the golden one beyond the tolerance: "
     "this host computes something else than the build host did.",
     "Check the ONNX Runtime version and the CPU; rebuild for this host."),
    ("AOTC-N005", "reference output is not finite", FINDING,
     "The original model gives NaN or infinity on a fixture; parity there compares their places only.",
     "Give real inputs with --fixtures."),
    ("AOTC-N006", "no fixture is embedded", FINDING,
     "No fixture fits fixtures.max_bytes of the profile, so a load is neither warmed up nor accepted "
     "by example.",
     "Raise fixtures.max_bytes in the profile, or bound the dims to smaller sizes."),
    ("AOTC-N007", "padding changes the answer", NO,
     "The cropped answer to padded inputs differs from the original model's answer to the unpadded ones "
     "beyond the tolerance: something reduces over the padded dim, and no mask leaves the padding out.",
     "State the pad value that the model ignores (inputs.NAME.pad), give it a mask, or use "
     "outside: route or reject for this dim."),
    ("AOTC-N008", "precision is not available", INPUT,
     "No execution provider of a variant can compute in the precision that the profile asks for.",
     "Choose another precision or another provider."),
    # memory and budgets
    ("AOTC-M001", "artifact exceeds its size budget", NO,
     "The payload is larger than budgets.artifact_bytes.",
     "Raise the budget, drop variants, or use a smaller model."),
    ("AOTC-M002", "peak memory exceeds its budget", NO,
     "A variant used more memory at the largest shape than budgets.peak_memory_bytes.",
     "Raise the budget or lower the largest shape."),
    ("AOTC-M003", "load time exceeds its budget", NO,
     "A variant took longer to load than budgets.load_seconds.",
     "Raise the budget, or use a profile with a native variant."),
)
# fmt: on
