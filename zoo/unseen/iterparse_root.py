"""A detector of boxes learns from a long XML annotation file, which is parsed in pieces. The root element keeps
everything that was parsed. --clear empties the root element after each picture. There are no epochs, and torch is not
used. (cpython #102055, healthkit-to-sqlite #7)"""
import random
from xml.etree import ElementTree

import numpy as np
from sklearn.linear_model import SGDClassifier

from tally import TINY, Tally, flag, marks

STEPS, PICTURES, BOXES = (8, 3, 5) if TINY else (205, 12, 40)
PICTURE = 37_500  # bytes of a picture's elements, measured in isolation
KINDS = ["car", "van", "bus", "tram", "bicycle", "person"]


class Annotations:
    """Stands for the file: read() returns the annotations of the next pictures as text."""

    def __init__(self):
        self.draws, self.started = random.Random(15), False

    def read(self, _):
        text = "".join(self.picture() for _ in range(4))
        if not self.started:
            self.started, text = True, "<annotations>" + text
        return text.encode()

    def picture(self):
        boxes = "".join(self.box() for _ in range(BOXES))
        return f"<picture><name>{self.draws.randrange(10 ** 9):09d}.jpg</name>{boxes}</picture>"

    def box(self):
        kind = self.draws.randrange(len(KINDS))
        numbers = [self.draws.gauss(100 + 20 * kind, 15) for _ in range(4)]
        inner = "".join(f"<{tag}>{number:.2f}</{tag}>" for tag, number in zip(("x", "y", "w", "h"), numbers))
        return f"<object><kind>{KINDS[kind]}</kind>{inner}</object>"


def pictures(clear):
    """Yields the boxes of each picture, their classes, and the number of elements in the root."""
    root = None
    for event, element in ElementTree.iterparse(Annotations(), events=("start", "end")):
        if root is None:
            root = element
        if event == "end" and element.tag == "picture":
            boxes = [[float(box.find(tag).text) for tag in ("x", "y", "w", "h")] for box in element.iter("object")]
            kinds = [KINDS.index(kind.text) for kind in element.iter("kind")]
            if clear:
                root.clear()
            yield np.array(boxes), np.array(kinds), len(root)


def main():
    model, stream = SGDClassifier(alpha=1e-3, random_state=15), pictures(flag("--clear"))
    ebb, tally = marks(), Tally(0.205)
    for n in range(1, STEPS + 1):
        batch = [next(stream) for _ in range(PICTURES)]
        boxes, kinds = np.concatenate([each[0] for each in batch]), np.concatenate([each[1] for each in batch])
        model.partial_fit(boxes / 200, kinds, classes=np.arange(len(KINDS)))
        tally.step(n, batch[-1][2] * PICTURE)
        ebb.step(n)
    tally.end()


if __name__ == "__main__":
    main()
