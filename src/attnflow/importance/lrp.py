"""AttnLRP (Achtibat et al. 2024): relevance propagated backward through the model, by lxt.

The rules of propagation are those of the package lxt, which is not part of attnflow: nothing here
implements them. lxt is published under the Clear BSD License, which grants no patent rights. Its
authors state that LRP is patented, and free of charge for personal and scientific use only.

lxt changes classes of transformers for the whole process. Here it changes subclasses instead, which
the modules of one model have for the time of a call; afterwards, the model and transformers are as
they were.
"""

import sys
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from threading import RLock
from types import ModuleType
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from attnflow.errors import InputError
from attnflow.importance.gradients import differentiate
from attnflow.importance.target import input_embeddings, run
from attnflow.models.inputs import EncodedText, collate
from attnflow.models.loading import LoadedModel
from attnflow.models.model_state import evaluation_mode
from attnflow.models.prediction import Contrast
from attnflow.optional import import_optional

PURPOSE = "AttnLRP"
PREFIX = "attnflow_lrp"  # of the names of attention functions in the registry of transformers

# lxt.efficient imports all its models. These two cannot be used here: "bert" needs functions that
# transformers 5 no longer has, and "vit_torch" needs torchvision, and is for images.
UNUSED = {
    "lxt.efficient.models.bert": ("modeling_bert", "attnLRP"),
    "lxt.efficient.models.vit_torch": ("vision_transformer", "cp_LRP"),
}

# One call at a time: the first to end would restore the model while the second runs.
_lock = RLock()


class Predicted(Protocol):
    """One prediction: the position that makes it, and its target."""

    @property
    def position(self) -> int:
        """Where a language model predicts."""

    @property
    def contrast(self) -> Contrast:
        """The target, and what it is compared with."""


@dataclass(frozen=True, eq=False)
class _Rules:
    """The rules of lxt for one architecture.

    classes: the subclass with rules for each class of modules.
    functions: a copy of the attention functions, with rules: `eager_attention_forward`, and
    `ALL_ATTENTION_FUNCTIONS` by name.
    """

    classes: Mapping[type, type]
    functions: Any

    def attention(self, name: str) -> Callable[..., Any]:
        """Return the attention function with rules that takes the place of the named one."""
        if name == "eager":
            return self.functions.eager_attention_forward  # type: ignore[no-any-return]
        return self.functions.ALL_ATTENTION_FUNCTIONS[name]  # type: ignore[no-any-return]


def lrp_relevance(
    loaded: LoadedModel, encoded: EncodedText, steps: Sequence[Predicted]
) -> NDArray[np.float64]:
    """Return the relevance [tokens] of each token for the targets of all steps together.

    steps: the predictions; the relevance of their scores is summed. Positive relevance supports
    the targets. The sum is not the score: the rule for attention weights absorbs a part of it.
    lxt has its own license, without patent rights; LRP is patented, and free of charge for
    personal and scientific use only.
    Other threads must not use the model during the call.
    Raises MissingDependencyError without lxt, InputError for an architecture without rules, and if
    the rules of lxt do not fit this version of transformers.
    """
    torch = import_optional("torch", PURPOSE)
    rules = _find_rules(loaded)
    texts, positions = [encoded] * len(steps), [step.position for step in steps]
    inputs = collate(loaded, texts)
    with _lock, evaluation_mode(loaded.model):
        with torch.no_grad():
            expected = run(loaded, inputs, texts, positions)
        with _apply(rules, loaded.model):
            with torch.no_grad():
                _check_logits(loaded, expected, run(loaded, inputs, texts, positions))
            gradient, embeddings = differentiate(
                loaded,
                texts,
                positions,
                [step.contrast for step in steps],
                input_embeddings(loaded),
            )
    # lxt writes its rules as gradients: what it propagates is relevance divided by the input.
    return np.asarray((gradient * embeddings).sum(-1).sum(0).numpy())


def _find_rules(loaded: LoadedModel) -> _Rules:
    """Return the rules for a model. Raises InputError if lxt has none."""
    known = _known_maps()
    for kind in type(loaded.model).__mro__:
        module = sys.modules.get(kind.__module__)
        if module in known:
            return _make_rules(module)
    names = sorted(module.__name__.split(".")[-2] for module in known)
    raise InputError(
        f"{loaded.name} is a {type(loaded.model).__name__}, and lxt has no rules for it",
        expected=f"a model of transformers of one of these types: {', '.join(names)}",
        fix="Leave AttnLRP out for this model.",
    )


