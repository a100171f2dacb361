"""The C kernels: which are used, that they agree with each other, and how they are built."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch

import khot
from khot._implicit import backward
from khot._native import build, library
from khot._native import largest as selection
from khot._native import sigmoid_topk as native
from khot._sigmoid import _forward

needs_kernels = pytest.mark.skipif(
    not khot.native_info().in_use, reason=f"needs the C kernels: {khot.native_info().reason}"
)
needs_compiler = pytest.mark.skipif(build.find_compiler() is None, reason="needs a C compiler")


def python(code: str, **environment: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", code],
        env=os.environ | environment,
        capture_output=True,
        text=True,
        check=False,
    )
    return (done.stdout + done.stderr).strip()


def rows(dtype: torch.dtype) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    """x, k, tau, g: ordinary and hard rows together."""
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(64, 501, generator=generator, dtype=torch.float64)
    x *= torch.logspace(-2, 4, 64, dtype=torch.float64).unsqueeze(-1)
    x[::5, ::7] = -torch.inf
    k = torch.rand(64, 1, generator=generator, dtype=torch.float64) * 400
    k[0], k[1] = 0, 501
    tau = torch.rand(64, 1, generator=generator, dtype=torch.float64) + 0.5
    g = torch.randn(64, 501, generator=generator, dtype=torch.float64)
    k[::5] = k[::5].clamp(max=400)
    return x.to(dtype), k, tau, g.to(dtype)


@needs_kernels
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_kernels_agree_with_torch(dtype):
    x, k, tau, g = rows(dtype)
    wanted, got = (
        _forward(x, k, tau, "sigmoid_topk", "halley"),
        native.forward(x, k, tau, (len(x), 1)),
    )
    eps = torch.finfo(dtype).eps
    assert torch.allclose(got[0], wanted[0], rtol=0, atol=max(4 * eps, 1e-11))
    assert torch.allclose(got[3], wanted[3], rtol=0, atol=max(16 * eps, 1e-10))
    assert torch.equal(got[4], wanted[4])
    c = wanted[1]
    pairs = zip(native.backward(g, x, k, tau, c), backward(g, None, x, k, tau, c), strict=True)
    for grad, reference in pairs:
        scale = reference.abs().max()
        assert float((grad - reference).abs().max() / scale) < max(16 * eps, 1e-10)


@needs_kernels
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_threads_change_no_bit(dtype):
    x, k, tau, g = rows(dtype)
    before = torch.get_num_threads()
    results = []
    try:
        for count in (1, 2, 3, 7):
            torch.set_num_threads(count)
            p, c, *others = native.forward(x, k, tau, (len(x), 1))
            results.append((p, c, *others, *native.backward(g, x, k, tau, c)))
    finally:
        torch.set_num_threads(before)
    for other in results[1:]:
        assert all(torch.equal(a, b) for a, b in zip(results[0], other, strict=True))


@pytest.fixture
def other_threads(monkeypatch):
    """How many threads each call of a kernel was given."""
    given, kernel = [], native._forward[torch.float32]
    monkeypatch.setitem(
        native._forward._functions, torch.float32, lambda *a: (given.append(a[-1]), kernel(*a))[1]
    )
    yield given
    khot.set_kernel_threads(None)


@needs_kernels
def test_kernels_use_as_many_threads_as_torch_unless_told_otherwise(other_threads):
    x = torch.randn(3, 9, generator=torch.Generator().manual_seed(0))
    first = khot.sigmoid_topk(x, 4)
    khot.set_kernel_threads(5)
    assert torch.equal(khot.sigmoid_topk(x, 4), first)
    khot.set_kernel_threads(None)
    khot.sigmoid_topk(x, 4)
    assert other_threads == [torch.get_num_threads(), 5, torch.get_num_threads()]


@pytest.mark.parametrize(
    ("count", "error", "message"),
    [
        (0, ValueError, r"count must be in \[1, 1024\]; got 0"),
        (1025, ValueError, r"count must be in \[1, 1024\]; got 1025"),
        (2.0, TypeError, "count must be an integer or None; got float"),
        (True, TypeError, "count must be an integer or None; got bool"),
    ],
)
def test_other_numbers_of_threads_are_refused(count, error, message):
    with pytest.raises(error, match=f"^set_kernel_threads: {message}"):
        khot.set_kernel_threads(count)


@needs_kernels
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_the_largest_are_found_beside_infinity_and_nan(dtype):
    inf, nan = torch.inf, torch.nan

    def largest(row: list[float], k: int) -> list[float]:
        x = torch.tensor([[row]], dtype=dtype)
        return selection.largest(x, torch.tensor([[k]]))[0, 0].tolist()

    assert largest([inf, 1, inf, -inf, inf], 2) == [1, 0, 1, 0, 0]
    assert largest([inf, inf], 0) == [0, 0]
    assert largest([-inf, -inf, 0], 2) == [1, 0, 1]
    assert largest([nan, 1, 2, nan], 1) == [0, 0, 1, 0]
    assert largest([nan] * 4, 3) == [0] * 4


@needs_kernels
def test_the_cpu_chooses_the_variant():
    info = khot.native_info()
    assert info.variant in build.VARIANTS
    assert Path(info.path) == build.object_path(info.variant)


BASELINE = """
import khot
from khot.testing import check_relaxation
check_relaxation(khot.sigmoid_topk)
for p in (2, 4 / 3):
    check_relaxation(lambda x, k, dim=-1: khot.sparse_topk(x, k, p=p, dim=dim))
