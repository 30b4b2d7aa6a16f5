"""Where a tensor of a forward came from, as far as telling attention from other softmaxes needs it.

Each torch call leaves a small node (a name, shapes, what it was made from; no tensor is kept). Nodes of views and of arithmetic know
their parents, all others only whether they are constant: made from parameters, buffers and numbers alone. From a softmax's input the
chain is walked back along the axis that is normalised, to what counts that axis:

- the rows of an activation in a product of two (query × key), or in a product with a learned query: attention;
- the outputs of a layer (a product with weights): classes, experts, features;
- anything else: places of the input (pooling, linear attention), which is not decided here.

Which rule tells attention is this project's choice.
"""

import weakref
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from torch import Tensor, nn

from engine.kernels.axes import einsum_owners, matmul_owners, parent_axis, split_axis

ARITHMETIC = frozenset(
    "add sub subtract rsub mul multiply div divide true_divide neg abs pow square sqrt rsqrt exp log tanh relu leaky_relu gelu silu elu "
    "sigmoid softplus clamp clip clamp_min clamp_max minimum maximum where masked_fill nan_to_num float half bfloat16 double to type "
    "type_as contiguous clone detach dropout tril triu lerp addcmul hardtanh relu6 softcap log1p expm1 __add__ __radd__ __sub__ __rsub__ "
    "__mul__ __rmul__ __truediv__ __rtruediv__ __rdiv__ __div__ __neg__ __pow__ _to_copy threshold celu selu mish hardswish".split()
)
VIEWS = frozenset(
    "view reshape view_as expand expand_as flatten unflatten squeeze unsqueeze _unsafe_view transpose permute swapaxes swapdims movedim "
    "moveaxis __getitem__ select narrow slice mT T adjoint t".split()
)
REDUCTIONS = frozenset({"sum", "mean", "norm", "linalg_vector_norm", "logsumexp", "amax", "amin"})
MATMULS = frozenset({"matmul", "__matmul__", "bmm", "mm", "baddbmm", "mv", "inner", "__rmatmul__", "addmm"})
PAIRS = frozenset({"cdist", "pairwise_distance", "cosine_similarity"})
SOFTMAXES = frozenset("softmax _softmax _safe_softmax special_softmax softmin log_softmax _log_softmax special_log_softmax".split())
LAYERS = {"linear": -1, "conv1d": -2, "conv2d": -3, "conv3d": -4, "embedding": -1}
_DEPTH = 120


@dataclass(slots=True, eq=False)
class Node:
    """One result of a torch call: its name, shape, whether it is constant, its parents, and how a view was made."""

    name: str
    shape: tuple[int, ...]
    constant: bool
    parents: "Sequence[Node]" = ()
    how: Any = None


@dataclass(frozen=True)
class Origin:
    """What counts an axis: `kind` is one of attention, layer, constant, places; the shapes of query and key where there are such."""

    kind: str
    query: tuple[int, ...] = ()
    key: tuple[int, ...] = ()
    learned: bool = False

    @property
    def words(self) -> str:
        """For people."""
        return {
            "attention": "a learned query × keys" if self.learned else "query × key",
            "layer": "outputs of a layer of weights (classes, experts or features)",
            "constant": "constants, whatever the input",
            "places": "places of the input, scored by no query × key",
        }[self.kind]


