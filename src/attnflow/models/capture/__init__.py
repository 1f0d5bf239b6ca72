"""Attention captured while a model runs.

The life of one captured layer:

1. `api` checks the arguments and starts one forward pass, `forward.run_model`.
2. A hook sees the layer's queries, keys and values: in `transformers_hooks`, or in `torch_hooks`
   for plain torch models. It makes an AttentionCall of them, in `call`. For layers without
   attention, such as state spaces, `mixers` does.
3. `roles` decides where the layer belongs: a single stack, encoder, decoder or cross-attention.
4. An edge weighting of `attnflow.edges` turns the call into edges [batch, queries, keys]; plain
   attention is merged over heads block by block, in `merge`. `weight_gradients` serves edges that
   need a gradient.
5. The hook returns the output of the layer, and the model goes on to the next.
6. After the pass, `graphs` cuts each example down to its tokens, and builds one AttentionGraph per
   example.

`rollout_capture` has no graph. All positions: layers are multiplied in step 4. A few positions:
`row_rollout` keeps queries and keys in step 4, and multiplies rows with the layers afterwards, top
layer first, block by block (`row_products`). `fused_attention` gets the log-sum-exp that this needs
from the kernels of torch; `triton_kernels` and `triton_proximity` are kernels for NVIDIA GPUs.

For edges that need what positions add to each other, `residual_stream` follows the output of each
layer to the residual stream, as a composition of `steps`, which are `affine` maps, and
`contributions` computes the edges from that. `linear_modules` measures quantized layers.
`logit_paths` follows a score back the same way.

`padded_batch` is a faster way for corpus runs. Read `api` first, then `call`.
"""
