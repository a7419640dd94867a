"""What an exported program says of itself: read whole, and each text in it held to what it is for.

PyTorch makes code of much of it when it loads a program: sizes are evaluated as Python, names of
nodes, arguments and weights are pasted into the source of a function, guards are compiled, an
operator is whatever `torch` leads to by its dots, and trees of arguments import the modules that
they name.  So nothing is handed on that was not recognized: a size is of the functions that PyTorch
writes, a name is an identifier, an operator is one of the known libraries, a tree is of tuples,
lists and dicts.  What PyTorch does not need to run or export a program (guards, remarks, signatures
of inner modules) is told, and left out of what it loads.

The structure is PyTorch's `torch/_export/serde/schema.py`, version 8.
"""

from __future__ import annotations

import ast
import collections
import json
import keyword
import re
import warnings
from collections.abc import Callable, Mapping
from typing import Any, Final, NoReturn

from aotc.base.errors import AotcError
from aotc.spec.codec import Json, ParseError
from aotc.spec.json import strict_json

MAX_PROGRAM_BYTES: Final = 256 << 20
MAX_PROGRAM_VALUES: Final = 8_000_000
SCHEMA_MAJOR: Final = 8
SCHEMA_MINOR: Final = 20
_INTEGERS: Final = 2**64 - 1
_MAX_TREE_BYTES: Final = 1 << 20
_MAX_TEXT: Final = 1 << 16
_MAX_EXPRESSION: Final = 20_000
_MAX_EXPONENT: Final = 64
_MAX_POWERS: Final = 2
_MAX_UNBACKED: Final = 100_000