class Trace:
    """The nodes of one context."""

    def __init__(self) -> None:
        self._nodes: dict[int, tuple[weakref.ref, Node]] = {}
        self._constants: dict[int, weakref.ref] = {}

    def learn_constants(self, modules: Iterable[nn.Module]) -> None:
        """Buffers, and tensors that modules hold as plain attributes; parameters are known by their class."""
        for module in modules:
            for value in (*module.__dict__.values(), *module._buffers.values()):
                if isinstance(value, Tensor):
                    self._constants[id(value)] = weakref.ref(value)

    def forget(self) -> None:
        """Start a forward: what is left of the last one are activations."""
        self._nodes.clear()

    def node(self, value: Tensor) -> Node:
        """The tensor's node; a tensor of unknown origin is an activation unless it is a parameter or buffer."""
        kept = self._nodes.get(id(value))
        if kept is not None and kept[0]() is value:
            return kept[1]
        return Node("", tuple(value.shape), self._is_held(value))

    def is_constant(self, value: Any) -> bool:
        """Whether a tensor is made from parameters, buffers and numbers alone."""
        kept = self._nodes.get(id(value))
        return kept[1].constant if kept is not None and kept[0]() is value else self._is_held(value)

    def _is_held(self, value: Tensor) -> bool:
        if isinstance(value, nn.Parameter):
            return True
        held = self._constants.get(id(value))
        return held is not None and held() is value

    def put(self, value: Tensor, node: Node) -> None:
        """Give a tensor a node."""
        self._nodes[id(value)] = (weakref.ref(value), node)

    def note(self, name: str, func: Callable[..., Any], args: tuple, kwargs: dict[str, Any], out: Any) -> None:
        """Remember what a call made."""
        if isinstance(out, Tensor):
            self.put(out, self._made(name, func, args, kwargs, out))
        elif isinstance(out, tuple | list):
            tensors = [x for x in out if isinstance(x, Tensor)]
            if tensors:
                constant = self._all_constant(args, kwargs)
                for each in tensors:
                    self.put(each, Node(name, tuple(each.shape), constant))
        elif name in ("__setitem__", "__set__") and args and isinstance(args[0], Tensor) and not self._all_constant(args[1:], kwargs):
            self._constants.pop(id(args[0]), None)
            self.put(args[0], Node(name, tuple(args[0].shape), False))

    def _made(self, name: str, func: Callable[..., Any], args: tuple, kwargs: dict[str, Any], out: Tensor) -> Node:
        shape = tuple(out.shape)
        if name.endswith("_") and not name.endswith("__"):
            name = name[:-1]
            if self._constants.get(id(out)) is not None and not self._all_constant(args[1:], kwargs):
                del self._constants[id(out)]
        if name in ARITHMETIC:
            parents = tuple(self.node(x) for x in (*args, *kwargs.values()) if isinstance(x, Tensor))
            return Node(name, shape, bool(parents) and all(p.constant for p in parents), parents)
        if name in VIEWS and args and isinstance(args[0], Tensor):
            parent = self.node(args[0])
            return Node(name, shape, parent.constant, (parent,), _recipe(name, func, args[1:], kwargs))
        if name in SOFTMAXES:
            parent = self.node(args[0] if args else kwargs["input"])
            return Node(name, shape, parent.constant, (parent,), softmax_axis(args, kwargs, len(shape)))
        if name in MATMULS or name in PAIRS or name == "einsum" or name in LAYERS or name in REDUCTIONS:
            flat = args[1] if name == "einsum" and len(args) == 2 and isinstance(args[1], list | tuple) else args
            parents = tuple(self.node(x) for x in (*flat, *kwargs.values()) if isinstance(x, Tensor))
            how = args[0] if name == "einsum" else (args[1:], kwargs) if name in REDUCTIONS else None
            if name in LAYERS:
                parents = parents[:2]
            return Node(name, shape, bool(parents) and all(p.constant for p in parents), parents, how)
        return Node(name, shape, self._all_constant(args, kwargs))

    def _all_constant(self, args: Sequence[Any], kwargs: dict[str, Any]) -> bool:
        """Whether nothing among the arguments depends on the input; numbers alone are constant."""
        for value in args:
            if isinstance(value, Tensor):
                if not self.is_constant(value):
                    return False
            elif isinstance(value, list | tuple) and not self._all_constant(value, {}):
                return False
        return not kwargs or self._all_constant(tuple(kwargs.values()), {})

    def origin(self, value: Tensor, axis: int) -> Origin:
        """What counts `axis` (negative) of a tensor."""
        return origin_of(self.node(value), axis)

    def exponential(self, value: Tensor) -> bool:
        """Whether a tensor comes of an exponential, by arithmetic and views."""
        return any(each.name == "exp" for each in derived_from(self.node(value)))


def origin_of(node: Node, axis: int) -> Origin:
    """What counts `axis` (negative) of the node's tensor."""
    return _walk(node, axis, _DEPTH)


def softmax_axis(args: Sequence[Any], kwargs: dict[str, Any], dimensions: int) -> int:
    """The axis (negative) of a softmax call; without one torch takes the first of 1 or 3 dimensions, else the second."""
    axis = kwargs.get("dim", args[1] if len(args) > 1 else None)
    if not isinstance(axis, int):
        axis = 0 if dimensions in (0, 1, 3) else 1
    return axis if axis < 0 else axis - dimensions


