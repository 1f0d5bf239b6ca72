"""The residual stream around each attention layer, traced while a model runs.

After attention, a model projects the heads, may normalize or scale the result, and adds it to the
residual stream; models with post-normalization normalize the sum. Names and order of these steps
differ between models. `ResidualStream` therefore follows the tensors themselves: it sees every
operation of torch and follows the output of attention through shapes, projections, biases, factors
and normalization until it is added to a tensor that existed before. Nothing here knows the names of
modules.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from inspect import signature
from typing import Any

from torch import Tensor, nn
from torch.nn import functional
from torch.overrides import TorchFunctionMode

from attnflow.errors import AttentionError
from attnflow.models.capture.affine import Affine
from attnflow.models.capture.call import AttentionCall, describe_model
from attnflow.models.capture.linear_modules import hides_operations, measure_linear
from attnflow.models.capture.steps import PROJECTIONS, STEPS, Followed, TracedLayer

# Operations that change the shape or type of a tensor, but not what a position holds.
SHAPES = frozenset(
    {
        *("reshape", "view", "flatten", "unflatten", "unsqueeze", "squeeze", "contiguous", "clone"),
        *("transpose", "permute", "swapaxes", "movedim", "detach", "dropout", "alias"),
        *("to", "type", "type_as", "float", "half", "bfloat16", "double", "cpu", "cuda"),
    }
)

_MULTI_HEAD = signature(functional.multi_head_attention_forward)


class ResidualStream(TorchFunctionMode):
    """While active, follows the output of each attention layer into the residual stream.

    Call `start` with each attention call before the layer returns, and `finish` after the model has
    run. `on_layer` gets each TracedLayer as soon as it is complete.

    last: after the run, the last tensor of the residual stream, with the normalization that follows
    the last layer, and its map from the end of that layer. Not detached from its gradient.
    """

    def __init__(self, on_layer: Callable[[TracedLayer], None]) -> None:
        super().__init__()
        self.on_layer = on_layer
        self.n_layers = 0
        self.open: list[TracedLayer] = []
        self.followed: dict[int, Followed] = {}
        # Tensors computed since the last attention. They are kept, so that no id is used twice.
        self.recent: dict[int, Tensor] = {}
        # Tensors computed from the branch of attention by other steps than those that are followed.
        self.lost: dict[int, Tensor] = {}
        self.output: Tensor | None = None  # of attention, within the current operation
        self.paused = False  # while a complete layer is handed over
        self.last: tuple[Tensor, Affine] | None = None

    def start(self, call: AttentionCall) -> None:
        """Begin to follow a layer, whose attention is being computed."""
        for layer in self.open[:-1]:
            self._complete(layer)
        self.followed = {
            key: found for key, found in self.followed.items() if found.stage != "tail"
        }
        layer = TracedLayer(call, self.n_layers)
        self.n_layers += 1
        self.open.append(layer)
        self.recent = {}
        self.lost = {}
        call.on_output = partial(self._follow_output, layer)

    def skip(self) -> None:
        """Count a layer that is not followed."""
        self.n_layers += 1

    def finish(self) -> None:
        """Complete the layers that are still open."""
        for layer in list(self.open):
            self._complete(layer)

    @contextmanager
    def follow_modules(self, model: nn.Module) -> Iterator[None]:
        """Follow linear modules of the model whose operations cannot be seen, as quantized ones."""
        hooks = []
        for module in model.modules():
            if hides_operations(module):
                hooks.append(module.register_forward_pre_hook(self._enter_module))
                hooks.append(module.register_forward_hook(self._leave_module, always_call=True))
        try:
            yield
        finally:
            for hook in hooks:
                hook.remove()

    def _enter_module(self, *_: Any) -> None:
        self.paused = True

    def _leave_module(self, module: nn.Module, args: tuple[Any, ...], result: Any) -> None:
        """Follow a linear module from its argument to its result; None after an error."""
        if isinstance(result, Tensor):
            source = self._find(args[0])
            if source is None:
                self.recent[id(result)] = result
            elif source.stage == "branch":
                self._measure_module(source, module, result)
        self.paused = False

    def _measure_module(self, source: Followed, module: nn.Module, result: Tensor) -> None:
        measured = measure_linear(module, source.tensor, result)
        if measured is not None:
            matrix, bias = measured
            self._advance(source, source.map.project(matrix, source.batched(bias)), result)

    def __torch_function__(
        self, func: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        starts = func is functional.multi_head_attention_forward  # the layer starts inside
        if self.paused or not (self.open or self.followed or starts):
            return func(*args, **kwargs)
        name = getattr(func, "__name__", "")
        changed: Tensor | None = None
        if name in {"add_", "__iadd__"}:
            # The sum may overwrite the residual stream or the branch, which are needed later.
            changed = args[0].clone()
            found = self._find(args[0])
            if found is not None:
                self._keep(replace(found, tensor=changed))
            elif id(args[0]) in self.recent:
                self.recent[id(changed)] = changed
        self.output = None
        result = func(*args, **kwargs)
        if starts and id(self.output) in self.followed:
            self._follow_module(_MULTI_HEAD.bind(*args, **kwargs).arguments, result[0])
        elif isinstance(result, Tensor):
            operands = args if changed is None else (changed, *args[1:])
            self._follow(name.strip("_"), operands, kwargs, result)
        elif isinstance(result, tuple | list):  # the parts of a tensor
            self.recent |= {id(part): part for part in result if isinstance(part, Tensor)}
        return result

    def _follow_output(self, layer: TracedLayer, output: Tensor) -> None:
        """Begin with the output of attention, [batch, queries, heads, width] in some order."""
        self.output = output
        first = layer.call.features_first
        self._keep(Followed(output, layer, "branch", Affine(), features_first=first))

    def _follow_module(self, arguments: dict[str, Any], output: Tensor) -> None:
        """Follow nn.MultiheadAttention, which projects the heads inside one function of torch."""
        start = self.followed[id(self.output)]
        projected = start.map.project(arguments["out_proj_weight"].T, arguments["out_proj_bias"])
        is_batch = output.dim() == 3
        self._keep(Followed(output, start.layer, "branch", projected, sequence_first=is_batch))

    def _find(self, value: Any) -> Followed | None:
        return self.followed.get(id(value)) if isinstance(value, Tensor) else None

    def _keep(self, followed: Followed) -> None:
        self.followed[id(followed.tensor)] = followed

    def _follow(
        self, name: str, args: tuple[Any, ...], kwargs: dict[str, Any], result: Tensor
    ) -> None:
        """Follow one operation from its arguments to its result."""
        sources = [found for found in map(self._find, args) if found is not None]
        if not sources:
            if any(id(arg) in self.lost for arg in args):
                self.lost[id(result)] = result
            elif not self._only_scales(name, args):
                self.recent[id(result)] = result
        elif self._find(args[0]) is sources[0] and (
            name in SHAPES or (name == "getitem" and result.shape == args[0].shape)
        ):
            source = sources[0]
            swapped = {*args[1:3]} if name in {"transpose", "swapaxes"} else set()
            turned = source.sequence_first != (swapped == {0, 1} and source.map.matrix is not None)
            last = source.features_first and swapped not in ({1, 2}, {-1, -2})
            self._keep(replace(source, tensor=result, sequence_first=turned, features_first=last))
        elif name in {"add", "iadd"}:
            self._follow_sum(args[0], args[1], result)
        elif name in STEPS and len(sources) == 1:
            self._follow_step(sources[0], name, args, kwargs, result)
        elif name == "sub" and sources[0].tensor is args[0] and sources[-1].stage == "mean":
            self._advance(sources[0], sources[0].map.center(), result)
        if id(result) not in self.followed and any(source.stage == "branch" for source in sources):
            self.lost[id(result)] = result

    def _only_scales(self, name: str, args: tuple[Any, ...]) -> bool:
        """Whether an operation only scales or reshapes a tensor that is older than attention."""
        if name not in SHAPES and name not in {"mul", "div"}:
            return False
        large = [arg for arg in args if isinstance(arg, Tensor) and arg.dim() > 1]
        return len(large) == 1 and id(large[0]) not in self.recent

    def _follow_step(
        self,
        source: Followed,
        name: str,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        result: Tensor,
    ) -> None:
        """Follow a projection, a factor or a normalization."""
        if source.stage == "mean" or (source.stage != "branch" and name in PROJECTIONS):
            return
        if name == "mean":
            if kwargs.get("dim", args[1] if len(args) > 1 else None) in (-1, (-1,), [-1]):
                self._keep(Followed(result, source.layer, "mean", source.map))
            return
        self._advance(source, STEPS[name](source, args, kwargs), result)
        if source.stage == "block" and name == "layer_norm":
            self._complete(source.layer)

    def _advance(self, source: Followed, step: Affine | None, result: Tensor) -> None:
        """Follow the result of an operation; step: its map from the start of the stage."""
        if step is None or source.beside:
            return
        self._keep(replace(source, tensor=result, map=step))
        if source.stage == "block" and step.scale is not None:
            source.layer.norms[1:] = [step]
            self.last = result, Affine()
        elif source.stage == "tail":
            self.last = result, step

    def _follow_sum(self, first: Any, second: Any, result: Tensor) -> None:
        """Follow a sum: a bias, an adapter, another branch, or the residual connection."""
        found, other = self._find(first), second
        if found is None or found.stage != "branch":
            swapped = self._find(second)
            if swapped is not None:
                found, other = swapped, first
        assert found is not None
        if found.stage == "branch":
            self._follow_branch_sum(found, other, result)
        elif found.stage == "stream" and getattr(other, "shape", None) == found.tensor.shape:
            self._leave_stream(found, result)

    def _follow_branch_sum(self, branch: Followed, other: Any, result: Tensor) -> None:
        found = self._find(other)
        if found is not None and found.stage == "branch":
            if found.layer is branch.layer:
                self._advance(branch, branch.map.join(found.map), result)
            else:
                beside = (*branch.beside, found, *found.beside)
                self._keep(replace(branch, tensor=result, addend=branch.alone, beside=beside))
            return
        if not isinstance(other, Tensor) or other.dim() <= 1:
            self._advance(branch, branch.map.add(other), result)
            return
        if other.shape != branch.tensor.shape or id(other) in self.lost:
            return
        if id(other) in self.recent:  # another branch, as in parallel blocks
            self._keep(replace(branch, tensor=result, addend=branch.alone))
            return
        for member in (branch, *branch.beside):
            member.layer.branch = member.map
            member.layer.added = member.batched(member.alone)
            member.layer.residual = branch.batched(other)
        layer = branch.layer
        if found is not None and found.stage == "block":
            self._complete(found.layer)
        elif found is not None:  # no feed-forward layer in between
            self._leave_stream(found, None)
        if branch.addend is not None:
            for member in sorted((branch, *branch.beside), key=lambda member: member.layer.index):
                self._complete(member.layer)
            self._start_tail(branch, result)
        else:
            self._keep(Followed(result, layer, "stream", Affine(), branch.sequence_first))

    def _leave_stream(self, stream: Followed, result: Tensor | None) -> None:
        """Note how the stream enters the next layer: normalized, or as it is.

        result: the stream after a feed-forward layer; None if an attention layer follows.
        """
        layer = stream.layer
        if stream.map.scale is None:
            self._complete(layer)
            if result is not None:
                self._start_tail(stream, result)
            return
        layer.norms = [stream.map]
        layer.normalized = stream.batched(stream.tensor)
        if result is None:
            self._complete(layer)
        else:
            self._keep(Followed(result, layer, "block", Affine(), stream.sequence_first))

    def _start_tail(self, source: Followed, result: Tensor) -> None:
        """Follow the stream after a block, in case no other attention layer comes after it."""
        self.last = result, Affine()
        tail = replace(source, tensor=result, stage="tail", map=Affine(), addend=None, beside=())
        self._keep(tail)

    def _complete(self, layer: TracedLayer) -> None:
        """Hand over a layer, and forget its tensors."""
        self.open.remove(layer)
        self.followed = {
            key: found for key, found in self.followed.items() if found.layer is not layer
        }
        if layer.branch is None:
            model = layer.call.model
            raise AttentionError(
                f"the output of attention in {layer.call.layer} of {describe_model(model)} could "
                "not be followed to the residual stream",
                expected="projections, biases, factors and normalization, and then a sum",
                fix="Use edges='attention', 'value' or 'gradient'.",
            )
        self.paused = True
        try:
            self.on_layer(layer)
        finally:
            self.paused = False