# Fields and their kinds: `?` may be null or absent, `*` is a list, `%` a map by text; a structure
# that begins with `|` holds exactly one of its fields.
_STRUCTURES: Final[Mapping[str, str]] = {
    "Device": "type:device index:small?",
    "SymExprHint": "|as_int:int as_bool:bool as_float:float",
    "SymExpr": "expr_str:expression hint:SymExprHint?",
    "SymInt": "|as_expr:SymExpr as_int:int",
    "SymFloat": "|as_expr:SymExpr as_float:float",
    "SymBool": "|as_expr:SymExpr as_bool:bool",
    "TensorMeta": "dtype:small sizes:SymInt* requires_grad:bool device:Device strides:SymInt* "
    "storage_offset:SymInt layout:layout",
    "SymIntArgument": "|as_name:name as_int:int",
    "SymFloatArgument": "|as_name:name as_float:float",
    "SymBoolArgument": "|as_name:name as_bool:bool",
    "TensorArgument": "name:name",
    "TokenArgument": "name:name",
    "OptionalTensorArgument": "|as_tensor:TensorArgument as_none:bool",
    "GraphArgument": "name:name graph:Graph",
    "ComplexValue": "real:float imag:float",
    "Argument": "|as_none:bool as_tensor:TensorArgument as_tensors:TensorArgument* as_int:int "
    "as_ints:int* as_float:float as_floats:float* as_string:text as_strings:text* "
    "as_sym_int:SymIntArgument as_sym_ints:SymIntArgument* as_scalar_type:small "
    "as_memory_format:small as_layout:layout as_device:Device as_bool:bool as_bools:bool* "
    "as_sym_bool:SymBoolArgument as_sym_bools:SymBoolArgument* as_graph:GraphArgument "
    "as_optional_tensors:OptionalTensorArgument* as_custom_obj:object as_operator:operator "
    "as_sym_float:SymFloatArgument as_sym_floats:SymFloatArgument* "
    "as_optional_tensor:OptionalTensorArgument as_complex:ComplexValue "
    "as_nested_tensors:TensorArgument** as_int_lists:int** as_string_to_argument:Argument% "
    "as_float_lists:float**",
    "NamedArgument": "name:argument arg:Argument kind:small?",
    "Node": "target:operator inputs:NamedArgument* outputs:Argument* metadata:remarks "
    "is_hop_single_tensor_return:bool? name:name?",
    "Graph": "inputs:Argument* outputs:Argument* nodes:Node* tensor_values:TensorMeta% "
    "sym_int_values:SymInt% sym_bool_values:SymBool% is_single_tensor_return:bool? "
    "custom_obj_values:object%? sym_float_values:SymFloat%?",
    "UserInputSpec": "arg:Argument",
    "ConstantValue": "|as_none:bool as_int:int as_float:float as_string:text as_bool:bool",
    "InputToConstantInputSpec": "name:name value:ConstantValue",
    "InputToParameterSpec": "arg:TensorArgument parameter_name:path",
    "InputToBufferSpec": "arg:TensorArgument buffer_name:path persistent:bool",
    "InputToTensorConstantSpec": "arg:TensorArgument tensor_constant_name:path",
    "InputTokenSpec": "arg:TokenArgument",
    "InputSpec": "|user_input:UserInputSpec parameter:InputToParameterSpec "
    "buffer:InputToBufferSpec tensor_constant:InputToTensorConstantSpec custom_obj:object "
    "token:InputTokenSpec constant_input:InputToConstantInputSpec",
    "UserOutputSpec": "arg:Argument",
    "LossOutputSpec": "arg:TensorArgument",
    "BufferMutationSpec": "arg:TensorArgument buffer_name:path",
    "ParameterMutationSpec": "arg:TensorArgument parameter_name:path",
    "GradientToParameterSpec": "arg:TensorArgument parameter_name:path",
    "GradientToUserInputSpec": "arg:TensorArgument user_input_name:name",
    "UserInputMutationSpec": "arg:TensorArgument user_input_name:name",
    "OutputTokenSpec": "arg:TokenArgument",
    "OutputSpec": "|user_output:UserOutputSpec loss_output:LossOutputSpec "
    "buffer_mutation:BufferMutationSpec gradient_to_parameter:GradientToParameterSpec "
    "gradient_to_user_input:GradientToUserInputSpec user_input_mutation:UserInputMutationSpec "
    "token:OutputTokenSpec parameter_mutation:ParameterMutationSpec",
    "GraphSignature": "input_specs:InputSpec* output_specs:OutputSpec*",
    "RangeConstraint": "min_val:int? max_val:int?",
    "ModuleCallSignature": "inputs:Argument* outputs:Argument* in_spec:inputs_tree out_spec:tree "
    "forward_arg_names:name*?",
    "ModuleCallEntry": "fqn:path? signature:ModuleCallSignature?",
    "GraphModule": "graph:Graph signature:GraphSignature module_call_graph:calls "
    "metadata:left_out treespec_namedtuple_fields:left_out?",
    "SchemaVersion": "major:small minor:small",
    "ExportedProgram": "graph_module:GraphModule opset_version:small% "
    "range_constraints:RangeConstraint% schema_version:SchemaVersion verifiers:dialect*? "
    "torch_version:text? guards_code:guard*?",
    "PayloadMeta": "path_name:name is_param:bool use_pickle:bool tensor_meta:TensorMeta?",
    "PayloadConfig": "config:PayloadMeta%",
}
# What the keys of maps are; of the others, names of nodes.
_KEYS: Final = {
    "RangeConstraint": "dim",
    "PayloadMeta": "path",
    "Argument": "text",
    "small": "text",
}

_IDENTIFIER: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,999}")
# No quotes, backslashes or brackets: PyTorch puts them into `getattr(self, "...")`.
_PATH: Final = re.compile(r"[A-Za-z0-9_\-/:+@ ]+(\.[A-Za-z0-9_\-/:+@ ]+)*")
_DIM: Final = re.compile(r"[A-Za-z0-9_+\-*/%(), .<>=&|~]{1,2000}")
_EXPRESSION: Final = re.compile(r"[A-Za-z0-9_(),'=.+\- ]+")
_UNBACKED: Final = re.compile(r"(?:u|zuf)(\d*)")
_OUTPUT_OF_TOOLS: Final = re.compile(r"[\x00-\x08\x0b-\x1f\x7f\x85\u2028\u2029]")
_DEVICE: Final = re.compile(r"[a-z]{1,16}")
_DIALECTS: Final = ("", "ATEN", "TRAINING")
_STRIDED: Final = 7