def _recipe(name: str, func: Callable[..., Any], rest: tuple, kwargs: dict[str, Any]) -> Callable[[Tensor], Tensor] | None:
    """The view again, on another tensor of the same shape; None where indices are tensors."""
    if name in ("view_as", "expand_as"):
        shape = tuple(rest[0].shape)
        return (lambda x: x.reshape(shape)) if name == "view_as" else (lambda x: x.expand(shape))
    flat = [y for x in (*rest, *kwargs.values()) for y in (x if isinstance(x, tuple | list) else (x,))]
    return None if any(isinstance(x, Tensor) for x in flat) else lambda x: func(x, *rest, **kwargs)


def _walk(node: Node, axis: int, depth: int) -> Origin:
    """Origin of an axis, from the node back."""
    if node.constant:
        return Origin("constant")
    if depth == 0 or -axis > len(node.shape):
        return Origin("places")
    if node.name in ARITHMETIC:
        full = [p for p in node.parents if len(p.shape) >= -axis and p.shape[axis] == node.shape[axis]]
        return _strongest([_walk(p, axis, depth - 1) for p in full])
    if node.name in VIEWS:
        return _viewed(node, axis, depth)
    if node.name in REDUCTIONS:
        return _reduced(node, axis, depth)
    if node.name in LAYERS and len(node.parents) > 1 and node.parents[1].constant:
        return _layer(node, axis, depth)
    if node.name in MATMULS or node.name in ("einsum", "linear") or node.name in PAIRS:
        return _product(node, axis, depth)
    return Origin("places")


def _viewed(node: Node, axis: int, depth: int) -> Origin:
    """Through a view; outputs of a layer that are split into groups stay outputs of a layer."""
    parent = node.parents[0]
    if node.how is None:
        return Origin("places")
    before = parent_axis(node.how, parent.shape, node.shape, axis)
    if before is not None:
        return _walk(parent, before, depth - 1)
    whole = split_axis(node.how, parent.shape, node.shape, axis)
    found = Origin("places") if whole is None else _walk(parent, whole, depth - 1)
    return found if found.kind == "layer" else Origin("places")


def _layer(node: Node, axis: int, depth: int) -> Origin:
    """A layer's own axis counts its outputs; along the others it keeps the scores of query and key (talking heads)."""
    data, weight = node.parents
    if axis == LAYERS[node.name]:
        return Origin("layer")
    if len(data.shape) == len(node.shape) and data.shape[axis] == node.shape[axis]:
        before = _walk(data, axis, depth - 1)
        if before.kind == "attention":
            return before
    if node.name == "linear" and weight.shape[0] == 1:  # one row of weights: a learned query
        return Origin("attention", weight.shape, data.shape, True)
    return Origin("places")


def _product(node: Node, axis: int, depth: int) -> Origin:
    parents = node.parents
    if node.name in ("baddbmm", "addmm"):
        parents = parents[1:3]
    if len(parents) < 2:
        return Origin("places")
    if node.name == "einsum":
        owners = einsum_owners(node.how, len(parents), len(node.shape), axis) if isinstance(node.how, str) else None
    elif node.name in PAIRS:
        return _broadcast(node, parents, axis)
    else:
        shapes = [p.shape for p in parents[:2]]
        if node.name == "__rmatmul__":
            shapes, parents = shapes[::-1], parents[1::-1]
        if node.name in ("linear", "inner"):
            shapes[1] = (*shapes[1][:-2], *shapes[1][:-3:-1])
        owners = matmul_owners(shapes[0], shapes[1], axis)
    owner = owners[0] if owners is not None and len(owners) == 1 else None
    if owner is None:
        return Origin("places")
    key, others = parents[owner], [p for i, p in enumerate(parents) if i != owner]
    if key.constant:
        scored = [s for p in others if len(p.shape) == len(node.shape) and (s := _walk(p, axis, depth - 1)).kind == "attention"]
        return scored[0] if scored and node.shape[axis] == others[0].shape[axis] and node.name == "einsum" else Origin("layer")
    if any(not p.constant for p in others):
        return Origin("attention", next(p for p in others if not p.constant).shape, key.shape)
    # a product with weights: a learned query where the weights stand first, or are one vector; else a layer
    weight = others[0]
    if owner > 0 or sum(n > 1 for n in weight.shape) <= 1:
        return Origin("attention", weight.shape, key.shape, True)
    if node.name == "einsum" or node.name in MATMULS:  # mixing of heads keeps what it mixes
        before = _walk(key, axis, depth - 1) if len(key.shape) == len(node.shape) and key.shape[axis] == node.shape[axis] else None
        if before is not None and before.kind == "attention":
            return before
    return Origin("places")


