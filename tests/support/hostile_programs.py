"""Exported programs made to run code, or to break what loads them: an honest one, changed.

Each is a function from the honest program's files to those of the hostile one, or to the bytes of
an archive.  `RAN` in what they hold is replaced by the path of a file that their code would make.
No PyTorch is needed to make them; what they do to PyTorch itself is tried in tests/sources.
"""

from __future__ import annotations

import io
import json
import pickle
import re
import struct
import zipfile
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

HONEST = Path(__file__).parents[1] / "data/programs/plain.pt2"
ROOT = "plain"
PROGRAM = "models/model.json"
SAMPLES = "data/sample_inputs/model.pt"
WEIGHTS = "data/weights/model_weights_config.json"
CONSTANTS = "data/constants/model_constants_config.json"

Files = dict[str, bytes]
Made = Files | bytes
CODE = "__import__('os').system('touch RAN')"


class _Runs:
    """An object whose pickle makes the file RAN where it is unpickled."""

    def __init__(self, ran: Path) -> None:
        self._ran = ran

    def __reduce__(self) -> tuple[Any, ...]:
        import os

        return os.system, (f"touch {self._ran}",)


@dataclass(frozen=True)
class Hostile:
    """One kind: its name, the code that refuses it, and what PyTorch does with it by itself.

    `bites` is empty where PyTorch does nothing bad; `load` or `forced`: its code runs when it is
    loaded, `forced` even where weights alone may be unpickled; `run`: when its module is made and
    called; `hangs`: loading does not end.
    """

    name: str
    code: str
    make: Callable[[Path], Made]
    bites: str = ""

    def write(self, folder: Path) -> tuple[Path, Path]:
        """The file, and the path of what its code would make."""
        ran = folder / "RAN"
        made = self.make(ran)
        data = made if isinstance(made, bytes) else packed(made)
        path = folder / "program.pt2"
        path.write_bytes(data)
        return path, ran


ATTACKS: list[Hostile] = []


def attack(
    code: str, bites: str = ""
) -> Callable[[Callable[[Path], Made]], Callable[[Path], Made]]:
    """Add a function to the kinds, under its name."""

    def add(make: Callable[[Path], Made]) -> Callable[[Path], Made]:
        ATTACKS.append(Hostile(make.__name__, code, make, bites))
        return make

    return add


def honest() -> Files:
    """The files of the honest program, by their names below its folder."""
    with zipfile.ZipFile(HONEST) as archive:
        return {name.partition("/")[2]: archive.read(name) for name in archive.namelist()}


def packed(files: Files, *, root: str = ROOT) -> bytes:
    """An archive of files, not compressed."""
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        for name, data in files.items():
            archive.writestr(f"{root}/{name}" if root else name, data)
    return out.getvalue()


def changed(files: Files, name: str, change: Callable[[Any], None]) -> Files:
    """The files, one of them JSON that was changed."""
    content = json.loads(files[name])
    change(content)
    return {**files, name: json.dumps(content).encode()}


def program(change: Callable[[Any], None]) -> Files:
    """The honest files with another program."""
    return changed(honest(), PROGRAM, change)


def replaced(old: str, new: str) -> Files:
    """The honest files, a text of the program replaced throughout."""
    files = honest()
    text = files[PROGRAM].decode()
    assert old in text, old
    return {**files, PROGRAM: text.replace(old, new).encode()}


def in_text(ran: Path, code: str = CODE) -> str:
    """Code that makes the file, as it stands in a JSON text."""
    return json.dumps(code.replace("RAN", str(ran)))[1:-1]


def saved_by_torch(program: bytes, **storages: bytes) -> bytes:
    """What torch.save writes: a pickle and its storages."""
    files = {"data.pkl": program, "byteorder": b"little", "version": b"3\n"}
    files |= {f"data/{name.removeprefix('s')}": data for name, data in storages.items()}
    return packed(files, root="archive")


