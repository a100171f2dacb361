"""The k-subset law on rows: both forms of it, on both paths, against enumeration."""

import math
import subprocess
import sys

import pytest
import torch

import khot
from khot import _ksubset, _ksubset_mixture, _ksubset_ratios, testing
from khot._native import library

SIZES = [(1, 1), (2, 1), (5, 2), (6, 5), (8, 1), (8, 4), (8, 7)]
SCALES = [0.0, 0.1, 1.0, 5.0, 50.0]


def logits(n, scale, *, seed=0):
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(n, generator=generator, dtype=torch.float64)
    return (x * scale).clamp(-50, 50)


def column(k):
    return torch.tensor([[float(k)]], dtype=torch.float64)


def enumerated(theta, k):
    """log Z, the marginals and the pairs."""
    z = testing.subsets(len(theta), k)
    scores = torch.where(z > 0, theta, 0.0).sum(-1)
    p = scores.softmax(0)
    return float(scores.logsumexp(0)), p @ z, z.T @ (p.unsqueeze(-1) * z)


def log_partition(theta, k):
    _, rest, c = _ksubset.law(theta, k)
    positive = (theta.double() + c).clamp(min=0).sum(-1, keepdim=True)
    return rest + positive - k * c


@pytest.mark.usefixtures("path")
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize("scale", SCALES)
@pytest.mark.parametrize(("n", "k"), SIZES)
def test_the_law_is_that_of_all_subsets(n, k, scale, dtype):
    theta = logits(n, scale).to(dtype)
    log_z, mu, pairs = enumerated(theta.double(), k)
    covariance = pairs - mu * mu.unsqueeze(-1)
    tolerance = 1e-12 if dtype is torch.float64 else 1e-6
    rows = theta.unsqueeze(0)
    got = _ksubset.law(rows, column(k))[0]
    assert got.dtype == dtype and float((got[0] - mu).abs().max()) < tolerance
    assert float(log_partition(rows, column(k))) == pytest.approx(log_z, abs=100 * tolerance)
    g = logits(n, 1, seed=1).to(dtype)
    with torch.no_grad():
        product = _ksubset.times_covariance(rows, column(k), g.unsqueeze(0))[0]
    assert float((product - covariance @ g.double()).abs().max()) < tolerance
    joint = _ksubset.joint(rows, column(k))[0]
    assert float((joint - pairs).abs().max()) < tolerance


HARD = [(name, x, round(k)) for name, x, k in testing.hard_rows() if k >= 1]


@pytest.mark.parametrize(("name", "x", "k"), HARD, ids=[name for name, _, _ in HARD])
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_hard_rows(name, x, k, dtype, path):
    if path == "torch" and x.numel() > 1000:
        return  # the torch path takes seconds, and nothing new
    rows, k = x.to(dtype).unsqueeze(0), column(min(k, int((x > -torch.inf).sum())))
    mu, rest, _ = _ksubset.law(rows, k)
    assert bool(rest.isfinite().all()) and bool(((mu >= 0) & (mu <= 1)).all())
    assert bool((mu[rows == -torch.inf] == 0).all())
    total = float(mu.double().sum())
    assert total == pytest.approx(float(k), rel=1e-6 if dtype is torch.float32 else 1e-11)
    with torch.no_grad():
        product = _ksubset.times_covariance(rows, k, torch.ones_like(rows))
        along = _ksubset.times_covariance(rows, k, rows.nan_to_num(neginf=0.0).clamp(-9, 9))
    # J does not see a constant, and is a covariance
    assert float(product.abs().max()) < 1e-6
    assert bool(along.isfinite().all())
    if path == "native" and x.numel() <= 1000:
        z = _ksubset.draw(rows, k, seeds=khot.row_seeds(0, 1), samples=20)
        assert bool((z.sum(-1) == k.squeeze()).all()) and bool(
            (z[:, rows == -torch.inf] == 0).all()
        )


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_both_paths_agree(dtype, monkeypatch):
    generator = torch.Generator().manual_seed(0)
    theta = torch.randn(40, 301, generator=generator, dtype=torch.float64)
    theta = (theta * torch.logspace(-1, 3, 40).unsqueeze(-1)).to(dtype)
    theta[::3, ::4] = -torch.inf
    k = torch.randint(1, 200, (40, 1), generator=generator).double()
    k[0], k[1] = 0, 301
    g = torch.randn(40, 301, generator=generator).to(dtype)
    seeds = khot.row_seeds(0, 40)

    def results():
        with torch.no_grad():
            product = _ksubset.times_covariance(theta, k, g)
        draws = _ksubset.draw(theta, k, seeds=seeds, samples=2, first=5)
        return *_ksubset.law(theta, k), product, draws

    native = results()
    monkeypatch.setattr(library._library, "object", None)
    by_torch = results()
    tolerance = 1e-11 if dtype is torch.float64 else 1e-5
    for name, a, b in zip(("mu", "rest", "c", "J g"), native, by_torch, strict=False):
        scale = max(1.0, float(b.abs().max()))
        assert float((a - b).abs().max()) / scale < tolerance, name
    assert torch.equal(native[-1], by_torch[-1])
    assert bool((native[-1].sum(-1) == k.T).all())


