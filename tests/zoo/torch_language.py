"""torch models that go out: transformers and diffusers, small and with random weights."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import torch

from zoo import torch_pictures  # first: it makes torchvision importable, which these import where it is installed
from zoo.judging import Build

import diffusers  # isort: skip
import transformers  # isort: skip

ROWS: dict[str, Build] = {}
Made = tuple[Any, Sequence[Any]]


def _images(size: int) -> torch.Tensor:
    return torch_pictures.images(size)


# ---- language

class _Called(torch.nn.Module):
    """A model whose result is one of the fields of what it returns."""

    def __init__(self, model: torch.nn.Module, field: str, names: Sequence[str], **options: Any):
        super().__init__()
        self.model, self.field, self.names, self.options = model, field, list(names), options

    def forward(self, *arguments: torch.Tensor) -> Any:
        return getattr(self.model(**dict(zip(self.names, arguments, strict=True)), **self.options), self.field)


SMALL = {"vocab_size": 99, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 37,
         "max_position_embeddings": 64, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}
GPT2 = {"vocab_size": 99, "n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": 64, "bos_token_id": 1, "eos_token_id": 2}
PAIRS = {"vocab_size": 99, "d_model": 32, "encoder_layers": 2, "decoder_layers": 2, "encoder_attention_heads": 4,
         "decoder_attention_heads": 4, "encoder_ffn_dim": 37, "decoder_ffn_dim": 37, "max_position_embeddings": 64,
         "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2, "decoder_start_token_id": 2, "scale_embedding": False}
BRIEF = {"vocab_size": 99, "hidden_size": 32, "num_hidden_layers": 2}


def _ids(length: int = 7) -> torch.Tensor:
    return torch.randint(3, 99, (2, length))


def _text(name: str, head: str, config: dict[str, Any], kind: str | None = None) -> Made:
    made = getattr(transformers, f"{kind or name}Config")(**config)
    field = "last_hidden_state" if head == "Model" else "logits"
    options = {} if name in UNCACHED else {"use_cache": False}
    try:
        model = getattr(transformers, name + head)(made)
    except ValueError:  # it knows no torch.nn.functional.scaled_dot_product_attention
        made._attn_implementation = "eager"
        model = getattr(transformers, name + head)(made)
    return _Called(model, field, ["input_ids"], **options), (_ids(),)


UNCACHED = {"Bert", "Roberta", "DistilBert", "Albert", "Electra", "MPNet", "FNet", "ConvBert", "RoFormer", "SqueezeBert",
            "DebertaV2", "Deberta", "ModernBert", "Nystromformer", "Esm"}
KV = {"num_key_value_heads": 2}
MOE = {"num_local_experts": 4, "num_experts_per_tok": 2, "experts_implementation": "batched_mm"}
TEXT: dict[str, tuple[str, dict[str, Any]]] = {
    "Bert": ("Model", SMALL), "Roberta": ("ForMaskedLM", SMALL), "Albert": ("Model", SMALL | {"embedding_size": 16}),
    "Electra": ("Model", SMALL | {"embedding_size": 16}), "MPNet": ("Model", SMALL), "FNet": ("Model", SMALL),
    "DistilBert": ("Model", {"vocab_size": 99, "dim": 32, "n_layers": 2, "n_heads": 4, "hidden_dim": 37,
                             "max_position_embeddings": 64}),
    "ConvBert": ("Model", SMALL | {"embedding_size": 32}), "RoFormer": ("Model", SMALL | {"embedding_size": 32}),
    "SqueezeBert": ("Model", SMALL | {"intermediate_size": 64, "embedding_size": 32}), "Deberta": ("Model", SMALL),
    "DebertaV2": ("Model", SMALL), "ModernBert": ("Model", SMALL),
    "Nystromformer": ("Model", SMALL | {"num_landmarks": 7, "segment_means_seq_len": 7}), "Esm": ("Model", SMALL),
    "GPT2": ("LMHeadModel", GPT2), "GPTNeoX": ("ForCausalLM", SMALL), "GPTJ": ("ForCausalLM", GPT2 | {"rotary_dim": 4}),
    "OPT": ("ForCausalLM", BRIEF | {"ffn_dim": 37, "num_attention_heads": 4, "max_position_embeddings": 64,
                                    "word_embed_proj_dim": 32}),
    "Bloom": ("ForCausalLM", {"vocab_size": 99, "hidden_size": 32, "n_layer": 2, "n_head": 4}),
    "Llama": ("ForCausalLM", SMALL | KV), "Mistral": ("ForCausalLM", SMALL | KV),
    "Gemma": ("ForCausalLM", SMALL | KV | {"head_dim": 8}), "Gemma2": ("ForCausalLM", SMALL | KV | {"head_dim": 8}),
    "Phi": ("ForCausalLM", SMALL), "Phi3": ("ForCausalLM", SMALL), "Qwen2": ("ForCausalLM", SMALL | KV),
    "Qwen3": ("ForCausalLM", SMALL | KV | {"head_dim": 8}), "StableLm": ("ForCausalLM", SMALL | KV),
    "Starcoder2": ("ForCausalLM", SMALL | KV), "Cohere": ("ForCausalLM", SMALL | KV), "Olmo": ("ForCausalLM", SMALL),
    "Olmo2": ("ForCausalLM", SMALL), "Granite": ("ForCausalLM", SMALL | KV),
    "Falcon": ("ForCausalLM", BRIEF | {"num_attention_heads": 4, "new_decoder_architecture": False}),
    "Mixtral": ("ForCausalLM", SMALL | KV | MOE),
    "Mamba": ("ForCausalLM", BRIEF | {"state_size": 8, "use_mambapy": False}),
}
ROWS |= {f"transformers {n}": functools.partial(_text, n, head, config) for n, (head, config) in TEXT.items()}


def _pair(name: str, config: dict[str, Any]) -> Made:
    made = getattr(transformers, f"{name}Config")(**config)
    model = getattr(transformers, f"{name}ForConditionalGeneration" if name != "Marian" else "MarianMTModel")(made)
    return _Called(model, "logits", ["input_ids", "decoder_input_ids"], use_cache=False), (_ids(), _ids(5))


T5 = {"vocab_size": 99, "d_model": 32, "num_layers": 2, "num_heads": 4, "d_kv": 8, "d_ff": 37, "pad_token_id": 0,
      "decoder_start_token_id": 0}
ROWS |= {f"transformers {n}": functools.partial(_pair, n, c)
         for n, c in {"T5": T5, "MT5": T5, "Bart": PAIRS, "MBart": PAIRS, "Pegasus": PAIRS, "Marian": PAIRS}.items()}


# ---- pictures and sound

VISION = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 37, "image_size": 32,
          "patch_size": 8}


def _pictures(name: str, config: dict[str, Any], size: int = 32) -> Made:
    model = getattr(transformers, f"{name}Model")(getattr(transformers, f"{name}Config")(**config))
    return _Called(model, "last_hidden_state", ["pixel_values"]), (_images(size),)


ROWS |= {f"transformers {n}": functools.partial(_pictures, n, c) for n, c in {
    "ViT": VISION, "DeiT": VISION, "Beit": VISION, "Dinov2": VISION, "CLIPVision": VISION, "SiglipVision": VISION,
    "ViTMSN": VISION, "ResNet": {"embedding_size": 16, "hidden_sizes": [16, 32], "depths": [1, 1]},
    "ConvNext": {"hidden_sizes": [16, 32], "depths": [1, 1], "num_stages": 2},
    "Segformer": {"hidden_sizes": [16, 32, 32, 32], "depths": [1, 1, 1, 1], "num_attention_heads": [1, 2, 2, 2],
                  "decoder_hidden_size": 32}}.items()}


def _whisper() -> Made:
    config = transformers.WhisperConfig(**(PAIRS | {"num_mel_bins": 8, "max_source_positions": 16, "max_target_positions": 16,
                                                   "suppress_tokens": None, "begin_suppress_tokens": None}))
    return _Called(transformers.WhisperForConditionalGeneration(config), "logits", ["input_features", "decoder_input_ids"],
                   use_cache=False), (torch.randn(1, 8, 32), _ids(5)[:1])


def _wav2vec2() -> Made:
    config = transformers.Wav2Vec2Config(
        hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=37, conv_dim=(16, 16), conv_stride=(4, 4),
        conv_kernel=(8, 8), num_conv_pos_embeddings=8, num_conv_pos_embedding_groups=2)
    return _Called(transformers.Wav2Vec2Model(config), "last_hidden_state", ["input_values"]), (torch.randn(1, 400),)


ROWS |= {"transformers Whisper": _whisper, "transformers Wav2Vec2": _wav2vec2}


# ---- diffusion

def _noise(size: int = 16, channels: int = 4) -> torch.Tensor:
    return torch.randn(1, channels, size, size)


def _unet() -> Made:
    return _sampled(diffusers.UNet2DModel(
        sample_size=16, in_channels=4, out_channels=4, layers_per_block=1, block_out_channels=(32, 64), norm_num_groups=8,
        down_block_types=("DownBlock2D", "AttnDownBlock2D"), up_block_types=("AttnUpBlock2D", "UpBlock2D"))), (
            _noise(), torch.tensor([3]))


def _unet_conditioned() -> Made:
    return _sampled(diffusers.UNet2DConditionModel(
        sample_size=16, in_channels=4, out_channels=4, layers_per_block=1, block_out_channels=(32, 64), norm_num_groups=8,
        cross_attention_dim=16, attention_head_dim=8, down_block_types=("CrossAttnDownBlock2D", "DownBlock2D"),
        up_block_types=("UpBlock2D", "CrossAttnUpBlock2D"))), (_noise(), torch.tensor([3]), torch.randn(1, 5, 16))


def _dit() -> Made:
    return _sampled(diffusers.PixArtTransformer2DModel(
        num_attention_heads=4, attention_head_dim=8, in_channels=4, out_channels=8, num_layers=2, cross_attention_dim=32,
        sample_size=8, patch_size=2, caption_channels=16), ["hidden_states", "encoder_hidden_states", "timestep"]), (
            _noise(8), torch.randn(1, 5, 16), torch.tensor([3]))


def _vae() -> Made:
    return _sampled(diffusers.AutoencoderKL(
        in_channels=3, out_channels=3, latent_channels=4, block_out_channels=(16, 32), norm_num_groups=8,
        down_block_types=("DownEncoderBlock2D",) * 2, up_block_types=("UpDecoderBlock2D",) * 2), ["sample"]), (_images(16),)


def _vq() -> Made:
    return _sampled(diffusers.VQModel(
        block_out_channels=(16, 32), norm_num_groups=8, latent_channels=3, num_vq_embeddings=16,
        down_block_types=("DownEncoderBlock2D",) * 2, up_block_types=("UpDecoderBlock2D",) * 2), ["sample"]), (_images(16),)


def _unet1d() -> Made:
    return _sampled(diffusers.UNet1DModel(sample_size=64, block_out_channels=(32, 32, 32), extra_in_channels=64)), (
        torch.randn(1, 2, 64), torch.tensor([3]))


def _sampled(model: Any, names: Sequence[str] = ("sample", "timestep", "encoder_hidden_states")) -> _Unpacked:
    return _Unpacked(model, names)


class _Unpacked(torch.nn.Module):
    def __init__(self, model: torch.nn.Module, names: Sequence[str]):
        super().__init__()
        self.model, self.names = model, list(names)

    def forward(self, *arguments: torch.Tensor) -> Any:
        return self.model(**dict(zip(self.names, arguments, strict=False)), return_dict=False)[0]


DIFFUSION: dict[str, Callable[[], Made]] = {
    "UNet2D": _unet, "UNet2DCondition": _unet_conditioned, "PixArt": _dit, "AutoencoderKL": _vae, "VQModel": _vq,
    "UNet1D": _unet1d}
ROWS |= {f"diffusers {n}": build for n, build in DIFFUSION.items()}
