"""Which part of a model a call of attention belongs to: one stack, or encoder and decoder.

Also the refusal of models that run several stacks side by side, such as CLIP.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from threading import get_ident
from typing import Any, Literal, TypeAlias

from torch import nn

from attnflow.errors import AttentionError
from attnflow.models.capture.call import AttentionCall, Returned, describe_model

# "self" is the only role in a model that is no encoder-decoder.
Role: TypeAlias = Literal["self", "encoder", "decoder", "cross"]


class Roles:
    """Tells the role of each call of attention, in the order in which they come.

    Inside a decoder, self-attention and cross-attention take turns.
    """

    def __init__(self, model: nn.Module) -> None:
        self.model = model
        encoder, decoder = _parts(model)
        self.encoder = set() if encoder is None else {id(module) for module in encoder.modules()}
        self.decoder = set() if decoder is None else {id(module) for module in decoder.modules()}
        self.modules: list[nn.Module | None] = []
        self.runs: dict[str, int] = {}  # how often each model inside ran
        self.roles: list[Role] = []
        self.shapes: list[tuple[int, int, int, int]] = []

    @property
    def is_encoder_decoder(self) -> bool:
        """Whether the model has an encoder and a decoder."""
        return bool(self.decoder)

    @contextmanager
    def counting(self) -> Iterator[None]:
        """Count how often each model of transformers inside the model runs, in this thread."""
        thread = get_ident()

        def count(name: str) -> Callable[..., None]:
            def add(*_: Any) -> None:
                self.runs[name] = self.runs.get(name, 0) + (get_ident() == thread)

            return add

        hooks = [
            module.register_forward_pre_hook(count(name))
            for name, module in self.model.named_modules()
            if _is_model(module)
        ]
        try:
            yield
        finally:
            for hook in hooks:
                hook.remove()

    def of(self, call: AttentionCall) -> Role:
        """The role of the next call. Raises AttentionError if it fits none."""
        role: Role = "self"
        if self.is_encoder_decoder:
            if id(call.module) in self.encoder or _returned_by_encoder(call):
                role = "encoder"
            else:
                role = "cross" if self.roles and self.roles[-1] == "decoder" else "decoder"
        self._check(call, role)
        self.modules.append(call.module)
        self.roles.append(role)
        self.shapes.append(call.shape)
        return role

    def _check(self, call: AttentionCall, role: Role) -> None:
        _, _, n_queries, n_keys = call.shape
        if role == "cross" or n_queries == n_keys:
            return
        raise AttentionError(
            f"layer {len(self.roles) + 1} of {describe_model(self.model)} has {n_queries} "
            f"queries and {n_keys} keys",
            expected="as many",
            fix="Give the whole input in one pass, without past_key_values; for "
            "cross-attention, give the whole encoder-decoder.",
        )

    def finish(self) -> None:
        """After the model ran: check that the calls make up one stack, or an encoder-decoder.

        Raises AttentionError if not.
        """
        if not self.roles:
            raise AttentionError(
                f"no attention was seen while {describe_model(self.model)} ran",
                expected="at least one layer of it",
                fix="Give a model of transformers, or one that uses nn.MultiheadAttention or "
                "scaled_dot_product_attention.",
            )
        if self.is_encoder_decoder:
            self._check_encoder_decoder()
        else:
            self._check_one_stack()

    def _check_encoder_decoder(self) -> None:
        counts = {role: self.roles.count(role) for role in ("encoder", "decoder", "cross")}
        if 0 in counts.values() or counts["decoder"] != counts["cross"]:
            ran = ", ".join(f"{role} {number}" for role, number in counts.items())
            raise AttentionError(
                f"{describe_model(self.model)} ran this many layers of attention: {ran}",
                expected="some of each, and a cross-attention for every decoder layer",
                fix="Give the inputs of encoder and decoder, and no encoder_outputs.",
            )

    def _check_one_stack(self) -> None:
        towers = self._towers()
        for name in towers:
            if self.runs.get(name, 1) > 1 and self.modules[0] is not None:
                raise AttentionError(
                    f"{name or describe_model(self.model)} ran {self.runs[name]} times in one "
                    f"pass of {describe_model(self.model)}",
                    expected="once, since each pass is a graph of its own",
                    fix=f"Give model.{name} alone, with the inputs of one of them.",
                )
        if len(towers) == 1 and len({shape[:1] + shape[2:] for shape in self.shapes}) == 1:
            return
        ran = "; ".join(
            f"{name} ({len(shapes)} layers, {_sizes(shapes)})" for name, shapes in towers.items()
        )
        first = next(iter(towers))
        fix = (
            f"Give one of them with its own inputs: model.{first}."
            if len(towers) > 1
            else "Models that change the number of positions on the way cannot be captured."
        )
        raise AttentionError(
            f"{describe_model(self.model)} ran attention of different inputs: {ran}",
            expected="one stack of layers over the same positions",
            fix=f"{fix}",
        )

    def _towers(self) -> dict[str, list[tuple[int, int, int, int]]]:
        """The shapes of all calls, by the name of the innermost model that made them."""
        names = {id(module): name for name, module in self.model.named_modules()}
        models = sorted(
            (name for name, module in self.model.named_modules() if _is_model(module)), key=len
        )
        towers: dict[str, list[tuple[int, int, int, int]]] = {}
        for module, shape in zip(self.modules, self.shapes, strict=True):
            path = names.get(id(module), "")
            inside = [name for name in models if not name or f"{path}.".startswith(f"{name}.")]
            towers.setdefault(inside[-1] if inside else "", []).append(shape)
        return towers


def _returned_by_encoder(call: AttentionCall) -> bool:
    return isinstance(call, Returned) and call.role == "encoder"


def _parts(model: nn.Module) -> tuple[nn.Module | None, nn.Module | None]:
    """The encoder and the decoder of an encoder-decoder, found inside wrappers too."""
    for module in model.modules():
        if isinstance(module, nn.Transformer):
            return module.encoder, module.decoder
        config = getattr(module, "config", None)
        if _is_model(module) and getattr(config, "is_encoder_decoder", False):
            encoder, decoder = module.get_encoder(), module.get_decoder()  # type: ignore[operator]
            if encoder is not module and decoder is not module:
                return encoder, decoder
    return None, None


def _is_model(module: nn.Module) -> bool:
    """Whether the module is a whole model of transformers, which need not be installed."""
    return hasattr(module, "config") and hasattr(module, "set_attn_implementation")


def _sizes(shapes: Sequence[tuple[int, int, int, int]]) -> str:
    sizes = sorted({(shape[0], shape[3]) for shape in shapes})
    return ", ".join(f"batch {batch} of {n} positions" for batch, n in sizes)