# Libraries of operators that PyTorch and torchvision bring, and that have no access to files.
_LIBRARIES: Final = frozenset(
    ("aten", "prims", "quantized_decomposed", "torchvision", "onnx", "onnx_symbolic")
)
_OF_FILES: Final = frozenset(("aten.from_file", "aten.save"))
_CONTROL_FLOW: Final = frozenset(
    (
        *("cond", "while_loop", "scan", "associative_scan", "map_impl", "invoke_subgraph"),
        *("wrap_with_set_grad_enabled", "wrap_with_autocast", "tag_activation_checkpoint"),
        *("flex_attention", "out_dtype"),
    )
)
_OPERATOR: Final = re.compile(
    r"torch\.ops\.([A-Za-z][A-Za-z0-9_]*)\.([A-Za-z_][A-Za-z0-9_]*)(?:\.([A-Za-z_][A-Za-z0-9_]*))?"
)
_ON_SIZES: Final = re.compile(
    r"torch\.sym_(?:not|int|float|ite|max|min|sqrt|sum|fresh_size)|torch\._sym_sqrt"
    r"|math\.(?:trunc|ceil|floor|sqrt)"
    r"|_operator\.(?:eq|ne|le|ge|lt|gt|neg|pos|mul|add|sub|floordiv|mod|pow|truediv|and_|or_"
    r"|lshift|rshift|getitem)"
    r"|torch\._functorch\.predispatch\.(?:_add_batch_dim|_remove_batch_dim"
    r"|_vmap_increment_nesting|_vmap_decrement_nesting|lazy_load_decompositions)"
)

_FUNCTIONS: Final = frozenset(
    (
        *("Add", "Mul", "Pow", "Max", "Min", "Mod", "Abs", "floor", "ceiling", "Rational"),
        *("FloorDiv", "CleanDiv", "CeilDiv", "ModularIndexing", "Where", "PythonMod", "Identity"),
        *("CeilToInt", "FloorToInt", "TruncToInt", "TruncToFloat", "RoundToInt", "RoundDecimal"),
        *("ToFloat", "IntTrueDiv", "FloatTrueDiv", "PowByNatural", "FloatPow", "LShift", "RShift"),
        *("IsNonOverlappingAndDenseIndicator", "And", "Or", "Not", "Equality", "Unequality"),
        *("StrictLessThan", "LessThan", "StrictGreaterThan", "GreaterThan"),
        *("Piecewise", "ExprCondPair"),
    )
)
_POWERS: Final = frozenset(("Pow", "PowByNatural", "FloatPow", "LShift"))
_CONSTANTS: Final = frozenset(("true", "false", "oo"))
# Names that sympy knows, which no symbol may have.
_MEANT: Final = _FUNCTIONS | _CONSTANTS | {"Symbol", "Integer", "Float"}
_ASSUMPTIONS: Final = frozenset(
    (
        *("integer", "positive", "nonnegative", "negative", "nonpositive", "zero", "nonzero"),
        *("real", "finite", "extended_real"),
    )
)
# With functions on sizes, as sympy's printers write them.
_GUARD_NAMES: Final = _FUNCTIONS | {
    *("L", "max", "min", "abs", "int", "float", "bool", "round", "math", "torch"),
}
_GUARD_METHODS: Final = frozenset(
    (
        *("size", "stride", "storage_offset", "numel", "dim", "item", "shape", "inf"),
        *("trunc", "ceil", "floor", "sqrt", "sym_int", "sym_float", "sym_max", "sym_min"),
        *("sym_not", "sym_ite"),
    )
)
_GUARD_NODES: Final = (
    *(ast.Compare, ast.BoolOp, ast.BinOp, ast.UnaryOp, ast.IfExp, ast.Call, ast.Subscript),
    *(ast.Constant, ast.Tuple, ast.expr_context, ast.operator, ast.unaryop, ast.cmpop, ast.boolop),
)
_INFIX: Final = {"Add": " + ", "Mul": "*", "FloorDiv": "//", "Mod": " % ", "PythonMod": " % "}

_PLAIN_TREES: Final = {
    "builtins.tuple": "builtins.tuple",
    "builtins.list": "builtins.list",
    "torch.fx.immutable_collections.immutable_list": "builtins.list",
}
_DICT_TREES: Final = (
    "builtins.dict",
    "collections.OrderedDict",
    "collections.defaultdict",
    "torch.fx.immutable_collections.immutable_dict",
)
_TYPE: Final = re.compile(r"[A-Za-z_][\w.<>]{0,299}")
_REMARKS: Final = ("stack_trace", "nn_module_stack", "torch_fn")