def runs(ran: Path, protocol: int = 2) -> bytes:
    """A pickle with code."""
    return pickle.dumps(_Runs(ran), protocol)


# Pickles.


@attack("AOTC-I131", "load")
def pickled_sample_inputs(ran: Path) -> Made:
    return {**honest(), SAMPLES: saved_by_torch(runs(ran))}


@attack("AOTC-I131", "load")
def pickled_sample_inputs_of_protocol_4(ran: Path) -> Made:
    return {**honest(), SAMPLES: saved_by_torch(runs(ran, 4))}


@attack("AOTC-I131", "load")
def sample_inputs_are_a_bare_pickle(ran: Path) -> Made:
    # What PyTorch wrote before 1.6: its mark, the version, the system, then the object.
    marks = (0x1950A86A20F9469CFC6C, 1001, {"little_endian": True})
    head = b"".join(pickle.dumps(each, 2) for each in marks)
    return {**honest(), SAMPLES: head + runs(ran) + pickle.dumps([], 2)}


@attack("AOTC-I131", "load")
def sample_inputs_with_one_object_among_tensors(ran: Path) -> Made:
    body = runs(ran)[2:-1]
    return {**honest(), SAMPLES: saved_by_torch(b"\x80\x02((" + body + b"t}\x86.")}


@attack("AOTC-I131")
def sample_inputs_that_set_attributes(ran: Path) -> Made:
    state = b"ccollections\nOrderedDict\n)R}X\x01\x00\x00\x00aK\x01sb}\x86."
    return {**honest(), SAMPLES: saved_by_torch(b"\x80\x02" + state)}


@attack("AOTC-I131")
def sample_inputs_without_an_end(ran: Path) -> Made:
    # A list of itself, twice.
    return {**honest(), SAMPLES: saved_by_torch(b"\x80\x02]q\x00(h\x00h\x00e}\x86.")}


@attack("AOTC-I131")
def sample_inputs_that_double(ran: Path) -> Made:
    layers = b"".join(b"q" + bytes([n]) + b"h" + bytes([n]) + b"\x86" for n in range(40))
    return {**honest(), SAMPLES: saved_by_torch(b"\x80\x02K\x01" + layers + b"}\x86.")}


@attack("AOTC-I131")
def sample_inputs_larger_than_their_bytes(ran: Path) -> Made:
    tensor = (
        b"ctorch._utils\n_rebuild_tensor_v2\n((X\x07\x00\x00\x00storagectorch\nFloatStorage\n"
        b"X\x01\x00\x00\x000X\x03\x00\x00\x00cpuK\x01tQK\x00J\xff\xff\xff\x7f\x85K\x01\x85\x89"
        b"ccollections\nOrderedDict\n)RtR"
    )
    body = b"\x80\x02" + tensor + b"\x85}\x86."
    return {**honest(), SAMPLES: saved_by_torch(body, s0=b"\0\0\0\0")}


def _constant(ran: Path, path: str, data: bytes, **meta: Any) -> Files:
    def change(config: Any) -> None:
        first = next(iter(config["config"].values()))
        config["config"]["table"] = {**first, "path_name": path, "tensor_meta": None, **meta}

    files = changed(honest(), CONSTANTS, change)
    del files["data/constants/tensor_0"]
    return {**files, f"data/constants/{path}": data}


@attack("AOTC-I131", "forced")
def opaque_object(ran: Path) -> Made:
    return _constant(ran, "opaque_obj_0", runs(ran), use_pickle=True)


@attack("AOTC-I131", "forced")
def opaque_object_that_says_it_is_no_pickle(ran: Path) -> Made:
    first = json.loads(honest()[CONSTANTS])["config"]["table"]["tensor_meta"]
    data = runs(ran)
    data += bytes(-len(data) % 4)
    return _constant(ran, "opaque_obj_0", data, use_pickle=False, tensor_meta=first)


@attack("AOTC-I131")
def custom_object(ran: Path) -> Made:
    return _constant(ran, "custom_obj_0", saved_by_torch(runs(ran)), use_pickle=True)


