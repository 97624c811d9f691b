"""What sort of value an expression has, as far as the source of one file can tell; ``None`` is unknown.

A finding rests on what is known: wherever two readings are possible the answer here is None and the rule stays quiet.
"""

from __future__ import annotations

import ast
from typing import Literal

from tfpipe.check.source import Binding, Class, Function, Source

Kind = Literal[
    "tensor", "variable", "dataset", "number", "string", "none", "list", "dict", "set", "tuple", "array", "rng",
    "keras", "metric", "optimizer", "shape", "callable", "object",
]  # fmt: skip

MUTABLE: frozenset[Kind] = frozenset({"list", "dict", "set"})
PYTHON: frozenset[Kind] = frozenset({"number", "string", "none", "list", "dict", "set", "tuple", "callable", "object"})

_CONTAINERS: dict[str, Kind] = {
    "builtins.list": "list", "builtins.dict": "dict", "builtins.set": "set", "builtins.tuple": "tuple",
    "builtins.sorted": "list", "builtins.len": "number", "builtins.str": "string", "builtins.int": "number",
    "builtins.float": "number", "builtins.zip": "object", "builtins.range": "object", "builtins.open": "object",
    "collections.deque": "list", "collections.defaultdict": "dict", "collections.OrderedDict": "dict",
    "collections.Counter": "dict",
}  # fmt: skip
# Parts of TensorFlow whose lower-case functions take and return tensors.
_TENSOR_MODULES = (
    "tensorflow.math.", "tensorflow.nn.", "tensorflow.image.", "tensorflow.linalg.", "tensorflow.random.",
    "tensorflow.signal.", "tensorflow.strings.", "tensorflow.bitwise.", "tensorflow.audio.", "tensorflow.quantization.",
    "keras.ops.", "keras.activations.", "keras.random.", "keras.backend.",
)  # fmt: skip
_NOT_TENSORS = frozenset(
    f"tensorflow.{name}"
    for name in (
        "executing_eagerly", "inside_function", "is_tensor", "function", "device", "init_scope", "name_scope",
        "control_dependencies", "py_function", "numpy_function", "get_logger", "print", "group", "no_op",
        "type_spec_from_value", "custom_gradient", "recompute_grad", "stop_recording", "load_op_library",
        "load_library", "make_ndarray", "make_tensor_proto", "map_fn", "while_loop", "cond", "case", "switch_case",
        "scan", "foldl", "foldr", "vectorized_map", "as_dtype", "get_static_value", "gradients", "hessians",
        "split", "unstack", "meshgrid", "unique", "unique_with_counts", "dynamic_partition",
        "required_space_to_batch_paddings",
        "random.set_seed", "random.get_global_generator", "random.set_global_generator", "random.create_rng_state",
        "nn.moments", "nn.weighted_moments", "nn.sufficient_statistics", "nn.top_k", "math.top_k", "linalg.svd",
        "linalg.qr", "linalg.eigh", "linalg.eig", "linalg.slogdet", "nn.ctc_beam_search_decoder",
        "nn.ctc_greedy_decoder", "nn.fused_batch_norm", "image.non_max_suppression_with_scores",
        "image.combined_non_max_suppression", "image.non_max_suppression_padded", "image.sample_distorted_bounding_box",
        "strings.unicode_decode_with_offsets", "nn.ctc_unique_labels", "nn.safe_embedding_lookup_sparse",
    )
)  # fmt: skip
_NOT_TENSORS_KERAS = frozenset(
    f"keras.{name}"
    for name in (
        "ops.shape", "ops.is_tensor", "ops.split", "ops.unstack", "ops.meshgrid", "ops.cond", "ops.while_loop",
        "ops.scan", "ops.map", "ops.fori_loop", "ops.top_k", "ops.svd", "ops.qr", "ops.eigh", "ops.moments",
        "ops.slogdet",
        "ops.vectorized_map", "ops.switch", "ops.dtype", "ops.where_shape", "ops.ndim", "ops.convert_to_numpy",
        "activations.get", "activations.deserialize", "activations.serialize",
        "backend.backend", "backend.floatx", "backend.epsilon", "backend.image_data_format", "backend.int_shape",
        "backend.ndim", "backend.dtype", "backend.is_keras_tensor", "backend.clear_session", "backend.set_floatx",
        "backend.set_value", "backend.get_value", "backend.learning_phase", "backend.set_learning_phase",
        "backend.get_uid", "backend.rnn", "backend.function", "backend.batch_get_value", "backend.batch_set_value",
        "backend.set_image_data_format", "backend.switch", "backend.name_scope",
        "backend.variable", "backend.placeholder",
    )
)  # fmt: skip
_TENSOR_IO = ("decode_", "read_file", "parse_tensor", "serialize_tensor", "encode_")
_DATASET_FACTORIES = (
    "keras.utils.image_dataset_from_directory", "keras.utils.text_dataset_from_directory",
    "keras.utils.audio_dataset_from_directory", "keras.utils.timeseries_dataset_from_array",
    "keras.preprocessing.image_dataset_from_directory", "keras.preprocessing.text_dataset_from_directory",
    "keras.preprocessing.timeseries_dataset_from_array", "keras.preprocessing.sequence.timeseries_dataset_from_array",
)  # fmt: skip
_DATASET_METHODS = frozenset(
    {
        "map", "filter", "batch", "shuffle", "prefetch", "cache", "repeat", "take", "skip", "interleave", "flat_map",
        "padded_batch", "unbatch", "window", "enumerate", "shard", "with_options", "concatenate", "apply", "zip",
        "snapshot", "rebatch", "ragged_batch", "take_while", "scan", "unique", "rejection_resample", "ignore_errors",
        "as_dataset", "bucket_by_sequence_length", "group_by_window", "sample_from_datasets", "choose_from_datasets",
        "from_tensor_slices", "from_tensors", "from_generator", "list_files", "range", "random", "load",
    }
)  # fmt: skip
# Attributes that a tensor has; a name with any other attribute is some other object.
_TENSOR_ATTRIBUTES = frozenset(
    {"shape", "dtype", "ndim", "get_shape", "set_shape", "numpy", "device", "graph", "op", "name", "T", "ref", "eval"}
    | {"assign", "assign_add", "assign_sub", "to_tensor", "values", "row_lengths", "indices", "dense_shape"}
)
_OWN_TENSOR_ATTRIBUTES = frozenset({"shape", "dtype", "get_shape", "set_shape"})
_TENSOR_ANNOTATIONS = ("tensorflow.Tensor", "tensorflow.Variable")
_PYTHON_ANNOTATIONS: dict[str, Kind] = {
    "builtins.int": "number", "builtins.float": "number", "builtins.bool": "number", "builtins.str": "string",
    "builtins.list": "list", "builtins.dict": "dict", "builtins.tuple": "tuple", "builtins.set": "set",
    "typing.List": "list", "typing.Dict": "dict", "typing.Tuple": "tuple", "typing.Sequence": "list",
    "typing.Mapping": "dict", "typing.Callable": "callable", "typing.Any": "object", "typing.Iterable": "object",
    "collections.abc.Callable": "callable", "collections.abc.Sequence": "list",
}  # fmt: skip
_RNGS = ("numpy.random.default_rng", "numpy.random.RandomState", "numpy.random.Generator", "random.Random")
_MAX_DEPTH = 12