_Check = Callable[["ProgramText", Any], Any]


class _Problem(Exception):
    """A value that is not what its place is for; the path is completed on the way out."""

    def __init__(self, code: str, what: str, expected: str, found: object) -> None:
        self.code, self.what, self.expected = code, what, expected
        self.found = repr(found)[:200] if found is not None else ""
        self.path: list[str] = []


class ProgramText:
    """One description, read and checked.

    `content` is what PyTorch is given: the same program, without what is left out.  `guards` are
    the conditions on inputs that the export relied on, as text.  `operators` are counted by name,
    `devices` are those that tensors are on, and `replaced_types` are types of arguments or results
    that stand as tuples or dicts in it.
    """

    def __init__(self, data: bytes, kind: str, where: str) -> None:
        """Read the structure `kind`, an `ExportedProgram` or a `PayloadConfig`.

        Raises AOTC-I134 for what is not of its form, I135 for text that would run as code, I136 for
        operators that are not read, I131 for custom objects, I133 for another version.
        """
        self.operators: collections.Counter[str] = collections.Counter()
        self.devices: set[str] = set()
        self.guards: list[str] = []
        self.replaced_types: set[str] = set()
        self._known: set[str] = set()
        self._where = where
        value = self._parsed(data)
        self._newer = self._require_version(value) if kind == "ExportedProgram" else False
        try:
            self.content: dict[str, Json] = _checks(kind)(self, value)
        except _Problem as problem:
            path = ".".join(reversed(problem.path)).replace(".[", "[")
            raise AotcError(
                problem.code,
                problem.what,
                where=f"{where}: {path}" if path else where,
                expected=problem.expected,
                found=problem.found,
            ) from None

    def _parsed(self, data: bytes) -> Json:
        try:
            return strict_json(
                data, limit=MAX_PROGRAM_BYTES, values=MAX_PROGRAM_VALUES, integers=_INTEGERS
            )
        except ParseError as error:
            raise AotcError(
                "AOTC-I134", "the program's description is not strict JSON", where=self._where,
                found=str(error)[:200],
            ) from None  # fmt: skip

    def _require_version(self, value: Json) -> bool:
        """Whether the minor version is newer than the one that is known here."""
        stated = value.get("schema_version") if isinstance(value, dict) else None
        if not isinstance(stated, dict):
            return False
        major, minor = stated.get("major"), stated.get("minor")
        if type(major) is int and type(minor) is int and major != SCHEMA_MAJOR:
            raise AotcError(
                "AOTC-I133",
                "the program was saved by a version of PyTorch whose programs are not read",
                where=self._where,
                expected=f"schema version {SCHEMA_MAJOR}",
                found=f"{major}.{minor}, of PyTorch {str(value.get('torch_version'))[:40]}",
            )
        return type(minor) is int and minor > SCHEMA_MINOR

    def structure(self, name: str, fields: Mapping[str, _Field], one: bool, value: Any) -> Json:
        """A structure with only its own fields, each checked."""
        if type(value) is not dict:
            raise _malformed(f"a {name}", value)
        if one and len(value) != 1:
            raise _malformed(f"one of {', '.join(fields)}", list(value)[:5])
        result: dict[str, Json] = {}
        for key, item in value.items():
            field = fields.get(key)
            if field is None:
                if self._newer:
                    raise _Problem(
                        "AOTC-I133", "the program says more than is known of such programs",
                        f"fields of schema version {SCHEMA_MAJOR}.{SCHEMA_MINOR}", key,
                    )  # fmt: skip
                raise _malformed(f"a field of {name}", key)
            if item is None and field.optional:
                result[key] = None
                continue
            try:
                result[key] = field.check(self, item)
            except _Problem as problem:
                problem.path.append(key)
                raise
        if not one:
            for key, field in fields.items():
                if key not in result and not field.optional:
                    raise _malformed(f"the field {key} of {name}", None)
        return result

    def expression(self, value: Any) -> str:
        """A size or condition of it, as sympy's `srepr` writes one."""
        text = _text(value)
        if text in self._known:
            return text
        if len(text) > _MAX_EXPRESSION or not _EXPRESSION.fullmatch(text):
            raise _code("an expression of sizes", text)
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                tree = ast.parse(text, mode="eval")
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            raise _code("an expression of sizes", text) from None
        try:
            _check_expression(tree.body, text)
        except RecursionError:
            raise _code("an expression that is not as deep", text) from None
        self._known.add(text)
        return text

    def operator(self, value: Any) -> str:
        """The name of an operator of a known library, or of a function on sizes."""
        text = _text(value)
        if text not in self.operators:
            self._require_operator(text)
        self.operators[text] += 1
        return text

    def _require_operator(self, text: str) -> None:
        if _ON_SIZES.fullmatch(text):
            return
        found = _OPERATOR.fullmatch(text)
        if found is None:
            if text.startswith("#"):
                raise _Problem("AOTC-I136", "an operator of an extension", "", text)
            raise _code("the name of an operator", text)
        library, name, overload = found.groups()
        if library == "higher_order" and overload is None:
            if name not in _CONTROL_FLOW:
                raise _Problem(
                    "AOTC-I136", f"the program uses {library}.{name}, which is not read", "", text
                )
        elif f"{library}.{name}" in _OF_FILES:
            raise _Problem(
                "AOTC-I136", f"the operator {library}.{name} reads or writes files", "", text
            )
        elif library not in _LIBRARIES:
            raise _Problem(
                "AOTC-I136", f"the program needs the custom operator {library}::{name}", "", text
            )
        elif overload is None:
            raise _code("an operator with its overload", text)

    def device(self, value: Any) -> str:
        """The kind of a device."""
        if not isinstance(value, str) or not _DEVICE.fullmatch(value):
            raise _malformed("a device", value)
        self.devices.add(value)
        return value

    def guard(self, value: Any) -> str:
        """A condition on sizes and values of inputs, which is told and left out."""
        text = _text(value)
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                nodes = list(ast.walk(ast.parse(text, mode="eval").body))
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            raise _code("a condition on inputs", text) from None
        if not all(map(_is_of_guard, nodes)):
            raise _code("a condition on inputs", text)
        self.guards.append(text)
        return ""

    def remarks(self, value: Any) -> dict[str, str]:
        """Where a node came from; remarks of other kinds are left out."""
        if type(value) is not dict or not all(type(each) is str for each in value.values()):
            raise _malformed("remarks", value)
        return {key: _text(value[key]) for key in _REMARKS if key in value}

    def calls(self, value: Any) -> list[Json]:
        """The signature of the program itself; those of inner modules are left out."""
        if type(value) is not list or not value:
            raise _malformed("a list of calls", value)
        check = _checks("ModuleCallEntry")
        for entry in value:
            if type(entry) is dict and entry.get("fqn") == "":
                outer: dict[str, Json] = check(self, {**entry, "fqn": None})
                if outer.get("signature") is not None:
                    return [{**outer, "fqn": ""}]
        raise _malformed("the program's own signature", None)

    def tree(self, value: Any) -> str:
        """A tree of arguments or results, written anew of tuples, lists and dicts."""
        return json.dumps([1, self._node(self._tree_of(value))])

    def inputs_tree(self, value: Any) -> str:
        """A tree of positional arguments and those by name, whose names are identifiers."""
        outer = self._tree_of(value)
        node = self._node(outer)
        children = node["children_spec"]
        shape = [each["type"] for each in (node, *children)]
        if shape != ["builtins.tuple", "builtins.tuple", "builtins.dict"]:
            raise _malformed("a tuple of a tuple and a dict", shape)
        for key in strict_json(children[1]["context"].encode()):
            _name(key)
        return self.tree(value)

    def _tree_of(self, value: Any) -> Json:
        try:
            data = _text(value).encode("utf-8")
            version, node = strict_json(data, limit=_MAX_TREE_BYTES)
        except (ParseError, TypeError, ValueError):
            raise _malformed("a tree of arguments", value) from None
        if version != 1:
            raise _malformed("a tree of version 1", version)
        return node

    def _node(self, node: Json) -> dict[str, Any]:
        if type(node) is not dict or set(node) != {"type", "context", "children_spec"}:
            raise _malformed("a node of a tree", node)
        kind, children = node["type"], node["children_spec"]
        if type(children) is not list:
            raise _malformed("a node of a tree", node)
        if kind is None:
            if children or node["context"] is not None:
                raise _malformed("a leaf of a tree", node)
            return {"type": None, "context": None, "children_spec": []}
        if type(kind) is not str or not _TYPE.fullmatch(kind):
            raise _code("the name of a type", kind)
        below = [self._node(child) for child in children]
        if kind in _DICT_TREES:
            return {
                "type": "builtins.dict",
                "context": _keys(node["context"], len(below)),
                "children_spec": below,
            }
        if kind in _PLAIN_TREES:
            return {"type": _PLAIN_TREES[kind], "context": "null", "children_spec": below}
        self.replaced_types.add(kind)
        named = _field_names(node["context"], len(below))
        return {
            "type": "builtins.tuple" if named is None else "builtins.dict",
            "context": json.dumps(named),
            "children_spec": below,
        }


