"""torch models that go out to IREE: what `from_torch` gives, written as StableHLO and compiled by `iree-compile`."""

from __future__ import annotations

from zoo import torch_language, torch_pictures
from zoo.judging import Build

NAMES = ["transformers Bert", "transformers GPT2", "transformers Llama", "transformers Qwen3", "transformers T5",
         "transformers ViT", "transformers Whisper", "diffusers UNet2DCondition", "diffusers AutoencoderKL",
         "torchvision resnet18", "torchvision mobilenet_v3_small", "timm convnextv2_atto"]
ROWS: dict[str, Build] = {f"{name}, IREE": (torch_language.ROWS | torch_pictures.ROWS)[name] for name in NAMES}