@attack("AOTC-I131", "load")
def constant_under_a_tensors_name(ran: Path) -> Made:
    return _constant(ran, "tensor_0", saved_by_torch(runs(ran)), use_pickle=True)


@attack("AOTC-I131")
def pickle_that_nothing_names(ran: Path) -> Made:
    return {**honest(), "data/constants/opaque_obj_7": runs(ran)}


@attack("AOTC-I131", "load")
def weight_under_a_tensors_name(ran: Path) -> Made:
    def change(config: Any) -> None:
        config["config"]["dense.bias"]["use_pickle"] = True

    files = changed(honest(), WEIGHTS, change)
    path = json.loads(files[WEIGHTS])["config"]["dense.bias"]["path_name"]
    return {**files, f"data/weights/{path}": saved_by_torch(runs(ran))}


@attack("AOTC-I135")
def weight_outside_of_its_folder(ran: Path) -> Made:
    def change(config: Any) -> None:
        config["config"]["dense.bias"]["path_name"] = "../constants/opaque_obj_0"

    return changed(honest(), WEIGHTS, change)


@attack("AOTC-I132", "load")
def weights_as_older_versions_kept_them(ran: Path) -> Made:
    return {**honest(), "data/weights/model.pt": saved_by_torch(runs(ran))}


@attack("AOTC-I132", "load")
def constants_as_older_versions_kept_them(ran: Path) -> Made:
    return {**honest(), "data/constants/model.pt": saved_by_torch(runs(ran))}


def _of_2_7(ran: Path) -> Files:
    return {
        "version": b"8.8",
        "serialized_exported_program.json": honest()[PROGRAM],
        "serialized_state_dict.pt": saved_by_torch(runs(ran)),
        "serialized_constants.pt": saved_by_torch(runs(ran)),
        "serialized_example_inputs.pt": b"",
    }


@attack("AOTC-I132", "load")
def program_of_an_older_version(ran: Path) -> Made:
    return packed(_of_2_7(ran), root="")


@attack("AOTC-I132", "load")
def two_versions_in_one_file(ran: Path) -> Made:
    # What is newer fails, and PyTorch falls back.
    files = {f"{ROOT}/{name}": data for name, data in honest().items()}
    files[f"{ROOT}/{PROGRAM}"] = files[f"{ROOT}/{PROGRAM}"].replace(b"aten.relu.default", b"a.b.c")
    return packed({**files, **_of_2_7(ran)}, root="")


@attack("AOTC-I002")
def pickle_with_the_suffix(ran: Path) -> Made:
    return runs(ran)


@attack("AOTC-I132")
def weights_of_torch_save(ran: Path) -> Made:
    return saved_by_torch(runs(ran))


@attack("AOTC-I132")
def torchscript(ran: Path) -> Made:
    return {"data.pkl": runs(ran), "constants.pkl": runs(ran), "code/__torch__.py": b"import os"}


@attack("AOTC-I132")
def compiled_library(ran: Path) -> Made:
    return {**honest(), "data/aotinductor/model/a.wrapper.so": b"\x7fELF"}


@attack("AOTC-I132")
def two_programs(ran: Path) -> Made:
    return {**honest(), "models/other.json": honest()[PROGRAM]}


# Expressions of sizes, which are evaluated.

SIZE = "Symbol('s31', positive=True, integer=True)"


@attack("AOTC-I135", "load")
def code_for_a_size(ran: Path) -> Made:
    return replaced(f'"expr_str": "{SIZE}"', f'"expr_str": "{in_text(ran)}"')


@attack("AOTC-I135", "load")
def code_for_an_assumption(ran: Path) -> Made:
    return replaced(SIZE, f"Symbol('s31', positive=True, integer={in_text(ran)} == 0)")


@attack("AOTC-I135", "load")
def code_in_a_sum(ran: Path) -> Made:
    return replaced(SIZE, f"Add({SIZE}, Integer({in_text(ran)}))")


