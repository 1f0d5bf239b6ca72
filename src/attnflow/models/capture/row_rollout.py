"""Rollout of a few positions from queries and keys, top layer first.

The rollout of one position is a row: e_i A_L ... A_1. Multiplied from the left, it needs only
products of a row with a layer (`row_products`), never a matrix of all pairs of positions, and
memory grows with the number of tokens, not with its square. The layers are needed in reverse
order, so `KeptLayers` keeps their queries and keys: on the device of the model, in the memory of
the host, or not at all. For layers that do not fit, the model runs again, up to the lowest layer
that is done.
"""

import os
from collections import deque
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from attnflow.errors import InputError
from attnflow.head_merge import Heads
from attnflow.models.capture.call import AttentionCall, DotProductCall
from attnflow.models.capture.fused_attention import attend, has_kernels
from attnflow.models.capture.merge import merge_call
from attnflow.models.capture.mixers import ResidualOnlyCall
from attnflow.models.capture.roles import Role
from attnflow.models.capture.row_products import multiply_rows, without_values

HOST = torch.device("cpu")
SHARE = 0.5  # of the memory that is free, for queries and keys


@dataclass(frozen=True)
class Memory:
    """How many bytes queries and keys may take.

    device: on the device of the model; by default half of what is free there.
    host: in the memory of the host, for what does not fit on the device; by default half of what is
    free. A model on the CPU has only this one.
    """

    device: int | None = None
    host: int | None = None

    def __post_init__(self) -> None:
        for name, value in vars(self).items():
            if value is not None and (not isinstance(value, int) or value < 0):
                raise InputError(
                    f"{name} is {value!r}", expected="a number of bytes", fix="Use 8 * 2**30."
                )

    def resolve(self, device: torch.device) -> "Memory":
        """Replace None by a share of what is free now."""
        on_device = self.device
        if on_device is None and device.type == "cuda":
            on_device = int(torch.cuda.mem_get_info(device)[0] * SHARE)
        host = int(_free_host_memory() * SHARE) if self.host is None else self.host
        if device.type == "cpu" and self.device is not None:
            host = self.device
        return Memory(on_device, host)


@dataclass(frozen=True)
class KeptLayer:
    """One layer: its call without values, its merged weights, or neither if it mixes nothing.

    index: from 0. device: where it ran.
    """

    index: int
    role: Role
    device: torch.device
    call: DotProductCall | None = None
    matrix: Tensor | None = None

    @property
    def n_bytes(self) -> int:
        """The memory that it takes; masks are shared by layers and do not count."""
        tensors = [self.matrix]
        if self.call is not None:
            tensors = [self.call.query, self.call.key, self.call.logsumexp]
        return sum(part.numel() * part.element_size() for part in tensors if part is not None)

    def to(self, device: torch.device) -> "KeptLayer":
        """Move it to a device."""
        if self.matrix is not None:
            return replace(self, matrix=self.matrix.to(device))
        if self.call is None:
            return self
        call, logsumexp = self.call, self.call.logsumexp
        moved = replace(
            call,
            query=call.query.to(device),
            key=call.key.to(device),
            logsumexp=None if logsumexp is None else logsumexp.to(device),
        )
        moved.layer = call.layer
        return replace(self, call=moved)

    def multiply(self, rows: Tensor, heads: Heads) -> Tensor:
        """Multiply rows [batch, rows, queries] with the weights of this layer."""
        layer = self.to(self.device)
        rows = rows.to(self.device)
        if layer.call is not None:
            return multiply_rows(rows, layer.call, heads)
        if layer.matrix is not None:
            return rows @ layer.matrix
        return rows