def _broadcast(node: Node, parents: Sequence[Node], axis: int) -> Origin:
    """Scores of all pairs by broadcasting: the key is the one that is counted along `axis`, the query the one that is not."""
    if node.name == "cdist":
        owners = matmul_owners(parents[0].shape, (*parents[1].shape[:-2], *parents[1].shape[:-3:-1]), axis)
        owner = owners[0] if len(owners) == 1 else None
    else:
        counted = [i for i, p in enumerate(parents[:2]) if len(p.shape) > -axis and p.shape[axis - 1] > 1]
        owner = counted[0] if len(counted) == 1 else None
    if owner is None or parents[owner].constant:
        return Origin("places")
    other = parents[1 - owner]
    return Origin("attention", other.shape, parents[owner].shape, other.constant)


def _reduced(node: Node, axis: int, depth: int) -> Origin:
    """A sum over features: of a product by broadcasting it is query × key."""
    parent = node.parents[0]
    before = _before_reduction(node, axis)
    if before is None:
        return Origin("places")
    if parent.name in ("mul", "multiply", "__mul__", "sub", "__sub__") and len(parent.parents) == 2:
        full = [p for p in parent.parents if len(p.shape) >= -before and p.shape[before] == parent.shape[before]]
        rest = [p for p in parent.parents if p not in full]
        if len(full) == 1 and not full[0].constant and rest:
            return Origin("attention", rest[0].shape, full[0].shape, rest[0].constant)
    return _walk(parent, before, depth - 1)


def _before_reduction(node: Node, axis: int) -> int | None:
    """The axis of a reduction's input that became `axis`."""
    parent, (args, kwargs) = node.parents[0], node.how
    dims = kwargs.get("dim", kwargs.get("axis", next((a for a in args if isinstance(a, int | tuple | list)), None)))
    if dims is None:
        return None
    gone = {d % len(parent.shape) for d in ((dims,) if isinstance(dims, int) else dims)}
    if len(node.shape) == len(parent.shape):
        return None if axis % len(parent.shape) in gone else axis
    kept = [i for i in range(len(parent.shape)) if i not in gone]
    return kept[axis] - len(parent.shape) if -axis <= len(kept) else None


def _strongest(found: list[Origin]) -> Origin:
    """Of the parts of a sum: query × key, else a layer if no part counts places, else places; constants do not count."""
    for kind in ("attention", "places", "layer"):
        for each in found:
            if each.kind == kind:
                return each
    return found[0] if found else Origin("places")


def derived_from(node: Node, depth: int = _DEPTH) -> Iterable[Node]:
    """The node and those that arithmetic and views made it from."""
    seen: set[int] = set()
    stack = [node]
    while stack and len(seen) < depth:
        each = stack.pop()
        if id(each) in seen:
            continue
        seen.add(id(each))
        yield each
        if each.name in ARITHMETIC or each.name in VIEWS:
            stack.extend(each.parents)


def own_sum(a: Node, b: Node) -> int | None:
    """The axis (negative) over which `b`, that `a` is divided by, is the sum of `a`; else None."""
    for each in derived_from(b):
        if each.name == "sum" and each.parents and each.parents[0] is a:
            args, kwargs = each.how
            dims = kwargs.get("dim", kwargs.get("axis", args[0] if args else None))
            dims = list(dims) if isinstance(dims, tuple | list) else [dims]
            if len(dims) == 1 and isinstance(dims[0], int):
                return dims[0] if dims[0] < 0 else dims[0] - len(a.shape)
    return None


def log_sum(node: Node) -> tuple[Node, int] | None:
    """`x` and the axis where the node is `x - logsumexp(x)`."""
    if node.name in ("sub", "__sub__", "subtract") and len(node.parents) == 2:
        x, total = node.parents
        for each in derived_from(total):
            if each.name == "logsumexp" and each.parents[0] is x:
                args, kwargs = each.how
                axis = kwargs.get("dim", args[0] if args else None)
                axis = axis[0] if isinstance(axis, tuple | list) and len(axis) == 1 else axis
                if isinstance(axis, int):
                    return x, axis if axis < 0 else axis - len(x.shape)
    return None