print(khot.native_info())
"""


@needs_kernels
def test_the_baseline_can_be_insisted_on_and_keeps_the_promises_too():
    out = python(BASELINE, KHOT_NATIVE="baseline")
    assert out.startswith("NativeInfo(in_use=True, variant='baseline'")


def test_kernels_can_be_turned_off():
    code = "import torch, khot; "
    code += "print(khot.native_info(), float(khot.sigmoid_topk(torch.arange(9.0), 3).sum()))"
    out = python(code, KHOT_NATIVE="0")
    assert "in_use=False" in out and "reason='KHOT_NATIVE=0'" in out and out.endswith("3.0")


def test_another_wish_is_refused():
    said = "KHOT_NATIVE must be one of 0, 1, baseline, avx2; got 'fast'"
    with pytest.raises(ValueError, match=f"^khot: {said}"):
        library._Library("fast")


def test_missing_objects_are_explained(monkeypatch, tmp_path):
    monkeypatch.setattr(library, "object_path", lambda variant: tmp_path / variant)
    info = library._Library("1").info
    assert not info.in_use and "no C compiler was found" in info.reason


def test_an_object_that_cannot_be_loaded_is_explained(monkeypatch, tmp_path):
    (tmp_path / "baseline").write_text("not an object")
    monkeypatch.setattr(library, "object_path", lambda variant: tmp_path / variant)
    info = library._Library("1").info
    assert not info.in_use and "could not be loaded" in info.reason


@needs_kernels
def test_objects_older_than_their_declarations_are_turned_off(monkeypatch):
    monkeypatch.setattr(library, "_library", library._Library("1"))
    library.Kernel("khot_of_the_future", library.POINTER)
    info = library.native_info()
    assert not info.in_use and "lack khot_of_the_future_f32: build them again" in info.reason


@needs_kernels
@pytest.mark.parametrize("a", [0.0, 1e-300, 0.3, 1.0, 36.7, 500.0, 707.9, 708.0, 1e9, torch.inf])
def test_the_exponential_is_within_an_ulp(a):
    # at k = 0, grad_k is w / sum w with w = exp(-(x_max - x)): two units show exp alone
    x = torch.tensor([[0.0, -a]], dtype=torch.float64)
    k, tau = torch.zeros(1, 1, dtype=torch.float64), torch.ones(1, 1, dtype=torch.float64)
    g, c = torch.tensor([[0.0, 1.0]], dtype=torch.float64), torch.full_like(k, -torch.inf)
    e = float(torch.tensor(-a, dtype=torch.float64).exp()) if a < 708 else 0.0
    assert float(native.backward(g, x, k, tau, c)[1]) == pytest.approx(e / (1 + e), rel=4e-16)


# building


@pytest.fixture
def sources(monkeypatch, tmp_path):
    """A copy of the C sources to build in."""
    for path in (*build.HERE.glob("*.c"), *build.HERE.glob("*.h")):
        shutil.copy(path, tmp_path)
    monkeypatch.setattr(build, "HERE", tmp_path)
    return tmp_path


@pytest.mark.slow
@needs_compiler
def test_all_variants_are_built_and_nothing_else_is_left(sources):
    before = set(sources.iterdir())
    objects = build.build()
    assert build.object_path("baseline") in objects
    assert set(sources.iterdir()) - before == set(objects)


@needs_compiler
def test_a_source_that_does_not_compile_says_so_and_leaves_nothing(sources, capsys):
    for path in sources.glob("*.c"):
        path.unlink()
    (sources / "broken.c").write_text("int broken(void) { return }")
    before = set(sources.iterdir())
    with pytest.raises(OSError, match="must succeed; got(.|\n)*broken.c"):
        build.build()
    build.main()
    assert set(sources.iterdir()) == before
    assert "nothing built" in capsys.readouterr().out


def test_without_a_compiler_nothing_is_built(sources, monkeypatch, capsys):
    monkeypatch.setenv("PATH", str(sources))
    monkeypatch.delenv("CC", raising=False)
    assert build.find_compiler() is None
    assert build.build() == []
    build.main()
    assert "pure-torch path" in capsys.readouterr().out


def test_cc_is_the_compiler_if_it_exists(monkeypatch):
    monkeypatch.setenv("CC", f"{sys.executable} -m ziglang cc")
    assert build.find_compiler() == [sys.executable, "-m", "ziglang", "cc"]
    monkeypatch.setenv("CC", "no-such-compiler")
    assert build.find_compiler() is None
