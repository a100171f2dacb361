"""The k-hot VAE: its terms against enumeration, its gradients, and what it shows."""

import itertools
import math

import numpy as np
import pytest
import torch
from scipy.special import entr
from torch.nn import functional

import khot
from khot.models import KHotVAE
from khot.models.feature_selector import ESTIMATORS
from khot.models.vae import EXACT
from khot.testing import subsets

pytestmark = pytest.mark.usefixtures("one_thread")
PIXELS, LATENTS, N, K = 5, 2, 4, 2
X = torch.rand(40, PIXELS, generator=torch.Generator().manual_seed(1))
SEEDS = khot.row_seeds(0, len(X))


def vae(seed: int = 0, *, k: int = K, spread: float = 3.0, **settings) -> KHotVAE:
    """A small one, whose logits are `spread` times as far apart as at first."""
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        model = KHotVAE(PIXELS, LATENTS, N, k, **{"encoder": (6,), "decoder": (6,)} | settings)
    with torch.no_grad():
        for layer in (model.encoder[-1], model.decoder[-1]):
            layer.weight.mul_(spread)
            layer.bias.mul_(spread)
    return model


def k_of(estimator: str) -> int:
    return ESTIMATORS[estimator].only_k or K


def codes() -> torch.Tensor:
    """All codes z, (36, L, n)."""
    each = subsets(N, K).float()
    return torch.stack([torch.stack(pair) for pair in itertools.product(each, repeat=LATENTS)])


def log_likelihoods(model: KHotVAE, x: torch.Tensor) -> torch.Tensor:
    """log p(x | z) of every code, (m, 36)."""
    y = model.decode(codes())
    costs = functional.binary_cross_entropy_with_logits(
        y.expand(len(x), *y.shape), x.unsqueeze(1).expand(-1, *y.shape), reduction="none"
    )
    return -costs.sum(-1)


def log_posteriors(model: KHotVAE, x: torch.Tensor) -> torch.Tensor:
    """log q(z | x) of every code, (m, 36)."""
    weights = torch.einsum("mln,cln->mlc", model.encode(x) / model.tau, codes())
    each = torch.einsum("mln,sn->mls", model.encode(x) / model.tau, subsets(N, K).float())
    return (weights - each.logsumexp(-1, keepdim=True)).sum(1)


def test_shapes_and_ranges(generator):
    model = vae()
    logits = model.encode(X)
    assert logits.shape == (40, LATENTS, N)
    z, diagnostics = model.draw(logits, seeds=SEEDS)
    assert z.shape == logits.shape and bool((z.sum(-1) == K).all())
    assert diagnostics.iterations.shape == (40, LATENTS)
    assert model.decode(z).shape == (40, PIXELS)
    terms = model(X, seeds=SEEDS)
    assert terms.reconstruction.shape == terms.prior.shape == terms.loss.shape == (40,)
    assert bool((terms.reconstruction > 0).all()) and bool((terms.prior > 0).all())
    for pictures in (model.reconstruct(X, seeds=SEEDS), model.sample(40, generator=generator)):
        assert pictures.shape == (40, PIXELS) and not pictures.requires_grad
        assert bool(((pictures > 0) & (pictures < 1)).all())
    usage = model.usage(X)
    assert usage.shape == (LATENTS, N) and not usage.requires_grad
    torch.testing.assert_close(usage.sum(-1), torch.full((LATENTS,), float(K)))


def test_the_default_networks_are_those_of_the_paper():
    model = KHotVAE(784, 10, 10, 5)
    widths = [[(p.in_features, p.out_features) for p in part[::2]] for part in model.children()]
    encoder, decoder = widths
    assert encoder == [(784, 512), (512, 256), (256, 100)]
    assert decoder == [(100, 256), (256, 512), (512, 784)]


def test_the_softmax_term_is_the_divergence_over_units():
    model = vae(prior="softmax")
    logits = model.encode(X).detach().double()
    p = logits.exp() / logits.exp().sum(-1, keepdim=True)
    wanted = sum(p[..., i] * (p[..., i] / (1 / N)).log() for i in range(N)).sum(-1)
    torch.testing.assert_close(model.prior_term(logits), wanted)
    assert float(model.prior_term(torch.zeros(1, LATENTS, N)).abs().max()) < 1e-6
    mean = vae(prior="softmax_mean")
    torch.testing.assert_close(mean.prior_term(logits), wanted / LATENTS)
    terms = mean(X, seeds=SEEDS)
    assert torch.equal(terms.reconstruction, model(X, seeds=SEEDS).reconstruction)


