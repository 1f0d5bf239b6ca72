"""The output of an attention layer together with the log-sum-exp of its scores.

The kernels of torch compute both, but `scaled_dot_product_attention` returns only the output. With
the log-sum-exp, weights can be computed again later, tile by tile, without a softmax over whole
rows. `attend` calls the kernel that torch would choose by itself.
"""

from functools import cache
from importlib.util import find_spec
from typing import Any

import torch
from torch import Tensor
from torch.nn.attention import SDPBackend

from attnflow.models.capture.call import AttentionCall, DotProductCall

MAX_WIDTH = 256  # of the heads that the kernels take
KERNEL_TYPES = (torch.bfloat16, torch.float16, torch.float32)


def has_kernels(call: AttentionCall) -> bool:
    """Whether `triton_kernels`, for NVIDIA GPUs, can compute the weights of this layer."""
    return (
        isinstance(call, DotProductCall)
        and call.query.is_cuda
        and call.query.dtype in KERNEL_TYPES
        and call.query.shape[-1] <= MAX_WIDTH
        and call.position_bias is None
        and call.known_weights is None
        and not torch.is_grad_enabled()
        and has_triton()
    )


@cache
def has_triton() -> bool:
    """Whether Triton is installed, and the GPU computes in bfloat16."""
    return find_spec("triton") is not None and torch.cuda.get_device_capability() >= (8, 0)


def attend(call: DotProductCall) -> bool:
    """Set the output and the log-sum-exp of a call, and return whether a kernel could.

    Calls with a mask or other terms in their scores are left to the model.
    """
    if call.logsumexp is not None:
        return True
    terms = (call.mask, call.position_bias, call.softcap, call.sinks)
    if any(term is not None for term in terms) or torch.is_grad_enabled():
        return False
    run = _on_cpu if call.device.type == "cpu" else _on_gpu if call.query.is_cuda else None
    result = None if run is None else run(call)
    if result is None:
        return False
    call.output, call.logsumexp = result
    return True


def _on_cpu(call: DotProductCall) -> tuple[Tensor, Tensor] | None:
    query, key, value = call.query, call.for_heads(call.key), call.for_heads(call.value)
    if _choose(query, key, value, call, grouped=False) != SDPBackend.FLASH_ATTENTION:
        return None
    output, logsumexp = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu(
        query, key, value, 0.0, call.causal, scale=call.scaling
    )
    return output, logsumexp


def _on_gpu(call: DotProductCall) -> tuple[Tensor, Tensor] | None:
    tensors = (call.query, call.key, call.value)
    grouped = call.key.shape[1] != call.query.shape[1]
    kernel = _choose(*tensors, call, grouped=grouped)
    aten: Any = torch.ops.aten
    options: tuple[Any, ...]
    if kernel == SDPBackend.CUDNN_ATTENTION:
        run, options = aten._scaled_dot_product_cudnn_attention, (None, True, 0.0, call.causal)
    elif kernel == SDPBackend.FLASH_ATTENTION and call.query.shape[-1] % 8 == 0:
        run, options = aten._scaled_dot_product_flash_attention, (0.0, call.causal)
    elif kernel == SDPBackend.EFFICIENT_ATTENTION and not grouped:
        run, options = aten._scaled_dot_product_efficient_attention, (None, True, 0.0, call.causal)
    else:
        return None
    output, logsumexp, *_ = run(*tensors, *options, scale=call.scaling)
    n_queries = call.query.shape[2]  # the kernel may pad rows, or add an axis
    return output, logsumexp.reshape(*call.query.shape[:2], -1)[..., :n_queries]


def _choose(
    query: Tensor, key: Tensor, value: Tensor, call: DotProductCall, *, grouped: bool
) -> Any:
    """The kernel that scaled_dot_product_attention would run."""
    chosen: Any = torch._fused_sdp_choice(
        query, key, value, None, 0.0, call.causal, scale=call.scaling, enable_gqa=grouped
    )
    return SDPBackend(chosen)
