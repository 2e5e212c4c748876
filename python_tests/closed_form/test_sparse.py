"""Fields with few of their terms, and which terms the data ask for."""

import pytest
import torch

from problems import noisy_lorenz63, noisy_lorenz96
from trajectories import lorenz63, normal
from wpnode_ext import WPNODE, load
from wpnode_ext.closed_form import find_support, fit_closed_form
from wpnode_ext.data import make_series
from wpnode_ext.fields import LibraryField, SparseField
from wpnode_ext.settings.config import ClosedFormConfig, TrainConfig

DT = 0.01
# (exponents, component) of the seven terms of Lorenz-63.
TERMS = {
    ((1, 0, 0), 0),
    ((0, 1, 0), 0),
    ((1, 0, 0), 1),
    ((0, 1, 0), 1),
    ((1, 0, 1), 1),
    ((0, 0, 1), 2),
    ((1, 1, 0), 2),
}


def quadratic() -> LibraryField:
    return LibraryField(3, 2, dtype=torch.float64)


def support_of_lorenz63() -> torch.Tensor:
    field, support = quadratic(), torch.zeros(10, 3, dtype=torch.bool)
    for exponents, component in TERMS:
        support[field.exponents.index(exponents), component] = True
    return support


def settings(sparse: bool) -> TrainConfig:
    return TrainConfig(closed_form=ClosedFormConfig(sparse=sparse))


class TestField:
    def make(self) -> SparseField:
        field = SparseField(quadratic(), support_of_lorenz63())
        field.set_coefficients(normal(7, 1, seed=0))
        return field

    def test_features_head_and_jacobian_agree(self) -> None:
        field, u = self.make(), normal(5, 3)
        wanted = field.base.features(u) @ field.head()
        torch.testing.assert_close(field.at(u), wanted)
        torch.testing.assert_close(
            (field.features(u) @ field.coefficients)[..., 0], wanted
        )
        torch.testing.assert_close(
            (field.basis @ field.coefficients)[..., 0], field.head()
        )
        exact = torch.func.vmap(torch.func.jacrev(field.at))(u)
        with torch.no_grad():
            value, slope = field.value_and_jacobian(u)
        torch.testing.assert_close(value, wanted)
        torch.testing.assert_close(slope, exact)
        mixed = normal(7, 4)
        torch.testing.assert_close(field.combined(u, mixed), field.features(u) @ mixed)

    def test_what_is_not_in_the_support_stays_zero(self) -> None:
        field = self.make()
        assert torch.equal(field.head() != 0, support_of_lorenz63())
        field.at(torch.ones(1, 3).double()).sum().backward()
        assert field.coefficients.grad is not None
        assert (field.coefficients.grad != 0).all()

    def test_sizes_are_those_of_the_features(self) -> None:
        field, u = self.make(), normal(400, 3)
        rms = field.features(u).square().mean((0, 1)).sqrt()
        torch.testing.assert_close(field.feature_sizes(u), rms)

    def test_a_support_of_another_shape_or_none_is_refused(self) -> None:
        with pytest.raises(ValueError, match="support"):
            SparseField(quadratic(), torch.ones(10, 2, dtype=torch.bool))
        with pytest.raises(ValueError, match="support"):
            SparseField(quadratic(), torch.zeros(10, 3, dtype=torch.bool))

    def test_with_all_terms_it_is_fitted_as_the_field_it_is_made_of(self) -> None:
        series, whole = make_series(lorenz63(600, DT) / 20, dt=DT), quadratic()
        made = SparseField(quadratic(), torch.ones(10, 3, dtype=torch.bool))
        for field in (whole, made):
            fit_closed_form(field, series, p=4, ell=30, ridge=0.0)
        torch.testing.assert_close(
            made.head(), whole.coefficients.detach(), rtol=1e-6, atol=1e-6
        )

    def test_the_true_terms_alone_give_the_true_coefficients(self) -> None:
        series = make_series(lorenz63(600, DT), dt=DT)
        field = SparseField(quadratic(), support_of_lorenz63())
        fit_closed_form(field, series, p=8, ell=50, ridge=0.0)
        found = field.head()[field.base.exponents.index((1, 0, 1)), 1]
        assert found.item() == pytest.approx(-1.0, abs=1e-6)


