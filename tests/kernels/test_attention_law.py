"""The law of stochastic attention: counts are multinomial, means and covariances as the paper has them."""

import pytest
import torch
import torch.nn.functional as F
from scipy import stats

from engine.kernels.attention import sample_attention, sample_attention_members
from engine.kernels.inversion import invert
from engine.kernels.multinomial import Rows, cumulative, draw_counts
from engine.kernels.noise import RowKeys
from engine.kernels.poisson import alias_table, poisson_floor

KEYS = 24
ROWS = {
    "flat": torch.full((KEYS,), 1.0 / KEYS),
    "mid": torch.linspace(-1.5, 1.5, KEYS).softmax(0),
    "peaked": torch.cat([torch.tensor([0.97]), torch.full((KEYS - 1,), 0.03 / (KEYS - 1))]),
}
LEVEL = 1e-4  # of each test of fit: all of them together fail by chance in fewer than 1 of 100 choices of seed


def counts_of(pi, nu, repeats, seed=0):
    """`repeats` independent rows of counts."""
    return draw_counts(Rows(pi.expand(1, 1, repeats, -1)), nu, RowKeys.of(1, seed, 0, [3], 5))[0, 0].double()


@pytest.mark.parametrize("nu", [1, 4, 64, 100, 10**4])
@pytest.mark.parametrize("shape", ROWS)
def test_counts_follow_the_weights(shape, nu):
    """Pooled counts by chi-square; each key's own count against its binomial law; every row sums to nu."""
    pi, repeats = ROWS[shape].double(), 3000
    counts = counts_of(ROWS[shape], nu, repeats)
    assert torch.equal(counts.sum(-1), torch.full((repeats,), float(nu)).double())
    expected = pi * nu * repeats
    assert stats.chisquare(counts.sum(0).numpy(), expected.numpy() * float(counts.sum() / expected.sum())).pvalue > LEVEL
    for key in (0, KEYS // 2, KEYS - 1):
        law = stats.binom(nu, float(pi[key]))
        edges = sorted({int(law.ppf(p)) for p in (0.1, 0.25, 0.5, 0.75, 0.9)})
        at = torch.bucketize(counts[:, key].contiguous(), torch.tensor(edges).double())
        observed = torch.bincount(at, minlength=len(edges) + 1).numpy()
        below = [0.0, *law.cdf(edges), 1.0]
        wanted = repeats * torch.tensor(below).double().diff().numpy()
        kept = wanted > 0
        assert observed[~kept].sum() == 0
        if kept.sum() > 1:
            assert stats.chisquare(observed[kept], wanted[kept] * observed[kept].sum() / wanted[kept].sum()).pvalue > LEVEL


@pytest.mark.parametrize("nu", [1, 4, 64, 100, 10**4])
@pytest.mark.parametrize("shape", ROWS)
def test_covariance_is_the_papers(shape, nu):
    """Cov(W/nu) = (diag pi - pi pi^T)/nu, each entry within 6 standard errors.

    The standard error is exact, from the fourth moments of a draw x = onehot - pi:
    nu^4 E[d_i^2 d_j^2] = nu E[x_i^2 x_j^2] + nu (nu-1) (S_ii S_jj + 2 S_ij^2). Pairs of rare keys meet a few times in all, so
    three meetings are allowed beside it: their number is far from normal.
    """
    pi, repeats = ROWS[shape].double(), 20_000
    deviation = counts_of(ROWS[shape], nu, repeats, seed=1) / nu - pi
    single = torch.diag(pi) - torch.outer(pi, pi)
    squares = (torch.eye(KEYS).double() - pi).square()
    fourth = torch.einsum("k,ki,kj->ij", pi, squares, squares)
    pairs = torch.outer(single.diag(), single.diag()) + 2 * single.square()
    error = ((fourth / nu**3 + (nu - 1) / nu**3 * pairs - (single / nu).square()).clamp(min=0) / repeats).sqrt()
    found = deviation.T @ deviation / repeats
    assert bool(((found - single / nu).abs() <= 6 * error + 3 / (repeats * nu**2) + 1e-9 / nu).all())


def test_rows_are_independent():
    """Queries, heads, members, cases and sites are uncorrelated: 6 standard errors."""
    pi = ROWS["flat"].expand(1, 4, 4000, -1)
    base = draw_counts(Rows(pi), 4, RowKeys.of(1, 0, 0, [0], 0))[..., 0]
    for other in (RowKeys.of(1, 0, 1, [0], 0), RowKeys.of(1, 0, 0, [1], 0), RowKeys.of(1, 0, 0, [0], 1), RowKeys.of(1, 1, 0, [0], 0)):
        again = draw_counts(Rows(pi), 4, other)[..., 0]
        assert abs(float(torch.corrcoef(torch.stack([base.flatten(), again.flatten()]))[0, 1])) < 6 / 16000**0.5
    heads = torch.corrcoef(base[0]) - torch.eye(4)
    assert float(heads.abs().max()) < 6 / 4000**0.5
    assert abs(float(torch.corrcoef(torch.stack([base[0, 0, 1:], base[0, 0, :-1]]))[0, 1])) < 6 / 4000**0.5


@pytest.mark.parametrize("integer", [False, True])
def test_what_has_no_mass_is_never_drawn(integer):
    """10^7 draws of rows with zeros at the start, in plateaus and at the end, for both kinds of cumulative weights."""
    weights = torch.rand(100, 50, generator=torch.Generator().manual_seed(0))
    weights[:, [0, 1, 7, 8, 9, 30, 48, 49]] = 0.0
    weights[::2, 20:] = 0.0
    cdf = (weights * 2**40).round().long().cumsum(-1) if integer else cumulative(weights)
    source = torch.Generator().manual_seed(1)
    for _ in range(10):
        drawn = invert(cdf, torch.rand(100, 10_000, generator=source))
        assert bool((weights.gather(-1, drawn) > 0).all())
    top = torch.tensor([[0.0, 1 - 2**-24, 1.0]]).expand(100, -1)  # u = 1 cannot come, but must not leave the range either
    assert bool((weights.gather(-1, invert(cdf, top)) > 0).all())


@pytest.mark.parametrize("nu", [1, 4, 64, 10**4])
@pytest.mark.parametrize("keys", [9, 200])
def test_masked_keys_are_never_drawn(nu, keys):
    """Values of masked keys are infinite-like: one draw would show."""
    q, k = torch.randn(2, 3, 40, 8), torch.randn(2, 3, keys, 8)
    mask = torch.ones(keys, dtype=torch.bool)
    mask[[0, keys // 2, keys - 1]] = False
    v = torch.zeros(2, 3, keys, 4).masked_fill_(~mask[:, None], 1e9)
    for attn_mask in (mask, torch.zeros(keys).masked_fill(~mask, float("-inf"))):
        assert float(sample_attention(q, k, v, nu, seed=0, attn_mask=attn_mask.expand(40, -1)).abs().max()) == 0.0


@pytest.mark.parametrize("nu", [1, 4, 10**4])
def test_causal_is_top_left(nu):
    """Query i sees keys 0…i, also for more queries than keys."""
    q, k = torch.randn(1, 2, 12, 8), torch.randn(1, 2, 9, 8)
    v = torch.arange(9.0)[:, None].expand(1, 2, 9, 1)
    out = torch.stack([sample_attention(q, k, v, nu, seed=s, is_causal=True) for s in range(20)])
    assert bool((out.amax((0, 1, 2))[:, 0] <= torch.arange(12.0).clamp(max=8) + 1e-4).all())
    assert float(out[:, :, :, 0].abs().max()) == 0.0


@pytest.mark.parametrize("kind", ["bool", "float"])
@pytest.mark.parametrize("nu", [None, 1, 4, 100, 10**4])
def test_a_causal_mask_holds_beside_another(nu, kind):
    """Both hide: what is drawn is seen under each, and without draws it is attention under the two as one mask."""
    from engine.kernels.intercept import stochastic_attention

    class Both(torch.nn.Module):
        def forward(self, q, k, v, mask):
            return F.scaled_dot_product_attention(q, k, v, attn_mask=mask, is_causal=True)

    torch.manual_seed(0)
    q, k, v = torch.randn(2, 3, 9, 8), torch.randn(2, 3, 9, 8), torch.eye(9).expand(2, 3, 9, 9)
    seen = torch.rand(2, 1, 9, 9) > 0.4
    seen[..., 0] = True
    earlier = torch.ones(9, 9).tril().bool()
    mask = seen if kind == "bool" else torch.randn(2, 1, 9, 9).masked_fill(~seen, float("-inf"))
    together = seen & earlier if kind == "bool" else mask.masked_fill(~earlier, float("-inf"))
    out = sample_attention(q, k, v, nu, seed=0, attn_mask=mask, is_causal=True)
    assert float(out.masked_fill(seen & earlier, 0.0).abs().max()) == 0.0
    assert torch.equal(out, sample_attention(q, k, v, nu, seed=0, attn_mask=together))
    model = Both()
    with torch.no_grad(), stochastic_attention(model, nu):
        assert torch.equal(model(q, k, v, mask), out)
    if nu is None:
        assert torch.allclose(out, F.scaled_dot_product_attention(q, k, v, attn_mask=together), atol=1e-6)


def test_fully_masked_rows_follow_the_deterministic_path():
    """A row with no visible key gives what SDPA gives, and leaves the other rows' draws alone."""
    q, k, v = torch.randn(2, 2, 5, 8), torch.randn(2, 2, 7, 8), torch.randn(2, 2, 7, 8)
    mask = torch.ones(2, 1, 5, 7, dtype=torch.bool)
    mask[0, :, 2] = False
    for nu in (1, 4, 64, 1000):
        out = sample_attention(q, k, v, nu, seed=0, attn_mask=mask)
        assert torch.equal(out[0, :, 2], F.scaled_dot_product_attention(q, k, v, attn_mask=mask)[0, :, 2])
        assert torch.equal(out[1:], sample_attention(q[1:], k[1:], v[1:], nu, seed=0, case=[1], attn_mask=mask[1:]))


@pytest.mark.parametrize(
    "options", [{}, {"is_causal": True}, {"scale": 1.0}, {"attn_mask": "float"}, {"attn_mask": "bool"}, {"enable_gqa": True}]
)
def test_many_draws_give_deterministic_attention(options):
    """nu = 10^6 within 1e-3, after an average of 20 members: each entry's standard error is near 1/sqrt(2e7) = 2e-4."""
    torch.manual_seed(0)
    heads = 2 if options.get("enable_gqa") else 4
    q, k, v = torch.randn(2, 4, 6, 8), torch.randn(2, heads, 6, 8), torch.randn(2, heads, 6, 5)
    if kind := options.get("attn_mask"):
        visible = torch.rand(2, 1, 6, 6) > 0.3
        visible[..., 0] = True
        options = {"attn_mask": visible if kind == "bool" else torch.randn(2, 4, 6, 6)}
    expected = F.scaled_dot_product_attention(q, k, v, **options)
    assert torch.allclose(sample_attention(q, k, v, None, seed=0, **options), expected, atol=1e-5, rtol=0)  # float32
    mean = torch.stack([sample_attention(q, k, v, 10**6, seed=s, **options) for s in range(20)]).mean(0)
    assert torch.allclose(mean, expected, atol=1e-3, rtol=0)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_inputs_are_sampled_in_float32(dtype):
    """Flat weights over 512 keys: a bfloat16 CDF would never draw most of them. Autocast changes nothing."""
    q, k = torch.zeros(1, 1, 400, 8, dtype=dtype), torch.zeros(1, 1, 512, 8, dtype=dtype)
    v = torch.eye(512, dtype=dtype)[None, None]
    out = sample_attention(q, k, v, 64, seed=0)
    assert out.dtype == dtype
    assert bool((out.float().sum((0, 1, 2)) > 0).all())  # 25 600 draws miss a given key with probability e^-50
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert torch.equal(out, sample_attention(q, k, v, 64, seed=0))


@pytest.mark.parametrize("nu", [1, 4, 64, 200, 10**4])
def test_a_row_does_not_depend_on_its_batch(nu):
    """Bitwise: split, reordered, repeated, with folded rows, with rows of other members, on one thread or two."""
    q, k, v = (torch.randn(6, 4, 20, 8) for _ in range(3))
    whole = sample_attention(q, k, v, nu, seed=3, member=1, case=[10, 11, 12, 13, 14, 15], site=2)
    order = [4, 0, 5]
    part = sample_attention(q[order], k[order], v[order], nu, seed=3, member=[1, 1, 1], case=torch.tensor([14, 10, 15]), site=2)
    assert torch.equal(whole[order], part)
    folded = sample_attention(q, k, v, nu, seed=3, member=[1, 2, 1], case=[7, 8, 9])
    assert torch.equal(folded[4:], sample_attention(q[4:], k[4:], v[4:], nu, seed=3, member=1, case=[9]))
    threads = torch.get_num_threads()
    try:
        torch.set_num_threads(1 if threads > 1 else 2)
        other = sample_attention(q, k, v, nu, seed=3, member=1, case=[10, 11, 12, 13, 14, 15], site=2)
    finally:
        torch.set_num_threads(threads)
    assert torch.equal(whole, other)
    members = sample_attention_members(q, k, v, nu, seed=3, members=[5, 1], case=range(10, 16), site=2)
    assert members.shape == (12, 4, 20, 8)
    assert torch.equal(members[6:], whole)


def test_memory_does_not_grow_with_nu():
    """Peak of live tensor bytes at nu = 10^6 is at most three times that at 10^3: a thousand times the draws."""
    q, k, v = (torch.randn(1, 2, 256, 8) for _ in range(3))

    def largest(nu):
        with torch.profiler.profile(profile_memory=True, activities=[torch.profiler.ProfilerActivity.CPU]) as seen:
            sample_attention(q, k, v, nu, seed=0)
        alive = peak = 0
        for event in seen.profiler.kineto_results.events():
            if event.name() == "[memory]":
                alive += event.nbytes()
                peak = max(peak, alive)
        return peak

    largest(1000)  # the first call builds a table that stays
    assert 0 < largest(10**6) <= 3 * largest(1000)


def test_layout_is_that_of_sdpa():
    """Models view the result: queries lie before heads in memory; three dimensions stay three."""
    q, k, v = (torch.randn(2, 4, 6, 8) for _ in range(3))
    out = sample_attention(q, k, v, 4, seed=0)
    assert out.stride() == F.scaled_dot_product_attention(q, k, v).transpose(1, 2).contiguous().transpose(1, 2).stride()
    out.transpose(1, 2).view(2, 6, 32)
    assert sample_attention(q[:, 0], k[:, 0], v[:, 0], 4, seed=0).shape == (2, 6, 8)


def test_gradients_reach_the_values_only():
    """The choice of keys has no derivative."""
    q, k, v = (torch.randn(1, 2, 5, 8, requires_grad=True) for _ in range(3))
    sample_attention(q, k, v, 4, seed=0).sum().backward()
    assert q.grad is None
    assert k.grad is None
    assert v.grad is not None
    assert torch.allclose(v.grad.sum((2, 3)), torch.full((1, 2), 5.0 * 8))  # each query's weights sum to one


@pytest.mark.parametrize("nu", [0, -1, 2.5, 10**6 + 1])
def test_nu_out_of_range_is_refused(nu):
    """The domain is whole numbers from 1 to 10^6."""
    x = torch.randn(1, 1, 2, 4)
    with pytest.raises(ValueError, match="nu"):
        sample_attention(x, x, x, nu, seed=0)


def test_shapes_that_do_not_fit_are_refused():
    """Grouped heads need enable_gqa, as in SDPA."""
    q, k = torch.randn(1, 4, 2, 4), torch.randn(1, 2, 2, 4)
    with pytest.raises(ValueError, match="enable_gqa"):
        sample_attention(q, k, k, 4, seed=0)


def test_the_poisson_table_is_the_poisson_law():
    """The alias table gives back each level's probabilities to the 24 bits of a uniform, and large rates take torch's own numbers."""
    table = alias_table(torch.device("cpu")).view(-1, 128)
    threshold, alias = (table >> 7).double() / 2**17, table & 127
    got = (threshold / 128).scatter_add_(1, alias.long(), (1 - threshold) / 128)
    for level in (0, 1, 16, 200, 1023):
        assert abs(got[level].numpy() - stats.poisson(level / 16).pmf(range(128))).sum() < 128 * 2**-24
    rate = torch.tensor([[0.03, 5.01, 63.99, 64.0, 900.0]]).expand(20_000, -1).contiguous()
    counts, left = poisson_floor(rate, [torch.Generator().manual_seed(0)], [20_000])
    mean = (rate - left)[0].double()
    assert bool((left >= 0).all())
    assert bool((left < 1 / 16).all())
    assert bool(((counts.double().mean(0) - mean).abs() <= 5 * (mean / 20_000).sqrt()).all())
