"""Token importance, measured on the model itself: the reference for attention methods.

A text (or token ids) and a model enter, as in `explain`; an Attribution with one layer, the last,
and one position leaves. `blank_out` replaces each token, `input_gradients` and
`integrated_gradients` differentiate the model's score, and `alti_logit` follows it along the
residual stream. Where scores have a sign, a positive one
means that the token supports the prediction.

Read `target` first: the prediction whose tokens are scored. Then `replacement`, `blank_out` and
`gradients`; the last two also have a function for many texts at once, which corpora and the paper's
experiments use. Nothing here loads torch before a function is called.
"""

from attnflow.importance.alti_logit import alti_logit
from attnflow.importance.blank_out import blank_out
from attnflow.importance.gradients import input_gradients, integrated_gradients

__all__ = ["alti_logit", "blank_out", "input_gradients", "integrated_gradients"]