def test_the_ratios_and_the_mixture_are_one_law():
    """What a walk multiplies is the probability that the mixture has."""
    generator = torch.Generator().manual_seed(0)
    theta = torch.randn(1, 60, generator=generator, dtype=torch.float64) * 3
    k = column(25)
    _, rest, c = _ksubset.law(theta, k)
    t = theta + c
    table = _ksubset_ratios._Table(t.exp(), 25)
    z = _ksubset.draw(theta, k, seeds=khot.row_seeds(1, 1), samples=50)[:, 0]
    for row in z:
        m, log_p = 25, 0.0
        for i in range(60):
            s = float(table.after(59 - i)[0, m - 1]) if m else math.inf
            w = float(t[0, i].exp())
            log_p += math.log(w / (w + s)) if row[i] else (math.log(s / (w + s)) if m else 0.0)
            m -= int(row[i])
        if m == 0:
            wanted = float((t[0] * row).sum() - t[0].clamp(min=0).sum() - rest)
            assert log_p == pytest.approx(wanted, abs=1e-12)
        table = _ksubset_ratios._Table(t.exp(), 25)


@pytest.mark.usefixtures("path")
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize(("n", "k", "scale"), [(8, 4, 1.5), (5, 1, 1.0), (6, 5, 2.0), (7, 3, 0.0)])
def test_draws_follow_the_law(n, k, scale, dtype):
    draws = 40_000
    theta = logits(n, scale).to(dtype)
    u = torch.rand(draws, 1, n, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    z = _ksubset.draw(theta.unsqueeze(0), column(k), u=u)[:, 0].double()
    subsets = testing.subsets(n, k)
    p = (subsets @ theta.double()).softmax(0)
    code = 2.0 ** torch.arange(n, dtype=torch.float64)
    counts = ((z @ code).unsqueeze(-1) == subsets @ code).double().sum(0)
    assert int(counts.sum()) == draws
    assert bool(((counts / draws - p).abs() <= 5 * (p * (1 - p) / draws).sqrt()).all())


def test_one_number_decides_a_unit():
    """With u below q the first unit is taken, above it is not: q is its marginal."""
    theta, k = logits(6, 1).unsqueeze(0), column(3)
    q = float(_ksubset.law(theta, k)[0][0, 0])
    for edge, taken in ((q - 1e-12, 1.0), (q + 1e-12, 0.0)):
        u = torch.full((1, 1, 6), edge, dtype=torch.float64)
        assert float(_ksubset.draw(theta, k, u=u)[0, 0, 0]) == taken


def many(dtype):
    generator = torch.Generator().manual_seed(3)
    theta = torch.randn(19, 1000, generator=generator, dtype=torch.float64) * 2
    theta[::4, ::3] = -torch.inf
    k = torch.randint(300, 600, (19, 1), generator=generator).double()
    return theta.to(dtype), k, torch.randn(19, 1000, generator=generator).to(dtype)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_a_row_is_the_same_alone_and_at_any_number_of_threads(dtype):
    if not khot.native_info().in_use:
        pytest.skip(f"needs the C kernels: {khot.native_info().reason}")
    theta, k, g = many(dtype)
    seeds = khot.row_seeds(0, 19)

    def results(rows):
        with torch.no_grad():
            product = _ksubset.times_covariance(theta[rows], k[rows], g[rows])
        law = _ksubset.law(theta[rows], k[rows])
        return *law, product, _ksubset.draw(theta[rows], k[rows], seeds=seeds[rows])[0]

    before = torch.get_num_threads()
    try:
        torch.set_num_threads(1)
        whole = results(slice(None))
        torch.set_num_threads(3)
        assert all(map(torch.equal, results(slice(None)), whole))
    finally:
        torch.set_num_threads(before)
    for b in range(19):
        alone = results(slice(b, b + 1))
        assert all(torch.equal(one[0], all_[b]) for one, all_ in zip(alone, whole, strict=True))


def test_a_table_in_parts_gives_the_same_draws(monkeypatch):
    theta, k, _ = many(torch.float64)
    seeds = khot.row_seeds(0, 19)
    native = _ksubset.draw(theta, k, seeds=seeds)  # 4 MB hold about a fourth of it
    monkeypatch.setattr(library._library, "object", None)
    monkeypatch.setattr(_ksubset_ratios, "TABLE", 1 << 26)
    whole = _ksubset.draw(theta, k, seeds=seeds)
    monkeypatch.setattr(_ksubset_ratios, "TABLE", 1 << 18)
    assert torch.equal(_ksubset.draw(theta, k, seeds=seeds), whole)
    assert torch.equal(native, whole)


MEMORY = """
import resource, torch, khot
from khot import _ksubset
torch.set_num_threads(1)
theta, k = torch.randn(128, 1000), torch.full((1, 1), 500.0).double()
seeds = khot.row_seeds(0, 128)
def run(theta):
    with torch.no_grad():
        kept.append((_ksubset.law(theta, k), _ksubset.times_covariance(theta, k, theta)))
        kept.append(_ksubset.draw(theta, k, seeds=seeds[: len(theta)]))
kept = []
run(theta[:1])
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
run(theta)
print((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="ru_maxrss is in kilobytes on Linux alone")
def test_memory_is_bounded():
    """At n = 1000 and k = 500 all tables together would take 250 MB."""
    done = subprocess.run(
        [sys.executable, "-c", MEMORY], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert float(done.stdout) < 50


def test_numbers_given_are_those_of_the_seeds():
    from khot._random import Source

    theta, k = logits(30, 1).expand(4, -1), column(9)
    seeds = khot.row_seeds(2, 4)
    u = Source(seeds, 5).uniforms(30)
    drawn = _ksubset.draw(theta, k, seeds=seeds, samples=5)
    assert torch.equal(_ksubset.draw(theta, k, u=u), drawn)
    assert torch.equal(_ksubset.draw(theta, k, seeds=seeds, first=3, samples=2), drawn[3:])


@pytest.mark.parametrize("v", [0.0, 1e-9, 0.01, 0.3, 1.0, 5.0, 21.0, 23.0, 50.0, 1e3, 1e6])
@pytest.mark.parametrize("tail", _ksubset_mixture.TAILS.values())
def test_the_nodes_leave_out_less_than_promised(v, tail):
    count, used = _ksubset_mixture.nodes(v, v, 10**9, tail)
    assert count % 2 == 1 and used <= 30
    # the sizes k + N and beyond, by Bennett's inequality
    if v > 0:
        x = count / v
        assert v * ((1 + x) * math.log1p(x) - x) >= tail * (1 - 1e-9)
    # and the nodes that are left out
    if used < (count + 1) // 2:
        assert 2 * v * math.sin(math.pi * used / count) ** 2 >= tail * (1 - 1e-9)
    assert _ksubset_mixture.nodes(v, v, 4, tail)[0] <= 5


def test_a_million_units():
    generator = torch.Generator().manual_seed(0)
    theta = torch.randn(1, 1_000_000, generator=generator)
    mu, rest, c = _ksubset.law(theta, column(100_000))
    assert float(mu.double().sum()) == pytest.approx(100_000, rel=1e-7)
    # with so many units the marginals are sigmoid's, and P(S = k) is the normal density
    p = torch.sigmoid(theta.double() + c)
    v = float((p * (1 - p)).sum())
    assert float((mu - p).abs().max()) < 1e-5
    size = rest - torch.log1p(torch.exp(-(theta.double() + c).abs())).sum()
    assert float(size) == pytest.approx(-0.5 * math.log(2 * math.pi * v), abs=1e-3)


@pytest.mark.usefixtures("path")
def test_half_precision_is_that_of_its_floats():
    theta = logits(12, 2).to(torch.bfloat16).unsqueeze(0)
    mu, rest, _ = _ksubset.law(theta, column(5))
    assert mu.dtype == torch.bfloat16 and rest.dtype == torch.float64
    exact = _ksubset.law(theta.double(), column(5))
    assert torch.allclose(mu.double(), exact[0], atol=4e-3)
    assert torch.allclose(rest, exact[1], atol=1e-9)
    z = _ksubset.draw(theta, column(5), seeds=khot.row_seeds(0, 1))
    assert z.dtype == torch.bfloat16 and float(z.sum()) == 5


@pytest.mark.gpu
def test_the_law_on_cuda():
    theta, k, _ = many(torch.float64)
    seeds = khot.row_seeds(0, 19)
    on_cuda = _ksubset.law(theta.cuda(), k.cuda())
    for a, b in zip(on_cuda, _ksubset.law(theta, k), strict=True):
        assert torch.allclose(a.cpu(), b, atol=1e-10)
    drawn = _ksubset.draw(theta.cuda(), k.cuda(), seeds=seeds.cuda())
    assert bool((drawn.sum(-1).cpu() == k.T).all())


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize(
    ("n", "k"), [(784, 50), (1000, 500), (30, 29), (10, 5), (5, 1), (3, 3), (600, 598)]
)
def test_many_samples_are_those_that_a_few_are(n, k, dtype):
    """Of many of a row, the kernel looks the chances up; of few it computes them as it goes."""
    theta = 3 * torch.randn(11, n, generator=torch.Generator().manual_seed(n), dtype=dtype)
    theta[1, : (n - k) // 2] = -torch.inf
    wanted = torch.full((11, 1), float(k), dtype=torch.float64)
    wanted[2:5] = torch.tensor([[0.0], [1.0], [min(k, 2.0)]])
    seeds = khot.row_seeds(7, 11)
    many = _ksubset.draw(theta, wanted, seeds=seeds, samples=12)
    few = [_ksubset.draw(theta, wanted, seeds=seeds, first=at, samples=4) for at in (0, 4, 8)]
    assert torch.equal(many, torch.cat(few))
    assert torch.equal(many.sum(-1).T.double(), wanted.expand(-1, 12))
    u = torch.rand(12, 11, n, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    by_few = [_ksubset.draw(theta, wanted, u=part) for part in u.split(4)]
    assert torch.equal(_ksubset.draw(theta, wanted, u=u), torch.cat(by_few))
