"""Trainable parameters of a pretrained network: all, those of its last blocks, or low-rank additions (LoRA)."""

from __future__ import annotations

from typing import Any

from torch import nn

from limpet.errors import ConfigError, refuse
from limpet.models.embedding_network import EmbeddingNetwork
from limpet.support.extras import needing


def train_last(encoder: EmbeddingNetwork, blocks: int) -> None:
    """Freeze all but the last blocks of the backbone, the layers after them and the projection, in place.

    The layers after them are those that the network registers later: the last norm, a pooling layer. All other parts
    stay in evaluation mode during training, so that their batch statistics do not change.

    Args:
        encoder: Encoder with an image or text backbone.
        blocks: Number of blocks to train; 0 trains the projection alone.

    Raises:
        ConfigError: The network has fewer blocks, or none.
    """
    backbone = _backbone(encoder)
    if blocks == 0:
        backbone.requires_grad_(False)
        return
    found = blocks_of(backbone)
    refuse(
        len(found) < blocks,
        f"The recipe was given trainable.last={blocks}, and {encoder.spec.name} has {len(found)} blocks.",
        f"at most {len(found)}, or nothing, to train all of it" if found else "nothing: to train all of it, or lora",
    )
    first = next(iter(found[-blocks].parameters()))
    learns = False
    for parameter in backbone.parameters():
        learns = learns or parameter is first
        parameter.requires_grad_(learns)


def blocks_of(network: nn.Module) -> list[nn.Module]:
    """Return the blocks of a network, in order: its largest list of layers of one class, by parameters.

    If no list has layers of one class, as in plain sequences, the layers with parameters of the largest list are the
    blocks.
    """
    lists = [part for part in network.modules() if isinstance(part, nn.ModuleList | nn.Sequential)]
    layers = [[child for child in part.children() if any(True for _ in child.parameters())] for part in lists]
    several = [blocks for blocks in layers if len(blocks) > 1]
    alike = [blocks for blocks in several if len({type(block) for block in blocks}) == 1]
    return max(alike or several, key=_size, default=[])


def _size(blocks: list[nn.Module]) -> int:
    return sum(parameter.numel() for block in blocks for parameter in block.parameters())


def add_lora(encoder: EmbeddingNetwork, rank: int) -> None:
    """Add low-rank matrices to the linear layers of the backbone, in place; only these and the projection are trained.

    LoRA (Hu et al., ICLR 2022, equation 3), W + B·A with α = r, so that additions are not scaled. B starts at zero, so
    that training starts from the unchanged network. In a backbone without linear layers, convolutions are adapted.

    Args:
        encoder: Encoder with an image or text backbone.
        rank: Rank r of both matrices.

    Raises:
        ConfigError: The peft library is not installed, or the network has no such layers.
    """
    backbone = _backbone(encoder)
    with needing("A recipe with trainable.lora", "train the last blocks: --recipe.trainable.last 2"):
        from peft import LoraConfig, inject_adapter_in_model
    attention = {id(part.out_proj) for part in backbone.modules() if isinstance(part, nn.MultiheadAttention)}
    named = [(name, part) for name, part in backbone.named_modules() if id(part) not in attention]  # reads weights only
    layers = [name for name, part in named if isinstance(part, nn.Linear)]
    layers = layers or [name for name, part in named if isinstance(part, nn.Conv2d) and part.groups == 1]
    refuse(not layers, f"The recipe was given trainable.lora={rank}, for {encoder.spec.name}.",
           "a network with linear layers or convolutions")  # fmt: skip
    inject_adapter_in_model(
        LoraConfig(r=rank, lora_alpha=rank, target_modules=layers, lora_dropout=0.0, bias="none"), backbone
    )


def merge_lora(encoder: EmbeddingNetwork) -> None:
    """Merge the additions of `add_lora` into the weights, in place, which restores the original layers."""
    for name, part in list(encoder.named_modules()):
        if not hasattr(part, "lora_A"):
            continue
        layer: Any = part
        layer.merge()
        parent, _, own = name.rpartition(".")
        setattr(encoder.get_submodule(parent), own, layer.get_base_layer())


def _backbone(encoder: EmbeddingNetwork) -> nn.Module:
    backbone = encoder.pretrained
    if backbone is None:
        raise ConfigError(
            f"The recipe was given trainable, for a {encoder.spec.name}.",
            expected="it only for a backbone; a network over a frozen model is trained as a whole",
        )
    return backbone