@attack("AOTC-I135", "load")
def code_by_attributes(ran: Path) -> Made:
    code = "Symbol.__new__.__globals__['__builtins__']['__import__']('os').system('touch RAN')"
    return replaced(f'"expr_str": "{SIZE}"', f'"expr_str": "{in_text(ran, code)}"')


@attack("AOTC-I135", "load")
def code_in_a_symbols_name(ran: Path) -> Made:
    return replaced(SIZE, f"Symbol(str({in_text(ran)}), positive=True, integer=True)")


@attack("AOTC-I135", "load")
def code_in_a_branch(ran: Path) -> Made:
    def change(content: Any) -> None:
        (node,) = (each for each in _nodes(content) if each["target"].endswith(".cond"))
        inner = node["inputs"][1]["arg"]["as_graph"]["graph"]
        inner["sym_int_values"]["n"] = {
            "as_expr": {"expr_str": CODE.replace("RAN", str(ran)), "hint": None}
        }
        for value in inner["tensor_values"].values():
            value["sizes"][0] = inner["sym_int_values"]["n"]

    return program(change)


@attack("AOTC-I135", "load")
def code_in_strides(ran: Path) -> Made:
    def change(content: Any) -> None:
        for value in _graph(content)["tensor_values"].values():
            value["strides"] = [
                {"as_expr": {"expr_str": CODE.replace("RAN", str(ran)), "hint": None}}
            ] * len(value["strides"])

    return program(change)


@attack("AOTC-I135")
def size_of_a_million_digits(ran: Path) -> Made:
    power = "Integer(9)"
    for _ in range(12):
        power = f"Pow({power}, Integer(64))"
    return replaced(f'"expr_str": "{SIZE}"', f'"expr_str": "{power}"')


@attack("AOTC-I135")
def shift_by_a_million_bits(ran: Path) -> Made:
    return replaced(f'"expr_str": "{SIZE}"', '"expr_str": "LShift(Integer(1), Integer(100000000))"')


@attack("AOTC-I135")
def expression_too_deep(ran: Path) -> Made:
    deep = "Identity(" * 2000 + SIZE + ")" * 2000
    return replaced(f'"expr_str": "{SIZE}"', f'"expr_str": "{deep}"')


@attack("AOTC-I134", "hangs")
def symbol_that_is_counted_up_to(ran: Path) -> Made:
    def change(content: Any) -> None:
        content["range_constraints"]["u99999999999999"] = {"min_val": 0, "max_val": 1}

    return program(change)


# Names, which become source.


@attack("AOTC-I135", "load")
def code_for_an_inputs_name(ran: Path) -> Made:
    # The last one: what follows a parameter with a default has one, too.
    return _renamed(ran, "mask", f"mask={CODE}")


def _renamed(ran: Path, name: str, code: str) -> Files:
    """A value of the graph, by another name throughout."""
    text = honest()[PROGRAM].decode()
    assert f'"{name}"' in text
    new = json.dumps(code.replace("RAN", str(ran)))
    return {**honest(), PROGRAM: text.replace(f'"{name}"', new).encode()}


@attack("AOTC-I135")
def code_for_a_values_name(ran: Path) -> Made:
    return _renamed(ran, "relu", f"relu = 0; {CODE}\n    relu")


@attack("AOTC-I135")
def code_for_a_parameter_of_forward(ran: Path) -> Made:
    return program(
        lambda content: _signature(content).update(
            forward_arg_names=["x", f"mask={CODE.replace('RAN', str(ran))}"]
        )
    )


@attack("AOTC-I135", "run")
def code_for_an_argument_by_name(ran: Path) -> Made:
    def change(content: Any) -> None:
        (node,) = (each for each in _nodes(content) if each["target"].endswith(".cond"))
        node["inputs"].append(
            {"name": f"a={CODE.replace('RAN', str(ran))}, b", "arg": {"as_int": 1}, "kind": 2}
        )

    return program(change)


