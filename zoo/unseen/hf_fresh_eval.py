"""Training with the Hugging Face Trainer, in which each evaluation creates a data set of newly corrupted pictures. The
Accelerator keeps each loader that it has prepared, and with it all these data sets. --forget removes the loaders of
evaluations from the Accelerator's list. (transformers #28469, accelerate #2234, sentence-transformers #3895)"""
import tempfile
import weakref

import torch
from transformers import Trainer, TrainerCallback, TrainingArguments, ViTConfig, ViTForImageClassification
from transformers.trainer_callback import PrinterCallback

from tally import TINY, Tally, flag

EPOCHS, STEPS, BATCH, EVERY = (2, 4, 4, 2) if TINY else (5, 40, 24, 20)
SIDE, EVALUATED = 32, 16 if TINY else 720
alive = weakref.WeakSet()


class Pictures(torch.utils.data.Dataset):
    def __init__(self, pixels):
        self.pixels = pixels

    def __len__(self):
        return len(self.pixels)

    def __getitem__(self, i):
        return {"pixel_values": self.pixels[i], "labels": i % 5}


def draw(count, seed):
    draws = torch.Generator().manual_seed(seed)
    pixels = torch.rand(count, 3, SIDE, SIDE, generator=draws)
    return pixels + torch.arange(count).remainder(5).view(-1, 1, 1, 1) / 5


def corrupt(clean, step):
    noise = torch.rand(clean.shape, generator=torch.Generator().manual_seed(step))
    made = Pictures(clean + 0.3 * noise)
    alive.add(made)
    return made


class FreshTrainer(Trainer):
    clean, forget = None, False

    def evaluate(self, eval_dataset=None, **kwargs):
        result = super().evaluate(corrupt(self.clean, self.state.global_step), **kwargs)
        if self.forget:
            del self.accelerator._dataloaders[1:]  # the first loader is the training loader
        return result


class Count(TrainerCallback):
    def __init__(self, tally):
        self.tally = tally

    def on_step_end(self, args, state, control, **kwargs):
        self.tally.step(state.global_step, len(alive) * EVALUATED * 3 * SIDE * SIDE * 4)


def main():
    torch.manual_seed(3)
    torch.set_num_threads(1)
    count = Count(Tally(0.205))
    config = ViTConfig(image_size=SIDE, patch_size=8, hidden_size=128, num_hidden_layers=3, num_attention_heads=4,
                       intermediate_size=384, num_labels=5)
    with tempfile.TemporaryDirectory() as folder:
        args = TrainingArguments(output_dir=folder, num_train_epochs=EPOCHS, per_device_train_batch_size=BATCH,
                                 per_device_eval_batch_size=48, eval_strategy="steps", eval_steps=EVERY,
                                 save_strategy="no", report_to=[], use_cpu=True, logging_steps=1000, disable_tqdm=True)
        trainer = FreshTrainer(model=ViTForImageClassification(config), args=args,
                               train_dataset=Pictures(draw(STEPS * BATCH, 1)), eval_dataset=Pictures(draw(4, 2)),
                               callbacks=[count])
        trainer.clean, trainer.forget = draw(EVALUATED, 2), flag("--forget")
        trainer.remove_callback(PrinterCallback)
        trainer.train()
    count.tally.end()


if __name__ == "__main__":
    main()