def test_top_codes_are_the_likeliest_of_the_k_subset_law():
    model = vae(estimator="simple")
    likeliest = log_posteriors(model, X).argmax(-1, keepdim=True)
    wanted = -log_likelihoods(model, X).gather(-1, likeliest).squeeze(-1)
    torch.testing.assert_close(model.top_cost(X), wanted.detach())


@pytest.mark.parametrize("n", [1, 2, 5, 6])
def test_the_exact_term_is_the_divergence_over_subsets(n, generator):
    logits = 2 * torch.randn(7, LATENTS, n, generator=generator)
    for k in range(1, n + 1):
        model = KHotVAE(3, LATENTS, n, k, estimator="simple", prior="exact", tau=0.5)
        weights = 2.0 * logits.double() @ subsets(n, k).double().T
        log_p = weights - weights.logsumexp(-1, keepdim=True)
        wanted = (log_p.exp() * (log_p + math.log(math.comb(n, k)))).sum((-2, -1))
        got = model.prior_term(logits)
        torch.testing.assert_close(got.double(), wanted, rtol=1e-5, atol=1e-6)


def divergence_from_uniform(theta: torch.Tensor, k: int) -> float:
    """log C(n, k) - H, the entropy by SIMPLE's Algorithm 4: sums of positive numbers."""
    n = len(theta)
    log_z = np.full(k + 1, -math.inf)  # of the subsets of j of the units so far
    log_z[0], entropy = 0.0, np.zeros(k + 1)
    for unit in theta.double().tolist():
        taken = np.concatenate(([-math.inf], log_z[:-1] + unit))
        total = np.logaddexp(log_z, taken)
        p = np.exp(taken - np.where(total > -math.inf, total, 0.0))
        before = np.concatenate(([0.0], entropy[:-1]))
        entropy = entr(p) + entr(1 - p) + p * before + (1 - p) * entropy
        log_z = total
    return math.lgamma(n + 1) - math.lgamma(k + 1) - math.lgamma(n - k + 1) - entropy[k]


@pytest.mark.parametrize("spread", [0.01, 1.0, 30.0])
def test_the_exact_term_of_many_units_is_that_of_the_recursion(spread, generator):
    n, k, step = 1000, 500, 1e-3
    logits = (spread * torch.randn(n, generator=generator)).requires_grad_()
    model = KHotVAE(3, 1, n, k, estimator="simple", prior="exact")
    got = model.prior_term(logits.view(1, 1, n)).squeeze()
    theta = logits.detach().double()
    assert float(got.detach()) == pytest.approx(divergence_from_uniform(theta, k), rel=1e-5)
    (slope,) = torch.autograd.grad(got, logits)
    more, less = (divergence_from_uniform(theta * (1 + s), k) for s in (step, -step))
    along = float(slope.double() @ theta)
    assert along == pytest.approx((more - less) / (2 * step), rel=1e-4)


def test_the_elbo_bounds_the_likelihood_of_every_binary_example():
    model = vae(estimator="simple", prior="exact", tau=0.7)
    x = torch.tensor(list(itertools.product((0.0, 1.0), repeat=PIXELS)))
    with torch.no_grad():
        given_z = log_likelihoods(model, x)
        log_p = given_z.logsumexp(-1) - math.log(len(codes()))
        assert float(log_p.exp().sum()) == pytest.approx(1, abs=1e-5)
        q = log_posteriors(model, x).exp()
        elbo = (q * given_z).sum(-1) - model.prior_term(model.encode(x))
        assert bool((elbo <= log_p + 1e-5).all()) and float((log_p - elbo).max()) > 0.1
        draws = 800
        loss = model(x.repeat(draws, 1), seeds=khot.row_seeds(1, draws * len(x))).loss
    loss = loss.view(draws, -1)
    error = loss.std(0) / math.sqrt(draws)
    assert bool(((loss.mean(0) + elbo).abs() < 5 * error + 1e-5).all())


