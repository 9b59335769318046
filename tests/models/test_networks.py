from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from limpet.errors import ConfigError, DataError
from limpet.geometry import SPACES, Hypersphere
from limpet.methods.base import View
from limpet.models.backbones import BACKBONES, build_backbone
from limpet.models.building import build_network
from limpet.models.encoder import Encoder, central
from limpet.models.heads import HEADS, build_head
from limpet.models.published_weights import PUBLISHED
from limpet.models.seeding import seeded
from limpet.models.specs import EncoderSpec, encoder_spec

# parameters in millions, from the papers' tables or the reference implementations (classifier left out)
SIZES = {
    ("resnet18", 224): 11.18,
    ("resnet50", 224): 23.51,
    ("vit_s", 224): 21.67,
    ("vit_b", 224): 85.80,
    ("resnet18", 32): 11.17,
    ("iresnet18", 112): 11.17 + 0.01,
    ("iresnet50", 112): 30.78,
    ("convnet", 32): 0.24,
}


@pytest.fixture
def undrawn() -> Iterator[None]:
    """Let networks have shapes and no numbers."""
    with torch.device("meta"):
        yield


@pytest.mark.parametrize(("name", "size"), SIZES)
def test_size_of_backbones(name: str, size: int, undrawn: None) -> None:
    backbone = build_backbone(name, 3, size, None, {})
    millions = sum(parameter.numel() for parameter in backbone.parameters()) / 1e6
    assert millions == pytest.approx(SIZES[name, size], abs=0.06)