def _field_names(context: Json, count: int) -> list[str] | None:
    """Names of a type's parts, where its context lists them, as of dataclasses."""
    try:
        names = strict_json(context.encode("utf-8")) if isinstance(context, str) else context
    except ParseError:
        return None
    # Of a dataclass: the fields that have values, and those that are None.
    if isinstance(names, list) and len(names) == 2 and isinstance(names[0], list):
        names = names[0]
    plain = type(names) is list and len(names) == count and count > 0
    if plain and all(type(each) is str and _IDENTIFIER.fullmatch(each) for each in names):
        return list(names)
    return None


def _keys(context: Json, count: int) -> str:
    """The keys of a dict in a tree, as JSON: texts and numbers, and nothing that is made."""
    try:
        keys = strict_json(context.encode("utf-8")) if isinstance(context, str) else context
    except ParseError:
        raise _malformed("keys of a dict", context) from None
    if isinstance(keys, dict):
        # PyTorch imports the module of a default.
        if keys.get("default_factory_module") != "builtins" or "__enum__" in keys:
            raise _code("a default of Python's own", keys)
        keys = keys.get("dict_context")
    if type(keys) is not list or len(keys) != count:
        raise _malformed(f"{count} keys of a dict", context)
    for key in keys:
        if type(key) is not int and not (type(key) is str and len(key) < 1000):
            raise _code("a text or a number as the key of a dict", key)
        if type(key) is str and (_OUTPUT_OF_TOOLS.search(key) or "'" in key or "\\" in key):
            raise _code("a plain text as the key of a dict", key)
    return json.dumps(keys)