def is_tensor_function(dotted: str) -> bool:
    """Whether the function of that name takes tensors and returns one tensor."""
    if dotted in _NOT_TENSORS or dotted in _NOT_TENSORS_KERAS:
        return False
    last = dotted.rpartition(".")[2]
    if not last[:1].islower():
        return False
    if dotted.startswith("tensorflow.io."):
        return last.startswith(_TENSOR_IO)
    if dotted.startswith(("keras.losses.", "keras.metrics.")):
        return True
    return dotted.startswith(_TENSOR_MODULES) or (dotted.startswith("tensorflow.") and dotted.count(".") == 1)


class Kinds:
    """Kinds of the expressions of one file."""

    def __init__(self, source: Source) -> None:
        self.source = source
        # Filled in by ``traced``: parameters that TensorFlow itself fills with tensors.
        self.given: dict[tuple[Function, str], Kind] = {}
        # Parameters of functions handed to ``tf.function``: tensors unless something speaks against it.
        self.presumed: set[Function] = set()
        self._calls: dict[Function, list[ast.Call]] | None = None
        self._uses: dict[Function, dict[str, set[str]]] = {}
        self._busy: set[object] = set()

    # --- expressions -------------------------------------------------------------------------------------------

    def of(self, node: ast.expr, depth: int = 0) -> Kind | None:
        """The kind of ``node``, None when it cannot be told."""
        if depth > _MAX_DEPTH:
            return None
        if isinstance(node, ast.Constant):
            return _constant_kind(node.value)
        if isinstance(node, ast.Name):
            return self._of_name(node, depth)
        if isinstance(node, ast.Call):
            return self._of_call(node, depth)
        if isinstance(node, ast.Attribute):
            return self._of_attribute(node, depth)
        if isinstance(node, ast.BinOp):
            return self._of_operands([node.left, node.right], depth)
        if isinstance(node, ast.UnaryOp):
            inner = self.of(node.operand, depth + 1)
            return None if isinstance(node.op, ast.Not) else inner
        if isinstance(node, ast.Compare):
            if any(isinstance(operator, ast.Is | ast.IsNot | ast.In | ast.NotIn) for operator in node.ops):
                return "number"
            return self._of_operands([node.left, *node.comparators], depth)
        if isinstance(node, ast.Subscript):
            return self._of_subscript(node, depth)
        if isinstance(node, ast.IfExp):
            first, second = self.of(node.body, depth + 1), self.of(node.orelse, depth + 1)
            return first if first == second else None
        return _DISPLAY_KINDS.get(type(node))

    def is_tensor(self, node: ast.expr) -> bool:
        return self.of(node) in ("tensor", "variable")

    def _of_operands(self, nodes: list[ast.expr], depth: int) -> Kind | None:
        kinds = [self.of(node, depth + 1) for node in nodes]
        if any(kind in ("tensor", "variable") for kind in kinds):
            # "tensor" + a list or string is unusual enough to leave alone.
            return "tensor" if not any(kind in ("string", "none", "shape", "dict") for kind in kinds) else None
        return kinds[0] if kinds[0] is not None and all(kind == kinds[0] for kind in kinds) else None

    def _of_subscript(self, node: ast.Subscript, depth: int) -> Kind | None:
        kind = self.of(node.value, depth + 1)
        if kind in ("tensor", "variable"):
            return "tensor"
        if kind == "shape":
            return "shape" if isinstance(node.slice, ast.Slice) else "number"
        return kind if kind in ("list", "string", "array") and isinstance(node.slice, ast.Slice) else None

    def _of_attribute(self, node: ast.Attribute, depth: int) -> Kind | None:
        owner = self.source.class_of_value(node.value)
        if owner is not None:
            kinds = {self.of(value, depth + 1) for value, _ in self.source.attribute_values(owner, node.attr)}
            # ``self.v = None`` in __init__ and the real value later is one kind, set late.
            kinds.discard("none")
            return kinds.pop() if len(kinds) == 1 else None
        if node.attr == "shape":
            return "shape"
        if node.attr == "T" and self.of(node.value, depth + 1) == "tensor":
            return "tensor"
        return None

    def _of_call(self, node: ast.Call, depth: int) -> Kind | None:
        dotted = self.source.dotted(node.func)
        if dotted is not None:
            return self._of_imported_call(dotted)
        definition = self.source.definition(node.func)
        if isinstance(definition, Class):
            return "keras" if is_keras(self.source, definition) else "object"
        if isinstance(definition, Function):
            return self._of_result(definition, depth)
        if isinstance(node.func, ast.Attribute):
            receiver = self.of(node.func.value, depth + 1)
            if receiver == "dataset":
                return "dataset" if node.func.attr in _DATASET_METHODS else None
            if receiver in ("tensor", "variable"):
                return "shape" if node.func.attr == "get_shape" else None if node.func.attr == "numpy" else "tensor"
            if receiver == "shape":
                return "list" if node.func.attr == "as_list" else None
            if receiver == "metric" and node.func.attr == "result":
                return "tensor"
            if receiver == "array":
                return "array"
            if node.func.attr in ("items", "keys", "values", "split", "format", "join"):
                return "object"
            return None
        # A layer or model call in functional style, Dense(3)(x): what comes out is a tensor (or several).
        return "tensor" if isinstance(node.func, ast.Call) and self.of(node.func, depth + 1) == "keras" else None

    def _of_imported_call(self, dotted: str) -> Kind | None:
        last = dotted.rpartition(".")[2]
        if dotted in _CONTAINERS:
            return _CONTAINERS[dotted]
        if dotted == "tensorflow.Variable":
            return "variable"
        if dotted.startswith(("tensorflow.data.", "tensorflow_datasets.load")) or dotted in _DATASET_FACTORIES:
            is_dataset = "Dataset" in dotted or last == "load" or last.endswith("_dataset")
            return "dataset" if is_dataset else None
        if dotted in _DATASET_FACTORIES:
            return "dataset"
        if dotted in _RNGS:
            return "rng"
        if dotted.startswith("numpy."):
            return "array"
        if is_tensor_function(dotted):
            return "tensor"
        if dotted.startswith("keras."):
            if dotted.startswith("keras.metrics.") and last[:1].isupper():
                return "metric"
            if dotted.startswith("keras.optimizers.") and last[:1].isupper():
                return "optimizer"
            if dotted.startswith(("keras.layers.", "keras.applications.", "keras.models.")) or dotted in (
                "keras.Model",
                "keras.Sequential",
            ):
                return "keras"
        return None

    def _of_result(self, function: Function, depth: int) -> Kind | None:
        if function in self._busy:
            return None
        self._busy.add(function)
        try:
            kinds = {self.of(value, depth + 1) for value in returned_values(function)}
        finally:
            self._busy.discard(function)
        return kinds.pop() if len(kinds) == 1 else None

    # --- names -------------------------------------------------------------------------------------------------

    def _of_name(self, node: ast.Name, depth: int) -> Kind | None:
        binding = self.source.binding(node)
        if binding is None:
            return None
        key = (id(binding), node.id)
        if key in self._busy:
            return None
        self._busy.add(key)
        try:
            return self._of_binding(binding, node.id, depth)
        finally:
            self._busy.discard(key)

    def _of_binding(self, binding: Binding, name: str, depth: int) -> Kind | None:
        if binding.kind in ("function", "class"):
            return "callable"
        if binding.kind == "parameter" and binding.function is not None:
            return self.of_parameter(binding.function, name, depth)
        if binding.value is None:
            return None
        if binding.kind == "assign":
            return self.of(binding.value, depth + 1)
        if binding.kind == "augment":
            return "tensor" if self.of(binding.value, depth + 1) in ("tensor", "variable") else None
        if binding.kind == "loop":
            return self._of_loop_target(binding, depth)
        if binding.kind == "unpack":
            # (train, test), info = tfds.load(...): every part that is used as a dataset is one.
            return "dataset" if self._loads_datasets(binding.value) else None
        return None

    def _loads_datasets(self, node: ast.expr) -> bool:
        dotted = self.source.called(node)
        return dotted is not None and (dotted == "tensorflow_datasets.load" or dotted in _DATASET_FACTORIES)

    def _of_loop_target(self, binding: Binding, depth: int) -> Kind | None:
        iterated = binding.value
        assert iterated is not None
        called = self.source.called(iterated)
        if called == "builtins.range" and isinstance(iterated, ast.Call):
            return "number" if not any(self.is_tensor(item) for item in iterated.args) else "tensor"
        if called == "builtins.enumerate" and binding.index == 0:
            return "number"
        return "tensor" if self.of(iterated, depth + 1) == "tensor" and binding.index is None else None

    # --- parameters --------------------------------------------------------------------------------------------

    def of_parameter(self, function: Function, name: str, depth: int = 0) -> Kind | None:
        """What is passed for a parameter: by who traces the function, its annotation, its default, the calls of it
        in this file, and how the body uses it, in this order."""
        if (function, name) in self.given:
            return self.given[function, name] if not self.contrary(function, name) else None
        annotated = self._of_annotation(function, name)
        if annotated is not None:
            return annotated
        default = function.default(name)
        if default is not None and (kind := self.of(default, depth + 1)) not in (None, "none", "tensor"):
            return kind
        kinds = {self.of(value, depth + 1) for value in self.arguments(function, name)}
        if len(kinds) == 1 and None not in kinds:
            return kinds.pop()
        if kinds - {None, "tensor", "variable", "array"} or self.contrary(function, name):
            return None
        uses = self.uses(function).get(name, set())
        return "tensor" if "tensor" in uses or (function in self.presumed and default is None) else None

    def contrary(self, function: Function, name: str) -> bool:
        """Whether the body uses the parameter as something that is no tensor."""
        return "other" in self.uses(function).get(name, set())

    def _of_annotation(self, function: Function, name: str) -> Kind | None:
        for parameter in function.parameters:
            if parameter.arg == name and parameter.annotation is not None:
                annotation = parameter.annotation
                if isinstance(annotation, ast.Subscript):
                    annotation = annotation.value
                dotted = self.source.dotted(annotation)
                if dotted in _TENSOR_ANNOTATIONS:
                    return "tensor"
                return _PYTHON_ANNOTATIONS.get(dotted or "", "object" if dotted and "Tensor" not in dotted else None)
        return None

    def arguments(self, function: Function, name: str) -> list[ast.expr]:
        """Every value that the calls of ``function`` in this file pass for parameter ``name``."""
        values = []
        for call in self.calls(function):
            value = argument(function, call, name)
            if value is not None:
                values.append(value)
        return values

    def calls(self, function: Function) -> list[ast.Call]:
        """The calls of ``function`` in this file that name it, through ``f = tf.function(g)`` too."""
        if self._calls is None:
            self._calls = {}
            for node in ast.walk(self.source.tree):
                if isinstance(node, ast.Call):
                    target = self._callee(node.func)
                    if target is not None:
                        self._calls.setdefault(target, []).append(node)
        return self._calls.get(function, [])

    def _callee(self, node: ast.expr) -> Function | None:
        if isinstance(node, ast.Name):
            binding = self.source.binding(node)
            if binding is not None and binding.kind == "assign" and isinstance(binding.value, ast.Call):
                wrapper = binding.value
                if self.source.called(wrapper) == "tensorflow.function" and wrapper.args:
                    return self._callee(wrapper.args[0])
        elif isinstance(node, ast.Call) and self.source.called(node) == "tensorflow.function" and node.args:
            return self._callee(node.args[0])
        found = self.source.definition(node)
        if isinstance(found, Function):
            return found
        # net(x), where net is an object of a class in this file.
        klass = self.source.class_of_value(node) if found is None else None
        if klass is None:
            return None
        return self.source.method(klass, "__call__") or self.source.method(klass, "call")

    def uses(self, function: Function) -> dict[str, set[str]]:
        """How the body uses each parameter: ``tensor`` and ``other`` are signs for and against a tensor."""
        if function not in self._uses:
            names = {parameter.arg for parameter in function.parameters}
            signs: dict[str, set[str]] = {}
            body = function.node.body if isinstance(function.node.body, list) else [function.node.body]
            for statement in body:
                for node in ast.walk(statement):
                    if isinstance(node, ast.Name) and node.id in names:
                        sign = self._use(node)
                        if sign is not None:
                            signs.setdefault(node.id, set()).add(sign)
            self._uses[function] = signs
        return self._uses[function]

    def _use(self, node: ast.Name) -> str | None:
        parent = self.source.parent_of.get(node)
        if isinstance(parent, ast.Attribute):
            if parent.attr in _OWN_TENSOR_ATTRIBUTES:
                return "tensor"
            return None if parent.attr in _TENSOR_ATTRIBUTES else "other"
        if isinstance(parent, ast.Subscript) and parent.value is node:
            return "other" if isinstance(parent.slice, ast.Constant) and isinstance(parent.slice.value, str) else None
        if isinstance(parent, ast.Call):
            if parent.func is node:
                return "other"
            called = self.source.dotted(parent.func) or ""
            if called in (
                "builtins.isinstance",
                "builtins.zip",
                "builtins.enumerate",
                "builtins.list",
                "builtins.dict",
            ):
                return "other"
            return "tensor" if parent.args[:1] == [node] and is_tensor_function(called) else None
        if (
            isinstance(parent, ast.Assign)
            and parent.value is node
            and isinstance(parent.targets[0], ast.Tuple | ast.List)
        ):
            return "other"
        if isinstance(parent, ast.For | ast.comprehension) and parent.iter is node:
            return "other"
        if isinstance(parent, ast.Starred):
            return "other"
        if isinstance(parent, ast.Compare):
            others = [item for item in (parent.left, *parent.comparators) if item is not node]
            if any(isinstance(item, ast.Constant) and isinstance(item.value, str | bool) for item in others):
                return "other"
        return None