@attack("AOTC-I135")
def code_for_a_key_of_arguments(ran: Path) -> Made:
    key = "a':" + CODE.replace("'", '"').replace("RAN", str(ran)) + ",'mask"

    def change(content: Any) -> None:
        outer = _signature(content)
        version, tree = json.loads(outer["in_spec"])
        tree["children_spec"][1]["context"] = json.dumps([key])
        outer["in_spec"] = json.dumps([version, tree])

    return program(change)


@attack("AOTC-I135")
def code_for_a_weights_name(ran: Path) -> Made:
    name = f'kept"), {CODE.replace("RAN", str(ran))}, getattr(self, "kept'
    files = honest()
    for each in (PROGRAM, WEIGHTS):
        text = (
            files[each]
            .decode()
            .replace('"buffer_name": "kept"', f'"buffer_name": {json.dumps(name)}')
        )
        files[each] = text.replace('"kept": {', f"{json.dumps(name)}: {{").encode()
    return files


@attack("AOTC-I135")
def weight_that_is_a_class(ran: Path) -> Made:
    files = honest()
    for each in (PROGRAM, WEIGHTS):
        text = files[each].replace(b'"buffer_name": "kept"', b'"buffer_name": "__class__.forward"')
        files[each] = text.replace(b'"kept": {', b'"__class__.forward": {')
    return files


@attack("AOTC-I135", "run")
def code_for_a_guard(ran: Path) -> Made:
    return program(
        lambda content: content.update(guards_code=[f"{CODE.replace('RAN', str(ran))} == 0"])
    )


@attack("AOTC-I135")
def code_behind_a_guard(ran: Path) -> Made:
    guard = f"1 == 1, '')\n  {CODE.replace('RAN', str(ran))}\n  torch._assert(1 == 1"
    return program(lambda content: content.update(guards_code=[guard]))


@attack("AOTC-I135")
def comment_that_ends(ran: Path) -> Made:
    def change(content: Any) -> None:
        for node in _nodes(content):
            node["metadata"]["stack_trace"] = (
                f'File "a.py", line 1, in f\n    x\r    {CODE.replace("RAN", str(ran))}'
            )

    return program(change)


# Operators, which are looked up by their dots.


def _called(target: str, *arguments: Any) -> Files:
    """The relu of the graph is another operator."""

    def change(content: Any) -> None:
        (node,) = (each for each in _nodes(content) if each["target"].endswith(".relu.default"))
        node["target"] = target
        node["inputs"] = [{"name": "", "arg": each, "kind": 1} for each in arguments]

    return program(change)


@attack("AOTC-I135")
def function_of_the_system(ran: Path) -> Made:
    return _called("torch.os.system", {"as_string": f"touch {ran}"})


@attack("AOTC-I135")
def function_that_calls_another(ran: Path) -> Made:
    return _called(
        "_operator.call", {"as_operator": "torch.os.system"}, {"as_string": f"touch {ran}"}
    )


@attack("AOTC-I135")
def operator_as_an_argument(ran: Path) -> Made:
    return _called(
        "torch.ops.higher_order.out_dtype",
        {"as_operator": "torch.os.system"},
        {"as_string": f"touch {ran}"},
    )


@attack("AOTC-I135")
def library_that_is_loaded(ran: Path) -> Made:
    return _called("torch.ops.load_library", {"as_string": str(ran.with_suffix(".so"))})


@attack("AOTC-I135")
def pickle_that_an_operator_loads(ran: Path) -> Made:
    return _called("torch.load", {"as_string": str(ran)})


@attack("AOTC-I136")
def operator_that_writes_a_file(ran: Path) -> Made:
    return _called("torch.ops.aten.save.default", {"as_int": 1}, {"as_string": str(ran)})