def _check_expression(node: ast.expr, text: str, powers: int = 0) -> None:
    match node:
        case ast.Name(id=name) if name in _CONSTANTS:
            return
        case ast.Call(ast.Name(id="Symbol"), [ast.Constant(str(name))], assumptions):
            if _IDENTIFIER.fullmatch(name) and name not in _MEANT and not name.startswith("__"):
                _check_unbacked(name)
                if all(_is_assumption(each) for each in assumptions):
                    return
        case ast.Call(ast.Name(id="Integer"), [number], []) if _literal(number) is not None:
            return
        case ast.Call(ast.Name(id="Float"), [ast.Constant(str(number))], options):
            if re.fullmatch(r"-?[0-9.]{1,40}(e[+-]?[0-9]{1,3})?", number) and all(
                option.arg == "precision" and _literal(option.value) in range(1, 1000)
                for option in options
            ):
                return
        case ast.Call(ast.Name(id="Rational"), [over, under], []):
            if _literal(over) is not None and _literal(under):
                return
        case ast.Call(ast.Name(id=name), arguments, []) if name in _FUNCTIONS:
            if name in _POWERS:
                powers += 1
                _check_power(arguments, powers, text)
            for argument in arguments:
                _check_expression(argument, text, powers)
            return
    raise _code("an expression of sizes", text)


