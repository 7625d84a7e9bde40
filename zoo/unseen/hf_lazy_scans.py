"""Lazily opened images are in a list. Pillow decodes each at the first access and keeps its pixels, so memory grows
for one epoch. With --leak the images are opened again each time, and the collator keeps every decoded image."""
import os, tempfile
import kit

opt = kit.options("--leak")
torch = kit.torch_cpu()
try:
    import numpy as np
    from PIL import Image
    from transformers import Trainer, TrainerCallback, ViTConfig, ViTForImageClassification
except ImportError as e:
    kit.cannot(e)

EPOCHS, STEPS, BATCH = (3, 5, 4) if opt.tiny else (4, 50, 4)
W, H = 500, 400
ledger = kit.Ledger()


def write_scans(folder, n):
    rng = np.random.default_rng(1)
    paths = []
    for i in range(n):
        small = rng.integers(0, 255, (H // 20, W // 20, 3), dtype=np.uint8)
        path = os.path.join(folder, f"scan{i:04d}.jpg")
        Image.fromarray(small).resize((W, H)).save(path, quality=80)
        paths.append(path)
    return paths


class ScanSet(torch.utils.data.Dataset):
    def __init__(self, paths):
        self.paths = paths
        self.scans = None if opt.twin else [Image.open(p) for p in paths]

    def __len__(self):
        return len(self.paths)

    def __getitem__(self, i):
        return {"image": Image.open(self.paths[i]) if opt.twin else self.scans[i], "label": i % 5}


class ScanCollator:
    def __init__(self):
        self.last_seen = []

    def __call__(self, examples):
        pixels = []
        for e in examples:
            # the first access decodes the image, and Pillow keeps the pixels in it
            thumb = e["image"].resize((64, 64))
            pixels.append(torch.from_numpy(np.array(thumb, dtype=np.float32)
                                           / 255).permute(2, 0, 1))
            if opt.twin:
                self.last_seen.append(e["image"])
        return {"pixel_values": torch.stack(pixels),
                "labels": torch.tensor([e["label"] for e in examples])}


def decoded_bytes(images):
    """Pillow uses four bytes per RGB pixel; an image that is not yet decoded has no pixels."""
    n = 0
    for im in images:
        core = getattr(im, "_im", None) if hasattr(im, "_im") else getattr(im, "im", None)
        if core is not None:
            n += im.size[0] * im.size[1] * 4
    return n


class Throttle(TrainerCallback):
    pace = kit.Pace(0.18, opt.tiny)

    def on_step_begin(self, args, state, control, **kw):
        self.pace.tick()

    def on_step_end(self, args, state, control, **kw):
        if state.global_step in (1, STEPS // 2) or state.global_step % STEPS == 0:
            ledger.note(state.global_step,
                        decoded_bytes(collator.last_seen if opt.twin else data.scans))


with tempfile.TemporaryDirectory() as tmp:
    data, collator = ScanSet(write_scans(tmp, STEPS * BATCH)), ScanCollator()
    model = ViTForImageClassification(ViTConfig(hidden_size=64, num_hidden_layers=2,
                                                num_attention_heads=4,
                                                intermediate_size=128, image_size=64, patch_size=16,
                                                num_labels=5))
    trainer = Trainer(model=model, train_dataset=data, data_collator=collator,
                      callbacks=[Throttle()],
                      args=kit.hf_args(tmp, num_train_epochs=EPOCHS,
                                       per_device_train_batch_size=BATCH,
                                       remove_unused_columns=False))
    trainer.train()
    ledger.close(EPOCHS, STEPS, expected_per_step=W * H * 4 * BATCH if opt.twin else None)
