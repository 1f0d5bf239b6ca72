"""How much each token matters to what the model predicts, measured on the model itself.

These are what attention methods are compared with: blank-out, input gradients and integrated
gradients. All give an Attribution with one layer (the last) and one position.
"""

from attnflow.importance.blank_out import blank_out
from attnflow.importance.gradients import input_gradients, integrated_gradients

__all__ = ["blank_out", "input_gradients", "integrated_gradients"]