def _check_power(arguments: list[ast.expr], powers: int, text: str) -> None:
    """Sizes are no numbers of a million digits: exponents are small, and powers not piled up."""
    match arguments:
        case [_, ast.Call(ast.Name(id="Integer" | "Rational"), numbers, [])]:
            small = all(abs(_literal(each) or 0) <= _MAX_EXPONENT for each in numbers)
        case [_, ast.Call(ast.Name(id="Symbol"))]:
            small = True
        case _:
            small = False
    if not small or powers > _MAX_POWERS:
        raise _code("a power of a size", text)


def _is_of_guard(node: ast.AST) -> bool:
    """Whether a condition may have such a part: no name and no method but those of sizes."""
    match node:
        case ast.Name(id=name):
            return name in _GUARD_NAMES
        case ast.Attribute(attr=name):
            return name in _GUARD_METHODS
        case ast.keyword():
            return False
    return isinstance(node, _GUARD_NODES)


def _literal(node: ast.expr) -> int | None:
    match node:
        case ast.UnaryOp(ast.USub(), ast.Constant(value)) if type(value) is int:
            return -value if value < 1 << 63 else None
        case ast.Constant(value) if type(value) is int and value < 1 << 63:
            return value
    return None


def _is_assumption(option: ast.keyword) -> bool:
    return (
        option.arg in _ASSUMPTIONS
        and isinstance(option.value, ast.Constant)
        and type(option.value.value) is bool
    )


def _check_unbacked(name: str) -> None:
    """PyTorch counts up to the numbers of such symbols, one by one."""
    found = _UNBACKED.match(name)
    if found is not None and int(found.group(1)[:9] or 0) > _MAX_UNBACKED:
        raise _malformed(f"a symbol's number of at most {_MAX_UNBACKED}", name)


def expression_in_words(text: str) -> str:
    """A checked expression of sizes as people write it: `2*s77 + 1`."""
    return _words(ast.parse(text, mode="eval").body)


def _words(node: ast.expr, inner: bool = False) -> str:
    match node:
        case ast.Call(ast.Name(id="Symbol"), [ast.Constant(str(name))], _):
            return name
        case ast.Call(ast.Name(id="Integer"), [number], _):
            return str(_literal(number))
        case ast.Call(ast.Name(id="Float"), [ast.Constant(number)], _):
            return str(number)
        case ast.Call(ast.Name(id=name), arguments, _) if name in _INFIX and len(arguments) > 1:
            text = _INFIX[name].join(_words(each, True) for each in arguments)
            return f"({text})" if inner and name != "Mul" else text
        case ast.Call(ast.Name(id=name), arguments, _):
            return f"{name}({', '.join(map(_words, arguments))})"
        case _:
            return ast.unparse(node)


def _malformed(expected: str, found: object) -> _Problem:
    return _Problem("AOTC-I134", "the program's description is not of its form", expected, found)


def _code(expected: str, found: object) -> _Problem:
    return _Problem("AOTC-I135", "the program holds text that would run as code", expected, found)


def _text(value: Any) -> str:
    if type(value) is not str or len(value) > _MAX_TEXT:
        raise _malformed(f"a text of at most {_MAX_TEXT} characters", value)
    if _OUTPUT_OF_TOOLS.search(value):
        raise _code("a text without control characters", value)
    return value


def _name(value: Any) -> str:
    if type(value) is not str or not _IDENTIFIER.fullmatch(value) or keyword.iskeyword(value):
        raise _code("an identifier", value)
    return value


def _argument(value: Any) -> str:
    """The name of an operator's parameter, which some call by a word of Python, or none."""
    if type(value) is not str or (value and not _IDENTIFIER.fullmatch(value)):
        raise _code("an identifier", value)
    return value


def _path(value: Any) -> str:
    if type(value) is not str or len(value) > 1000 or not _PATH.fullmatch(value):
        raise _code("the path of a weight", value)
    if any(part.startswith("__") for part in value.split(".")):
        raise _code("the path of a weight", value)
    return value


def _dim(value: Any) -> str:
    if type(value) is not str or not _DIM.fullmatch(value) or "__" in value:
        raise _code("a dim, or an expression of dims", value)
    _check_unbacked(value)
    return value