@cache
def _import_lxt() -> Any:
    """Import lxt.efficient without the models that cannot be used here.

    If this is the first import in the process, it is undone, so that a later one is complete.
    """
    import_optional("lxt", PURPOSE)
    import_optional("transformers", PURPOSE)
    if "lxt.efficient" in sys.modules:
        return sys.modules["lxt.efficient"]
    before = set(sys.modules)
    for name, (key, rules) in UNUSED.items():
        sys.modules[name] = ModuleType(name)
        vars(sys.modules[name]).update({key: sys.modules[name], rules: {}})
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about zennit, which is for images
            return import_optional("lxt.efficient", PURPOSE)
    finally:
        for name in set(sys.modules) - before:
            if name.startswith("lxt."):
                del sys.modules[name]


@cache
def _known_maps() -> Mapping[ModuleType, Mapping[Any, Callable[[Any], bool]]]:
    """Return lxt's rules by module of transformers: for each class or module, what changes it."""
    unused = {key for key, _ in UNUSED.values()}
    return {
        module: rules
        for module, rules in _import_lxt().models.DEFAULT_MAP.items()
        if module.__name__ not in UNUSED and module.__name__.split(".")[-1] not in unused
    }


@cache
def _make_rules(module: ModuleType) -> _Rules:
    """Let lxt change subclasses of the classes of a module, and copies of its functions."""
    functions: Any = ModuleType(module.__name__)
    functions.eager_attention_forward = vars(module)["eager_attention_forward"]
    functions.ALL_ATTENTION_FUNCTIONS = {
        name: function
        for name, function in vars(module)["ALL_ATTENTION_FUNCTIONS"].items()
        if not name.startswith(PREFIX)
    }
    classes: dict[type, type] = {}
    copies: dict[Any, Callable[[Any], bool]] = {}
    for target, change in _known_maps()[module].items():
        if isinstance(target, type):
            classes[target] = type(target.__name__, (target,), {"__module__": target.__module__})
        copies[classes.get(target, functions)] = change
    _import_lxt().monkey_patch(module, patch_map=copies)
    return _Rules(classes, functions)


@contextmanager
def _apply(rules: _Rules, model: Any) -> Iterator[None]:
    """Give the modules of a model the classes and attention functions with rules."""
    modules = [module for module in model.modules() if type(module) in rules.classes]
    before = [(module, type(module)) for module in modules]
    configs = {
        id(module.config): module.config
        for module in model.modules()
        if hasattr(getattr(module, "config", None), "_attn_implementation_internal")
    }
    names = [(config, config._attn_implementation) for config in configs.values()]
    try:
        for module, kind in before:
            module.__class__ = rules.classes[kind]
        for config, name in names:
            config._attn_implementation_internal = _register(rules, config.model_type, name)
        yield
    finally:
        for module, kind in before:
            module.__class__ = kind
        for config, name in names:
            config._attn_implementation_internal = name


def _register(rules: _Rules, model_type: str, name: str) -> str:
    """Register the attention function with rules for a named one, and return its name.

    The name is new, so that other models do not use the function.
    """
    transformers = import_optional("transformers", PURPOSE)
    masks = import_optional("transformers.masking_utils", PURPOSE).ALL_MASK_ATTENTION_FUNCTIONS
    own = f"{PREFIX}_{model_type}_{name}"
    transformers.AttentionInterface.register(own, rules.attention(name))
    transformers.AttentionMaskInterface.register(own, masks[name])
    return own


def _check_logits(loaded: LoadedModel, expected: Any, logits: Any) -> None:
    """Raise InputError if the model predicts something else with rules: they do not fit it."""
    torch = import_optional("torch", PURPOSE)
    tolerance = torch.finfo(logits.dtype).eps ** 0.5 * (1 + float(expected.abs().max()))
    difference = float((logits - expected).abs().max())
    if not difference <= tolerance:
        version = import_optional("transformers", PURPOSE).__version__
        raise InputError(
            f"with the rules of lxt, the logits of {loaded.name} differ by {difference:.2g}",
            expected=f"the same logits, to {tolerance:.2g}",
            fix=f"lxt does not fit transformers {version} here: leave AttnLRP out for this model.",
        )