def test_the_score_function_has_the_gradient_of_the_expected_loss():
    model = vae(estimator="score_function", prior="exact")
    x, parameters = X[:3], list(model.parameters())
    expected = -(log_posteriors(model, x).exp() * log_likelihoods(model, x)).sum(-1)
    wanted = torch.autograd.grad((expected + model.prior_term(model.encode(x))).mean(), parameters)
    copies, batches, found = 2, 800, []
    for seeds in khot.row_seeds(2, batches * copies * 3).split(copies * 3):
        loss = model(x.repeat(copies, 1), seeds=seeds).loss.mean()
        found.append(torch.cat([g.flatten() for g in torch.autograd.grad(loss, parameters)]))
    mean, error = torch.stack(found).mean(0), torch.stack(found).std(0) / math.sqrt(batches)
    flat = torch.cat([g.flatten() for g in wanted])
    assert bool(((mean - flat).abs() <= 5 * error + 1e-5).all())
    learned = flat[: sum(p.numel() for p in model.encoder.parameters())]
    assert float(error[: len(learned)].max()) < 0.1 * float(learned.abs().max())


@pytest.mark.parametrize("estimator", ESTIMATORS)
def test_every_estimator_learns_in_training_and_is_hard_in_evaluation(estimator):
    row, model = ESTIMATORS[estimator], vae(estimator=estimator, k=k_of(estimator), hard=False)
    model(X, seeds=SEEDS).loss.mean().backward()
    for parameter in model.parameters():
        assert bool(parameter.grad.isfinite().all()) and bool((parameter.grad != 0).any())
    logits = model.encode(X).detach()

    def is_hard() -> bool:
        z, _ = model.draw(logits, seeds=SEEDS)
        ones = z.sum(-1)
        sized = bool((ones == model.k).all()) or not row.fixed_size
        return sized and bool(((z == 0) | (z == 1)).all())

    assert is_hard() == row.hard
    pictures = model.reconstruct(X, seeds=SEEDS)
    model.eval()
    assert is_hard()
    drawn, _ = model.draw(logits, seeds=SEEDS)
    assert torch.equal(pictures, model.decode(drawn).sigmoid().detach())


@pytest.mark.parametrize("estimator", ["gumbel_sigmoid", "softsub"])
def test_those_that_relax_can_learn_from_hard_draws(estimator):
    model = vae(estimator=estimator)
    z, _ = model.draw(model.encode(X), seeds=SEEDS)
    assert bool(((z == 0) | (z == 1)).all()) and bool((z.sum(-1) == K).all())
    model(X, seeds=SEEDS).loss.mean().backward()
    assert bool((model.encoder[0].weight.grad != 0).any())


@pytest.mark.parametrize("estimator", ESTIMATORS)
def test_usage_is_how_often_a_unit_is_in_a_code(estimator):
    model = vae(estimator=estimator, k=k_of(estimator), tau=0.5).eval()
    x = X.repeat(100, 1)
    with torch.no_grad():
        z, _ = model.draw(model.encode(x), seeds=khot.row_seeds(3, len(x)))
    # of both, for where there is no formula usage is by draws too
    error = (2 * z.mean(0) * (1 - z.mean(0)) / len(x)).sqrt()
    assert bool(((model.usage(x) - z.mean(0)).abs() <= 5 * error + 1e-6).all())
    assert torch.equal(model.usage(x), model.usage(x))


def test_samples_are_of_all_subsets_alike():
    model = KHotVAE(LATENTS * N, LATENTS, N, K, decoder=())
    with torch.no_grad():  # shows the code itself
        model.decoder[0].weight.copy_(40 * torch.eye(LATENTS * N))
        model.decoder[0].bias.fill_(-20)
    m = 6000
    z = model.sample(m, seeds=khot.row_seeds(0, m)).round().view(m, LATENTS, N)
    assert bool((z.sum(-1) == K).all())
    counts = (z.flatten(1) == codes().flatten(1).unsqueeze(1)).all(-1).sum(-1)
    wanted = m / len(codes())
    assert bool(((counts - wanted).abs() < 5 * math.sqrt(wanted)).all())