def argument(function: Function, call: ast.Call, name: str) -> ast.expr | None:
    """The expression that ``call`` passes for parameter ``name``; None when it passes none or unpacks a list."""
    for keyword in call.keywords:
        if keyword.arg == name:
            return keyword.value
    if any(isinstance(item, ast.Starred) for item in call.args):
        return None
    names = [parameter.arg for parameter in function.positional]
    if function.own_name is not None:
        names = names[1:]
    if name in names and names.index(name) < len(call.args):
        return call.args[names.index(name)]
    return None


def is_keras(source: Source, klass: Class) -> bool:
    """Whether the class is a Keras layer or model."""
    for base in source.bases(klass):
        if isinstance(base, str) and base.startswith("keras."):
            last = base.rpartition(".")[2]
            if base.startswith(("keras.layers.", "keras.models.", "keras.applications.")) or last in (
                "Model",
                "Sequential",
                "Layer",
                "Functional",
            ):
                return True
    return False


def returned_values(function: Function) -> list[ast.expr]:
    """The values of the function's own ``return`` statements."""
    if isinstance(function.node, ast.Lambda):
        return [function.node.body]
    found: list[ast.expr] = []
    waiting: list[ast.AST] = list(function.node.body)
    while waiting:
        node = waiting.pop()
        if isinstance(node, ast.Return) and node.value is not None:
            found.append(node.value)
        elif not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda | ast.ClassDef):
            waiting.extend(ast.iter_child_nodes(node))
    return found


def _constant_kind(value: object) -> Kind | None:
    if value is None:
        return "none"
    if isinstance(value, str | bytes):
        return "string"
    return "number" if isinstance(value, int | float | complex) else None


_DISPLAY_KINDS: dict[type[ast.AST], Kind] = {
    ast.List: "list",
    ast.ListComp: "list",
    ast.Dict: "dict",
    ast.DictComp: "dict",
    ast.Set: "set",
    ast.SetComp: "set",
    ast.Tuple: "tuple",
    ast.JoinedStr: "string",
    ast.Lambda: "callable",
    ast.GeneratorExp: "object",
}