@pytest.mark.parametrize("name", sorted(BACKBONES))
@pytest.mark.parametrize("channels", [1, 3])
def test_every_backbone_embeds_small_images(name: str, channels: int) -> None:
    options = {"layers": 1} if name.startswith("vit") else {}
    spec = EncoderSpec(backbone=name, dim=16, channels=channels, image_size=32, backbone_options=options)
    encoder = build_network(spec).eval()
    images = torch.randint(0, 256, (2, channels, 32, 32), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
    features = encoder(images)
    assert features.shape == (2, 16) and features.dtype == torch.float32 and torch.isfinite(features).all()
    assert not torch.equal(features[0], features[1])


@pytest.mark.parametrize("name", sorted(BACKBONES))
def test_every_backbone_embeds_upright_images(name: str) -> None:
    size, options = ("32x16", {"layers": 1} if name.startswith("vit") else {})
    encoder = build_network(encoder_spec(backbone=name, dim=16, image_size=size, backbone_options=options)).eval()
    images = torch.randint(0, 256, (2, 3, 32, 16), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
    features = encoder(images)
    assert features.shape == (2, 16) and torch.isfinite(features).all()
    assert not torch.equal(features[0], features[1])


def test_what_backbones_make_of_256_by_128_pixels(undrawn: None) -> None:
    """Sizes worked out by hand: iResNets halve both sides four times; 256 / 16 × 128 / 16 patches and a class token."""
    assert build_backbone("iresnet18", 3, (256, 128), None, {}).width == 512 * 16 * 8
    assert build_backbone("iresnet18", 3, (100, 30), None, {}).width == 512 * 7 * 2
    embeddings = build_backbone("vit_s", 3, (256, 128), None, {"layers": 1}).body.model.embeddings
    assert embeddings.position_embeddings.shape == (1, 16 * 8 + 1, 384)
    for size, stem in (((64, 32), (64, 32)), ((65, 32), (17, 8)), ((256, 128), (64, 32))):
        small = build_backbone("resnet18", 3, size, None, {}).body.model.embedder(torch.zeros(1, 3, *size))
        assert tuple(small.shape[-2:]) == stem


def test_small_stem_keeps_the_resolution(undrawn: None) -> None:
    small = build_backbone("resnet18", 3, 32, None, {})
    large = build_backbone("resnet18", 3, 32, None, {"stem": "imagenet"})
    assert small.body.model.embedder(torch.zeros(1, 3, 32, 32)).shape[-1] == 32
    assert large.body.model.embedder(torch.zeros(1, 3, 32, 32)).shape[-1] == 8


@pytest.mark.parametrize(("name", "expansion"), [("resnet18", 1), ("resnet50", 4)])
@pytest.mark.parametrize("stem", ["small", "imagenet"])
def test_filters_set_the_width_of_every_stage(name: str, expansion: int, stem: str) -> None:
    backbone = build_backbone(name, 3, 32, None, {"filters": 8, "stem": stem}).eval()
    assert backbone.body.model.embedder(torch.zeros(1, 3, 32, 32)).shape[1] == 8
    assert backbone(torch.zeros(1, 3, 32, 32)).shape == (1, backbone.width) == (1, 8 * 8 * expansion)


@pytest.mark.parametrize(("projection", "width"), [("linear", 16), ("linear-bn", 16), ("mlp", 16), ("none", 128)])
def test_projections(projection: str, width: int) -> None:
    spec = EncoderSpec(dim=width, image_size=28, channels=1, projection=projection)
    assert Encoder(spec).eval()(torch.zeros(2, 1, 28, 28)).shape == (2, width)


def test_projection_none_needs_the_backbones_width() -> None:
    with pytest.raises(DataError, match=r"--dim 128"):
        Encoder(EncoderSpec(dim=64, projection="none"))


def test_bytes_and_unit_floats_are_the_same_image() -> None:
    encoder = Encoder(EncoderSpec(dim=8, image_size=16)).eval()
    images = torch.randint(0, 256, (2, 3, 16, 16), dtype=torch.uint8)
    torch.testing.assert_close(encoder(images), encoder(images.float() / 255))


def test_other_sizes_are_resized_and_other_channels_refused() -> None:
    encoder = Encoder(EncoderSpec(dim=8, image_size=16)).eval()
    assert encoder(torch.zeros(1, 3, 40, 40)).shape == (1, 8)
    with pytest.raises(DataError, match="3 channels"):
        encoder(torch.zeros(1, 1, 16, 16))


def test_a_frozen_backbone_does_not_move() -> None:
    encoder = Encoder(EncoderSpec(dim=8, image_size=16), freeze_backbone=True).train()
    before = {name: value.clone() for name, value in encoder.backbone.state_dict().items()}
    encoder(torch.rand(4, 3, 16, 16)).sum().backward()
    assert all(torch.equal(value, before[name]) for name, value in encoder.backbone.state_dict().items())
    assert encoder.projection.weight.grad is not None
    assert not any(parameter.requires_grad for parameter in encoder.backbone.parameters())


def test_frozen_batch_norm_keeps_its_statistics_and_learns_scales_and_shifts() -> None:
    images = torch.rand(4, 3, 16, 16)
    spec = EncoderSpec(dim=8, image_size=16, projection="linear-bn")
    free, encoder = build_network(spec).train(), build_network(spec, freeze_batch_norm=True).train()
    before = {name: value.clone() for name, value in encoder.backbone.named_buffers()}
    for network in (free, encoder):
        network(images).square().sum().backward()
    for name, value in encoder.backbone.named_buffers():
        assert torch.equal(value, before[name]), name
    assert not torch.equal(dict(free.backbone.named_buffers())["body.1.running_mean"], before["body.1.running_mean"])
    norms = [layer for layer in encoder.backbone.modules() if isinstance(layer, torch.nn.BatchNorm2d)]
    assert len(norms) == 4 and all(layer.weight.grad is not None for layer in norms)
    assert encoder.projection[1].num_batches_tracked == 1
    torch.testing.assert_close(encoder.backbone(images), encoder.eval().backbone(images), rtol=0, atol=0)


def test_frozen_batch_norm_needs_some() -> None:
    spec = EncoderSpec(backbone="vit_s", dim=8, image_size=32, backbone_options={"layers": 1})
    with pytest.raises(ConfigError, match=r"freeze_batch_norm=True, and 'vit_s'"):
        build_network(spec, freeze_batch_norm=True)


def test_published_weights_are_read_from_a_local_folder(tmp_path) -> None:
    import transformers

    with seeded(3):
        published = transformers.ResNetModel(
            transformers.ResNetConfig(
                num_channels=3, embedding_size=64, hidden_sizes=[64, 128, 256, 512], depths=[2, 2, 2, 2],
                layer_type="basic",
            )
        )  # fmt: skip
    published.save_pretrained(tmp_path)
    assert json.loads((tmp_path / "config.json").read_text())["layer_type"] == "basic"
    backbone = build_backbone("resnet18", 3, 224, tmp_path, {})
    for name, value in published.state_dict().items():
        assert torch.equal(value, backbone.body.model.state_dict()[name])
    for folder, missing in ((tmp_path / "nothing", "no such folder"), (tmp_path.parent, r"no model\.safetensors")):
        with pytest.raises(
            ConfigError, match=f"there is {missing}(.|\n)*local folder(.|\n)*fetch 'microsoft/resnet-18'"
        ):
            build_backbone("resnet18", 3, 224, folder, {})
    with pytest.raises(ConfigError, match="convnet"):
        build_backbone("convnet", 3, 32, tmp_path, {})


def test_same_seed_same_weights_and_the_global_state_is_untouched() -> None:
    state = torch.get_rng_state()
    encoders = []
    for _ in range(2):
        with seeded(5):
            encoders.append(Encoder(EncoderSpec(dim=8)))
    assert all(torch.equal(a, b) for a, b in zip(encoders[0].parameters(), encoders[1].parameters(), strict=True))
    assert torch.equal(state, torch.get_rng_state())


@pytest.mark.parametrize("name", sorted(HEADS))
def test_heads(name: str) -> None:
    head = build_head(name, 5, 8, {})
    features = torch.randn(6, 8, generator=torch.Generator().manual_seed(0))
    view, labels = View.of(features, SPACES[min(HEADS[name].spaces)](8)), torch.arange(6) % 5
    logits = head.logits(view)
    assert logits.shape == (6, 5) and head.weight.shape == (5, 8)
    assert torch.isfinite(head.loss(view, labels))
    if head.normalised:
        scaled = View(3 * features, view.points, view.space)
        torch.testing.assert_close(head.logits(scaled), logits)
        assert logits.abs().max() <= head.scale


def test_arcface_without_margin_is_cosine_softmax() -> None:
    head = build_head("arcface", 5, 8, {"margin": 0.0, "scale": 10.0})
    features, labels = torch.randn(6, 8), torch.arange(6) % 5
    view = View(features, features, Hypersphere(8))
    torch.testing.assert_close(head.loss(view, labels), torch.nn.functional.cross_entropy(head.logits(view), labels))
    harder = build_head("arcface", 5, 8, {"margin": 0.3, "scale": 10.0})
    harder.load_state_dict(head.state_dict())
    assert harder.loss(view, labels) > head.loss(view, labels)


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: build_backbone("resnet81", 3, 32, None, {}), "Did you mean 'resnet18'"),
        (lambda: build_backbone("convnet", 3, 32, None, {"filtres": 3}), "filtres"),
        (lambda: build_backbone("resnet18", 3, 32, None, {"stem": "big"}), "'small' or 'imagenet'"),
        (lambda: build_backbone("resnet18", 3, 32, None, {"filters": 0}), "filters = 0"),
        (lambda: build_backbone("vit_s", 3, 30, None, {"patch": 4}), "whole number of patches"),
        (lambda: build_backbone("vit_s", 3, 30, None, {"patch": 4}), r"1, 2, 3, 5, .*\n.*--backbone-options\.patch"),
        (lambda: build_backbone("vit_s", 3, 100, None, {}), r"patches of 16"),
        (lambda: build_backbone("vit_s", 3, (48, 30), None, {"patch": 4}), r"48x30 pixels.*\n.*one of 1, 2, 3, 6\n"),
        (lambda: build_backbone("vit_s", 3, 32, None, {"patch": -4}), "patches of -4"),
        (lambda: build_backbone("vit_s", 3, 32, None, {"layers": 0}), "layers = 0"),
        (lambda: build_backbone("convnet", 3, 32, None, {"filters": 0}), "even number"),
        (lambda: build_backbone("convnet", 3, 32, None, {"filters": 1}), "even number"),
        (lambda: build_backbone("convnet", 3, 32, None, {"filters": 33}), "even number"),
        (lambda: build_head("softmx", 3, 8, {}), "Did you mean 'softmax'"),
        (lambda: build_head("softmax", 3, 8, {"temperature": 1}), "temperature"),
        (lambda: build_head("normalised", 3, 8, {"temperature": 0}), "above 0"),
    ],
)
def test_wrong_names_and_options(build, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        build()


# --- published weights -----------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def published_resnet(tmp_path_factory: pytest.TempPathFactory) -> Path:
    import transformers

    config = transformers.ResNetConfig(
        num_channels=3, embedding_size=64, hidden_sizes=[64, 128, 256, 512], depths=[2, 2, 2, 2], layer_type="basic"
    )
    with seeded(3):
        model = transformers.ResNetForImageClassification(config)
    folder = tmp_path_factory.mktemp("resnet")
    model.save_pretrained(folder)
    return folder


def save_vit(folder: Path, layers: int, dtype: torch.dtype = torch.float32) -> Path:
    import transformers

    config = transformers.ViTConfig(
        image_size=32, patch_size=4, hidden_size=384, num_attention_heads=6, num_hidden_layers=layers,
        intermediate_size=1536,
    )  # fmt: skip
    transformers.ViTModel(config, add_pooling_layer=True).to(dtype).save_pretrained(folder)
    return folder


def test_weights_that_leave_layers_random_are_refused(tmp_path: Path) -> None:
    save_vit(tmp_path, layers=2)
    with pytest.raises(ConfigError, match="num_hidden_layers 2 and not 3"):
        build_backbone("vit_s", 3, 32, tmp_path, {"layers": 3})
    with pytest.raises(ConfigError, match=r"patch_size 4 and not 8(.|\n)*the same architecture"):
        build_backbone("vit_s", 3, 32, tmp_path, {"layers": 2, "patch": 8})
    with pytest.raises(ConfigError, match=r"image_size 32 and not [\[(]32, 16[\])](.|\n)*size of images"):
        build_backbone("vit_s", 3, (32, 16), tmp_path, {"layers": 2, "patch": 4})
    said = json.loads((tmp_path / "config.json").read_text()) | {"num_hidden_layers": 3}
    (tmp_path / "config.json").write_text(json.dumps(said))
    with pytest.raises(ConfigError, match=r"lack 16 parts .*layer.*\.2\.(.|\n)*Expected(.|\n)*Next"):
        build_backbone("vit_s", 3, 32, tmp_path, {"layers": 3})


@pytest.mark.parametrize(
    ("backbone", "channels", "difference"),
    [
        ("resnet50", 3, r"hidden_sizes \[64, 128, 256, 512\] and not \[256, 512, 1024, 2048\], .*layer_type basic"),
        ("resnet18", 1, "num_channels 3 and not 1"),
        ("vit_b", 3, "model_type resnet and not vit"),
    ],
)
def test_weights_of_another_architecture_are_refused_with_a_model_that_fits(
    backbone: str, channels: int, difference: str, published_resnet: Path
) -> None:
    fits = PUBLISHED[backbone]
    with pytest.raises(
        ConfigError, match=rf"another architecture: .*{difference}(.|\n)*fetch '{fits}' \(config\.json and"
    ):
        build_backbone(backbone, channels, 224, published_resnet, {})


def test_published_weights_have_their_own_number_of_filters(published_resnet: Path) -> None:
    with pytest.raises(ConfigError, match="embedding_size 64 and not 32"):
        build_backbone("resnet18", 3, 224, published_resnet, {"filters": 32})


def test_a_configuration_that_is_none_is_refused(published_resnet: Path, tmp_path: Path) -> None:
    (tmp_path / "model.safetensors").write_bytes((published_resnet / "model.safetensors").read_bytes()[:5000])
    with pytest.raises(ConfigError, match=r"there is no config\.json"):
        build_backbone("resnet18", 3, 32, tmp_path, {})
    for content in ("{", "[1, 2]", '"text"'):
        (tmp_path / "config.json").write_text(content)
        with pytest.raises(ConfigError, match=r"Cannot read '.*config\.json'(.|\n)*fetch 'microsoft/resnet-18'"):
            build_backbone("resnet18", 3, 32, tmp_path, {})


def test_half_precision_weights_become_float32_and_a_pooler_is_left_out(tmp_path: Path) -> None:
    backbone = build_backbone("vit_s", 3, 32, save_vit(tmp_path, 2, torch.float16), {"layers": 2})
    assert {parameter.dtype for parameter in backbone.parameters()} == {torch.float32}
    assert not any("pooler" in name for name in backbone.state_dict())


def test_weights_bring_the_published_stem_to_small_images_and_the_spec_remembers(published_resnet: Path) -> None:
    encoder = Encoder(EncoderSpec(backbone="resnet18", dim=8, image_size=32), weights=published_resnet)
    assert encoder.backbone.body.model.embedder(torch.zeros(1, 3, 32, 32)).shape[-1] == 8
    rebuilt = Encoder(encoder.spec)
    rebuilt.load_state_dict(encoder.state_dict())
    assert "stem" not in Encoder(EncoderSpec(backbone="resnet18", dim=8, image_size=32)).spec.backbone_options
    with pytest.raises(ConfigError, match=r"small stem(.|\n)*--backbone-options\.stem"):
        build_backbone("resnet18", 3, 32, published_resnet, {"stem": "small"})


def test_pickled_weights_are_refused(published_resnet: Path, tmp_path: Path) -> None:
    import safetensors.torch

    (tmp_path / "config.json").write_bytes((published_resnet / "config.json").read_bytes())
    torch.save(safetensors.torch.load_file(published_resnet / "model.safetensors"), tmp_path / "pytorch_model.bin")
    with pytest.raises(ConfigError, match=r"model\.safetensors"):
        build_backbone("resnet18", 3, 32, tmp_path, {})


def test_damaged_weights_are_refused(published_resnet: Path, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_bytes((published_resnet / "config.json").read_bytes())
    (tmp_path / "model.safetensors").write_bytes((published_resnet / "model.safetensors").read_bytes()[:5000])
    with pytest.raises(ConfigError, match="Cannot read weights"):
        build_backbone("resnet18", 3, 32, tmp_path, {})


@pytest.mark.parametrize(("size", "patch"), [(28, 4), (30, 3), (32, 4), (48, 6), (64, 8), (8, 1), (96, 16)])
def test_the_patch_divides_every_small_image(size: int, patch: int) -> None:
    backbone = build_backbone("vit_s", 1, size, None, {"layers": 1})
    assert backbone.body.model.config.patch_size == patch
    assert backbone(torch.zeros(1, 1, size, size)).shape == (1, 384)


# --- the spec --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"dim": 0}, r"'dim' of the encoder is 0\.\nExpected: .*1"),
        ({"dim": "many"}, "'dim' of the encoder is 'many'"),
        ({"image_size": 4}, "'image_size' of the encoder is 4"),
        ({"image_size": [256, 4]}, r"is \[256, 4\]\.\nExpected: from 8 to 16,384 pixels per side"),
        ({"image_size": [256, 128, 3]}, r"\nExpected: pixels per side, such as 224; or height and width"),
        ({"image_size": "big"}, "'image_size' of the encoder is 'big'.*\n.*256x128"),
        ({"image_size": True}, "'image_size' of the encoder is True"),
        (
            {"image_size": 64, "centre_crop": [32, 65]},
            "'centre_crop' of the encoder is .*\n.*at most the image_size, 64",
        ),
        ({"centre_crop": 7}, "'centre_crop' of the encoder is 7.*\n.*from 8"),
        ({"centre_crop": "mid"}, "'centre_crop' of the encoder is 'mid'.*\n.*256x128"),
        ({"projection": "conv"}, "'linear', 'linear-bn', 'mlp', 'residual' or 'none'"),
        ({"fit": "stretch"}, "'crop', 'squash', 'crop-bicubic'"),
        ({"mean": (0.1, 0.2)}, r"'mean' of the encoder is \(0.1, 0.2\)\.\nExpected: one value, or 3"),
        ({"std": ()}, "'std' of the encoder is"),
        ({"std": (0.0,)}, "'std' of the encoder is .*\n.*above 0"),
        ({"std": (0.5, 0.5, -1.0)}, "above 0"),
        ({"mean": (float("nan"),)}, "'mean' of the encoder"),
        ({"channels": 1, "mean": (0.1, 0.2, 0.3)}, "one value, or 1"),
        ({"dimm": 3}, r"no option 'dimm'\. Did you mean 'dim'"),
    ],
)
def test_a_spec_that_cannot_be_built_is_refused(values: dict[str, object], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        encoder_spec(**values)


def test_a_spec_holds_what_was_given() -> None:
    spec = encoder_spec(dim=16, channels=1, fit="squash", mean=(0.1,), std=(0.2,))
    assert (spec.dim, spec.fit, spec.mean) == (16, "squash", (0.1,))
    assert EncoderSpec().fit == "crop" and EncoderSpec().model_dump() != EncoderSpec(fit="squash").model_dump()


def test_a_square_is_one_number_however_it_is_written() -> None:
    one = encoder_spec(dim=8, image_size=16)
    for size in ([16, 16], (16, 16), "16x16", "16"):
        other = encoder_spec(dim=8, image_size=size)
        assert other == one and other.model_dump_json() == one.model_dump_json()
    upright = encoder_spec(image_size=[256, 128])
    assert upright.model_dump(mode="json")["image_size"] == [256, 128]
    assert EncoderSpec.model_validate_json(upright.model_dump_json()) == upright == encoder_spec(image_size="256x128")
    assert upright.input_shape == (3, 256, 128) and upright.input_words == "3 × 256 × 128 pixels"


def test_what_is_written_of_a_spec_is_what_earlier_versions_wrote() -> None:
    """Fingerprints are made of this text: it was printed by a version that knew one number only."""
    assert encoder_spec(dim=8, image_size=16).model_dump_json() == (
        '{"dim":8,"projection":"linear","backbone":"convnet","channels":3,"image_size":16,"fit":"crop","mean":[0.5],'
        '"std":[0.5],"backbone_options":{}}'
    )


# --- the middle of an image ------------------------------------------------------------------------------------------


def test_the_middle_is_cut_out_and_of_an_odd_rest_the_larger_half_is_below() -> None:
    image = torch.arange(7 * 6).view(1, 1, 7, 6)
    assert central(image, (3, 2))[0, 0].tolist() == [[14, 15], [20, 21], [26, 27]]  # rows 2 to 4 of 7, columns 2 to 3
    assert central(image, (4, 6))[0, 0, :, 0].tolist() == [6, 12, 18, 24]  # one row above, two below
    assert torch.equal(central(image, (7, 6)), image)


def test_a_centre_crop_sees_the_middle_of_whole_images_and_all_of_crops() -> None:
    spec = encoder_spec(dim=8, image_size=[24, 20], centre_crop=[16, 12], channels=1)
    with seeded(0):
        whole = build_network(spec).eval()
    with seeded(0):
        plain = build_network(encoder_spec(dim=8, image_size=[16, 12], channels=1)).eval()
    images = torch.rand(2, 1, 24, 20, generator=torch.Generator().manual_seed(1))
    middle = images[:, :, 4:20, 4:16]
    assert torch.equal(whole(images), plain(middle))
    assert torch.equal(whole(middle), plain(middle)), "random crops of training come as the network sees them"
    edges = images.clone()
    edges[:, :, :4] = edges[:, :, 20:] = 0
    assert torch.equal(whole(edges), whole(images))
    larger = torch.nn.functional.interpolate(images, size=(48, 40), mode="nearest")
    assert whole(larger).shape == (2, 8) and not torch.equal(whole(larger), plain(larger))


def test_a_centre_crop_is_part_of_what_a_model_is_and_nothing_is_said_without() -> None:
    spec = encoder_spec(image_size=256, centre_crop=224)
    assert spec.model_dump(mode="json")["centre_crop"] == 224 and "centre_crop" not in EncoderSpec().model_dump()
    assert spec.input_shape == (3, 256, 256) and spec.seen_sides == (224, 224)
    assert spec.input_words == "3 × 256 × 256 pixels, of which the middle 224 × 224 are seen"
    assert EncoderSpec.model_validate_json(spec.model_dump_json()) == spec
    vit = build_network(encoder_spec(backbone="vit_s", image_size=40, centre_crop=32, backbone_options={"layers": 1}))
    assert vit.backbone.body.model.embeddings.position_embeddings.shape == (1, 8 * 8 + 1, 384)


@pytest.mark.parametrize(("name", "options"), [("normalised", {"temperature": 0.1}), ("arcface", {"scale": 10.0})])
def test_normalised_heads_score_cosines_times_their_scale(name: str, options: dict[str, float]) -> None:
    head, features = build_head(name, 5, 8, options), torch.randn(6, 8)
    cosines = torch.nn.functional.cosine_similarity(features[:, None], head.weight.detach(), dim=2)
    torch.testing.assert_close(head.logits(View.of(features, Hypersphere(8))).detach(), 10 * cosines)