@attack("AOTC-I136", "run")
def operator_that_maps_a_file(ran: Path) -> Made:
    files = honest()

    def change(content: Any) -> None:
        (node,) = (each for each in _nodes(content) if each["target"].endswith(".relu.default"))
        node["target"] = "torch.ops.aten.from_file.default"
        values = {"filename": {"as_string": str(ran)}, "shared": {"as_bool": True}}
        values |= {"size": {"as_int": 1024}}
        node["inputs"] = [{"name": name, "arg": each, "kind": 1} for name, each in values.items()]

    return changed(files, PROGRAM, change)


@attack("AOTC-I136")
def text_that_is_formatted(ran: Path) -> Made:
    return _called("torch.ops.higher_order.print", {"as_string": "{0.__class__}"})


@attack("AOTC-I136")
def compiled_delegate(ran: Path) -> Made:
    return _called("torch.ops.higher_order.aoti_call_delegate", {"as_string": str(ran)})


@attack("AOTC-I136")
def custom_operator(ran: Path) -> Made:
    return _called("torch.ops.mine.run.default", {"as_string": f"touch {ran}"})


@attack("AOTC-I136")
def operator_of_an_extension(ran: Path) -> Made:
    return _called("#mine:run", {"as_string": f"touch {ran}"})


# Trees of arguments, which import modules.


def _tree(ran: Path, node: Any) -> Files:
    """The result's tree is another; the module RAN_module would make the file."""
    ran.with_name("ran_module.py").write_text(f"open({str(ran)!r}, 'w').close()\n")
    leaf: dict[str, Any] = {"type": None, "context": None, "children_spec": []}
    node["children_spec"] = [leaf, leaf]
    return program(lambda content: _signature(content).update(out_spec=json.dumps([1, node])))


@attack("AOTC-I135", "load")
def tree_that_imports_a_module(ran: Path) -> Made:
    key = {"__enum__": True, "fqn": "ran_module:Kind", "name": "A"}
    return _tree(ran, {"type": "builtins.dict", "context": json.dumps([key, "b"])})


@attack("AOTC-I135", "load")
def tree_whose_default_is_imported(ran: Path) -> Made:
    context = {
        "default_factory_module": "ran_module",
        "default_factory_name": "Kind",
        "dict_context": ["a", "b"],
    }
    return _tree(ran, {"type": "collections.defaultdict", "context": context})


@attack("AOTC-I134")
def tree_of_another_version(ran: Path) -> Made:
    return program(lambda content: _signature(content).update(out_spec="[2, null]"))


@attack("AOTC-I133")
def dialect_that_looks_up_a_verifier(ran: Path) -> Made:
    return program(lambda content: content.update(verifiers=["EDGE"]))


# JSON.


def _json(text: bytes, old: bytes, new: bytes) -> bytes:
    assert old in text
    return text.replace(old, new, 1)


@attack("AOTC-I134")
def key_stated_twice(ran: Path) -> Made:
    files = honest()
    return {
        **files,
        PROGRAM: files[PROGRAM].replace(b'"guards_code"', b'"verifiers": [], "guards_code"', 1),
    }


@attack("AOTC-I134")
def number_that_is_none(ran: Path) -> Made:
    return {**honest(), PROGRAM: _json(honest()[PROGRAM], b'"aten": 10', b'"aten": NaN')}


@attack("AOTC-I134")
def number_of_many_digits(ran: Path) -> Made:
    digits = b'"aten": ' + b"9" * 5000
    return {**honest(), PROGRAM: _json(honest()[PROGRAM], b'"aten": 10', digits)}


@attack("AOTC-I134")
def lists_without_an_end(ran: Path) -> Made:
    return {**honest(), PROGRAM: b"[" * 100_000}


@attack("AOTC-I134")
def millions_of_values(ran: Path) -> Made:
    return {**honest(), PROGRAM: b"[" + b"[]," * 8_000_000 + b"[]]"}


@attack("AOTC-I134")
def half_a_character(ran: Path) -> Made:
    return {**honest(), PROGRAM: _json(honest()[PROGRAM], b"2.13.0", b"\\ud800")}


