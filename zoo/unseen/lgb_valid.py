"""Training with LightGBM and without torch. After every 15 trees, the booster is evaluated on a new data set, which is
then dropped. --add-valid adds the data set to the booster, and the booster keeps all its validation sets in memory.
(LightGBM #350)"""
import lightgbm
import numpy as np

from tally import TINY, Tally, flag, marks

EPOCHS, STEPS, EVERY = (2, 4, 2) if TINY else (5, 42, 15)
ROWS, EVALUATED, FEATURES = (500, 500, 20) if TINY else (12_000, 50_000, 120)


def draw(source, rows):
    x = source.random((rows, FEATURES), dtype=np.float32)
    return x, x[:, 0] + np.sin(6 * x[:, 1]) + 0.1 * source.random(rows, dtype=np.float32)


def make_valid(source, train):
    x, y = draw(source, EVALUATED)
    return lightgbm.Dataset(x, y, reference=train).construct(), x[:2000], y[:2000]


def evaluate(booster, source, train, n, add):
    valid, x, y = make_valid(source, train)
    if add:
        booster.add_valid(valid, f"after {n}")
        return booster.eval_valid()[-1][2], valid.num_data() * (FEATURES + 8 + 4)
    return float(np.mean((booster.predict(x) - y) ** 2)), 0


def main():
    source, add = np.random.default_rng(14), flag("--add-valid")
    x, y = draw(source, ROWS)
    options = {"objective": "l2", "num_leaves": 31, "learning_rate": 0.05, "num_threads": 1, "verbose": -1, "seed": 1}
    train = lightgbm.Dataset(x, y, params=options).construct()
    booster = lightgbm.Booster(options, train)
    ebb, tally, n, held = marks(), Tally(0.2), 0, 0
    for epoch in range(EPOCHS):
        for _ in range(STEPS):
            booster.update()
            n += 1
            if n % EVERY == 0:
                error, kept = evaluate(booster, source, train, n, add)
                held += kept
                ebb.mark("eval", step=n)
            tally.step(n, held)
            ebb.step(n, epoch=epoch, steps_per_epoch=STEPS)
    tally.end()


if __name__ == "__main__":
    main()
