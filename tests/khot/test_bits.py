"""Packed masks are numpy's, in the order of the wire."""

import numpy as np
import pytest
import torch

import khot
from khot import _bits

DTYPES = (torch.float64, torch.float32, torch.bfloat16, torch.float16, torch.int64, torch.bool)


def drawn(*shape: int) -> torch.Tensor:
    return torch.rand(shape, generator=torch.Generator().manual_seed(0)) < 0.3


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(1,), (8,), (3, 9), (2, 5, 784), (4, 0), (0, 7)])
def test_unit_i_is_bit_i_mod_8_of_byte_i_over_8(shape, dtype):
    z = drawn(*shape)
    packed = khot.pack_bits(z.to(dtype))
    assert packed.dtype == torch.uint8 and packed.shape == (*shape[:-1], -(-shape[-1] // 8))
    back = np.unpackbits(packed.numpy(), axis=-1, count=shape[-1], bitorder="little")
    assert np.array_equal(back.astype(bool), z.numpy())
    assert torch.equal(_bits._packed(z), packed)


def test_anything_that_is_not_zero_is_a_one_wherever_it_lies():
    z = torch.tensor([[0.5, 0.0], [-1.0, 3.0], [torch.nan, -0.0]]).T.requires_grad_()
    assert khot.pack_bits(z).tolist() == [[0b111], [0b010]]


@pytest.mark.gpu
def test_on_a_device_it_is_done_there():
    packed = khot.pack_bits(drawn(5, 77).cuda())
    assert packed.is_cuda and torch.equal(packed.cpu(), khot.pack_bits(drawn(5, 77)))


def test_refusals():
    with pytest.raises(TypeError, match="^pack_bits: z must be a torch.Tensor; got list"):
        khot.pack_bits([1.0])
    with pytest.raises(ValueError, match="^pack_bits: z must have at least one dimension; got a"):
        khot.pack_bits(torch.tensor(1.0))
