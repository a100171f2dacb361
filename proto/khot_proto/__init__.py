"""The messages of the khot service, and their tensors as numpy arrays."""

from khot_proto.ndarray import TensorError, from_tensor, to_tensor, write_tensor

__all__ = ["TensorError", "from_tensor", "to_tensor", "write_tensor"]
