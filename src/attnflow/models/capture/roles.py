"""The role of each attention call: in a single stack, an encoder, a decoder, or between the two.

A decoder that has image or audio tokens among its own, as in LLaVA, is a single stack; what encodes
them is outside the graph. `Roles` also refuses models whose calls do not form one graph, such as
CLIP, which runs two stacks side by side.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from threading import get_ident
from typing import Any, Literal, TypeAlias

from torch import nn

from attnflow.errors import AttentionError
from attnflow.models.capture.call import AttentionCall, ReturnedCall, describe_model
from attnflow.models.capture.mixers import MixingCall, ResidualOnlyCall

# "self" is the only role in a model that is not an encoder-decoder.
Role: TypeAlias = Literal["self", "encoder", "decoder", "cross"]

# Entries of configurations: the tokens of a text that stand for parts of something else.
MEDIA_TOKENS = tuple(
    f"{kind}_token_{name}" for kind in ("image", "audio", "video") for name in ("id", "index")
)


class Roles:
    """The roles, shapes and modules of all attention calls, in the order in which they run.

    Inside a decoder, self-attention and cross-attention alternate.
    """

    def __init__(self, model: nn.Module) -> None:
        self.model = model
        self.named = dict(model.named_modules())
        encoder, decoder = _find_encoder_decoder(self.named.values())
        self.encoder = set() if encoder is None else {id(module) for module in encoder.modules()}
        self.decoder = set() if decoder is None else {id(module) for module in decoder.modules()}
        language = None if self.decoder else _find_language_model(self.named.values())
        self.stack = None if language is None else {id(module) for module in language.modules()}
        self.modules: list[nn.Module | None] = []
        self.runs: dict[str, int] = {}  # how often each model of transformers inside ran
        self.roles: list[Role] = []
        self.shapes: list[tuple[int, int, int, int]] = []
        # The layers without attention, from 0, by the class of their module.
        self.mixing: dict[int, str] = {}
        self.residual_only: dict[int, str] = {}

    @property
    def is_encoder_decoder(self) -> bool:
        """Whether the model has an encoder and a decoder."""
        return bool(self.decoder)

    @contextmanager
    def count_runs(self) -> Iterator[None]:
        """Count how often each model of transformers inside the model runs, in this thread."""
        thread = get_ident()

        def make_counter(name: str) -> Callable[..., None]:
            def count(*_: Any) -> None:
                self.runs[name] = self.runs.get(name, 0) + (get_ident() == thread)

            return count

        hooks = [
            module.register_forward_pre_hook(make_counter(name))
            for name, module in self.named.items()
            if _is_transformers_model(module)
        ]
        try:
            yield
        finally:
            for hook in hooks:
                hook.remove()

    def has(self, call: AttentionCall) -> bool:
        """Whether a call belongs to the graph; those of an image encoder do not."""
        return self.stack is None or id(call.module) in self.stack

    def add(self, call: AttentionCall) -> Role:
        """Record the next call, name it by its number, and return its role.

        Raises AttentionError for self-attention with different numbers of queries and keys.
        """
        role: Role = "self"
        if self.is_encoder_decoder:
            if id(call.module) in self.encoder or _returned_by_encoder(call):
                role = "encoder"
            else:
                role = "cross" if self.roles and self.roles[-1] == "decoder" else "decoder"
        call.layer = f"layer {len(self.roles) + 1}"
        self._check_square(call, role)
        for kind, layers in ((MixingCall, self.mixing), (ResidualOnlyCall, self.residual_only)):
            if isinstance(call, kind):
                layers[len(self.roles)] = type(call.module).__name__
        self.modules.append(call.module)
        self.roles.append(role)
        self.shapes.append(call.shape)
        return role

    def describe_mixers(self) -> dict[str, str]:
        """What to say in the settings of a graph about layers without attention."""
        kinds = {"mixing": self.mixing, "residual_only": self.residual_only}
        return {name: _list_layers(layers) for name, layers in kinds.items() if layers}

    def finish(self) -> None:
        """Check that all calls together form one stack, or an encoder-decoder.

        Raises AttentionError if they do not, or if there are none.
        """
        if len(self.roles) == len(self.residual_only):
            raise AttentionError(
                f"{describe_model(self.model)} ran without attention",
                expected="at least one attention layer",
                fix="Use a model of transformers, or one that calls nn.MultiheadAttention or "
                "scaled_dot_product_attention.",
            )
        if self.is_encoder_decoder:
            self._check_encoder_decoder()
        else:
            self._check_single_stack()

    def _check_square(self, call: AttentionCall, role: Role) -> None:
        _, _, n_queries, n_keys = call.shape
        if role == "cross" or n_queries == n_keys:
            return
        raise AttentionError(
            f"{call.layer} of {describe_model(self.model)} has {n_queries} queries and {n_keys} "
            "keys",
            expected="as many queries as keys",
            fix="Pass the whole input at once, without past_key_values. For cross-attention, pass "
            "the whole encoder-decoder.",
        )

    def _check_encoder_decoder(self) -> None:
        counts = {role: self.roles.count(role) for role in ("encoder", "decoder", "cross")}
        if 0 in counts.values() or counts["decoder"] != counts["cross"]:
            layers = ", ".join(f"{role} {number}" for role, number in counts.items())
            raise AttentionError(
                f"{describe_model(self.model)} ran these numbers of attention layers: {layers}",
                expected="encoder layers, and one cross-attention per decoder layer",
                fix="Pass the inputs of both encoder and decoder, and no encoder_outputs.",
            )

    def _check_single_stack(self) -> None:
        towers = self._towers()
        for name in towers:
            if self.runs.get(name, 1) > 1 and self.modules[0] is not None:
                raise AttentionError(
                    f"{name or describe_model(self.model)} ran {self.runs[name]} times in one "
                    f"forward pass of {describe_model(self.model)}",
                    expected="one run, since each run is a graph of its own",
                    fix=f"Capture model.{name} alone, with the inputs of one run.",
                )
        if len(towers) == 1 and len({shape[:1] + shape[2:] for shape in self.shapes}) == 1:
            return
        stacks = "; ".join(
            f"{name} ({len(shapes)} layers, {_describe_sizes(shapes)})"
            for name, shapes in towers.items()
        )
        raise AttentionError(
            f"{describe_model(self.model)} ran attention over different inputs: {stacks}",
            expected="one stack of layers over the same positions",
            fix=f"Capture one of them with its own inputs: model.{next(iter(towers))}."
            if len(towers) > 1
            else "Models that change the number of positions are not supported.",
        )

    def _towers(self) -> dict[str, list[tuple[int, int, int, int]]]:
        """The shapes of all calls, by the name of the innermost model of transformers."""
        names = {id(module): name for name, module in self.named.items()}
        models = [name for name, module in self.named.items() if _is_transformers_model(module)]
        models.sort(key=len)
        towers: dict[str, list[tuple[int, int, int, int]]] = {}
        for module, shape in zip(self.modules, self.shapes, strict=True):
            path = names.get(id(module), "")
            around = [name for name in models if not name or f"{path}.".startswith(f"{name}.")]
            towers.setdefault(around[-1] if around else "", []).append(shape)
        return towers


def _returned_by_encoder(call: AttentionCall) -> bool:
    return isinstance(call, ReturnedCall) and call.role == "encoder"


def _find_encoder_decoder(
    modules: Iterable[nn.Module],
) -> tuple[nn.Module | None, nn.Module | None]:
    """The encoder and the decoder of an encoder-decoder, also inside wrappers."""
    for module in modules:
        if isinstance(module, nn.Transformer):
            return module.encoder, module.decoder
        config = getattr(module, "config", None)
        if _is_transformers_model(module) and getattr(config, "is_encoder_decoder", False):
            encoder, decoder = module.get_encoder(), module.get_decoder()  # type: ignore[operator]
            if encoder is not module and decoder is not module:
                return encoder, decoder
    return None, None


def _find_language_model(modules: Iterable[nn.Module]) -> nn.Module | None:
    """The decoder inside a model that puts image or audio tokens among those of the text."""
    for module in modules:
        config = getattr(module, "config", None)
        if not _is_transformers_model(module) or not hasattr(config, "text_config"):
            continue
        if any(getattr(config, name, None) is not None for name in MEDIA_TOKENS):
            decoder = module.get_decoder()  # type: ignore[operator]
            return decoder if isinstance(decoder, nn.Module) and decoder is not module else None
    return None


def _is_transformers_model(module: nn.Module) -> bool:
    """Whether the module is a model of transformers, which is not imported here."""
    # The class first: an attribute that a module lacks is slow to look up.
    return hasattr(type(module), "set_attn_implementation") and hasattr(module, "config")


def _list_layers(layers: Mapping[int, str]) -> str:
    """Layers by the class of their module, such as "1, 3 (MambaMixer)"."""
    classes = dict.fromkeys(layers.values())
    return "; ".join(
        f"{', '.join(str(i + 1) for i, kind in layers.items() if kind == name)} ({name})"
        for name in classes
    )


def _describe_sizes(shapes: Sequence[tuple[int, int, int, int]]) -> str:
    sizes = sorted({(shape[0], shape[3]) for shape in shapes})
    return ", ".join(f"batch {batch} of {n} positions" for batch, n in sizes)
