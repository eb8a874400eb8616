"""Uses of torch libraries as their documentation shows them: audio, pictures, attention, quantisation, metrics, equivariance."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from zoo import torch_pictures  # noqa: F401 (first: it makes torchvision importable, which others here import)
from zoo.judging import Build
from zoo.torch_science import Made, _row_of, _Use

ROWS: dict[str, Build] = {}
_row = _row_of(ROWS)


def _made(path: str, *inputs: Callable[[], Any], **options: Any) -> Callable[[], Made]:
    """A class of a library, by its path, and its inputs."""
    module, _, name = path.rpartition(".")
    return lambda: (getattr(importlib.import_module(module), name)(**options), tuple(i() for i in inputs))


def _called(path: str, *inputs: Callable[[], Any], **options: Any) -> Callable[[], Made]:
    """A function of a library, by its path, and its inputs."""
    module, _, name = path.rpartition(".")

    def build() -> Made:
        function = getattr(importlib.import_module(module), name)
        return _Use(lambda *arguments: function(*arguments, **options)), tuple(i() for i in inputs)

    return build


def _normal(*shape: int) -> Callable[[], torch.Tensor]:
    return lambda: torch.randn(*shape)


def _uniform(*shape: int) -> Callable[[], torch.Tensor]:
    return lambda: torch.rand(*shape)


def _whole(most: int, *shape: int) -> Callable[[], torch.Tensor]:
    return lambda: torch.randint(most, shape)


# ---- audio

ROWS |= {
    "julius ResampleFrac": _made("julius.ResampleFrac", _normal(2, 320), old_sr=4, new_sr=5),
    "julius LowPassFilter": _made("julius.LowPassFilter", _normal(2, 320), cutoff=0.1),
    "julius SplitBands": _made("julius.SplitBands", _normal(1, 320), sample_rate=100, n_bands=3),
    "nnAudio MelSpectrogram": _made("nnAudio.features.MelSpectrogram", _normal(1, 800), sr=800, n_fft=64, n_mels=8,
                                    hop_length=32, trainable_mel=True, verbose=False),
    "nnAudio CQT": _made("nnAudio.features.CQT1992v2", _normal(1, 2048), sr=2048, hop_length=256, fmin=64, n_bins=24,
                         verbose=False),
    "nnAudio MFCC": _made("nnAudio.features.MFCC", _normal(1, 1600), sr=1600, n_mfcc=6, n_fft=128, n_mels=12, hop_length=64,
                          verbose=False),
}


@_row("asteroid_filterbanks learned encoder and decoder")
def _filters() -> Made:
    from asteroid_filterbanks import Decoder, Encoder, FreeFB

    encoder, decoder = Encoder(FreeFB(16, 16, stride=8)), Decoder(FreeFB(16, 16, stride=8))
    return _Use(lambda encode, decode, x: decode(encode(x).relu(), length=160), encoder, decoder), (torch.randn(2, 1, 160),)


@_row("asteroid_filterbanks STFT magnitudes")
def _magnitudes() -> Made:
    from asteroid_filterbanks import make_enc_dec
    from asteroid_filterbanks.transforms import mag

    encoder, decoder = make_enc_dec("stft", n_filters=32, kernel_size=32, stride=16)
    return _Use(lambda encode, decode, x: (mag(encode(x)), decode(encode(x))), encoder, decoder), (torch.randn(2, 1, 160),)


# ---- segmentation and pictures

def _segmented(name: str, encoder: str) -> Callable[[], Made]:
    return _made(f"segmentation_models_pytorch.{name}", _normal(1, 3, 64, 64), encoder_name=encoder, encoder_weights=None,
                 classes=2)


ROWS |= {f"segmentation_models_pytorch {name}": _segmented(name, encoder) for name, encoder in {
    "Unet": "resnet18", "FPN": "mobilenet_v2", "DeepLabV3Plus": "resnet18", "MAnet": "resnet18", "PSPNet": "resnet18"}.items()}
ROWS |= {
    "segmentation_models_pytorch DiceLoss": _made(
        "segmentation_models_pytorch.losses.DiceLoss", _normal(2, 3, 8, 8), _whole(3, 2, 8, 8), mode="multiclass"),
    "monai UNet": _made("monai.networks.nets.UNet", _normal(1, 1, 16, 16, 16), spatial_dims=3, in_channels=1, out_channels=2,
                        channels=(4, 8, 16), strides=(2, 2)),
    "monai SwinUNETR": _made("monai.networks.nets.SwinUNETR", _normal(1, 1, 64, 64), in_channels=1, out_channels=2,
                             feature_size=12, spatial_dims=2),
    "monai DynUNet": _made("monai.networks.nets.DynUNet", _normal(1, 1, 32, 32), spatial_dims=2, in_channels=1, out_channels=2,
                           kernel_size=[3, 3, 3], strides=[1, 2, 2], upsample_kernel_size=[2, 2]),
    "monai DiceCELoss": _made(
        "monai.losses.DiceCELoss", _normal(2, 3, 8, 8), _whole(3, 2, 1, 8, 8), to_onehot_y=True, softmax=True),
    "kornia Sobel": _made("kornia.filters.Sobel", _uniform(1, 3, 12, 12)),
    "kornia bilateral_blur": _called("kornia.filters.bilateral_blur", _uniform(1, 3, 10, 10), kernel_size=(3, 3), sigma_color=0.1,
                                     sigma_space=(1.5, 1.5)),
    "kornia canny": _called("kornia.filters.canny", _uniform(1, 1, 16, 16)),
    "kornia rotate": _called("kornia.geometry.rotate", _uniform(2, 3, 12, 12), _normal(2)),
    "kornia find_homography_dlt": _called("kornia.geometry.find_homography_dlt", _uniform(1, 8, 2), _uniform(1, 8, 2)),
    "kornia axis_angle_to_rotation_matrix": _called(
        "kornia.geometry.conversions.axis_angle_to_rotation_matrix", _normal(5, 3)),
    "kornia rgb_to_lab": _called("kornia.color.rgb_to_lab", _uniform(1, 3, 8, 8)),
    "kornia ssim_loss": _called("kornia.losses.ssim_loss", _uniform(1, 3, 12, 12), _uniform(1, 3, 12, 12), window_size=5),
    "kornia harris_response": _called("kornia.feature.harris_response", _uniform(1, 1, 12, 12)),
    "pytorch_wavelets DWTForward": _made("pytorch_wavelets.DWTForward", _normal(1, 2, 16, 16), J=2, wave="db2", mode="zero"),
    "vit_pytorch ViT": _made("vit_pytorch.ViT", _normal(1, 3, 32, 32), image_size=32, patch_size=8, num_classes=5, dim=16,
                             depth=2, heads=2, mlp_dim=32),
    "vit_pytorch CCT": _made("vit_pytorch.cct.CCT", _normal(1, 3, 32, 32), img_size=32, embedding_dim=16, n_conv_layers=1,
                             num_layers=2, num_heads=2, mlp_ratio=2.0, num_classes=5),
    "vit_pytorch MaxViT": _made("vit_pytorch.max_vit.MaxViT", _normal(1, 3, 64, 64), num_classes=5, dim_conv_stem=8, dim=8,
                                dim_head=8, depth=(1, 1), window_size=4),
    "vit_pytorch CrossFormer": _made("vit_pytorch.crossformer.CrossFormer", _normal(1, 3, 64, 64), num_classes=5,
                                     dim=(32, 32, 32, 32), depth=(1, 1, 1, 1), global_window_size=(4, 2, 2, 1),
                                     local_window_size=2),
    "open_clip vision transformer": _made("open_clip.transformer.VisionTransformer", _normal(1, 3, 32, 32), image_size=32,
                                          patch_size=8, width=16, layers=2, heads=2, mlp_ratio=2.0, output_dim=8),
}


@_row("open_clip CLIP")
def _clip() -> Made:
    import open_clip

    vision = {"image_size": 32, "patch_size": 8, "width": 16, "layers": 2, "head_width": 8}
    text = {"context_length": 7, "vocab_size": 30, "width": 16, "heads": 2, "layers": 2}
    return open_clip.CLIP(8, vision_cfg=vision, text_cfg=text), (torch.randn(2, 3, 32, 32), torch.randint(30, (2, 7)))


# ---- detection

def _detector(make: Callable[[Any], Any]) -> Callable[[], Made]:
    """The losses of a detector with a small backbone, for one picture with two boxes."""
    def build() -> Made:
        from torchvision.models import detection

        def run(model: nn.Module, image: torch.Tensor, corners: torch.Tensor, labels: torch.Tensor) -> Any:
            model.train()
            boxes = torch.cat([corners * 20, corners * 20 + 30], 1)
            return model([image], [{"boxes": boxes, "labels": labels}])

        model = make(detection)
        model.transform.torch_choice = lambda sizes: sizes[0]  # it would draw which of one size
        return _Use(run, model), (torch.rand(3, 64, 64), torch.rand(2, 2), torch.tensor([1, 2]))

    return build


def _backbone(channels: int = 8) -> nn.Module:
    layers = nn.Sequential(nn.Conv2d(3, 8, 3, 4, 1), nn.ReLU(), nn.Conv2d(8, channels, 3, 4, 1), nn.ReLU())
    layers.out_channels = channels  # pyright: ignore[reportArgumentType]
    return layers


def _anchors(detection: Any, *ratios: float) -> Any:
    return detection.anchor_utils.AnchorGenerator(((24,),), (ratios,))


ROWS |= {
    "torchvision RetinaNet losses": _detector(lambda d: d.RetinaNet(
        _backbone(), 3, min_size=64, max_size=64, anchor_generator=_anchors(d, 0.5, 1.0, 2.0))),
    "torchvision FCOS losses": _detector(lambda d: d.FCOS(
        _backbone(32), 3, min_size=64, max_size=64, anchor_generator=_anchors(d, 1.0))),
    "torchvision SSD losses": _detector(lambda d: d.ssd.SSD(
        _backbone(), d.anchor_utils.DefaultBoxGenerator([[2]], scales=[0.3, 0.6]), (64, 64), 3, head=d.ssd.SSDHead([8], [4], 3))),
}


@_row("torchvision roi_align and a box head")
def _regions() -> Made:
    from torchvision.models.detection.faster_rcnn import FastRCNNPredictor, TwoMLPHead
    from torchvision.ops import MultiScaleRoIAlign

    pool = MultiScaleRoIAlign(["0", "1"], 3, 2)

    def run(head: nn.Module, predictor: nn.Module, fine: torch.Tensor, coarse: torch.Tensor, corners: torch.Tensor) -> Any:
        boxes = torch.cat([corners * 20, corners * 20 + 30], 1)
        return predictor(head(pool({"0": fine, "1": coarse}, [boxes], [(64, 64)])))

    return _Use(run, TwoMLPHead(4 * 9, 8), FastRCNNPredictor(8, 3)), (
        torch.randn(1, 4, 16, 16), torch.randn(1, 4, 8, 8), torch.rand(5, 2))


@_row("torchvision losses of boxes")
def _boxes() -> Made:
    import torchvision.ops as tv

    def run(corners: torch.Tensor, others: torch.Tensor, logits: torch.Tensor) -> Any:
        a, b = (torch.cat([c, c + c.flip(1) + 0.5], 1) for c in (corners, others))
        losses = [getattr(tv, f"{kind}_box_iou_loss")(a, b) for kind in ("generalized", "complete", "distance")]
        return tv.box_iou(a, b), tv.sigmoid_focal_loss(logits, logits.detach().round().clamp(0, 1)), *losses

    return _Use(run), (torch.rand(4, 2), torch.rand(4, 2), torch.randn(4, 3))


# ---- vector quantisation

ROWS |= {f"vector_quantize_pytorch {name}": _made(f"vector_quantize_pytorch.{name}", _normal(2, 7, size), **options)
         for name, size, options in [
             ("VectorQuantize", 8, {"dim": 8, "codebook_size": 16, "rotation_trick": True}),
             ("ResidualVQ", 8, {"dim": 8, "num_quantizers": 3, "codebook_size": 16}),
             ("FSQ", 3, {"levels": [5, 4, 3]}), ("LFQ", 4, {"codebook_size": 16, "dim": 4, "entropy_loss_weight": 0.1}),
             ("SimVQ", 8, {"dim": 8, "codebook_size": 16}), ("GroupedResidualVQ", 8, {
                 "dim": 8, "num_quantizers": 2, "groups": 2, "codebook_size": 16})]}

# ---- attention and sequences


def _language(depth: int = 2, **options: Any) -> Callable[[], Made]:
    def build() -> Made:
        from x_transformers import Decoder, TransformerWrapper

        layers = Decoder(dim=16, depth=depth, heads=2, attn_dim_head=8, **options)
        return TransformerWrapper(num_tokens=30, max_seq_len=16, attn_layers=layers), (torch.randint(30, (2, 9)),)

    return build


ROWS |= {f"x_transformers Decoder, {name}": _language(**options) for name, options in {
    "rotary": {"rotary_pos_emb": True}, "alibi": {"alibi_pos_bias": True}, "talking heads": {"attn_pre_talking_heads": True},
    "sparse top k": {"attn_sparse_topk": 3}, "macaron and glu": {"macaron": True, "ff_glu": True, "ff_swish": True},
    "T5 bias and memory": {"rel_pos_bias": True, "attn_num_mem_kv": 4}}.items()}
ROWS |= {
    "linformer": _made("linformer.Linformer", _normal(1, 12, 16), dim=16, seq_len=12, depth=2, heads=2, k=4),
    "performer_pytorch": _made("performer_pytorch.Performer", _normal(1, 9, 16), dim=16, depth=1, heads=2, dim_head=8,
                               causal=False),
    "local_attention": _made("local_attention.LocalAttention", _normal(2, 16, 8), _normal(2, 16, 8), _normal(2, 16, 8), dim=8,
                             window_size=4, causal=True, look_backward=1, autopad=True),
    "reformer_pytorch": _made("reformer_pytorch.LSHSelfAttention", _normal(1, 16, 8), dim=8, heads=2, bucket_size=4, n_hashes=2),
    "perceiver_pytorch": _made("perceiver_pytorch.Perceiver", _normal(1, 6, 6, 3), input_channels=3, num_freq_bands=2, depth=2,
                               max_freq=4.0, num_latents=4, latent_dim=8, cross_dim_head=4, latent_dim_head=4, num_classes=5),
    "conformer": _made("conformer.ConformerBlock", _normal(1, 10, 16), dim=16, dim_head=8, heads=2, conv_kernel_size=5),
    "sinkhorn_transformer": _made("sinkhorn_transformer.SinkhornTransformer", _normal(1, 16, 8), dim=8, heads=2, depth=1,
                                  bucket_size=4),
    "mlp_mixer_pytorch": _made("mlp_mixer_pytorch.MLPMixer", _normal(1, 3, 16, 16), image_size=16, channels=3, patch_size=8,
                               dim=16, depth=2, num_classes=5),
    "siren_pytorch": _made("siren_pytorch.SirenNet", _normal(5, 2), dim_in=2, dim_hidden=8, dim_out=3, num_layers=3,
                           w0_initial=30.0),
    "iTransformer": _made("iTransformer.iTransformer", _normal(1, 12, 4), num_variates=4, lookback_len=12, dim=16, depth=2,
                          heads=2, dim_head=8, pred_length=(3, 6), use_reversible_instance_norm=True),
    "entmax entmax15": _called("entmax.entmax15", _normal(3, 7), dim=-1),
    "entmax sparsemax": _called("entmax.sparsemax", _normal(3, 7), dim=-1),
    "positional_encodings": _made("positional_encodings.torch_encodings.PositionalEncoding2D", _normal(1, 4, 5, 8), channels=8),
}


@_row("rotary_embedding_torch")
def _rotary() -> Made:
    from rotary_embedding_torch import RotaryEmbedding

    def run(rotary: Any, q: torch.Tensor, k: torch.Tensor) -> Any:
        return rotary.rotate_queries_with_cached_keys(q[:, :, -2:], k)

    return _Use(run, RotaryEmbedding(dim=8, use_xpos=False)), (torch.randn(1, 2, 6, 16), torch.randn(1, 2, 6, 16))


@_row("mambapy")
def _mamba() -> Made:
    from mambapy.mamba import Mamba, MambaConfig

    return Mamba(MambaConfig(d_model=8, n_layers=2)), (torch.randn(1, 8, 8),)


@_row("einops layers")
def _einops() -> Made:
    from einops.layers.torch import EinMix, Rearrange, Reduce

    return nn.Sequential(Rearrange("b c (h a) (w d) -> b (h w) (a d c)", a=2, d=2),
                         EinMix("b t c -> b t d", weight_shape="c d", bias_shape="d", c=12, d=6), nn.GELU(),
                         Reduce("b t d -> b d", "max")), (torch.randn(2, 3, 8, 8),)


# ---- metrics and losses

ROWS |= {f"torchmetrics {path.rpartition('.')[2]}": _called(f"torchmetrics.functional.{path}", *inputs, **options)
         for path, inputs, options in [
             ("image.structural_similarity_index_measure", (_uniform(1, 1, 16, 16), _uniform(1, 1, 16, 16)), {"data_range": 1.0}),
             ("regression.pearson_corrcoef", (_normal(9), _normal(9)), {}),
             ("regression.spearman_corrcoef", (_normal(9), _normal(9)), {}),
             ("audio.scale_invariant_signal_distortion_ratio", (_normal(2, 50), _normal(2, 50)), {}),
             ("classification.multiclass_f1_score", (_normal(9, 3), _whole(3, 9)), {"num_classes": 3}),
             ("classification.multiclass_auroc", (_normal(9, 3), _whole(3, 9)), {"num_classes": 3, "thresholds": 5}),
             ("classification.binary_average_precision", (_uniform(9), _whole(2, 9)), {})]}
ROWS |= {
    "pytorch_metric_learning TripletMarginLoss": _made("pytorch_metric_learning.losses.TripletMarginLoss", _normal(6, 4),
                                                       _whole(2, 6)),
    "pytorch_metric_learning ArcFaceLoss": _made("pytorch_metric_learning.losses.ArcFaceLoss", _normal(6, 4), _whole(3, 6),
                                                 num_classes=3, embedding_size=4),
    "geomloss SamplesLoss": _made("geomloss.SamplesLoss", _normal(5, 2), _normal(6, 2), loss="sinkhorn", p=2, blur=0.5,
                                  backend="tensorized"),
}


def _attributed(name: str, **options: Any) -> Callable[[], Made]:
    def build() -> Made:
        import captum.attr

        def run(model: nn.Module, x: torch.Tensor) -> torch.Tensor:
            return getattr(captum.attr, name)(model).attribute(x.detach().requires_grad_(), target=1, **options)

        return _Use(run, nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 3))), (torch.randn(2, 4),)

    return build


ROWS |= {"captum IntegratedGradients": _attributed("IntegratedGradients", n_steps=5), "captum Saliency": _attributed("Saliency"),
         "captum Occlusion": _attributed("Occlusion", sliding_window_shapes=(2,))}

# ---- equivariance and operators


@_row("e3nn tensor product")
def _product() -> Made:
    from e3nn import o3

    product = o3.FullyConnectedTensorProduct("2x0e + 1x1o", "1x0e + 1x1o", "2x0e + 1x1o + 1x2e")
    return product, (torch.randn(3, 5), torch.randn(3, 4))


@_row("e3nn convolution of points")
def _points() -> Made:
    from e3nn import o3
    from e3nn.math import soft_one_hot_linspace

    def run(product: Any, net: nn.Module, features: torch.Tensor, positions: torch.Tensor, edges: torch.Tensor) -> torch.Tensor:
        source, target = edges
        apart = positions[target] - positions[source]
        sphere = o3.spherical_harmonics("0e + 1o", apart, normalize=True, normalization="component")
        close = soft_one_hot_linspace(apart.norm(dim=1), 0.0, 3.0, 5, basis="gaussian", cutoff=False)
        sent = product(features[source], sphere, net(close))
        return torch.zeros(len(features), sent.shape[1], dtype=sent.dtype).index_add(0, target, sent)

    product = o3.FullyConnectedTensorProduct("2x0e", "0e + 1o", "2x0e + 1x1o", shared_weights=False)
    source = torch.randint(5, (9,))
    return _Use(run, product, nn.Linear(5, product.weight_numel)), (
        torch.randn(5, 2), torch.randn(5, 3), torch.stack([source, (source + 1 + torch.randint(4, (9,))) % 5]))


ROWS |= {"neuralop FNO": _made("neuralop.models.FNO", _normal(1, 1, 16, 16), n_modes=(6, 6), hidden_channels=8, in_channels=1,
                               out_channels=1, n_layers=2),
         "neuralop TFNO": _made("neuralop.models.TFNO", _normal(1, 1, 16, 16), n_modes=(6, 6), hidden_channels=8, in_channels=1,
                                out_channels=1, n_layers=2, rank=0.5),
         "tltorch TRL": _made("tltorch.TRL", _normal(2, 3, 4), input_shape=(3, 4), output_shape=(5,), factorization="tucker",
                              rank=[2, 2, 3])}
