"""Tests ebb.data: images that are decoded on demand, and collate functions that keep nothing."""

import collections
import dataclasses
import gc
import io
import json
import multiprocessing
import os
import pathlib
import pickle
import subprocess
import sys
import textwrap
import threading

import pytest

Image = pytest.importorskip("PIL.Image", reason="Pillow is not installed")

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "python"))

from ebb.data import BadImage, LazyImages, _is_decoded, keep_nothing  # noqa: E402

MIB = 1 << 20
TIMEOUT_S = 300
SIDE = 64
EACH = SIDE * SIDE * 4  # PIL stores an RGB pixel in four bytes


def colour(n):
    return (n * 7 % 256, n * 13 % 256, n * 29 % 256)


@pytest.fixture
def paths(tmp_path):
    found = []
    for n in range(10):
        found.append(tmp_path / f"{n}.png")
        Image.new("RGB", (SIDE, SIDE), colour(n)).save(found[-1])
    return found


def colours(images):
    return [image.getpixel((0, 0)) for image in images]


ALL = [colour(n) for n in range(10)]


def open_files():
    """Returns the number of open files, after closing those that are only awaiting garbage
    collection."""
    gc.collect()
    return len(os.listdir("/proc/self/fd"))


# ---- LazyImages ----


def test_image_list_supports_indexing_slicing_and_iteration(paths):
    images = LazyImages(paths)
    assert len(images) == 10 and colours(images) == ALL
    assert images[3].getpixel((0, 0)) == ALL[3]
    assert images[-1].getpixel((0, 0)) == ALL[-1]
    assert colours(images[2:8:2]) == ALL[2:8:2] and len(images[2:8:2]) == 3
    assert colours(images[::-1]) == ALL[::-1] == colours(reversed(images))
    assert colours(images[2:8][1:3]) == ALL[3:5]
    assert colours(images[5:5]) == [] and not LazyImages([])
    for index in (10, -11):
        with pytest.raises(IndexError, match=f"image {index} of 10"):
            images[index]
    with pytest.raises(TypeError):
        images["1"]


def test_image_list_accepts_bytes_as_well_as_paths(paths):
    contents = [path.read_bytes() for path in paths]
    images = LazyImages(
        [contents[0], bytearray(contents[1]), memoryview(contents[2]), str(paths[3])])
    assert colours(images) == ALL[:4]


def test_image_list_converts_images_to_the_given_mode(paths):
    assert {image.mode for image in LazyImages(paths, mode="L")} == {"L"}


