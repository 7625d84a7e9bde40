"""Reinforcement learning in episodes. Each episode has its own named logger, with a filter that adds the episode's
map. The logging module never frees named loggers, so the maps stay alive. --one uses one logger for all episodes and
changes its filter. There are no epochs, and torch is not used."""
import logging

import numpy as np

from tally import TINY, Tally, flag, marks

EPISODES, MOVES = (8, 6) if TINY else (200, 12)
SIDE = 220  # size of the map of an episode: 0.39 MB

logging.getLogger("episodes").propagate = False
logging.getLogger("episodes").addHandler(logging.NullHandler())


class MapFilter(logging.Filter):
    def __init__(self, grid):
        super().__init__()
        self.grid = grid

    def filter(self, record):
        record.brightness = float(self.grid[record.args[0] % SIDE].mean())
        return True


class Episode:
    def __init__(self, number, one):
        self.rng = np.random.default_rng(number)
        self.grid = self.rng.random((SIDE, SIDE))
        self.log = logging.getLogger("episodes.all" if one else f"episodes.number{number}")
        self.log.setLevel(logging.INFO)
        if one:
            self.log.filters.clear()
        self.log.addFilter(MapFilter(self.grid))

    def play(self, policy):
        at, reward = SIDE // 2, 0.0
        for move in range(MOVES):
            at = int(np.argmax(policy[at] + self.rng.random(4))) * 7 + at // 2
            reward += float(self.grid[at % SIDE, move])
            self.log.info("at %d", at)
        return at % SIDE, reward


def held():
    filters = (f for log in logging.root.manager.loggerDict.values() for f in getattr(log, "filters", ()))
    return sum(f.grid.nbytes for f in filters if isinstance(f, MapFilter))


def main():
    policy, ebb, tally = np.zeros((2 * SIDE, 4)), marks(), Tally(0.195)
    for n in range(1, EPISODES + 1):
        at, reward = Episode(n, flag("--one")).play(policy)
        policy[at] += 0.01 * (reward - MOVES / 2)
        tally.step(n, held())
        ebb.step(n)
    tally.end()


if __name__ == "__main__":
    main()