class TestSupport:
    @pytest.mark.parametrize("ratio", [0.001, 0.02])
    def test_the_terms_of_lorenz63_are_found(self, ratio) -> None:
        counts = []
        for seed in range(1, 9):
            _, noisy, _ = noisy_lorenz63(2500, ratio, seed)
            field = quadratic()
            support = find_support(field, make_series(noisy, dt=DT))
            found = {(field.exponents[j], d) for j, d in support.nonzero().tolist()}
            assert found >= TERMS
            assert (field.coefficients == 0).all()
            counts.append(len(found))
        # Of 30; held-out segments forgive terms that do little.
        assert sum(counts) / len(counts) < 18

    def test_series_that_are_short_and_fields_with_sites_are_refused(self) -> None:
        series = make_series(lorenz63(55, DT), dt=DT)
        with pytest.raises(ValueError, match="would be empty"):
            find_support(quadratic(), series)
        sites = SparseField(quadratic(), support_of_lorenz63())
        with pytest.raises(ValueError, match="one site"):
            find_support(sites, make_series(lorenz63(600, DT), dt=DT))


class TestFit:
    def test_a_model_with_few_terms_is_saved_and_printed(self, tmp_path) -> None:
        clean, noisy, _ = noisy_lorenz63(2500, 0.02)
        options = {"field": "library", "refine": False, "p": 8, "ell": 50, "q": 2}
        model = WPNODE(config=settings(True), **options).fit(noisy, DT)
        assert isinstance(model.field_, SparseField)
        model.save(tmp_path / "model.pt")
        again = load(tmp_path / "model.pt")
        t = DT * torch.arange(20)
        assert torch.equal(again.forecast(clean[0], t), model.forecast(clean[0], t))
        assert len(TERMS) <= len(model.field_.coefficients) < 30
        squares = ("u0^2", "u1^2", "u2^2", "u0 u2")
        absent = ~model.field_.support
        for d, line in enumerate(again.equations()):
            assert line.startswith(f"du{d}/dt = ")
            for name, exponents in zip(
                squares, [(2, 0, 0), (0, 2, 0), (0, 0, 2), (1, 0, 1)], strict=True
            ):
                row = model.field_.base.exponents.index(exponents)
                assert not (absent[row, d] and name in line)

    def test_all_terms_are_kept_where_most_are_needed(self) -> None:
        _, noisy, _ = noisy_lorenz63(1500, 0.02)
        options = {"field": "library", "refine": False, "p": 8, "ell": 50, "q": 2}
        config = settings(True)
        config.closed_form.most_terms = 5
        model = WPNODE(config=config, **options).fit(noisy, DT)
        assert isinstance(model.field_, LibraryField)
        assert (model.field_.coefficients != 0).all()

    def test_all_terms_are_kept_unasked(self) -> None:
        _, noisy, _ = noisy_lorenz63(1500, 0.02)
        options = {"field": "library", "refine": False, "p": 8, "ell": 50, "q": 2}
        assert not isinstance(WPNODE(**options).fit(noisy, DT).field_, SparseField)

    def test_other_fields_cannot_be_thinned(self) -> None:
        _, noisy, _ = noisy_lorenz63(600, 0.02)
        model = WPNODE(field="features", config=settings(True))
        with pytest.raises(ValueError, match=r"closed_form\.sparse"):
            model.fit(noisy, DT)

    def test_a_record_that_is_too_short_keeps_all_terms(self) -> None:
        _, noisy, _ = noisy_lorenz63(200, 0.02)
        options = {"field": "library", "refine": False, "p": 8, "ell": 50, "q": 2}
        model = WPNODE(config=settings(True), **options).fit(noisy, DT)
        assert isinstance(model.field_, LibraryField)

    @pytest.mark.slow
    def test_states_of_a_ring_are_found_better_without_needless_terms(self) -> None:
        """On most draws of the noise: one of five may lose a term that is needed."""
        clean, ratios = noisy_lorenz96(8, 2000)[0], []
        for seed in range(5):
            noise = normal(*clean.shape, seed=seed)
            errors = []
            for sparse in (True, False):
                model = WPNODE(
                    field="library", config=settings(sparse), p=8, ell=40, q=2
                ).fit(clean + 0.1 * clean.std() * noise, 0.02)
                assert model.states_ is not None
                errors.append((model.states_ - clean).square().mean().item())
            ratios.append((errors[0] / errors[1]) ** 0.5)
        assert sorted(ratios)[2] < 0.8