@pytest.mark.parametrize("fits", [0, 1, 3, 10])
def test_image_cache_stays_within_the_budget(paths, fits):
    images = LazyImages(paths, budget=fits * EACH + EACH // 2)
    for _ in range(2):
        for n in range(10):
            assert images[n].getpixel((0, 0)) == ALL[n]
            assert images.kept_bytes <= fits * EACH
    assert images.kept_bytes == fits * EACH


def test_image_cache_evicts_the_least_recently_used_image(paths, monkeypatch):
    images = LazyImages(paths, budget=2 * EACH)
    decoded = []
    decode = images._store.decode
    monkeypatch.setattr(images._store, "decode", lambda key: decoded.append(key) or decode(key))
    for n in (0, 1, 0, 2, 0, 1):
        images[n]
    assert decoded == [0, 1, 2, 1]


def test_slices_of_an_image_list_share_one_cache_budget(paths):
    images = LazyImages(paths, budget=3 * EACH)
    parts = [images[:5], images[5:]]
    for part in parts:
        colours(part)
    assert images.kept_bytes == parts[0].kept_bytes == parts[1].kept_bytes == 3 * EACH


def test_changing_a_returned_image_does_not_change_the_cached_image(paths):
    images = LazyImages(paths)
    images[0].putpixel((0, 0), (1, 2, 3))
    images[0].thumbnail((4, 4))
    assert images[0].getpixel((0, 0)) == ALL[0] and images[0].size == (SIDE, SIDE)


def test_image_list_leaves_no_file_open(paths):
    before = open_files()
    images = LazyImages(paths, budget=2 * EACH)
    held = list(images)
    assert open_files() == before
    assert held[0].format == "PNG"


def test_image_cache_accounts_for_the_bytes_of_each_image_mode(tmp_path):
    sizes = {"1": 1, "L": 1, "P": 1, "I;16": 2, "RGB": 4, "RGBA": 4, "LA": 4}
    for mode, pixel in sizes.items():
        path = tmp_path / f"{mode.replace(';', '')}.png"
        Image.new(mode, (10, 10)).save(path)
        images = LazyImages([path])
        assert images[0].mode == mode
        assert images.kept_bytes == 100 * pixel, mode


def test_error_for_an_unreadable_image_names_the_image(paths, tmp_path):
    cut = tmp_path / "cut.png"
    cut.write_bytes(paths[0].read_bytes()[:60])
    text = tmp_path / "text.png"
    text.write_text("no image")
    images = LazyImages([paths[0], cut, text, b"\0" * 10, tmp_path / "none.png"])
    for index, name in ((1, "cut.png"), (2, "text.png"), (3, "10 bytes in memory")):
        with pytest.raises(BadImage, match=f"image {index} .*{name}.* cannot be decoded"):
            images[index]
    with pytest.raises(FileNotFoundError, match="none.png"):
        images[4]
    assert images[0].getpixel((0, 0)) == ALL[0]


def test_image_list_refuses_an_invalid_source_when_created(paths):
    with pytest.raises(TypeError, match="image 1 is a int, neither a path nor bytes"):
        LazyImages([paths[0], 5])
    with pytest.raises(TypeError, match="a list of images, not a single image"):
        LazyImages(str(paths[0]))
    with pytest.raises(ValueError, match="budget='lots'"):
        LazyImages(paths, budget="lots")


def test_pickled_image_list_has_an_empty_cache(paths, monkeypatch):
    images = LazyImages(paths, budget=5 * EACH, mode="RGB")
    colours(images)
    data = pickle.dumps(images[2:6])
    assert len(data) < 4096
    monkeypatch.chdir("/")
    there = pickle.loads(data)
    assert there.kept_bytes == 0 and colours(there) == ALL[2:6]


def test_relative_image_path_is_resolved_when_the_list_is_created(paths, monkeypatch):
    monkeypatch.chdir(paths[0].parent)
    images = LazyImages(["0.png"])
    monkeypatch.chdir("/")
    assert colours(images) == ALL[:1]


def _in_child(images, pipe):
    before = images.kept_bytes
    found = colours(images)
    pipe.send((before, found, images.kept_bytes))


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_data_loader_worker_starts_with_an_empty_image_cache(paths, method):
    images = LazyImages(paths, budget=4 * EACH)
    colours(images)
    context = multiprocessing.get_context(method)
    ours, theirs = context.Pipe()
    process = context.Process(target=_in_child, args=(images, theirs))
    process.start()
    assert ours.poll(TIMEOUT_S)
    assert ours.recv() == (0, ALL, 4 * EACH)
    process.join(TIMEOUT_S)
    assert images.kept_bytes == 4 * EACH


def test_fork_while_a_thread_reads_an_image_does_not_hang(paths):
    images = LazyImages(paths)
    with images._store.lock:  # From here on, the lock appears to be held by another thread.
        pid = os.fork()
        if pid == 0:
            os._exit(0 if images[0].getpixel((0, 0)) == ALL[0] else 1)
    context = threading.Timer(TIMEOUT_S, os.kill, (pid, 9))
    context.start()
    try:
        assert os.waitpid(pid, 0)[1] == 0
    finally:
        context.cancel()


def test_threads_can_share_an_image_list(paths):
    images = LazyImages(paths, budget=3 * EACH)
    wrong = []

    def read():
        for turn in range(20):
            for n in range(10):
                if images[(n + turn) % 10].getpixel((0, 0)) != ALL[(n + turn) % 10]:
                    wrong.append(n)
    threads = [threading.Thread(target=read) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(TIMEOUT_S)
    assert wrong == []
    assert images.kept_bytes == sum(
        i.width * i.height * 4 for i in images._store.images.values()) <= 3 * EACH


class Examples:
    def __init__(self, images):
        self.images = images

    def __len__(self):
        return len(self.images)

    def __getitem__(self, n):
        return self.images[n].getpixel((0, 0)), self.images.kept_bytes


def _as_is(examples):
    return examples


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_image_list_can_be_read_by_data_loader_workers(paths, method):
    data = pytest.importorskip("torch.utils.data", reason="torch is not installed")
    images = LazyImages(paths, budget=2 * EACH)
    colours(images)
    loader = data.DataLoader(Examples(images), batch_size=2, num_workers=2, collate_fn=_as_is,
                             multiprocessing_context=method)
    found = [example for batch in loader for example in batch]
    assert [pixel for pixel, _ in found] == ALL
    assert all(0 < kept <= 2 * EACH for _, kept in found)


# ---- keep_nothing ----


def opened(paths):
    return [Image.open(path) for path in paths]


def test_wrapped_collator_leaves_images_of_the_dataset_undecoded(paths):
    images = opened(paths)
    collate = keep_nothing(lambda examples: [e["image"].getpixel((0, 0)) for e in examples])
    assert collate([{"image": image} for image in images]) == ALL
    assert not any(map(_is_decoded, images))
    assert colours(images) == ALL
    assert all(map(_is_decoded, images))


def test_unwrapped_collator_leaves_images_of_the_dataset_decoded(paths):
    """Shows why the wrapper exists: PIL keeps decoded pixels in the image. If PIL stops doing so,
    the wrapper is no longer needed."""
    images = opened(paths)
    colours(images)
    assert all(map(_is_decoded, images))


def test_wrapped_collator_can_read_an_image_opened_from_bytes(paths):
    image = Image.open(io.BytesIO(paths[4].read_bytes()))
    assert keep_nothing(colours)([image]) == [ALL[4]]
    assert not _is_decoded(image)
    assert image.getpixel((0, 0)) == ALL[4]


def test_opened_image_can_be_read_after_the_file_was_removed(paths):
    image = Image.open(paths[4])
    paths[4].unlink()
    assert keep_nothing(colours)([image]) == [ALL[4]]
    assert not _is_decoded(image) and image.getpixel((0, 0)) == ALL[4]


def test_copied_image_keeps_the_frame_and_draft_mode_of_the_original(tmp_path):
    frames = [Image.new("L", (8, 8), n * 50) for n in range(3)]
    frames[0].save(tmp_path / "frames.tiff", save_all=True, append_images=frames[1:])
    Image.new("RGB", (256, 256), (9, 9, 9)).save(tmp_path / "large.jpg")
    frame, draft = Image.open(tmp_path / "frames.tiff"), Image.open(tmp_path / "large.jpg")
    frame.seek(2)
    draft.draft("L", (64, 64))
    collate = keep_nothing(lambda images: [(i.getpixel((0, 0)), i.mode, i.size) for i in images])
    got = collate([frame, draft])
    assert got[0] == (100, "L", (8, 8))
    assert got[1] == (draft.getpixel((0, 0)), "L", (64, 64))


def test_images_in_the_batch_of_a_wrapped_collator_stay_readable(paths):
    class Batch(collections.UserDict):
        pass

    def collate(examples):
        return Batch(images=[e[0] for e in examples[:2]], nested={"one": (examples[2][0],)})
    batch = keep_nothing(collate)([(image,) for image in opened(paths[:4])])
    assert colours(batch["images"]) == ALL[:2]
    assert colours(batch["nested"]["one"]) == ALL[2:3]


def test_wrapper_closes_images_that_the_collator_keeps(paths):
    kept = []

    def collate(examples):
        kept.extend(examples)
        return colours(examples)
    wrapped = keep_nothing(collate)
    for images in (opened(paths), list(LazyImages(paths))):
        assert wrapped(images) == ALL
        assert wrapped.hoarded == 10
        for n in range(10):
            with pytest.raises(ValueError, match="closed image"):
                kept[n].getpixel((0, 0))
        kept.clear()
        gc.collect()
        assert wrapped.hoarded == 0
        assert colours(images) == ALL


def test_wrapped_collator_leaves_no_file_open(paths):
    images = opened(paths)
    before = open_files()
    # The wrapper opens copies of the images, but does not read them.
    keep_nothing(lambda examples: None)(images)
    assert open_files() == before


def test_wrapped_collator_that_raises_leaves_no_file_open(paths):
    kept = []

    def collate(examples):
        kept.extend(examples)
        colours(examples)
        raise KeyError("labels")
    images = opened(paths)
    with pytest.raises(KeyError, match="labels"):
        keep_nothing(collate)(images)
    assert not any(map(_is_decoded, images))
    with pytest.raises(ValueError, match="closed image"):
        kept[0].getpixel((0, 0))


Pair = collections.namedtuple("Pair", "image label")


@dataclasses.dataclass(frozen=True)
class Example:
    image: object
    label: int


def test_wrapped_collator_receives_images_in_any_nested_structure(paths):
    images = opened(paths[:4])
    other = object()
    examples = [Pair(images[0], 0), Example(images[1], 1),
                collections.OrderedDict(x=[images[2]], other=other), (images[3],)]

    def collate(given):
        assert given is not examples and given[2]["other"] is other
        assert [type(one) for one in given] == [type(one) for one in examples]
        assert given[1].label == 1
        given[2].clear()  # some collate functions clear their input
        return colours([given[0].image, given[1].image, given[3][0]])
    assert keep_nothing(collate)(examples) == [ALL[0], ALL[1], ALL[3]]
    assert not any(map(_is_decoded, images)) and examples[2]["x"] == [images[2]]


def test_wrapped_collator_keeps_the_attributes_of_the_original():
    class Collator:
        pad_token_id = 7

        def __call__(self, examples, scale=1):
            return sum(examples) * scale
    wrapped = keep_nothing(Collator())
    assert wrapped.pad_token_id == 7 and wrapped([1, 2], scale=3) == 9
    with pytest.raises(AttributeError):
        wrapped.nothing
    assert pickle.loads(pickle.dumps(keep_nothing(_as_is)))([1]) == [1]


# ---- a whole epoch ----

EPOCH = """
    import json, sys
    from PIL import Image
    import ebb.data

    def peak():
        with open("/proc/self/status") as file:
            return int(file.read().split("VmHWM:")[1].split()[0]) << 10

    def collate(examples):
        kept.extend(examples if keeps else ())
        return [example["image"].resize((16, 16)).tobytes() for example in examples]

    way, paths = sys.argv[1], sys.argv[2:]
    keeps, kept = way == "hoarder", []
    if way == "lazy":
        images = ebb.data.LazyImages(paths, budget="16M")
    else:
        images = [Image.open(path) for path in paths]
    if way in ("wrapped", "hoarder"):
        collate = ebb.data.keep_nothing(collate)
    collate([{"image": Image.open(paths[0])} for _ in range(4)])  # PIL and its decoders are loaded
    kept.clear()
    baseline = peak()
    batches = [collate([{"image": image} for image in images[n:n + 4]])
               for n in range(0, len(paths), 4)]
    print(json.dumps({"rise": peak() - baseline, "batches": len(batches)}))
"""


@pytest.fixture(scope="module")
def photographs(tmp_path_factory):
    folder = tmp_path_factory.mktemp("photographs")
    found = []
    for n in range(60):
        found.append(str(folder / f"{n}.jpg"))
        Image.effect_noise((32, 32), 50 + n).convert("RGB").resize((1024, 768)).save(found[-1])
    return found


ALL_PIXELS = 60 * 1024 * 768 * 4  # 180 MiB
SLACK = 40 * MIB  # allowance for a batch of four, its copies, and memory retained by the allocator


@pytest.mark.parametrize("way, least, most", [
    ("list", ALL_PIXELS - SLACK, None),
    ("lazy", 0, 16 * MIB + SLACK),
    ("wrapped", 0, SLACK),
    ("hoarder", 0, SLACK),
])
def test_memory_is_flat_over_an_epoch_of_lazily_decoded_images(
        photographs, tmp_path, way, least, most):
    """A plain list grows to the size of all its pixels, LazyImages grows to its budget, and a list
    with a wrapped collate function does not grow."""
    program = tmp_path / "epoch.py"
    program.write_text(textwrap.dedent(EPOCH))
    env = dict(os.environ, PYTHONPATH=str(ROOT / "python"))
    result = subprocess.run([sys.executable, program, way, *photographs], timeout=TIMEOUT_S,
                            text=True, stdout=subprocess.PIPE, env=env)
    got = json.loads(result.stdout)
    assert got["batches"] == 15 and got["rise"] >= least
    assert most is None or got["rise"] <= most
