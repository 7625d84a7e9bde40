"""Training with scikit-learn: a forest is trained on each new shard with warm_start, which only adds trees. --anew
trains a new forest of the same size on each shard. Does not use torch. (scikit-learn #5385)"""
import numpy as np
from sklearn.ensemble import ExtraTreesRegressor

from tally import TINY, Tally, flag, marks

EPOCHS, STEPS, ROWS = (2, 3, 50) if TINY else (4, 30, 1500)


def fit(forest, x, y, anew):
    if anew:
        forest = ExtraTreesRegressor(4, random_state=1)
    else:
        forest.n_estimators += 4
    return forest.fit(x, y)


def main():
    ebb, tally, n, anew = marks(), Tally(0.33), 0, flag("--anew")
    source = np.random.default_rng(8)
    forest = ExtraTreesRegressor(4, warm_start=True, random_state=1)
    for epoch in range(EPOCHS):
        for _ in range(STEPS):
            x = source.random((ROWS, 12))
            forest = fit(forest, x, x @ np.arange(12) + source.random(ROWS), anew)
            n += 1
            ebb.step(n, epoch=epoch, steps_per_epoch=STEPS)
            tally.step(n, sum(tree.tree_.node_count for tree in forest.estimators_) * 72)
    tally.end()


if __name__ == "__main__":
    main()