@attack("AOTC-I134")
def mark_before_the_text(ran: Path) -> Made:
    return {**honest(), PROGRAM: b"\xef\xbb\xbf" + honest()[PROGRAM]}


@attack("AOTC-I134")
def field_that_nobody_knows(ran: Path) -> Made:
    return program(lambda content: content.update(on_load="run"))


@attack("AOTC-I133")
def field_of_a_newer_version(ran: Path) -> Made:
    def change(content: Any) -> None:
        content["schema_version"]["minor"] = 99
        content["on_load"] = "run"

    return program(change)


@attack("AOTC-I133")
def newer_schema(ran: Path) -> Made:
    return program(lambda content: content["schema_version"].update(major=9))


@attack("AOTC-I133")
def newer_archive(ran: Path) -> Made:
    return {**honest(), "archive_version": b"1"}


@attack("AOTC-I130")
def bytes_the_other_way_round(ran: Path) -> Made:
    return {**honest(), "byteorder": b"big"}


@attack("AOTC-I134")
def text_where_a_number_stands(ran: Path) -> Made:
    def change(content: Any) -> None:
        for value in _graph(content)["tensor_values"].values():
            value["dtype"] = "float32"

    return program(change)


# Sizes of weights.


def _weight(**meta: Any) -> Files:
    return changed(
        honest(), WEIGHTS, lambda config: config["config"]["kept"]["tensor_meta"].update(meta)
    )


@attack("AOTC-I137")
def weight_of_a_tebibyte(ran: Path) -> Made:
    files = _weight(sizes=[{"as_int": 1 << 38}], strides=[{"as_int": 1}])
    path = json.loads(files[WEIGHTS])["config"]["kept"]["path_name"]
    return {**files, f"data/weights/{path}": b""}


@attack("AOTC-I137")
def weight_beyond_its_bytes(ran: Path) -> Made:
    return _weight(storage_offset={"as_int": 1})


@attack("AOTC-I137")
def weight_before_its_bytes(ran: Path) -> Made:
    return _weight(strides=[{"as_int": -1}])


@attack("AOTC-I137")
def weight_that_is_sparse(ran: Path) -> Made:
    return _weight(layout=1)


@attack("AOTC-I137")
def weight_of_an_unknown_type(ran: Path) -> Made:
    return _weight(dtype=99)


@attack("AOTC-I137")
def weight_that_is_missing(ran: Path) -> Made:
    return changed(honest(), WEIGHTS, lambda config: config["config"].pop("kept"))


# The archive.


def _entries(data: bytes) -> Iterator[int]:
    return (found.start() for found in re.finditer(rb"PK\x01\x02", data))


def _patched(place: int, form: str, value: Any, *, name: str = PROGRAM) -> bytes:
    """The honest archive, a field of one file's record in the directory another."""
    data = bytearray(packed(honest()))
    (start,) = (
        at
        for at in _entries(bytes(data))
        if bytes(data[at + 46 :]).startswith(f"{ROOT}/{name}".encode())
    )
    struct.pack_into(form, data, start + place, value)
    return bytes(data)


@attack("AOTC-I130")
def two_files_of_one_name(ran: Path) -> Made:
    out = io.BytesIO(packed(honest()))
    with zipfile.ZipFile(out, "a") as archive:
        import warnings

        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            archive.writestr(f"{ROOT}/{PROGRAM}", b"{}")
    return out.getvalue()


@attack("AOTC-I130")
def names_that_differ_by_case(ran: Path) -> Made:
    return {**honest(), "Models/model.json": b"{}"}


@attack("AOTC-I130")
def other_name_in_the_directory(ran: Path) -> Made:
    data = packed(honest())
    first, rest = data.split(b"PK\x01\x02", 1)
    return first.replace(b"models/model.json", b"models/node1.json") + b"PK\x01\x02" + rest


