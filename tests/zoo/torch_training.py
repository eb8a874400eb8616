"""torch models that go out in training mode: with dropout, and with what they write into their buffers."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import torch

from zoo import torch_language, torch_pictures
from zoo.judging import Build
from zoo.torch_language import _Called, _ids, _pair, _sampled, _text

import diffusers  # isort: skip
import torchvision  # isort: skip
import transformers  # isort: skip

ROWS: dict[str, Build] = {}

# ---- what is there out of training, too

NAMES = ["Bert", "Roberta", "DistilBert", "Electra", "GPT2", "GPTNeoX", "OPT", "Llama", "Qwen3", "T5", "Bart", "ViT", "Whisper",
         "CLIPVision"]
ROWS |= {f"transformers {n}": torch_language.ROWS[f"transformers {n}"] for n in NAMES}
ROWS |= {f"diffusers {n}": torch_language.ROWS[f"diffusers {n}"] for n in ("UNet2DCondition", "AutoencoderKL", "UNet2D")}


def _of_several(build: Build, size: int) -> tuple[Any, Sequence[Any]]:
    """With more and larger pictures: of two values a batch normalisation leaves but the sign of their difference."""
    return build()[0], (torch.randn(4, 3, size, size),)


ROWS |= {n: functools.partial(_of_several, torch_pictures.ROWS[n], size) for n, size in {
    "torchvision resnet18": 64, "torchvision mobilenet_v2": 64, "torchvision mobilenet_v3_small": 64,
    "torchvision shufflenet_v2_x0_5": 64, "torchvision alexnet": 64, "torchvision squeezenet1_1": 64,
    "torchvision deeplabv3_mobilenet_v3_large": 64, "timm resnetv2_18": 64, "timm convnextv2_atto": 32,
    "timm levit_128s": 64}.items()}

# ---- language

SMALL = torch_language.SMALL | torch_language.KV | {"head_dim": 8}
EXPERTS = {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 16, "experts_implementation": "batched_mm"}
TEXT: dict[str, tuple[str, dict[str, Any]]] = {
    "Gemma3": ("ForCausalLM", SMALL | {"layer_types": ["sliding_attention", "full_attention"], "sliding_window": 4}),
    "Mixtral": torch_language.TEXT["Mixtral"],
    "Qwen2Moe": ("ForCausalLM", SMALL | EXPERTS | {"shared_expert_intermediate_size": 16}),
    "Qwen3Moe": ("ForCausalLM", SMALL | EXPERTS),
    "Mamba2": ("ForCausalLM", {"vocab_size": 99, "hidden_size": 32, "num_hidden_layers": 2, "state_size": 8, "num_heads": 8,
                               "head_dim": 8, "n_groups": 2, "chunk_size": 4, "expand": 2, "pad_token_id": 0}),
}
KINDS = {"Gemma3": "Gemma3Text"}
"""Whose configuration it is, where it is not called as the model."""

ROWS |= {f"transformers {n}": functools.partial(_text, n, head, config, KINDS.get(n)) for n, (head, config) in TEXT.items()}
ROWS |= {"transformers Pegasus": functools.partial(_pair, "Pegasus", torch_language.PAIRS)}


def _clip() -> tuple[Any, Sequence[Any]]:
    text = {"vocab_size": 99, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 37,
            "max_position_embeddings": 64, "eos_token_id": 2, "attention_dropout": 0.1}
    config = transformers.CLIPConfig(text_config=text, vision_config=torch_language.VISION, projection_dim=16)
    return _Called(transformers.CLIPModel(config), "logits_per_image", ["input_ids", "pixel_values"]), (
        _ids(), torch_pictures.images(32))


ROWS |= {"transformers CLIP": _clip}

# ---- diffusion


def _dit() -> tuple[Any, Sequence[Any]]:
    model = diffusers.DiTTransformer2DModel(num_attention_heads=4, attention_head_dim=8, in_channels=4, out_channels=8,
                                            num_layers=2, sample_size=8, patch_size=2, num_embeds_ada_norm=10, dropout=0.1)
    return _sampled(model, ["hidden_states", "timestep", "class_labels"]), (
        torch_language._noise(8), torch.tensor([3]), torch.tensor([1]))


ROWS |= {"diffusers DiT": _dit}

# ---- pictures

CLASSIFIERS: dict[str, int] = {
    "convnext_tiny": 32, "densenet121": 64, "efficientnet_v2_s": 64, "googlenet": 64, "mnasnet0_5": 64, "regnet_y_400mf": 64,
    "resnext50_32x4d": 64, "swin_t": 32, "vgg11_bn": 32}


OPTIONS = {"googlenet": {"init_weights": False}}
ROWS |= {f"torchvision {n}": functools.partial(
    _of_several, functools.partial(torch_pictures._torchvision, n, size, **OPTIONS.get(n, {})), size)
    for n, size in CLASSIFIERS.items()}
ROWS |= {"torchvision fcn_resnet50": functools.partial(torch_pictures._segmentation, "fcn_resnet50")}


class _Flow(torch.nn.Module):
    """It keeps to float32, which its grids of places are of."""

    def __init__(self):
        super().__init__()
        self.model = torchvision.models.optical_flow.raft_small(weights=None)

    def double(self) -> _Flow:
        return self

    def forward(self, first: torch.Tensor, second: torch.Tensor) -> Any:
        return self.model(first.float(), second.float(), num_flow_updates=1)


ROWS |= {"torchvision raft_small": lambda: (_Flow(), (torch_pictures.images(128), torch_pictures.images(128)))}

# ---- graphs, by hand


class GraphSAGE(torch.nn.Module):
    """Means over neighbours, which are pairs of numbers of nodes."""

    def __init__(self, inside: int, width: int, outside: int):
        super().__init__()
        self.own = torch.nn.ModuleList([torch.nn.Linear(inside, width), torch.nn.Linear(width, outside)])
        self.others = torch.nn.ModuleList([torch.nn.Linear(inside, width), torch.nn.Linear(width, outside)])
        self.drop = torch.nn.Dropout(0.3)

    def forward(self, nodes: torch.Tensor, edges: torch.Tensor) -> torch.Tensor:
        source, target = edges
        counts = torch.zeros(len(nodes), dtype=nodes.dtype).index_add(0, target, torch.ones(len(target), dtype=nodes.dtype))
        for k, (own, others) in enumerate(zip(self.own, self.others, strict=True)):
            sums = torch.zeros_like(nodes).index_add(0, target, nodes[source])
            nodes = own(nodes) + others(sums / counts.clamp(min=1)[:, None])
            nodes = self.drop(nodes.relu()) if k == 0 else nodes
        return nodes


class GAT(torch.nn.Module):
    """Attention over neighbours: a softmax over the edges that end at a node."""

    def __init__(self, inside: int, heads: int, width: int):
        super().__init__()
        self.line = torch.nn.Linear(inside, heads * width, bias=False)
        self.score = torch.nn.Parameter(torch.randn(2, heads, width))
        self.heads, self.drop = heads, torch.nn.Dropout(0.2)

    def forward(self, nodes: torch.Tensor, edges: torch.Tensor) -> torch.Tensor:
        source, target = edges
        values = self.line(nodes).unflatten(-1, (self.heads, -1))
        left, right = (values * self.score[:, None]).sum(-1)
        scores = torch.nn.functional.leaky_relu(left[source] + right[target], 0.2)
        places = target[:, None].expand_as(scores)
        most = torch.full_like(left, -torch.inf).scatter_reduce(0, places, scores.detach(), "amax")
        shares = (scores - most[target]).exp()
        sums = torch.zeros_like(left).scatter_add(0, places, shares)
        shares = self.drop(shares / sums[target])
        return torch.zeros_like(values).index_add(0, target, values[source] * shares[..., None]).flatten(1)


def _graph(model: torch.nn.Module) -> tuple[Any, Sequence[Any]]:
    return model, (torch.randn(20, 8), torch.stack([torch.randint(20, (70,)), torch.randint(20, (70,))]))


ROWS |= {"GraphSAGE by hand": lambda: _graph(GraphSAGE(8, 16, 5)), "GAT by hand": lambda: _graph(GAT(8, 4, 6))}

ROWS = {f"{name}, training": build for name, build in ROWS.items()}
