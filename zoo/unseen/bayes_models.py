"""Bayesian optimization without torch. Each step fits a Gaussian process to the last 200 results. All of these models
are kept with their matrices; with --last only the newest model is kept. (scikit-optimize #349, freqtrade #2294)"""
import numpy as np
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import Matern

from tally import TINY, Tally, flag, marks

STEPS, FIRST, RESULTS, TRIED, SIZE = (8, 10, 14, 20, 6) if TINY else (200, 150, 200, 400, 12)


class Optimizer:
    """Suggests the next settings to try, as a point in the unit cube."""

    def __init__(self, only_last):
        self.rng, self.only_last = np.random.default_rng(10), only_last
        self.points, self.values, self.models = [], [], []

    def ask(self):
        tried = self.rng.random((TRIED, SIZE))
        mean, deviation = self.models[-1].predict(tried, return_std=True)
        return tried[np.argmin(mean - 1.5 * deviation)].copy()

    def tell(self, point, value):
        self.points.append(point)
        self.values.append(value)

    def fit(self):
        model = GaussianProcessRegressor(Matern(nu=2.5), alpha=1e-4, optimizer=None, normalize_y=True)
        model.fit(np.array(self.points[-RESULTS:]), np.array(self.values[-RESULTS:]))
        if self.only_last:
            self.models.clear()
        self.models.append(model)


def objective(point):
    """Returns the result of a run with these settings."""
    return float(np.sum((point - 0.4) ** 2) + 0.1 * np.sin(12 * point).sum())


def main():
    optimizer = Optimizer(flag("--last"))
    for point in optimizer.rng.random((FIRST, SIZE)):
        optimizer.tell(point, objective(point))
    optimizer.fit()
    ebb, tally = marks(), Tally(0.21)
    for n in range(1, STEPS + 1):
        point = optimizer.ask()
        optimizer.tell(point, objective(point))
        optimizer.fit()
        tally.step(n, sum(model.L_.nbytes + model.X_train_.nbytes for model in optimizer.models))
        ebb.step(n)
    tally.end()


if __name__ == "__main__":
    main()