@attack("AOTC-I130")
def name_that_leads_out(ran: Path) -> Made:
    return packed(
        {**{f"{ROOT}/{name}": data for name, data in honest().items()}, "../out": b""}, root=""
    )


@attack("AOTC-I130")
def name_from_the_root(ran: Path) -> Made:
    return packed(
        {**{f"{ROOT}/{name}": data for name, data in honest().items()}, "/etc/out": b""}, root=""
    )


@attack("AOTC-I130")
def bomb(ran: Path) -> Made:
    out = io.BytesIO(packed(honest()))
    with zipfile.ZipFile(out, "a", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr(f"{ROOT}/extra/zeros", bytes(64 << 20))
    return out.getvalue()


@attack("AOTC-I130")
def bomb_in_the_sample_inputs(ran: Path) -> Made:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("archive/data.pkl", b"\x80\x02" + b"0" * (64 << 20))
    return {**honest(), SAMPLES: out.getvalue()}


@attack("AOTC-I130")
def files_that_share_their_bytes(ran: Path) -> Made:
    data = packed(honest())
    starts = list(_entries(data))
    record = bytearray(data[starts[0] : starts[1]])
    # One more record, for the first file's header, under another name of the same length.
    record[46:52] = b"plain/"
    record[-1:] = b"9"
    end = data.rindex(b"PK\x05\x06")
    count, length = struct.unpack_from("<HL", data, end + 10)
    tail = bytearray(data[end:])
    struct.pack_into("<HHL", tail, 8, count + 1, count + 1, length + len(record))
    return data[:end] + bytes(record) + bytes(tail)


@attack("AOTC-I130")
def link_to_a_file(ran: Path) -> Made:
    return _patched(38, "<L", 0o120777 << 16)


@attack("AOTC-I130")
def encrypted(ran: Path) -> Made:
    return _patched(8, "<H", 1)


@attack("AOTC-I130")
def size_that_is_not_there(ran: Path) -> Made:
    return _patched(24, "<L", 0x7FFFFFFF)


@attack("AOTC-I130")
def wrong_crc(ran: Path) -> Made:
    data = packed(honest())
    old = struct.pack("<L", zlib.crc32(honest()[PROGRAM]))
    assert data.count(old) == 2
    return data.replace(old, b"\1\2\3\4")


@attack("AOTC-I130")
def bytes_before_the_archive(ran: Path) -> Made:
    # Readers that look for the end alone accept it.
    return b"PK\3\4#!/bin/sh\n" + packed(honest())


@attack("AOTC-I130")
def bytes_between_files(ran: Path) -> Made:
    data = packed(honest())
    place = next(_entries(data))
    end = data.rindex(b"PK\x05\x06")
    tail = bytearray(data[end:])
    struct.pack_into("<L", tail, 16, place + 4)
    return data[:place] + b"code" + data[place:end] + bytes(tail)


@attack("AOTC-I130", "load")
def comment_with_another_archive(ran: Path) -> Made:
    data = bytearray(packed(honest()))
    other = packed(_of_2_7(ran), root="")
    struct.pack_into("<H", data, len(data) - 2, len(other) & 0xFFFF)
    return bytes(data) + other[: len(other) & 0xFFFF]


@attack("AOTC-I130")
def cut_off(ran: Path) -> Made:
    return packed(honest())[:-100]


@attack("AOTC-I130")
def file_that_belongs_to_nothing(ran: Path) -> Made:
    return {**honest(), "data/weights/weight_99": b"\0\0\0\0"}


@attack("AOTC-I130")
def file_in_another_folder(ran: Path) -> Made:
    return packed(
        {**{f"{ROOT}/{name}": data for name, data in honest().items()}, "b/c": b""}, root=""
    )


def _graph(content: Any) -> Any:
    return content["graph_module"]["graph"]


def _nodes(content: Any) -> list[Any]:
    found: list[Any] = _graph(content)["nodes"]
    return found


def _signature(content: Any) -> Any:
    return content["graph_module"]["module_call_graph"][0]["signature"]
