"""The training of `torch_scripts`' base in other people's loops, recorded by their callbacks. See the package."""

from __future__ import annotations

import logging
import sys
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.nn import functional
from torch.utils.data import DataLoader, Dataset

from parity_tests.recorded import BATCH, STEPS, batch, data, run_snippet
from parity_tests.recorded.torch_scripts import model_of, optimizer_of, train

CLIP = 0.125


class Rows(Dataset):
    """The samples in the order of the steps."""

    def __init__(self) -> None:
        self._rows = np.concatenate([batch(step) for step in range(STEPS)])
        self._features, self._classes = data()

    def __len__(self) -> int:
        return len(self._rows)

    def __getitem__(self, place: int) -> dict[str, Any]:
        row = self._rows[place]
        return {"inputs": self._features[row], "labels": self._classes[row], "id": row}


class Module(torch.nn.Module):
    """The model as transformers' Trainer wants it."""

    def __init__(self) -> None:
        super().__init__()
        self.network = model_of()

    def forward(self, inputs: torch.Tensor, labels: torch.Tensor) -> dict[str, torch.Tensor]:
        logits = self.network(inputs)
        return {"loss": functional.cross_entropy(logits, labels), "logits": logits}


def with_lightning(out: Path | None, parts: int) -> np.ndarray:
    """Trainer.fit."""
    import lightning.pytorch as pl

    from parity.torch_impl.recorders.lightning import RecorderCallback

    logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)

    part = "network" if parts > 1 else ""

    class Lit(pl.LightningModule):
        def __init__(self) -> None:
            super().__init__()
            self.network = model_of()
            if part:  # beside it stands what is none of the model
                self.spare = model_of().requires_grad_(False)

        def training_step(self, batch: Any, batch_idx: int) -> torch.Tensor:
            return functional.cross_entropy(self.network(batch["inputs"]), batch["labels"])

        def configure_optimizers(self) -> Any:
            return optimizer_of(self.network, {})

    module = Lit()
    recorded = {"ids": lambda rows: rows["id"], "every": 1, "taps": True, "part": part, "clipped": bool(part)}
    callbacks = [] if out is None else [RecorderCallback(out, **recorded)]
    trainer = pl.Trainer(
        max_epochs=1,
        accelerator="cpu",
        devices=1,
        precision="64-true",
        gradient_clip_val=CLIP,
        accumulate_grad_batches=parts,
        callbacks=callbacks,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    trainer.fit(module, DataLoader(Rows(), BATCH // parts))
    if out is not None and parts == 1:
        by_hand_in_lightning(out.with_name("manual"))
    return flat(module)


def by_hand_in_lightning(out: Path) -> None:
    """Manual optimization, recorded by a recorder of the module's own; nothing is said of its gradients."""
    import lightning.pytorch as pl

    from parity.torch_impl.recorder import Recorder

    class Manual(pl.LightningModule):
        def __init__(self) -> None:
            super().__init__()
            self.automatic_optimization = False
            self.network = model_of()

        def configure_optimizers(self) -> Any:
            return optimizer_of(self.network, {})

        def on_train_start(self) -> None:
            self.recorder = Recorder(out, self.network, self.optimizers())

        def training_step(self, batch: Any, batch_idx: int) -> None:
            self.optimizers().zero_grad()
            loss = functional.cross_entropy(self.network(batch["inputs"]), batch["labels"])
            self.manual_backward(loss)
            self.optimizers().step()
            self.recorder.step(loss, count=len(batch["id"]), ids=batch["id"])

        def on_train_end(self) -> None:
            self.recorder.finish()

    quiet = {
        "logger": False,
        "enable_checkpointing": False,
        "enable_progress_bar": False,
        "enable_model_summary": False,
    }
    trainer = pl.Trainer(
        max_epochs=1, accelerator="cpu", devices=1, precision="64-true", limit_train_batches=2, **quiet
    )
    trainer.fit(Manual(), DataLoader(Rows(), BATCH))


def in_order(*given: Any, **named: Any) -> Any:
    """A Trainer of transformers that does not shuffle."""
    from transformers import Trainer

    class InOrder(Trainer):
        def _get_train_sampler(self, dataset: Any = None) -> Any:
            return torch.utils.data.SequentialSampler(dataset or self.train_dataset)

    return InOrder(*given, **named)


def with_transformers(out: Path | None, parts: int) -> np.ndarray:
    """transformers' Trainer."""
    import tempfile

    from transformers import TrainingArguments

    from parity.torch_impl.recorders.transformers import RecorderCallback

    module = Module()
    optimizer = optimizer_of(module, {})
    with tempfile.TemporaryDirectory() as scratch:
        arguments = TrainingArguments(
            scratch,
            max_steps=STEPS,
            per_device_train_batch_size=BATCH // parts,
            gradient_accumulation_steps=parts,
            max_grad_norm=CLIP,
            use_cpu=True,
            remove_unused_columns=False,
            report_to=[],
            save_strategy="no",
            logging_strategy="no",
            disable_tqdm=True,
        )
        schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 1.0)
        trainer = in_order(module, arguments, train_dataset=Rows(), optimizers=(optimizer, schedule))
        if out is not None:
            trainer.add_callback(RecorderCallback(trainer, out, ids="id", every=1, taps=True))
        else:
            without = trainer.compute_loss
            trainer.compute_loss = lambda model, inputs, *rest, **named: without(
                model, {name: value for name, value in inputs.items() if name != "id"}, *rest, **named
            )
        trainer.train()
    return flat(module)


def with_accelerate(out: Path | None, parts: int) -> np.ndarray:
    """A loop with an Accelerator."""
    from accelerate import Accelerator

    from parity.torch_impl.recorders.accelerate import AcceleratedRecorder

    accelerator = Accelerator(cpu=True, gradient_accumulation_steps=parts)
    module = model_of()
    model, optimizer, batches = accelerator.prepare(
        module, optimizer_of(module, {}), DataLoader(Rows(), BATCH // parts)
    )
    recorder = (
        None if out is None else AcceleratedRecorder(out, accelerator, model, optimizer, every=1, taps=True)
    )
    for rows in batches:
        with accelerator.accumulate(model):
            loss = functional.cross_entropy(model(rows["inputs"]), rows["labels"])
            accelerator.backward(loss)
            if accelerator.sync_gradients:
                if recorder is not None:
                    recorder.gradients()
                accelerator.clip_grad_norm_(model.parameters(), CLIP)
            optimizer.step()
            optimizer.zero_grad()
            if recorder is not None:
                recorder.step(loss, len(rows["id"]), rows["id"])
    if recorder is not None:
        recorder.finish()
    return flat(module)


def flat(module: torch.nn.Module) -> np.ndarray:
    """All weights, end to end."""
    return np.concatenate([p.detach().numpy().ravel() for p in module.parameters()])


# Of docs/how_to/recorders.md.
_SNIPPETS = {"lightning": 3, "transformers": 4, "accelerate": 5}


def told(library: str, folder: Path) -> dict[str, Any]:
    """What the piece of the page takes for given."""
    if library == "lightning":
        import lightning.pytorch as pl

        return {"pl": pl}
    if library == "transformers":
        from transformers import TrainingArguments

        arguments = TrainingArguments(str(folder / "scratch"), use_cpu=True, report_to=[])
        return {"trainer": in_order(Module(), arguments, train_dataset=Rows())}
    from accelerate import Accelerator

    model = model_of()
    inputs, ids = torch.zeros(2, 8).double(), [0, 1]
    loss = model(inputs).sum()
    return {
        "accelerator": Accelerator(cpu=True),
        "model": model,
        "optimizer": optimizer_of(model, {}),
        "inputs": inputs,
        "ids": ids,
        "loss": loss,
    }


def main(library: str, folder: Path) -> None:
    """With one and with two micro-batches, each with and without the recorder; and the loop by hand."""
    warnings.filterwarnings("ignore", module=r"(lightning|torch\.utils|transformers|accelerate)\b")
    run_snippet(_SNIPPETS[library], folder, told(library, folder))
    run = globals()[f"with_{library}"]
    for parts in (1, 2):
        np.save(folder / f"bare_{parts}.npy", run(None, parts))
        np.save(folder / f"with_{parts}.npy", run(folder / f"run_{parts}", parts))
        before = (library, parts) != ("lightning", 2)
        train(folder / f"hand_{parts}", {"clip": CLIP, "parts": parts, "told": before}, every=1, taps=True)


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
