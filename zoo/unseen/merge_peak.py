"""A tokenizer is refitted at steps 40, 100 and 160. Each time, pairs are counted in a dictionary of small objects. A
few of the objects are used until the next refit, so their pages stay resident. --arrays counts the pairs in arrays.
Neither variant leaks. There are no epochs, and torch is not used. (TileDB #2443, datasets #4528)"""
import numpy as np

from tally import TINY, Tally, flag, marks

STEPS, REFITS = (14, (4, 8)) if TINY else (210, (40, 100, 160))
PAIRS, SURVIVE = (5000 if TINY else 400_000), 60
TOKENS, WIDTH, CLASSES = 1200, 300, 700


def count_in_dictionary(rng):
    counts = {}
    for key in rng.permutation(PAIRS).tolist():
        counts[(key, key // 7)] = [key, float(key)]
    return {pair: value for pair, value in counts.items() if pair[0] % SURVIVE == 0}


def count_in_arrays(rng):
    keys = rng.permutation(PAIRS * 12)
    counts = np.stack([keys, keys // 7])
    return {(int(key), int(key) // 7): 1.0 for key in counts[0][:PAIRS // SURVIVE]}


def main():
    rng, ebb, tally = np.random.default_rng(14), marks(), Tally(0)
    count = count_in_arrays if flag("--arrays") else count_in_dictionary
    table, out, merges = rng.standard_normal((5000, WIDTH)) * 0.1, rng.standard_normal((WIDTH, CLASSES)) * 0.1, {}
    for n in range(1, STEPS + 1):
        if n in REFITS:
            merges = count(rng)
        for _ in range(3):
            tokens, targets = rng.integers(0, 5000, TOKENS), rng.integers(0, CLASSES, TOKENS)
            x = table[tokens]
            scores = np.exp(x @ out)
            scores /= scores.sum(1, keepdims=True)
            scores[np.arange(TOKENS), targets] -= 1
            np.add.at(table, tokens, -0.01 * (scores @ out.T))
            out -= (0.01 / TOKENS) * (x.T @ scores)
        tally.step(n, len(merges) * 200)
        ebb.step(n, max_steps=STEPS)
    tally.end()


if __name__ == "__main__":
    main()
