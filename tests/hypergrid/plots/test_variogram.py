"""The picture of a fit shows the bins, the model, and what speaks against it."""

import io

import numpy as np
import pytest
from matplotlib.figure import Figure

from hypergrid.interpolation.variograms.empirical import Binning
from hypergrid.interpolation.variograms.fit import VariogramFit, fit_variogram
from hypergrid.interpolation.variograms.variogram import Anisotropy
from hypergrid.plots.variogram import MAX_LABELLED, plot_variogram


def fit(*, scale: float = 1.0, binning: Binning | None = None, model: str = "gaussian") -> VariogramFit:
    places = np.random.default_rng(1).uniform(0, 3000, (70, 2))
    waves = np.stack([np.sin(places[:, 0] / 250 + k) + np.cos(places[:, 1] / 250 + k) for k in range(20)])
    return fit_variogram(places * scale, waves, model=model, binning=binning)


def words(figure: Figure) -> str:
    figure.savefig(io.BytesIO(), format="png")
    axes = figure.axes[0]
    legend = axes.get_legend()
    assert legend is not None
    texts = [*figure.texts, *axes.texts, *legend.get_texts()]
    return " | ".join(
        [axes.get_title(loc="left"), axes.get_xlabel(), axes.get_ylabel(), *(t.get_text() for t in texts)]
    )


def test_a_good_fit_shows_bins_model_sill_and_range() -> None:
    good = fit()
    assert not good.poor, good.warning
    figure = plot_variogram(good, unit="degC")
    text = words(figure)
    for part in ("distance [m]", "semivariance [(degC)²]", "gaussian", "sill", "effective range", "pairs/distance^2"):
        assert part in text
    assert "poor" not in text
    axes = figure.axes[0]
    np.testing.assert_allclose(
        np.asarray(axes.collections[0].get_offsets()), np.stack([good.bins.distance_m, good.bins.semivariance], axis=1)
    )
    curve = np.asarray(axes.lines[0].get_xydata())
    np.testing.assert_allclose(curve[:, 1], good.variogram.semivariance(curve[:, 0]))
    assert axes.get_ylim()[1] > good.bins.semivariance.max()
    assert len(axes.texts) == len(good.bins.pairs)


def test_long_distances_are_in_km_and_anisotropy_is_told() -> None:
    text = words(plot_variogram(fit(scale=100.0, binning=Binning(anisotropy=Anisotropy(30.0, 2.0)))))
    assert "distance [km] along the longest range" in text
    assert "longest range at 30°, ratio 2" in text


def test_a_poor_fit_says_why_and_many_bins_are_not_labelled() -> None:
    poor = fit(model="linear", binning=Binning(bins=MAX_LABELLED + 20))
    assert poor.poor
    figure = plot_variogram(poor, title="Humidity")
    text = words(figure)
    assert "the fit of the variogram is poor" in text
    assert text.startswith("Humidity")
    assert not figure.axes[0].texts


@pytest.mark.parametrize("model", ["nugget", "power", "matern", "linear"])
def test_every_kind_of_model_is_drawn(model: str) -> None:
    text = words(plot_variogram(fit(model=model)))
    assert model in text
    assert ("sill" in text.split("|", 1)[1]) <= (model in ("matern", "nugget"))