class KeptLayers:
    """The layers that ran last, as many as fit into memory.

    n_layers: how many ran. above: layers from this index on are done, and are not kept.
    """

    def __init__(self, heads: Heads, memory: Memory) -> None:
        self.heads = heads
        self.memory = memory
        self.layers: deque[KeptLayer] = deque()
        self.n_layers = 0
        self.above: int | None = None
        self._resolved: Memory | None = None

    def add(self, call: AttentionCall, role: Role) -> None:
        """Keep a layer, and drop those that ran first if there is no more room.

        Raises Done when the model reaches a layer that is done.
        """
        index, self.n_layers = self.n_layers, self.n_layers + 1
        if self.above is not None and index >= self.above:
            raise Done
        if self._resolved is None:
            self._resolved = self.memory.resolve(call.device)
        self.layers.append(self._keep(call, role, index))
        self._fit(self._resolved)

    def start_again(self, above: int) -> None:
        """Prepare for another run of the model, for the layers below one that is done."""
        self.above, self.n_layers = above, 0

    @property
    def n_missing(self) -> int:
        """How many layers at the bottom were dropped."""
        return self.layers[0].index if self.layers else 0

    def _keep(self, call: AttentionCall, role: Role, index: int) -> KeptLayer:
        layer = KeptLayer(index, role, call.device)
        if isinstance(call, ResidualOnlyCall):
            return layer
        if isinstance(call, DotProductCall):
            # On a CPU, softmax weights need no log-sum-exp, but it makes them cheaper.
            if has_kernels(call) or call.device.type == "cpu":
                attend(call)
            return replace(layer, call=without_values(call))
        return replace(layer, matrix=merge_call(call, self.heads).to(torch.float32))

    def _fit(self, memory: Memory) -> None:
        """Move layers to the host, the first ones first, and drop those that do not fit there."""
        layers = list(self.layers)
        on_device = sum(layer.n_bytes for layer in layers if _is_on_device(layer))
        for i, layer in enumerate(layers):
            if memory.device is None or on_device <= memory.device:
                break
            if _is_on_device(layer):
                on_device -= layer.n_bytes
                layers[i] = layer.to(HOST)
        on_host = sum(layer.n_bytes for layer in layers if not _is_on_device(layer))
        self.layers = deque(layers)
        while len(self.layers) > 1 and memory.host is not None and on_host > memory.host:
            on_host -= self.layers.popleft().n_bytes


class Done(Exception):  # noqa: N818 - it ends a run, and is no error
    """Raised to end a run of the model at a layer whose rows are done."""


@dataclass
class Rows:
    """Rows of a rollout on their way down.

    own: [batch, rows, n], over positions of the model, or of its encoder.
    decoder: [batch, rows, m], over positions of the decoder, if there is one.
    """

    own: Tensor
    decoder: Tensor | None = None

    def multiply(self, layer: KeptLayer, residual: float, heads: Heads) -> None:
        """Multiply with one layer, (1 - residual) W + residual I."""
        if layer.role in ("self", "encoder"):
            self.own = _mix(layer.multiply(self.own, heads), self.own, residual)
            return
        assert self.decoder is not None
        product = layer.multiply(self.decoder, heads)
        if layer.role == "decoder":
            self.decoder = _mix(product, self.decoder, residual)
            return
        self.own = self.own.to(product.device) + (1 - residual) * product
        self.decoder = residual * self.decoder

    def result(self) -> Tensor:
        """The rows over all input tokens, those of the encoder first."""
        if self.decoder is None:
            return self.own
        return torch.cat([self.own, self.decoder.to(self.own.device)], dim=-1)


def _mix(product: Tensor, rows: Tensor, residual: float) -> Tensor:
    return (1 - residual) * product + residual * rows.to(product.device)


def _is_on_device(layer: KeptLayer) -> bool:
    """Whether the layer is on a device other than the host."""
    tensor = layer.matrix if layer.call is None else layer.call.query
    return tensor is not None and tensor.device.type != "cpu"


def _free_host_memory() -> int:
    """The bytes of memory that are available; a large number where the system does not say."""
    try:
        return os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, OSError, ValueError):  # Windows has no sysconf
        return 2**40
