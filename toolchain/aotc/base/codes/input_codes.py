"""Reason codes of inputs: I (import and input) and S (shapes)."""

from __future__ import annotations

from typing import Final

from aotc.base.codes.reason import FINDING, INPUT, NO, USAGE, Row

# fmt: off
INPUTS: Final[tuple[Row, ...]] = (
    # import and input
    ("AOTC-I001", "no such file", INPUT,
     "The path does not exist or cannot be read.",
     "Check the path and its permissions."),
    ("AOTC-I002", "not an ONNX model", INPUT,
     "The file is empty, truncated, or holds something other than a serialized ONNX ModelProto.",
     "Export or download the model again; compare its size and digest with the source."),
    ("AOTC-I003", "external data missing", INPUT,
     "An initializer is stored in an external file that is not in the model's folder.",
     "Put the external data file into the model's folder, under the name that the model uses."),
    ("AOTC-I004", "external data truncated", INPUT,
     "An initializer's offset and length reach beyond the end of its external file.",
     "Copy the external data again; compare its size with the source."),
    ("AOTC-I005", "external data outside the model's folder", INPUT,
     "An external data location is absolute or leaves the model's folder with '..'. Such a model could read any file "
     "on your machine.",
     "Save the model again with external data in its folder (onnx.save with save_as_external_data)."),
    ("AOTC-I006", "external data is a link", INPUT,
     "An external data file is a link that leads elsewhere, or leads in a circle, or is not a regular file. Links are "
     "followed within the model's folder, to the folder that the model's own link leads to, and to the blobs of the "
     "same hub, as caches of model hubs lay them; others could take any of your files into the artifact.",
     "Copy the model's folder with its links followed, and build from the copy: cp -rL FOLDER COPY."),
    ("AOTC-I007", "unknown data type", INPUT,
     "A tensor has an element type that ONNX does not define or that this toolchain cannot read.",
     "Export the model with a standard element type."),
    ("AOTC-I008", "opset newer than ONNX Runtime supports", INPUT,
     "The model imports an operator set that the installed ONNX Runtime does not officially support.",
     "Export with a lower opset, or convert it with onnx.version_converter, or use a newer ONNX Runtime."),
    ("AOTC-I009", "operator is unknown, or has no kernel", INPUT,
     "The installed ONNX Runtime does not know the operator, its domain or its version; or its CPU provider, whose "
     "answers are the reference, has no kernel for it, or none for the node's types, such as bfloat16.",
     "Check the operator's name, domain and version. If it is of a library of custom operators, name that with "
     "--custom-ops, or custom_ops in the profile. If the model computes in bfloat16, export it in float32, and set 'precision' in the profile."),
    ("AOTC-I010", "model is already compiled", INPUT,
     "The model holds com.microsoft::EPContext nodes: another toolchain compiled parts of it for one device. These "
     "parts cannot be analyzed, specialized or proven.",
     "Build from the original model."),
    ("AOTC-I011", "model draws random numbers", INPUT,
     "The profile or --random says 'refuse', and an operator such as RandomNormal, Multinomial, or Dropout in training "
     "form draws random numbers; or one does in a function of the model that cannot be inlined, as it is of another "
     "operator set.",
     "Let each call draw anew from the model's seeds (--random seed), let calls go on drawing (free) or pass the numbers "
     "(as-input), or export the model for inference."),
    ("AOTC-I012", "ONNX Runtime rejects the model", INPUT,
     "ONNX Runtime could not create a session for the original model; its own message is shown.",
     "Fix the model as the message says; onnx.checker.check_model often names the place."),
    ("AOTC-I013", "ONNX Runtime crashed", INPUT,
     "The sandboxed process that loaded or ran the model was killed by a signal such as SIGSEGV. The build itself is "
     "not affected.",
     "Report the model to ONNX Runtime, with the last lines of its log, which are shown."),
    ("AOTC-I014", "time limit reached", INPUT,
     "A sandboxed step ran longer than the profile's limit and was stopped.",
     "If the model is merely slow, raise limits.seconds in the profile."),
    ("AOTC-I015", "memory limit reached", INPUT,
     "A sandboxed step needed more memory than the profile's limit, or the operating system killed it because the "
     "machine ran out of memory.",
     "Raise limits.memory_bytes in the profile, or lower the bounds of the dims."),
    ("AOTC-I016", "IR version newer than ONNX Runtime supports", INPUT,
     "The model's IR version is newer than any that the installed ONNX Runtime reads.",
     "Save the model with a lower ir_version, or use a newer ONNX Runtime."),
    ("AOTC-I017", "output already exists", INPUT,
     "Something already exists at the output, and nothing is overwritten silently. --force replaces an artifact or a "
     "regular file, but never a link, a device, a pipe or any other folder.",
     "Choose another output with -o, or replace it with --force."),
    ("AOTC-I018", "no space left", INPUT,
     "The file system is full. No incomplete file was left in the output.",
     "Free space, or point TMPDIR and -o at a larger file system."),
    ("AOTC-I019", "an extra is not installed", INPUT,
     "This command needs packages that the base install leaves out.",
     "Install the extra that the message names."),
    ("AOTC-I020", "two ONNX Runtimes are installed", INPUT,
     "onnxruntime and onnxruntime-gpu install the same files, so together they break each other.",
     "pip uninstall onnxruntime onnxruntime-gpu, then install the one you want."),
    ("AOTC-I021", "no such profile or target", INPUT,
     "The name is neither built in nor the path of a readable YAML file.",
     "List what is built in with 'aotc profile list' or 'aotc target list'."),
    ("AOTC-I022", "profile or target is invalid", INPUT,
     "The YAML document does not match its schema; each problem is shown with its path.",
     "Fix the fields that are named; 'aotc profile check FILE' checks again."),
    ("AOTC-I023", "key file cannot be used", INPUT,
     "The file is not a PKCS#8 P-256 private key, a PEM public key, or a valid signer file.",
     "Create a key with 'aotc keygen -o NAME.pem'."),
    ("AOTC-I024", "fixtures cannot be used", INPUT,
     "The fixture file cannot be read, or its names, types or shapes do not match the model's inputs.",
     "Give a .npz whose keys are input names, or a folder of input_N.pb files."),
    ("AOTC-I025", "interrupted", 130,
     "The command was stopped by Ctrl-C or a termination signal. No incomplete file was left.",
     "Run it again."),
    ("AOTC-I026", "cannot write the output", INPUT,
     "The output's folder does not exist or is not writable.",
     "Create the folder, or choose another with -o."),
    ("AOTC-I027", "argument is not valid", USAGE,
     "An option such as --input or --dim, or another argument, does not have the form that the command takes.",
     "See the command's --help."),
    ("AOTC-I030", "onnx.checker rejects the model", FINDING,
     "The checker's verdict is recorded, but does not end the build: ONNX Runtime runs many models that the checker "
     "rejects.",
     "Nothing to do. If you maintain the exporter, fix it."),
    ("AOTC-I031", "nodes were renamed", FINDING,
     "Nodes with empty or duplicate names were given unique ones, so that the placement of each can be reported.",
     "Nothing to do."),
    ("AOTC-I032", "initializers are also graph inputs", FINDING,
     "Older exporters list weights among the graph inputs, which lets a caller override them and prevents constant "
     "folding. The artifact treats them as constants.",
     "Nothing to do. IR version 4 or later avoids it."),
    ("AOTC-I040", "training information is left out", FINDING,
     "The model holds information about its training (training_info), with tensors and graphs of its own. Inference "
     "does not use it, so the artifact leaves it out.",
     "Nothing to do."),
    ("AOTC-I041", "text of the model is not UTF-8", FINDING,
     "Names, dims or documentation are in another encoding, such as GBK or Latin-1. Bytes that are not valid UTF-8 "
     "appear as escapes (\\xbd) in the artifact and in reports.",
     "Nothing to do. For readable names, export the model with UTF-8 text."),
    ("AOTC-I042", "type of input or output is not supported", INPUT,
     "The inputs and outputs of an artifact are tensors, sequences, optionals and maps. The model has an input or "
     "output of another kind, such as a sparse tensor.",
     "Use dense tensors, and convert them to sparse tensors inside the graph."),
    ("AOTC-I043", "operating system error", INPUT,
     "The operating system refused an operation: too many open files or processes, a failing or read-only disk, a file "
     "without read permission, a folder that no longer exists. Neither the model nor ONNX Runtime is the cause.",
     "Fix what the message says, and run the command again."),
    ("AOTC-I070", "no model given", INPUT,
     "'aotc init' writes a profile for a model. If no model is given, it asks for one, which needs a terminal.",
     "Name the model: aotc init MODEL."),
    ("AOTC-I071", "model cannot be referenced from a CI job", INPUT,
     "The files of 'aotc init' refer to the model by its path in the project, where a CI job finds it too. This model "
     "lies outside the project, or its path has characters that have a meaning in a shell, in YAML or in a CI system.",
     "Move or rename the model, or run 'aotc init' in the project's folder."),
    ("AOTC-I072", "no calibration data", INPUT,
     "The profile asks for static quantization, which observes activations on samples of real inputs, but there are "
     "none: no data was given, the folder is empty, or its files hold no sample.",
     "Give data with --calibration or calibration.data, or choose 'quantization: {form: dynamic}', which needs none and "
     "leaves convolutions in float32."),
    ("AOTC-I073", "calibration data cannot be read", INPUT,
     "A file of the calibration data is damaged or incomplete, or is neither a .npz nor ONNX test data.",
     "Write the file again with numpy.savez, or give folders with input_0.pb and so on."),
    ("AOTC-I074", "calibration data does not fit the inputs", INPUT,
     "The names of the arrays or their types differ from those of the model's inputs. Nothing is converted: a wrong "
     "type often means that the data was not preprocessed.",
     "Give the arrays the names and types of the inputs; see 'aotc inspect MODEL'."),
    ("AOTC-I075", "calibration data has wrong shapes", INPUT,
     "The rank or a fixed size of an array differs from the input's, or a sample has sizes for which the model is not "
     "built.",
     "Give samples of sizes that the model accepts, or change the ranges under dims."),
    ("AOTC-I076", "calibration data is not finite", INPUT,
     "A sample holds NaN or infinity. The range of an activation would be infinite, and no scale can represent it.",
     "Fix or remove the sample; in a mask, use the lowest finite number instead of minus infinity."),
    ("AOTC-I077", "array of Python objects", INPUT,
     "A .npz file holds an array of Python objects. This is a pickle, which can run any code when it is read, so it is "
     "never read.",
     "Save arrays of numbers or of text: array.astype('float32'), or array.astype(str)."),
    ("AOTC-I086", "model changed while it was built", INPUT,
     "The model's file or its external data was written or replaced after the build had read it, so that the artifact "
     "would state one content and be proven against another.",
     "Build again while nothing writes the files, or build from a copy."),
    ("AOTC-I087", "fixtures contradict each other", INPUT,
     "Two of the fixtures have equal inputs and different expected outputs (output_N.pb, or arrays under the names of "
     "outputs in a .npz file). No model can give both answers.",
     "Remove the fixture that is wrong."),
    ("AOTC-I046", "document was made by a newer aotc", INPUT,
     "The document's schema is known, but its major version is later than this release supports. The document may be "
     "valid.",
     "Update aotc, or write the document for this release."),
    ("AOTC-I047", "report cannot be written", INPUT,
     "The command finished, but its report could not be written to the file that --report names. If a gate failed as "
     "well, the exit status is that of the gate.",
     "Create the folder, free space, or name another file."),
    ("AOTC-I048", "unknown report format", USAGE,
     "The format of a report follows from the suffix of its file.",
     "Name a file that ends in .json, .md, .xml (JUnit), .sarif, .codequality.json (GitLab) or .html."),
    ("AOTC-I049", "file named in a profile cannot be used", INPUT,
     "The profile is valid, but it names a file, such as its target, that is missing or not valid. The problem is "
     "reported with its line in that file.",
     "Fix the file, or name another."),
    ("AOTC-I050", "model failed its check", NO,
     "A model was not built, its artifact gives other answers than the model, or its outcome is worse than in the "
     "document that it was compared with.",
     "Read the reason in the message; 'aotc build' on the model alone shows more."),
    ("AOTC-I089", "kept answers are of another model", NO,
     "The model of this name is another file than the one whose answers were kept, or its external data differs, so "
     "that its answers say nothing of the runtime.",
     "Check the model that was kept, or keep the answers of the new one: run 'aotc check-models' with --output FILE "
     "--force, or --keep-answers FOLDER --renew-answers; --pattern renews those of one model."),
    ("AOTC-I090", "kept answers are of another seed", INPUT,
     "The inputs of kept answers were drawn from another seed than parity.seed of the profile.",
     "Use the profile that they were kept with, or keep the answers anew with --renew-answers."),
    ("AOTC-I091", "kept answers are damaged", INPUT,
     "A file in a folder of kept answers, or an entry in it or in a document, is missing, cannot be read, or differs "
     "from its digest.",
     "Restore the folder or the document from where it was copied, or keep the answers anew with --renew-answers."),
    ("AOTC-I092", "kept answers are in another form", INPUT,
     "answers.json in the folder was not written by 'aotc check-models --keep-answers', or by a release that keeps "
     "answers in another form.",
     "Use the release that kept them, or keep the answers anew with --renew-answers."),
    ("AOTC-I100", "library of custom operators cannot be read", INPUT,
     "The file that --custom-ops or custom_ops of the profile names is not there, is a folder, a pipe or a device, is "
     "behind links that lead in a circle, or may not be read.",
     "Name the library's file. That of a Python package lies in the package's folder."),
    ("AOTC-I101", "file is no library of custom operators", INPUT,
     "The file is empty, cut off, text or a program, and not a shared library of Linux (ELF). Libraries of other "
     "systems cannot be registered here.",
     "Name the shared library (.so) itself, not an archive or a wheel with it."),
    ("AOTC-I102", "library of custom operators is for another machine", INPUT,
     "The library is for another architecture than this machine or the target, or for another Python than this one. "
     "The reference answers are computed with it here, so it has to fit both.",
     "Take the library for this machine, in the same version, or build on a machine that it is for."),
    ("AOTC-I103", "library registers no operators", INPUT,
     "The library does not export the function RegisterCustomOps, by which ONNX Runtime asks it for its operators.",
     "Name the library of operators, not one that it uses; or export the function with C linkage."),
    ("AOTC-I104", "library of custom operators needs further files", INPUT,
     "The library states libraries beyond those of C and C++, or folders to search. The loader would take whatever "
     "files it finds there, whose digest nobody knows.",
     "Link it with its libraries statically, and without a search path (readelf -d shows NEEDED, RPATH and RUNPATH)."),
    ("AOTC-I105", "library of custom operators was changed", INPUT,
     "The file's digest is not the one that custom_ops of the profile states.",
     "Take the library that was meant; if the new one is, state its sha256 in the profile."),
    ("AOTC-I106", "library of custom operators cannot be registered", INPUT,
     "ONNX Runtime could not load the library, or its own function failed: two libraries have operators of one "
     "domain, it is for a later ONNX Runtime, or the folder of the build is mounted without the right to run code.",
     "Do as the message says. To build elsewhere, name another folder with --output."),
    ("AOTC-I107", "library of custom operators is not used", FINDING,
     "None of the model's operators is the library's own. It is registered, and shipped or required, all the same.",
     "Leave it out, unless it replaces kernels of operators that ONNX Runtime has."),
    ("AOTC-I094", "output is listed twice", FINDING,
     "The graph lists an output more than once. ONNX Runtime answers with the same value each time; the artifact, "
     "whose outputs have names, has it once.",
     "Nothing to do. If you maintain the exporter, list each output once."),
    ("AOTC-I095", "input is copied by each call", FINDING,
     "ONNX Runtime reads elements in C order, one after the other. An array in another order, such as a transposed "
     "one, one in Fortran order or a slice, is copied by each call that passes it.",
     "Pass numpy.ascontiguousarray(array), and make it once where it is passed often."),
    ("AOTC-I096", "random numbers cannot be an input", INPUT,
     "With 'as-input' each node's random numbers become an input, so that their shape must be told by the sizes and dims "
     "of the model's inputs. Here it follows from values, is computed from dims, or the node is in the body of a loop, "
     "which draws in each trip.",
     "Build with --random seed, so that every call draws anew from the model's seeds, or with free, if it has none: "
     "calls then go on drawing."),
    ("AOTC-I097", "node has no seed", INPUT,
     "With 'seed' every call draws anew from the seeds that the model's nodes have as an attribute. The named node has "
     "none, or one that is no whole number from 0 to 4294967295.",
     "Set the attribute 'seed' of the node and save the model; or build with --random free, which gives each such node "
     "a seed from which the calls of a loaded model go on, or with --random as-input."),
    ("AOTC-I098", "model draws random numbers", FINDING,
     "The named node draws random numbers, on which the named outputs depend. With 'free', the default, the first call "
     "after a load draws from the seeds, and later ones go on, as in a session of ONNX Runtime. With 'seed' every call "
     "draws anew from the model's seeds: equal inputs give equal bytes, and each call opens a session. With 'as-input' "
     "the graph draws none, and calls pass them; the manifest tells from which distribution.",
     "Nothing to do. To have it otherwise, build with --random; 'refuse' refuses such models."),
    ("AOTC-I110", "statement of values is not valid", INPUT,
     "The profile, or --value, states values of an input that contradict each other: min above max, bounds beside "
     "values, one value twice, or text and numbers. Or a bound is neither a number nor a sum of dims.",
     "State min and max, or one of them, or values. A bound in text is a dim or a sum such as time - 1."),
    ("AOTC-I111", "stated values are none of the input", INPUT,
     "A stated value has a fraction, is too large or is text where the input's type has no such values; or the input "
     "is no tensor of numbers or text: values of sequences, optionals, maps, truths, complex numbers and numbers "
     "below a byte or of 8-bit floats cannot be stated.",
     "State values of the input's own type, as `aotc inspect MODEL` shows it."),
    ("AOTC-I112", "sample has a value that the profile excludes", INPUT,
     "A fixture, a calibration sample or a labelled sample has a value outside of those that the profile states of "
     "the input, or NaN.",
     "Leave the sample out, or state what callers really pass: inputs.NAME.min, max or values."),
    ("AOTC-I113", "inputs cannot be made", INPUT,
     "The artifact holds no fixture, and no input was given. Inputs are made of the types and the sizes in the manifest; "
     "here one is text, a sequence or the like, or the model does not run with those that were made.",
     "Give inputs with --input."),
    ("AOTC-I114", "inputs were made", FINDING,
     "The artifact holds no fixture, and no input was given. So inputs were drawn from a seed, at the optimal sizes, "
     "within the ranges that they had in the proof. Times are those of real inputs wherever time does not depend on "
     "values; answers say nothing.",
     "Nothing to do. To use your own, give inputs with --input."),
    ("AOTC-I115", "calibration data is all zeros", INPUT,
     "Every sample of the calibration data is 0 in all inputs. No scale follows from it, and "
     "the variant would be judged by the same zeros.",
     "Give samples of real inputs, preprocessed as calls are."),
    ("AOTC-I118", "one of several variants is exported", FINDING,
     "The artifact has several variants, and an export holds one, so that calls are not routed among them. Without "
     "--variant it is the one that this host would load, else the first that needs no CPU feature.",
     "Name another with --variant, and export each into a folder of its own."),
    ("AOTC-I119", "variant cannot be exported", INPUT,
     "The variant consists of several graphs by size, of which a folder holds one; or two of its files would have one "
     "name there, or one would lie outside.",
     "Name one of its graphs with --variant: 'aotc inspect ARTIFACT' lists them."),
    # sources of frameworks
    ("AOTC-I120", "program cannot be loaded", INPUT,
     "PyTorch cannot load the exported program: a newer version saved it, or the file is damaged. What saved it and "
     "what is installed is shown.",
     "Install the version of torch that saved it, or a newer one; or export the program again with the installed one."),
    ("AOTC-I121", "framework cannot export the source", INPUT,
     "The framework's own exporter to ONNX ended with an error. The operator and the line of the user's code that calls it "
     "are shown where the exporter names them.",
     "Change the line that is named, or install a newer version of the framework or its exporter."),
    ("AOTC-I122", "program is for another device", INPUT,
     "Weights or constants of the exported program are on a device such as CUDA. The reference is computed on the CPU.",
     "Move it before saving: torch.export.passes.move_to_device_pass(program, 'cpu'); or export the module on the CPU."),
    ("AOTC-I123", "source has no dynamic dims", FINDING,
     "All inputs of the captured program have fixed sizes: the artifact takes these only.",
     "Export with dynamic_shapes, such as {'x': {0: torch.export.Dim.AUTO}}, if calls have other sizes."),
    ("AOTC-I124", "dim that was asked to be dynamic is static", FINDING,
     "The framework made a dim static that the user asked to be dynamic, as the code takes one size only or decides by "
     "it. The artifact takes that size only.",
     "Change the code that is named so that it takes other sizes; or state the size, if there is only one."),
    ("AOTC-I125", "program changes its buffers", INPUT,
     "A call of the program changes buffers or inputs, which the next call would read. An ONNX model keeps nothing "
     "between calls.",
     "Pass the state as an input and return it as an output; or call module.eval() before the export, if they are "
     "statistics of training."),
    ("AOTC-I126", "framework does not answer", INPUT,
     "The framework itself fails on inputs that the exported ONNX model answers: there is no reference to compare with.",
     "Bound the dims to the sizes that the framework takes (--dim), or give inputs that it takes with --fixtures."),
    ("AOTC-I127", "source runs code", INPUT,
     "Capturing this source runs code of it, which could do anything that you can.",
     "If you trust its author, add --trust-source; or export it to a format that holds no code, such as .pt2."),
    ("AOTC-I128", "dims are static, which the profile's gate forbids", NO,
     "The profile says 'gates: {dims: dynamic}', and a dim that was asked to be dynamic has one size in the captured "
     "program, or none of its dims is free.",
     "Change the code that is named so that it takes other sizes, and state dynamic_shapes in the export; or take the "
     "gate out of the profile."),
    ("AOTC-I129", "framework's answers are no reference", FINDING,
     "The answers of the framework could not be compared with, as the finding says. The exported ONNX model, without "
     "optimizations, is the reference alone: what the exporter changed is not known.",
     "Nothing to do, if you trust the exporter."),
    # files of exported programs
    ("AOTC-I130", "archive of a program is malformed", INPUT,
     "The structure of the .pt2 file is not as PyTorch writes it: cut off, compressed, encrypted, with two files of one name, "
     "links, names that lead out of a folder, bytes between its files, or lists that contradict each other. Two readers "
     "could find different programs in it.",
     "Download it again, or save the program again with torch.export.save, and do not pack it anew with other tools."),
    ("AOTC-I131", "program holds a pickle", INPUT,
     "Sample inputs, weights or constants of the exported program are objects of Python, kept as pickles (also custom_obj_ "
     "and opaque_obj_). Whoever unpickles them runs what their author wrote.",
     "Save it without: program.example_inputs = None before torch.export.save; and export it without custom objects and "
     "subclasses of tensors."),
    ("AOTC-I132", "file of PyTorch without an exported program", INPUT,
     "PyTorch wrote the file, but it is something else than an exported program of today's form: a program of an older "
     "version, compiled code of AOTInductor, TorchScript, weights, or several programs.",
     "Export the module and save it: torch.export.save(torch.export.export(module, inputs, dynamic_shapes=...), 'model.pt2')."),
    ("AOTC-I133", "program is of another version", INPUT,
     "The version of the archive, of the program's schema or its dialect is not one that is read, or the program says more "
     "than that version has.",
     "Save it again with a version of PyTorch that this version of aotc knows, or use a newer aotc."),
    ("AOTC-I134", "description of a program is malformed", INPUT,
     "The JSON of the exported program or of its weights is not strict JSON, is too large or too deep, or is not of the form "
     "that PyTorch's schema gives it.",
     "Download the file again, or save the program again with torch.export.save."),
    ("AOTC-I135", "program holds text that would run as code", INPUT,
     "PyTorch evaluates expressions of sizes, pastes names into the source of functions, and follows names of operators and "
     "types. In this program one of them is something else than that: the file was made to run code where it is loaded.",
     "Do not load the file with PyTorch. Get the program from its author; export it again if you are that."),
    ("AOTC-I136", "operator of a program is not read", INPUT,
     "The exported program uses an operator of a library that neither PyTorch nor torchvision brings, one that reads or writes "
     "files, or one without a counterpart in ONNX.",
     "Decompose it before saving (program.run_decompositions), or write that part of the module with operators of torch."),
    ("AOTC-I137", "weights of a program do not fit", INPUT,
     "A weight or constant of the exported program is missing, is sparse, or has a type or sizes that its bytes are not of.",
     "Download the file again, or save the program again with torch.export.save."),
    ("AOTC-I138", "importer could not be shut in", FINDING,
     "The process that captured the source could reach a network, write files elsewhere or start programs: the system grants "
     "no namespaces or no Landlock.",
     "Nothing to do for sources that you trust. For others, build where the kernel grants both; the evidence says it."),
    ("AOTC-I140", "folder names no model", INPUT,
     "A folder of Hugging Face's hub has no config.json, or one that names no architecture: it holds a pipeline of several "
     "models, an adapter, or something else.",
     "Build the folder of one model, as save_pretrained writes it."),
    ("AOTC-I141", "library has no such architecture", INPUT,
     "The configuration names a class that the installed transformers or diffusers does not have.",
     "Install a newer version, or the one that the model's page names; or add --trust-source where the folder brings code "
     "of its own that you trust."),
    ("AOTC-I142", "weights are quantized", INPUT,
     "The folder's weights were quantized for another runtime (such as GPTQ, AWQ or bitsandbytes), whose kernels no ONNX "
     "model has.",
     "Build from the model that was quantized, and set 'precision' in the profile."),
    ("AOTC-I143", "weights are not in safetensors", INPUT,
     "The folder has weights as a pickle (pytorch_model.bin), whose loading runs code of whoever wrote it, or for another "
     "framework. Only safetensors are read.",
     "Use a revision that has safetensors (many have, as a pull request of the hub's own: --revision refs/pr/N), or load it "
     "where you trust it and call save_pretrained(FOLDER)."),
    ("AOTC-I144", "folder has no weights", INPUT,
     "The folder of a model holds no weights, such as a checkout without its large files.",
     "Fetch them: hf download ORG/NAME, or git lfs pull in a checkout."),
    ("AOTC-I145", "weights are incomplete", INPUT,
     "A shard that the index names is missing, lacks tensors, was cut short, or is a pointer of Git LFS in place of the file.",
     "Fetch the folder again: hf download ORG/NAME, or git lfs pull in a checkout; compare sizes with the hub's."),
    ("AOTC-I146", "weights are not the architecture's", INPUT,
     "The weights lack tensors that the architecture has, or have them in other shapes. The library would fill them with "
     "random numbers.",
     "Name in 'architectures' of config.json the class whose weights they are; or train and save the missing part."),
    ("AOTC-I147", "hub has no such model, or does not answer", INPUT,
     "hf://ORG/NAME@REVISION is neither in the local cache (HF_HOME) nor to be had of the hub.",
     "Check the name and the revision; fetch it where there is a network: hf download ORG/NAME --revision REVISION."),
    ("AOTC-I148", "inputs of the model are not known", INPUT,
     "The model's forward takes inputs whose shapes and values cannot be told from its configuration.",
     "Write a function that returns the model and example inputs, and build it: aotc build MODULE:FUNCTION --trust-source; "
     "or export it with torch.export.save and build the .pt2."),
    ("AOTC-I150", "there is no such callable", INPUT,
     "The module of 'package.module:callable' is not found, or has no such name, or what is called so cannot be called. "
     "Modules are found in the working directory, in PYTHONPATH, and where they are installed.",
     "Call aotc in the folder that holds the package; try: python -c 'import package.module as m; m.callable()'."),
    ("AOTC-I151", "callable raised an exception", INPUT,
     "The user's own code, which makes the model, raised an exception. The innermost line of the user's code is shown.",
     "Call it without aotc to see all of the traceback: python -c 'import package.module as m; m.callable()'."),
    ("AOTC-I152", "capturing process ended", INPUT,
     "The sandboxed process that captures a source ended: the user's code called sys.exit or os._exit, or native code of "
     "the framework crashed. The build itself is not affected.",
     "Take sys.exit out of the code that makes the model. If the framework crashed, report it there, with its last lines, "
     "which are shown."),
    ("AOTC-I153", "source gives no model", INPUT,
     "A callable returned, or a file holds, something else than a model that can be captured: it has no example inputs, "
     "is not fitted, or is of another kind.",
     "Return (module, example inputs) of PyTorch or (function, example inputs) of JAX, with dynamic_shapes after them if "
     "dims are free; or an exported program, or a fitted estimator."),
    ("AOTC-I154", "callable left processes or threads", FINDING,
     "After the user's code had returned, processes or threads that it started were still there. They were ended, and "
     "no part of the capture.",
     "Nothing to do, if the model does without them. Else wait for them in the callable."),
    ("AOTC-I155", "callable prints", FINDING,
     "The user's code wrote to its standard output or error. That is left out: answers of aotc are its own.",
     "Nothing to do. Call it without aotc to see what it prints."),
    ("AOTC-I156", "callable gives another model each time", INPUT,
     "The callable is called once to capture the model, and once more in a process of its own whose answers are the "
     "reference. The two models answer the same example otherwise: weights are drawn anew, or the model draws numbers "
     "itself.",
     "Load the weights from a file, or seed before they are drawn; call module.eval() if it has dropout."),
    ("AOTC-I157", "library and exported model compute otherwise", FINDING,
     "The library compares or computes in float64, and the exported model in float32; or another version of the library "
     "saved the file. A value next to a threshold of a tree may go the other way, as skl2onnx documents. Answers were "
     "compared with the library's own on all fixtures.",
     "Nothing to do, if inputs are rarely that near to a threshold. Give inputs of your own with --fixtures to have "
     "those compared; train on float32."),
    ("AOTC-I158", "file holds types that are not trusted", INPUT,
     "skops makes only types that it knows to run no code. The file holds others, which are named.",
     "Look at the types that are named. If you trust them and the author of the file, add --trust-source."),
    ("AOTC-I159", "file of a library cannot be loaded", INPUT,
     "The library that should have written the file cannot read it: it is damaged, of another version, or not its own.",
     "Save the model again with the library, or install the version that saved it."),
    ("AOTC-I160", "file of a fleet is invalid", INPUT,
     "The file that names models, profiles and targets cannot be read as YAML, or does not match its schema.",
     "Mend the lines that are named; the schema is profiles/fleet.schema.json."),
    ("AOTC-I161", "fleet names no such model", INPUT,
     "A model of a fleet's file is not there, or a glob matches no file. Paths are relative to the folder of the file.",
     "Mend the path or the glob; write '**' for folders at any depth."),
    ("AOTC-I162", "fleet names a profile or a target that cannot be used", INPUT,
     "A profile or a target of a fleet's file is neither built in nor a file relative to the folder of the fleet's file, or "
     "it is invalid.",
     "See 'aotc profile list' and 'aotc target list', or name a YAML file."),
    ("AOTC-I163", "two cells have one output", INPUT,
     "Two cells of a fleet would write one artifact, or one within the other.",
     "Put {model}, {profile} and {target} into 'output', or give a row an output of its own that matches one cell."),
    ("AOTC-I164", "no worker can build the cell", INPUT,
     "No machine of the executor has what the cell asks for: cores, memory, GPUs, or a resource by name.",
     "Run the fleet where there is such a machine (--on), lower 'needs', or exclude the cell."),
    ("AOTC-I165", "output of a fleet is no path", INPUT,
     "The template of an output has a name in braces that is not known, or an open brace.",
     "Use {fleet}, {model}, {profile} and {target}; in 'merged_output' {fleet}, {model} and {profile}."),
    ("AOTC-I166", "nothing to build", INPUT,
     "All cells of the fleet are excluded, or none matches --only.",
     "Match names of cells, MODEL/PROFILE/TARGET, such as --only 'resnet*/*/host'; --plan shows them all."),
    ("AOTC-I167", "row matches no cell", INPUT,
     "A row or an exclusion of a fleet's file matches none of its cells, so that it would be without effect.",
     "Mend the globs of 'match', which are of names as --plan shows them, or delete the row."),
    ("AOTC-I168", "result of a cell could not be kept", FINDING,
     "What became of a cell could not be written into the folder of the fleet's state. The artifact stands; the next run "
     "builds the cell again, from the build cache where it can.",
     "Free space there, or name another folder with --state."),
    ("AOTC-I170", "Ray cannot be started or joined", INPUT,
     "'--on ray' starts Ray on this machine, and '--on ray://HOST:PORT' joins the cluster whose head is there; that failed.",
     "See what is found. The port is that of 'ray start --head --port=6379', and this machine must be a node of the cluster: "
     "ray start --address=HOST:PORT --num-cpus=0."),
    ("AOTC-I171", "no token for the cluster", INPUT,
     "Clusters are joined with Ray's token authentication alone, as who reaches a cluster without it runs code on all of "
     "its machines.",
     "Make a token once (ray get-auth-token --generate), have it in ~/.ray/auth_token of each machine, and start each node "
     "with RAY_AUTH_MODE=token."),
    ("AOTC-I173", "shared folder cannot be used", INPUT,
     "AOTC_FLEET_SHARED names a folder that all machines see under one path, for large files. On this machine or on a "
     "worker it is not there, cannot be written, or is full.",
     "Mount it on every machine, or unset AOTC_FLEET_SHARED: then all files go through Ray's object store."),
    ("AOTC-I174", "clocks are apart", FINDING,
     "The clock of a worker is more than a second from that of the machine that started the fleet. Times in what it signs "
     "are the worker's. Limits of time are measured on each machine by itself.",
     "Synchronise the clocks (NTP). A worker whose clock is a minute off is not used: AOTC-R056."),
    ("AOTC-I184", "artifact is not as required on a host", NO,
     "Of the artifacts and hosts of 'aotc fleet verify' one does not have the verdict that --require asks for, or an "
     "artifact runs on none of the hosts. The codes that are named say what the host lacks.",
     "Build for that host, or leave the host or the artifact out. 'aotc explain CODE' explains each code."),
    ("AOTC-I185", "two hosts have one name", INPUT,
     "A matrix has a column for each host: a built-in target, a target file by its file's name, or a live worker. Two of "
     "them have one name.",
     "Rename one of the target files."),
    ("AOTC-I186", "reports are of different fleets", INPUT,
     "Reports are joined if they are of one fleet, of the same cells and of as many shards.",
     "Give the reports of one run of one fleet file, each shard with the same --shard I/N."),
    ("AOTC-I187", "reports contradict each other", INPUT,
     "Two reports have the same cell, and another outcome or another artifact of it.",
     "Leave out the report that is not of this run."),
    ("AOTC-I188", "reports of shards are missing", INPUT,
     "Some shards of the fleet are in none of the reports, so nothing is known of their cells.",
     "Give their reports, too, or --partial to join what is there."),
    ("AOTC-I189", "fleet cannot be divided so", INPUT,
     "A CI job runs on one kind of machine, and so each shard has cells that ask for the same. There are fewer shards "
     "than kinds of machines, or a name of the fleet means something else to the CI system.",
     "Ask for more shards, or give cells the same 'needs'; use letters, digits, spaces and ./_+@=,- in names."),
    ("AOTC-I176", "artifacts are of different models", INPUT,
     "Artifacts are merged that were built from different models, or have different names: the digest of the model, "
     "of its external data or of its framework's source differs.",
     "Merge builds of one file. Build them again from the same one, if it changed in between."),
    ("AOTC-I177", "artifacts take different calls", INPUT,
     "Artifacts are merged that have other inputs or outputs, other ranges of dims, other padding, or whose profiles "
     "state these differently: a call could be valid for one variant and not for another.",
     "State the ranges in the profile or with --dim, so that no host searches for its own, and build again."),
    ("AOTC-I178", "artifacts promise different things", INPUT,
     "Artifacts are merged whose profiles differ in what they promise of every variant: tolerances, gates, repeated "
     "calls, strictness, random numbers, the fallback policy, libraries of operators, or telemetry.",
     "Build all of them with the same promises; variants, providers and budgets may differ."),
    ("AOTC-I179", "fixtures contradict each other", INPUT,
     "Artifacts are merged with a fixture of one name but other inputs, or for which the original model gave answers "
     "that are further apart than its own tolerance: the variants were not proven against the same thing.",
     "Embed the same fixtures in each build, and build with the same versions; 'aotc diff A B' shows both answers."),
    ("AOTC-I180", "variant was renamed", FINDING,
     "Artifacts that were merged have different variants of this name. None keeps it: each gets what tells its "
     "artifact from the others, which is the target, the CPU features, the version of ONNX Runtime, or its id.",
     "Nothing to do. To choose the names yourself, give the variants of the profiles different names."),
    ("AOTC-I181", "manifest of another version cannot be merged", INPUT,
     "The artifact was made by another release of aotc, with a manifest of another version: what this release does not "
     "know of it would be lost.",
     "Merge with the newest release that built one of them, or build again with this one."),
    ("AOTC-I182", "artifact is given twice", INPUT,
     "Fewer than two different artifacts are merged, a build is in two of them by different names of its variants, or "
     "the output is one of them or in one.",
     "Name each artifact once, and an output that is none of them."),
    ("AOTC-I183", "attestation of a merged artifact is missing", INPUT,
     "Evidence, provenance or bill of materials of an artifact that is merged is missing, is signed by nobody whom you "
     "trust, or is about another artifact, so that the merged one could not show where its variants were proven.",
     "Merge artifacts as 'aotc build' wrote them, and trust who signed their attestations."),
    ("AOTC-I210", "registry holds no artifact there", NO,
     "The reference names something else than an artifact that 'aotc push' wrote: an index of several images, an image "
     "without layers of an artifact, or an artifact of another kind.",
     "Check the reference; of an index, name one of its manifests by its digest."),
    ("AOTC-I211", "layer of a kind that no artifact has", NO,
     "A layer in the registry is compressed, of an unknown media type, lies over those of the artifact, or is to be fetched "
     "from another place. 'aotc push' writes none of these, and none is read.",
     "Push the artifact again with 'aotc push'; copy it with a tool that keeps manifests as they are."),
    ("AOTC-I213", "path in a registry is refused", NO,
     "A layer names a path that leaves the artifact's folder, is outside of its payload and attestations, is there twice, or "
     "is the same as another one on some file system; or a layer's title is not its path.",
     "Push the artifact again with 'aotc push'."),
    ("AOTC-I214", "tar layer is malformed", NO,
     "Every byte of a tar layer that is not content follows from the paths and sizes of the files. In this one some differ: "
     "links, folders, times, owners, another order, or bytes between the files.",
     "Push the artifact again with 'aotc push'; if it was, the registry has other bytes than it was given."),
    ("AOTC-I215", "attestation belongs to something else", NO,
     "The registry lists a manifest as an attestation of the artifact, and that manifest names another subject. It may "
     "have been listed by mistake, or by who hopes that nobody looks.",
     "Remove it from the list: the fallback tag sha256-DIGEST of the repository, or what the registry offers for it."),
    ("AOTC-I216", "nothing can be pushed to this reference", INPUT,
     "An artifact is pushed to HOST/REPOSITORY, by tags. Its digest follows from its content, and cannot be chosen; and "
     "registries without the referrers API keep lists of attestations under tags sha256-DIGEST.",
     "Leave out the digest, or take another tag; 'aotc push' prints the digest that the artifact has."),
    ("AOTC-I217", "base image cannot be used", INPUT,
     "The layers of an artifact can lie over those of a base image, which --base names. It is not an image, is for another "
     "architecture or system than the artifact, or has too many layers.",
     "Name an image for the artifact's architecture, such as one with a shell and nothing else, best by its digest."),
    ("AOTC-I190", "ONNX Runtime to compare with is not stated", INPUT,
     "--to and --from of 'aotc fleet upgrade' take a version, the file of a wheel, a file of requirements that names ONNX "
     "Runtime, or the folder of an environment.",
     "State one of these, such as --to 1.32.0; check the path."),
    ("AOTC-I191", "environment cannot be made", INPUT,
     "A virtual environment with the other ONNX Runtime is made below the user's folder for caches (XDG_CACHE_HOME), by venv "
     "and pip, which use this user's settings. What pip said is shown.",
     "Check that the version exists for this Python and machine (pip download --no-deps onnxruntime==VERSION), that the "
     "index can be reached, and that there is room; or download a wheel and name its file."),
    ("AOTC-I192", "file is no wheel of ONNX Runtime for this machine", INPUT,
     "The file is not a wheel, or one of another package, of another distribution of ONNX Runtime than is installed here, or "
     "for another Python or machine.",
     "Name a wheel of the distribution that is installed, for this Python and machine."),
    ("AOTC-I193", "environment has no usable ONNX Runtime", INPUT,
     "Both sides of a comparison build and run models on ONNX Runtime's CPU provider, with this version of aotc. In the "
     "environment ONNX Runtime cannot be imported, has no such provider, or aotc is missing or of another version.",
     "Name a version or a wheel, for which an environment is made; or mend that environment: its "
     "'python -c \"import aotc, onnxruntime\"' must succeed."),
    ("AOTC-I194", "version of ONNX Runtime was not tried", INPUT,
     "aotc builds for two minor versions of ONNX Runtime, of which it knows the kernels and what variants may require. With "
     "another one builds may fail or be refused for reasons that a later aotc does not have.",
     "Take an aotc that was tried with that version; or go on all the same: --force."),
    ("AOTC-I195", "artifact is slower with the other ONNX Runtime", NO,
     "The artifact that the other version built is slower than the one of this version: both were called by turns in three "
     "pairs of processes, and each time the whole 95 % interval of the ratio was above --allow.",
     "Measure on the machine that will serve it; report it to ONNX Runtime with the model; or stay with this version. "
     "'aotc bench --nodes' shows the time of each node."),
    ("AOTC-I196", "reference is not valid", USAGE,
     "A reference names a registry's host, a repository in lower case, and a tag or a sha256 digest.",
     "Write oci://HOST[:PORT]/REPOSITORY[:TAG][@sha256:DIGEST], such as oci://ghcr.io/acme/digits:1.2."),
    ("AOTC-I197", "registry cannot be reached", INPUT,
     "No connection to the registry, or to a host that it sends to for content or tokens: the name is not known, "
     "nothing listens there, or a proxy refuses.",
     "Correct the host and port; check the network, and HTTPS_PROXY and NO_PROXY where a proxy is used."),
    ("AOTC-I198", "registry's certificate is not trusted", INPUT,
     "The connection is encrypted, but nothing that is trusted here vouches for the host; or the host speaks plain HTTP.",
     "Name the CA of the registry: --ca FILE, or AOTC_OCI_CA. For a registry that speaks plain HTTP: --plain-http, "
     "or its host in AOTC_OCI_PLAIN_HTTP."),
    ("AOTC-I199", "registry refuses the credentials", INPUT,
     "The registry wants a login that docker's configuration lacks, or the login may not do this there. Many registries "
     "also answer so for a repository that does not exist.",
     "Log in with 'docker login HOST', or put the configuration of a CI into DOCKER_CONFIG or DOCKER_AUTH_CONFIG; ask the "
     "registry's owner for the right."),
    ("AOTC-I200", "docker's credentials cannot be read", INPUT,
     "docker's configuration is not JSON of its form, or the credential helper that it names is missing or fails.",
     "Repair the file ('docker login' writes it), install the helper, or remove its line."),
    ("AOTC-I201", "not in the registry", INPUT,
     "The registry has no such repository, tag, manifest or blob.",
     "Correct the reference; where a blob of a manifest is gone, push the artifact again."),
    ("AOTC-I202", "registry refuses or fails", INPUT,
     "The registry answered with an error. What passes by itself (429 and 5xx) was tried again, as long as the registry "
     "asked and at most a minute each time.",
     "Read the registry's message; try again later where it is busy."),
    ("AOTC-I203", "registry sends elsewhere", NO,
     "The registry redirects to where aotc does not follow: from HTTPS to plain HTTP, to a host of this machine or its "
     "link (127.0.0.1, 169.254.169.254) from outside, to another kind of address, or more than five times.",
     "Ask the registry's owner; behind a proxy, a registry must know its own address (such as http.host of "
     "docker-registry). Plain HTTP is spoken to hosts in AOTC_OCI_PLAIN_HTTP."),
    ("AOTC-I204", "transfer is cut", INPUT,
     "The connection ended before all bytes were there, again and again, though each attempt went on from where the one "
     "before it ended.",
     "Try again: what was transferred is not transferred again. See whether a proxy limits time or size."),
    ("AOTC-I205", "registry's content is not what it says", NO,
     "Bytes that came from the registry, or their number, are not those of the digest and size by which they were asked "
     "for; or it took other bytes than were sent.",
     "Take the artifact from another registry or push it again; a proxy in between may change content."),
    ("AOTC-I206", "registry sends too much", NO,
     "A manifest or an answer is larger than 4 MiB, or an artifact has more than 1,000 referrers, or 4 MiB of them.",
     "Nothing that aotc pushes is as large; see with another client what is there."),
    ("AOTC-I207", "answer is not that of a registry", NO,
     "The answer lacks what the distribution specification demands, is no JSON of its form, or is encoded.",
     "Check that the host is an OCI registry, and that no proxy or login page answers in its place."),
    ("AOTC-I208", "certificates cannot be read", INPUT,
     "The file of --ca or AOTC_OCI_CA is missing, or has no certificates in PEM.",
     "Name a file with the certificate of the registry's CA in PEM (-----BEGIN CERTIFICATE-----)."),
    ("AOTC-I209", "list of referrers does not settle", INPUT,
     "The registry has no referrers API, so that attestations stand in an index under a tag; others wrote that "
     "index each time that this one was added.",
     "Try again once the other push has ended."),
    ("AOTC-I218", "tag was resolved to a digest", FINDING,
     "The artifact was named by a tag, which whoever may push to the repository can move. It was resolved once, when the "
     "artifact was opened; all that follows is about the digest that is shown.",
     "Name the artifact by that digest where each load is to be of the same one: oci://HOST/REPOSITORY@sha256:DIGEST."),
    ("AOTC-I219", "registry was not reached, and the store's copy taken", FINDING,
     "The artifact was named by its digest, the registry did not answer, and the store has what was pulled by that digest. "
     "It was verified as any other, with the attestations that it had when it was pulled last: those that the registry "
     "got since are not known here. A tag is never looked up in the store.",
     "See why the registry does not answer; pull again once it does, where new attestations count."),
    ("AOTC-I225", "server cannot run the variant as proven", INPUT,
     "The export is for Triton's ONNX Runtime backend, which takes tensors of its own types alone, and runs graphs on the "
     "CPU or CUDA provider, with optimization levels of its own and without libraries of operators that lie in the "
     "artifact. What the variant has instead is shown.",
     "Export another variant (--variant: 'aotc inspect ARTIFACT' lists them), or as onnx for a server that takes it."),
    ("AOTC-I226", "model name is not one that the server takes", INPUT,
     "A server knows a model by the name of its folder, and KServe also by that of its service, which is part of a host "
     "name: not every name of an artifact can be one.",
     "Give the model another name there with --name."),
    ("AOTC-I227", "server does not set options of the proof", FINDING,
     "The variant was proven with session options that the server's configuration cannot express, and that it runs "
     "without: answers and times may differ from those of the proof.",
     "Compare its answers with the artifact's fixtures on the server; or build the variant without these options."),
    ("AOTC-I228", "export cannot be verified in place", INPUT,
     "There is no export at the path, or it was made without --reverify, and has neither the signed manifest nor the "
     "signatures. An export for KServe has what is verified in its folder 'models'.",
     "Export it with --reverify, and give the folder that the server reads."),
    ("AOTC-I229", "option does not fit the export", INPUT,
     "An export of the format onnx has no name of a model; and an export is verified for no host, as its server has an "
     "ONNX Runtime of its own.",
     "Leave the option out."),
    ("AOTC-I230", "artifact is in no form that a pod mounts", FINDING,
     "The service of an export for KServe mounts the artifact as an image volume, and Kubernetes mounts images, not "
     "ModelPack manifests.",
     "Push it as an image, too: 'aotc push ARTIFACT REF --form image'; or take what clusterstoragecontainer.yaml says."),
    # building an artifact again
    ("AOTC-I231", "recorded package is not to be had", INPUT,
     "The index has no wheel of the version that the artifact records, for the recorded Python and this machine; it may have "
     "been removed from there. What pip or uv said is shown.",
     "Give pip a folder that has the wheel (PIP_FIND_LINKS), or pip or uv an index that keeps it; or build in this "
     "environment, which is told as a difference: --here."),
    ("AOTC-I232", "artifact does not record how it is built again", INPUT,
     "Building an artifact again needs its provenance by one of its signers: environment, target and options. It is missing, "
     "was made by an earlier aotc, or tells of something that nobody else has, such as a module in memory; or the artifact was "
     "merged.",
     "Build the artifact with this aotc, or later; of a merged one, build those again that it was merged from."),
    ("AOTC-I233", "model is not the one that was built", INPUT,
     "The digest of the model, or of a file of its external data, is not the recorded one, so the artifact cannot be built "
     "of it.",
     "Give the very file; 'aotc inspect' shows the digest of the model that an artifact was built from."),
    ("AOTC-I234", "data of the build is not here", INPUT,
     "Besides the model, the build read data or libraries that its profile or its command named: fixtures, calibration data, "
     "a labelled set, a plugin, custom operators. One of them is not where it is looked for, or has another digest.",
     "Give the folder that has it with --data, fixtures with --fixtures, and calibration data with --calibration."),
    ("AOTC-I235", "this host cannot build what is recorded", INPUT,
     "The artifact was built on another operating system or architecture, or all of its variants are compiled for CPUs with "
     "features that this one does not have, or lacks some of this one's. Nothing of it could be compared.",
     "Build it again on a host like the one that the message names."),
    ("AOTC-I236", "installed package is not the recorded one", INPUT,
     "A package was installed from a wheel whose files are not those that the artifact records of it, or that has further "
     "ones. Nothing of it was run, and the environment was removed.",
     "Find out where that wheel comes from: the index has replaced a file, or the builder had another one."),
    ("AOTC-I237", "recorded Python is not here", INPUT,
     "The manifest states the version of Python, to its last part, and no such one was found among this host's programs.",
     "Install that version, or build with this one, which is told as a difference: --here."),
    ("AOTC-I238", "recorded aotc is not here", INPUT,
     "The artifact records the sha256 of the sources of the aotc that built it. This aotc, the release of that version, or "
     "what --aotc names, has others. A checkout has no release of its own: its version alone does not say which it was.",
     "Name a checkout or a wheel of that aotc with --aotc; or build with this one, which is told as a difference: --here."),
    ("AOTC-I239", "recorded aotc does not build it again", NO,
     "In the environment that the artifact records, or in this one with --here, the build of the same model with the same "
     "profile was refused. What it said is shown.",
     "Act on what was said; where it depends on this host, such as memory or time, build on another one."),
    ("AOTC-I240", "reproduction would not be independent", INPUT,
     "Who signs that an artifact was built again says something only if it is another than who signed the artifact.",
     "Sign with a key of your own: --key."),
    ("AOTC-I052", "configuration is invalid", INPUT,
     "aotc.yaml in the working directory, or the file that AOTC_CONFIG names, cannot be read, is not YAML, or does not "
     "match its schema. Or aotc.yaml, which is read without being named, contains a setting that could run a program "
     "or decide trust: a signer file, a profile that loads plugin libraries or whose task runs a function, or "
     "bench.key. Or it, or a profile that it names, names a file outside of the working directory or behind a link, "
     "or for a report a file that is not a report.",
     "Fix the fields that the message names; 'aotc config' shows what it sets. Give settings that aotc.yaml may not "
     "contain on the command line, or in a file that AOTC_CONFIG names."),
    ("AOTC-I053", "standard input is not a model", INPUT,
     "'-' reads the model from standard input, which is a terminal, is empty, or is larger than an ONNX file can be.",
     "Redirect a model of at most 2 GiB to it, or give the path of the file."),
    ("AOTC-I054", "model on standard input needs other files", INPUT,
     "The model keeps weights in separate files (external data), which cannot be found when the model comes from "
     "standard input.",
     "Give the path of the model, so that its external data is found next to it."),
    ("AOTC-I055", "standard output is already in use", INPUT,
     "Standard output is for the answer of the command alone. A log or another document would be mixed with it.",
     "Name a file, or leave out the option that uses standard output already."),
    ("AOTC-I063", "baseline cannot be read", INPUT,
     "The file given as a baseline is neither an artifact nor a history written by 'aotc bench --history', or one of "
     "its lines is incomplete.",
     "Give an artifact, or remove the line that the message names."),
    ("AOTC-I064", "baseline is from another machine", INPUT,
     "The history holds no measurement from a machine like this one: its CPU, cores, frequency governor, GPUs or "
     "driver differ, so its times cannot be compared.",
     "Give the earlier artifact as the baseline: both are then measured here, in turn."),
    ("AOTC-I065", "baseline does not match the measurement", INPUT,
     "The baseline was built from another model file, or was measured at other sizes, with another variant, or with "
     "other threads or streams, or it does not accept the inputs.",
     "Give an artifact of the same model, or measure as the baseline was: --dim, --variant, --threads, --streams."),
    ("AOTC-I066", "trace or profile is incomplete", INPUT,
     "A trace, or the profile that ONNX Runtime wrote of a session, is not complete JSON, or lacks a run. Causes are a "
     "full temporary folder, and a run of more than a million nodes.",
     "Free space in the temporary folder (TMPDIR), and measure again."),
    ("AOTC-I067", "slower than the baseline", NO,
     "The ratio of median latencies, artifact / baseline, is above what --allow permits, with its whole confidence "
     "interval.",
     "Use --nodes to see where the time goes, or permit more with --allow."),
    ("AOTC-I056", "graph is not drawn", FINDING,
     "The page leaves out the graph of a variant: its model cannot be read, or the page already has as many nodes as a "
     "browser can show. Everything else is on the page.",
     "Nothing to do. 'aotc inspect --json' lists where every node runs."),
    ("AOTC-I057", "page needs an artifact", USAGE,
     "A page shows the contents of an artifact, but a model was given.",
     "Build the model first, and make the page of the artifact."),
    ("AOTC-I058", "node times cannot be used", INPUT,
     "The file given with --times is not the output of 'aotc bench --nodes --json' for this artifact.",
     "Measure the artifact: aotc bench ARTIFACT --nodes --json > FILE."),
    # shapes
    ("AOTC-S001", "no working size found", INPUT,
     "The model declares free dims, but none of the combinations of sizes that were tried runs.",
     "State sizes with --dim NAME=VALUE, or give a fixture with --fixtures."),
    ("AOTC-S002", "profile does not match the model", INPUT,
     "The profile or --dim names an input, output or dim that the model does not have, or states another dtype or "
     "shape.",
     "Use the names, dtypes and shapes that 'aotc inspect MODEL' lists."),
    ("AOTC-S003", "range is not valid", INPUT,
     "A range has min above max, or only one of them, or a step of 0. Or its bounds, opt or buckets are not multiples "
     "of its step, opt or buckets lie outside the range, or buckets do not increase.",
     "Write min <= opt <= max, both bounds or neither, and increasing buckets between them; all must be multiples of "
     "multiple_of, which is STEP in MIN..MAX:STEP."),
    ("AOTC-S004", "dim is fixed in the model", INPUT,
     "The profile states a range for a dim to which the model gives a fixed size.",
     "Remove the dim from the profile, or export the model with a dynamic axis."),
    ("AOTC-S005", "size in the stated range does not run", INPUT,
     "The profile allows a size at which the original model fails in ONNX Runtime.",
     "Narrow the range to what the model supports; ONNX Runtime's error is shown."),
    ("AOTC-S006", "dim works at one size only", FINDING,
     "The model declares the dim free, but only one size was found to run.",
     "State the size with --dim, or export with a fixed dim."),
    ("AOTC-S007", "dims depend on each other", FINDING,
     "For the model to run, dims with different names must be equal, or one must be the sum of others. Other sizes are "
     "refused only if some were tried and failed.",
     "Nothing to do. The relation is recorded, and checked at every call if other sizes fail."),
    ("AOTC-S008", "probing stopped at a limit", FINDING,
     "The profile does not bound this dim. Its range was proven up to a limit of the search, with all dims at their "
     "maximum together. Beyond usual sizes (a batch of 8, images of 224, lengths of 128), a run may cost an eighth of "
     "what probe.max_flops and probe.max_activation_bytes allow.",
     "Bound the dim with --dim NAME=MIN..MAX, or raise the limit that the message names, under 'probe' in the profile."),
    ("AOTC-S009", "declared output shape is wrong", FINDING,
     "For some fixture, the original model gives an output of another shape or type than it declares.",
     "Nothing to do. Do not rely on the declared shape."),
    ("AOTC-S010", "size outside the proven range", NO,
     "The call has a size that was not proven at build time.",
     "Rebuild with --dim NAME=MIN..MAX that covers it, or write 'strict: false' in the profile."),
    ("AOTC-S011", "related dims are bounded differently", INPUT,
     "Two dims must be equal for the model to run, and the profile bounds them differently.",
     "Give related dims the same bounds."),
    ("AOTC-S012", "ONNX Runtime crashes or hangs at a size", FINDING,
     "A run of the original model in the sandbox crashed or did not end at these sizes. They are outside the proven "
     "range.",
     "Do not call the model at these sizes; report it to ONNX Runtime."),
    ("AOTC-S013", "range has gaps", FINDING,
     "Some sizes between the bounds of a probed range fail, and no step (multiple) avoids them.",
     "State the sizes that you need with --dim NAME=MIN..MAX, or a single one with --dim NAME=SIZE."),
    ("AOTC-S014", "stated relation does not hold", INPUT,
     "The profile states that dims are equal, or that one is the sum of others, but the model only runs where this "
     "does not hold.",
     "Remove the relation, or state the one that the message names."),
    ("AOTC-S015", "relation is not valid", INPUT,
     "A relation of the profile cannot be read, names what the model does not have, or is circular.",
     "Write 'batch = ids.0 = mask.0', or 'total = past + sequence + 1'."),
    ("AOTC-S016", "only one size of the range runs", INPUT,
     "The model declares the dim free and the profile gives it a range, but the model runs at one size only.",
     "State that size, or export the model with a truly dynamic axis."),
    ("AOTC-S017", "buckets give too many variants", INPUT,
     "Each variant of the profile is built for every combination of buckets; together they exceed max_variants.",
     "State fewer buckets, or raise max_variants."),
    ("AOTC-S018", "output cannot be cropped", INPUT,
     "The size of an output depends on a padded dim, but is not a sum of dims, so the padding cannot be cut off.",
     "State outputs.NAME.crop in the profile, or do not pad this dim (outside: route, or reject)."),
    ("AOTC-S019", "padding was not proven", INPUT,
     "The original model was not found to run at any size below the bucket, so padded and unpadded answers could not "
     "be compared.",
     "Give fixtures of such sizes with --fixtures, or do not pad this dim."),
    ("AOTC-S020", "traffic file has a line that cannot be read", INPUT,
     "A line is not a JSON object of shapes or sizes by name, or does not have as many values as the CSV header has "
     "names.",
     "Fix or remove the line; 'aotc profile learn --help' shows both formats."),
    ("AOTC-S021", "recorded shape does not fit the model", INPUT,
     "A recorded shape has more or fewer dims than the model's input, or another size for a fixed dim.",
     "Use shapes that were recorded from this model."),
    ("AOTC-S022", "recorded size is impossible", INPUT,
     "A recorded size is negative, not an integer, or larger than any tensor can be.",
     "Fix or remove the line."),
    ("AOTC-S023", "traffic file holds no request", INPUT,
     "The file has no requests from which a profile could be learned.",
     "Record some requests first: aotc.load(..., record=FILE)."),
    ("AOTC-S024", "too many dims vary", INPUT,
     "Buckets are chosen for one dim, or for two together, but more dims vary in the recorded shapes.",
     "Name one or two of them with --dim; the others keep their ranges."),
    ("AOTC-S025", "relation is narrower than the model", FINDING,
     "The model also runs where a relation of the profile does not hold. Calls must still satisfy the relation.",
     "Nothing to do. To allow other calls, remove the relation."),
    ("AOTC-S026", "cost table cannot be used", INPUT,
     "The cost table cannot be read, is for other dims, or does not reach the largest recorded size.",
     "Measure it again with --model, and keep it with --save-costs."),
    ("AOTC-S027", "minimum size was raised", FINDING,
     "The profile states no minimum for this dim. A smaller size runs alone, but not with the other dims at their "
     "minimum; or a variant does not give the model's answer at size 0. The range begins above it.",
     "Nothing to do. To require the smaller size, state the range with --dim NAME=MIN..MAX."),
    ("AOTC-S030", "generated values were rejected", FINDING,
     "With the inputs that were generated to suit its operators the model did not run, or not at all sizes. The message "
     "names the values with which it does, for which alone it is proven there; or those that were tried in vain.",
     "Give real inputs with --fixtures."),
    ("AOTC-S031", "buckets give too many sizes to capture", INPUT,
     "Every combination of buckets is captured as a CUDA graph; together they exceed cuda.graphs.max_count.",
     "State fewer buckets, or raise cuda.graphs.max_count."),
    ("AOTC-S032", "no run passes with the stated values", INPUT,
     "The original model fails in ONNX Runtime with every input that was generated of the values that the profile "
     "states, at all sizes that were tried; or at some sizes no value is allowed.",
     "State values with which the model runs; ONNX Runtime's error is shown. Real inputs are given by --fixtures."),
    ("AOTC-S033", "values of an input are stated", FINDING,
     "The profile states the values of an input. Generated inputs have no others, calls with others are refused, and "
     "the message tells which of them the fixtures have.",
     "Nothing to do."),
    ("AOTC-S034", "stated value does not run", FINDING,
     "The original model fails in ONNX Runtime with an input that is this value throughout, at the optimal sizes. "
     "Calls may pass the value, and fail in the same way.",
     "State the values with which the model runs; ONNX Runtime's error is shown."),
    ("AOTC-S035", "every answer would be empty", INPUT,
     "The profile or --dim states size 0 of a dim, and with it no output has an element: the artifact would answer "
     "nothing, and nothing would be proven.",
     "State a size of at least 1, or a range such as --dim batch=1..8."),
    ("AOTC-S036", "fixture is outside the proven range", FINDING,
     "The model answers this fixture, which is compared; but at its sizes it does not run with generated values, or "
     "not together with the other dims, or the limits of the search end below it. Calls of such sizes count as "
     "outside of the proven range.",
     "State the range with --dim NAME=MIN..MAX, or valid values of the inputs in the profile."),
)
# fmt: on