def changes(model: KHotVAE, unit: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Mean and mean square of p(with the unit) - p(without) over what each code can become."""
    every, (vector, i) = codes(), divmod(unit, N)
    means, squares = [], []
    for z in every:
        found = []
        for other in range(N):
            if z[vector, other] != z[vector, i]:
                swapped = z.clone()
                swapped[vector, [i, other]] = z[vector, [other, i]]
                both = model.decode(torch.stack((z, swapped))).sigmoid()
                found.append((both[0] - both[1]) * (2 * z[vector, i] - 1))
        means.append(torch.stack(found).mean(0))
        squares.append(torch.stack(found).square().mean(0))
    return torch.stack(means), torch.stack(squares)


@torch.no_grad()
def test_the_effect_of_a_unit_is_the_mean_over_all_that_codes_can_become():
    model, repeats = vae(estimator="simple", tau=0.7), 4000
    x = X[:3]
    q = log_posteriors(model, x).exp()
    got = model.unit_effects(x.repeat(repeats, 1), seeds=khot.row_seeds(4, 3 * repeats))
    assert got.shape == (LATENTS * N, PIXELS)
    for unit in range(LATENTS * N):
        mean, square = (q @ part for part in changes(model, unit))  # (3, d)
        error = ((square - mean**2).mean(0) / (3 * repeats)).sqrt()
        assert bool(((got[unit] - mean.mean(0)).abs() <= 5 * error + 1e-6).all())
        assert float(error.max()) < 0.1 * float(got.abs().max()), "else nothing is tested"


@torch.no_grad()
def test_for_codes_of_the_prior_the_effect_is_the_difference_of_conditional_means():
    model, m = vae(estimator="simple"), 8000
    for parameter in model.encoder[-1].parameters():  # so that every code is as likely
        parameter.zero_()
    got = model.unit_effects(torch.zeros(m, PIXELS), seeds=khot.row_seeds(5, m))
    p, inside = model.decode(codes()).sigmoid(), codes().flatten(1).bool()
    for unit in range(LATENTS * N):
        mean = p[inside[:, unit]].mean(0) - p[~inside[:, unit]].mean(0)
        error = ((changes(model, unit)[1].mean(0) - mean**2) / m).sqrt()
        assert bool(((got[unit] - mean).abs() <= 5 * error + 1e-6).all())


@pytest.mark.parametrize(("n", "k"), [(2, 1), (3, 2), (7, 1), (7, 6)])
def test_the_effect_on_a_decoder_that_shows_the_code_is_the_unit_less_the_others(n, k):
    model = KHotVAE(2 * n, 2, n, k, decoder=())
    with torch.no_grad():
        model.decoder[0].weight.copy_(40 * torch.eye(2 * n))
        model.decoder[0].bias.fill_(-20)
    m = 500
    got = model.unit_effects(torch.rand(m, 2 * n), seeds=khot.row_seeds(0, m))
    torch.testing.assert_close(got.diagonal(), torch.ones(2 * n))
    blocks = got.view(2, n, 2, n)
    assert float(blocks[0, :, 1].abs().max()) < 1e-6, "the other vector is left alone"
    torch.testing.assert_close(blocks.sum(-1), torch.zeros(2, n, 2), rtol=0, atol=1e-5)
    if n == 2:
        torch.testing.assert_close(blocks[0, :, 0], torch.tensor([[1.0, -1.0], [-1.0, 1.0]]))


@pytest.mark.parametrize("estimator", ESTIMATORS)
def test_the_effects_of_every_estimator_are_the_same_for_the_same_seeds(estimator, monkeypatch):
    model = vae(estimator=estimator, k=k_of(estimator))
    effects = model.unit_effects(X, seeds=SEEDS)
    assert effects.shape == (LATENTS * N, PIXELS) and not effects.requires_grad
    assert 0 < float(effects.abs().max()) < 1
    assert torch.equal(effects, model.unit_effects(X, seeds=SEEDS))
    some = model.unit_effects(X, units=torch.tensor([6, 1]), seeds=SEEDS)
    torch.testing.assert_close(some, effects[[6, 1]])
    monkeypatch.setattr("khot.models.vae._NUMBERS", 20)  # a few examples and units at a time
    torch.testing.assert_close(model.unit_effects(X, seeds=SEEDS), effects)


def test_a_unit_that_no_other_can_change_with_changes_alone(monkeypatch):
    model = vae(estimator="ncpss")
    monkeypatch.setattr(model, "_draw", lambda logits, *_: (torch.ones_like(logits), None))
    alone = torch.ones(LATENTS * N, LATENTS * N) - torch.eye(LATENTS * N)
    with torch.no_grad():
        all_in = model.decode(torch.ones(1, LATENTS, N)).sigmoid()
        wanted = all_in - model.decode(alone.view(-1, LATENTS, N)).sigmoid()
    torch.testing.assert_close(model.unit_effects(X, seeds=SEEDS), wanted)


@pytest.mark.parametrize(("n", "k"), [(1, 1), (4, 4)])
def test_without_a_unit_that_can_change_there_are_no_effects(n, k):
    model = KHotVAE(PIXELS, LATENTS, n, k)
    must = f"k must be less than n = {n} for a unit to change; got {k}"
    with pytest.raises(ValueError, match=f"^KHotVAE: {must}"):
        model.unit_effects(X)


@pytest.mark.parametrize("units", [[8], [0, -1]])
def test_units_that_there_are_not_are_refused(units):
    with pytest.raises(ValueError, match=r"^KHotVAE: units must be in \[0, 7\]; got "):
        vae().unit_effects(X, units=torch.tensor(units))


def test_an_example_has_draws_of_its_own_seed_alone():
    model = vae()
    whole, _ = model.draw(model.encode(X), seeds=SEEDS)
    some, _ = model.draw(model.encode(X)[7:9], seeds=SEEDS[7:9])
    assert torch.equal(whole[7:9], some)
    alike, _ = model.draw(torch.zeros(100, LATENTS, N), seeds=khot.row_seeds(0, 100))
    assert not torch.equal(alike[:, 0], alike[:, 1])  # each vector draws for itself


def test_randomness_can_come_from_a_generator(generator):
    model = vae()
    first = model(X, generator=generator).reconstruction
    assert torch.equal(first, model(X, generator=generator.manual_seed(0)).reconstruction)
    pictures = model.sample(3, generator=generator.manual_seed(0))
    assert torch.equal(pictures, model.sample(3, generator=generator.manual_seed(0)))
    effects = model.unit_effects(X, generator=generator.manual_seed(0))
    assert torch.equal(effects, model.unit_effects(X, generator=generator.manual_seed(0)))
    assert not torch.equal(effects, model.unit_effects(X, generator=generator))


def test_the_temperature_is_part_of_the_state():
    hot, cold = vae(estimator="pi_st", tau=1.0), vae(estimator="pi_st", tau=0.25)
    logits = cold.encode(X).detach()
    assert not torch.equal(hot.draw(logits, seeds=SEEDS)[0], cold.draw(logits, seeds=SEEDS)[0])
    hot.load_state_dict(cold.state_dict())
    assert hot.tau == 0.25
    assert torch.equal(hot.draw(logits, seeds=SEEDS)[0], cold.draw(logits, seeds=SEEDS)[0])


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"k": 0}, r"k must be in \[1, 4\], the number of units; got 0"),
        ({"k": 5}, r"k must be in \[1, 4\], the number of units; got 5"),
        ({"estimator": "magic"}, "estimator must be one of pi_st, .*; got 'magic'"),
        ({"estimator": "reinmax"}, "k must be 1 with the estimator reinmax; got 2"),
        (
            {"estimator": "st_gumbel_softmax"},
            "k must be 1 with the estimator st_gumbel_softmax; got 2",
        ),
        (
            {"prior": "gaussian"},
            "prior must be one of softmax, softmax_mean, exact; got 'gaussian'",
        ),
    ],
    ids=str,
)
def test_what_does_not_go_together_is_refused(change, message):
    with pytest.raises(ValueError, match=f"^KHotVAE: {message}"):
        vae(**change)


@pytest.mark.parametrize("estimator", [name for name in ESTIMATORS if name not in EXACT])
def test_the_exact_prior_is_refused_to_other_laws(estimator):
    must = "estimator must be one of simple, score_function for the exact prior"
    with pytest.raises(ValueError, match=f"^KHotVAE: {must}; got '{estimator}', whose law"):
        vae(estimator=estimator, k=k_of(estimator), prior="exact")


def test_tensors_of_other_shapes_are_refused():
    with pytest.raises(ValueError, match=r"^KHotVAE: x must have shape \(m, 5\); got \(40, 4\)"):
        vae()(X[:, :4])
    with pytest.raises(ValueError, match=r"z must have shape \(m, 2, 4\); got \(3, 8\)"):
        vae().decode(torch.zeros(3, 8))
