"""Attention edges: the attention weight of each key."""

from torch import Tensor

from attnflow.head_merge import Heads
from attnflow.models.capture.call import AttentionCall
from attnflow.models.capture.merge import merge_call


def attention_edges(call: AttentionCall, *, heads: Heads) -> Tensor:
    """Return the attention weights [batch, queries, keys], merged over heads.

    Heads are merged block by block. The output of the layer is computed from the same weights if
    that is faster than computing it separately.
    """
    return merge_call(call, heads)