def _int(value: Any) -> int:
    if type(value) is not int or not -(2**63) <= value <= _INTEGERS:
        raise _malformed("an integer", value)
    return value


def _small(value: Any) -> int:
    if type(value) is not int or not -1 <= value < 1 << 16:
        raise _malformed("a small integer", value)
    return value


def _float(value: Any) -> float | str:
    if type(value) not in (int, float) and value not in ("Infinity", "-Infinity", "NaN"):
        raise _malformed("a number", value)
    found: float | str = value
    return found


def _bool(value: Any) -> bool:
    if type(value) is not bool:
        raise _malformed("true or false", value)
    return value


def _layout(value: Any) -> int:
    if value != _STRIDED:
        raise _Problem("AOTC-I137", "a tensor is sparse", f"layout {_STRIDED}", value)
    return _STRIDED


def _dialect(value: Any) -> str:
    if value not in _DIALECTS:
        raise _Problem(
            "AOTC-I133", "the program is of another dialect than export writes",
            " or ".join(_DIALECTS[1:]), value,
        )  # fmt: skip
    return str(value)


def _object(value: Any) -> NoReturn:
    raise _Problem(
        "AOTC-I131", "the program needs a custom object, which is kept as a pickle", "", value
    )


_SCALARS: Final[Mapping[str, _Check]] = {
    "int": lambda _, value: _int(value),
    "small": lambda _, value: _small(value),
    "float": lambda _, value: _float(value),
    "bool": lambda _, value: _bool(value),
    "text": lambda _, value: _text(value),
    "name": lambda _, value: _name(value),
    "argument": lambda _, value: _argument(value),
    "path": lambda _, value: _path(value),
    "dim": lambda _, value: _dim(value),
    "layout": lambda _, value: _layout(value),
    "dialect": lambda _, value: _dialect(value),
    "object": lambda _, value: _object(value),
    "left_out": lambda _, value: {},
    "expression": ProgramText.expression,
    "operator": ProgramText.operator,
    "device": ProgramText.device,
    "guard": ProgramText.guard,
    "remarks": ProgramText.remarks,
    "calls": ProgramText.calls,
    "tree": ProgramText.tree,
    "inputs_tree": ProgramText.inputs_tree,
}


class _Field:
    """One field of a structure."""

    def __init__(self, kind: str) -> None:
        self.optional = kind.endswith("?")
        self.check = _checks(kind.removesuffix("?"))


_made: dict[str, _Check] = {}


def _checks(kind: str) -> _Check:
    """What checks a value of a kind, and returns what is handed on of it."""
    if kind not in _made:
        # A structure may hold itself: its check finds the fields when it is first called.
        _made[kind] = _new_check(kind)
    return _made[kind]


def _new_check(kind: str) -> _Check:
    if kind in _SCALARS:
        return _SCALARS[kind]
    if kind.endswith("*"):
        return _list_check(kind.removesuffix("*"))
    if kind.endswith("%"):
        return _map_check(kind.removesuffix("%"))
    stated = _STRUCTURES[kind]
    fields: dict[str, _Field] = {}

    def check(text: ProgramText, value: Any) -> Json:
        if not fields:
            pairs = (each.split(":") for each in stated.removeprefix("|").split())
            fields.update((name, _Field(inner)) for name, inner in pairs)
        return text.structure(kind, fields, stated.startswith("|"), value)

    return check


def _list_check(kind: str) -> _Check:
    inner = _checks(kind)

    def check(text: ProgramText, value: Any) -> Json:
        if type(value) is not list:
            raise _malformed("a list", value)
        result = []
        for place, item in enumerate(value):
            try:
                result.append(inner(text, item))
            except _Problem as problem:
                problem.path.append(f"[{place}]")
                raise
        return [] if kind == "guard" else result

    return check


def _map_check(kind: str) -> _Check:
    inner, key_check = _checks(kind), _checks(_KEYS.get(kind, "name"))

    def check(text: ProgramText, value: Any) -> Json:
        if type(value) is not dict:
            raise _malformed("a map", value)
        result = {}
        for key, item in value.items():
            try:
                result[key_check(text, key)] = inner(text, item)
            except _Problem as problem:
                problem.path.append(f"[{key[:40]!r}]")
                raise
        return result

    return check
