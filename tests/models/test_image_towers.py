"""Image towers of the transformers library from folders: small ones of random weights, saved as they are published."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from safetensors.torch import load_file, save_file

from limpet import load_release, save_release
from limpet.errors import ConfigError, LimpetError
from limpet.models.image_towers import image_input_of, open_tower, rebuild
from limpet.models.module_origin import ModuleOrigin
from limpet.models.named_models import open_release
from limpet.models.own_modules import module_encoder
from limpet.models.published_weights import quietly
from limpet.models.release import release_of
from limpet.models.seeding import seeded

SMALL = {"hidden_size": 16, "num_attention_heads": 2, "num_hidden_layers": 2}
VISION = {**SMALL, "intermediate_size": 16, "image_size": 32, "patch_size": 16}
TEXT = {
    **SMALL,
    "num_hidden_layers": 1,
    "intermediate_size": 16,
    "vocab_size": 20,
    "bos_token_id": 0,
    "eos_token_id": 1,
}
MEAN, STD = [0.4, 0.5, 0.6], [0.2, 0.3, 0.4]
PROCESSOR = {
    "do_resize": True, "size": {"shortest_edge": 36}, "do_center_crop": True, "crop_size": {"height": 32, "width": 32},
    "resample": 3, "do_rescale": True, "rescale_factor": 1 / 255, "do_normalize": True, "image_mean": MEAN,
    "image_std": STD,
}  # fmt: skip


def dinov2(**more: Any) -> Any:
    return transformers.Dinov2Config(**SMALL, mlp_ratio=2, image_size=28, patch_size=14, **more)


def clip() -> Any:
    return transformers.CLIPConfig(text_config=TEXT, vision_config=VISION, projection_dim=12)


MODELS: dict[str, Callable[[], Any]] = {
    "dinov2": lambda: transformers.Dinov2Model(dinov2()),
    "dinov2 backbone": lambda: transformers.Dinov2Backbone(dinov2(out_features=["stage2"])),
    "clip": lambda: transformers.CLIPModel(clip()),
    "siglip": lambda: transformers.SiglipModel(transformers.SiglipConfig(text_config=TEXT, vision_config=VISION)),
    "vit": lambda: transformers.ViTModel(transformers.ViTConfig(**VISION), add_pooling_layer=False),
}


def saved(name: str, folder: Path) -> tuple[Path, Any]:
    """Save a model as it is published, and return it too."""
    with seeded(0), quietly():
        model = MODELS[name]().eval()
        model.save_pretrained(folder)
    (folder / "preprocessor_config.json").write_text(json.dumps(PROCESSOR))
    return folder, model


def of_clip(model: Any, pixels: torch.Tensor) -> torch.Tensor:
    return model.visual_projection(model.vision_model(pixels).pooler_output)


EMBEDS: dict[str, Callable[[Any, torch.Tensor], torch.Tensor]] = {
    "dinov2": lambda model, pixels: model(pixels).pooler_output,
    "dinov2 backbone": lambda model, pixels: model(pixels).feature_maps[-1].mean((2, 3)),
    "clip": of_clip,
    "siglip": lambda model, pixels: model.vision_model(pixels).pooler_output,
    "vit": lambda model, pixels: model(pixels).last_hidden_state[:, 0],
}


@pytest.mark.parametrize("name", MODELS)
def test_towers_embed_what_the_library_does_and_come_back(name: str, tmp_path: Path) -> None:
    folder, model = saved(name, tmp_path / "model")
    opened = open_tower(str(folder))
    encoder = module_encoder(opened.module, opened.image_input, output=opened.output, origin=opened.origin)
    images = torch.randint(0, 256, (2, 3, 36, 36), dtype=torch.uint8)
    middle = images[..., 2:34, 2:34].float() / 255
    pixels = (middle - torch.tensor(MEAN).view(1, 3, 1, 1)) / torch.tensor(STD).view(1, 3, 1, 1)
    with torch.no_grad():
        torch.testing.assert_close(encoder(images), EMBEDS[name](model, pixels), rtol=1e-5, atol=1e-5)
    made = release_of(encoder)
    release = save_release(made, tmp_path / "release")
    shutil.rmtree(folder)
    again = load_release(release)
    assert again.fingerprint == made.fingerprint and torch.equal(again.encoder(images), encoder(images))


def test_weights_may_stay_where_they_are(tmp_path: Path) -> None:
    folder, _ = saved("dinov2", tmp_path / "model")
    kept, copied = open_release(f"hf:{folder}", weights="keep"), open_release(f"hf:{folder}")
    assert kept.fingerprint == copied.fingerprint
    release = save_release(kept, tmp_path / "release")
    assert (release / "model.safetensors").stat().st_size < 100
    assert load_release(release).fingerprint == kept.fingerprint
    folder.rename(tmp_path / "elsewhere")
    with pytest.raises(ConfigError, match=r"(?s)is not there.*--over hf:FOLDER"):
        load_release(release)
    assert open_release(release, f"hf:{tmp_path / 'elsewhere'}").fingerprint == kept.fingerprint
    with seeded(1), quietly():
        MODELS["dinov2"]().save_pretrained(tmp_path / "elsewhere")
    with pytest.raises(LimpetError, match=r"weights of .* changed since"):
        open_release(release, f"hf:{tmp_path / 'elsewhere'}")


def test_the_place_of_a_folder_is_no_part_of_the_identity(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder, _ = saved("dinov2", tmp_path / "model")
    before = open_release(f"hf:{folder}").fingerprint
    monkeypatch.chdir(tmp_path)
    assert open_release("hf:model").fingerprint == before
    settings = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**settings, "transformers_version": "9.9"}))
    assert open_release("hf:model").fingerprint == before
    (folder / "config.json").write_text(json.dumps({**settings, "layer_norm_eps": 1e-2}))
    assert open_release("hf:model").fingerprint != before


def contract(tmp_path: Path, **changed: Any) -> Any:
    given = {name: value for name, value in {**PROCESSOR, **changed}.items() if value is not None}
    (tmp_path / "preprocessor_config.json").write_text(json.dumps(given))
    return image_input_of(tmp_path / "preprocessor_config.json")


def test_the_image_processor_decides_what_is_done_to_images(tmp_path: Path) -> None:
    found = contract(tmp_path)
    assert (found.image_size, found.centre_crop, found.fit) == ((36, 36), (32, 32), "crop-bicubic")
    assert found.mean == pytest.approx(MEAN) and found.std == pytest.approx(STD)
    plain = contract(tmp_path, size={"height": 30, "width": 20}, do_center_crop=False, resample=2, do_normalize=False)
    assert (plain.image_size, plain.centre_crop, plain.fit) == ((30, 20), None, "squash")
    assert plain.mean == (0.0,) and plain.std == pytest.approx((1.0,))
    assert contract(tmp_path, do_rescale=False, do_normalize=False).std == pytest.approx((1 / 255,))
    convnext = contract(tmp_path, size={"shortest_edge": 224}, do_center_crop=None, crop_size=None, crop_pct=0.875)
    assert (convnext.image_size, convnext.centre_crop) == ((256, 256), (224, 224))


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"size": None}, "to which height and width"),
        ({"do_resize": False}, "do_resize=False"),
        ({"do_center_crop": False}, "shortest_edge with a crop_size"),
        ({"resample": 0}, "interpolation 0"),
    ],
)
def test_a_processor_that_says_too_little_is_refused(changed: dict[str, Any], message: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=message):
        contract(tmp_path, **changed)


def drop_weights(folder: Path) -> None:
    (folder / "model.safetensors").unlink()


def other_size(folder: Path) -> None:
    settings = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**settings, "num_hidden_layers": 3}))


def with_setting(name: str, value: object) -> Callable[[Path], object]:
    def change(folder: Path) -> None:
        settings = json.loads((folder / "config.json").read_text())
        (folder / "config.json").write_text(json.dumps({**settings, name: value}))

    return change


def write(name: str, text: str) -> Callable[[Path], object]:
    return lambda folder: (folder / name).write_text(text)


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (drop_weights, "Cannot read weights"),
        (other_size, "lack .* parts"),
        (lambda folder: (folder / "preprocessor_config.json").unlink(), "what is done to images"),
        (lambda folder: (folder / "config.json").unlink(), r"(?s)holds .*with config\.json"),
        (write("config.json", '{"model_type": "own", "auto_map": {"AutoModel": "code.Own"}}'), "never run"),
        (with_setting("attn_implementation", "kernels-community/flash-attn"), "code from elsewhere could run"),
        (with_setting("vision_config", {"_attn_implementation": {"": "flash_attention_2"}}), "code from elsewhere"),
        (write("config.json", '{"model_type": "bert"}'), r"(?s)takes no images.*st:FOLDER"),
        (write("config.json", "{"), "Cannot read"),
    ],
)
def test_a_folder_that_is_no_image_model_is_refused(
    damage: Callable[[Path], object], message: str, tmp_path: Path
) -> None:
    folder, _ = saved("dinov2", tmp_path / "model")
    damage(folder)
    with pytest.raises(ConfigError, match=message):
        open_tower(str(folder))


@pytest.mark.parametrize(
    "asked",
    [
        {"class": "pipeline", "options": {"model": "nobody/nothing", "trust_remote_code": True}},
        {"class": "Dinov2Config"},
        {"class": "Dinov2Model", "options": {"attn_implementation": "kernels-community/flash-attn"}},
        {"settings": {"model_type": "dinov2", "attn_implementation": "kernels-community/flash-attn"}},
        {"settings": {"model_type": "timm_wrapper", "model_args": {"checkpoint_path": "weights.pth"}}},
    ],
)
def test_the_record_of_a_release_names_networks_alone(asked: dict[str, Any], tmp_path: Path) -> None:
    folder, _ = saved("dinov2", tmp_path / "model")
    origin = ModuleOrigin(**open_tower(str(folder)).origin, class_name="", output="")
    rebuild(origin)
    with pytest.raises(ConfigError, match=r"nothing else is ever run|code from elsewhere could run"):
        rebuild(origin.model_copy(update={"config": {**origin.config, **asked}}))


def test_what_is_not_on_this_machine_is_not_downloaded() -> None:
    with pytest.raises(ConfigError, match=r"(?s)no folder 'nobody/nothing', and the hub's cache.*hf download"):
        open_release("hf:nobody/nothing")
    with pytest.raises(ConfigError, match="no folder 'nothing'"):
        open_release("hf:nothing")


@pytest.mark.filterwarnings("ignore:`is_gradient_checkpointing`:FutureWarning")  # of peft
@pytest.mark.parametrize("whole", [True, False])
def test_an_addition_to_weights_is_refused_and_the_merged_model_is_taken(whole: bool, tmp_path: Path) -> None:
    """As peft saves it, alone and beside the weights that it is an addition to."""
    peft = pytest.importorskip("peft")
    folder, model = saved("dinov2", tmp_path / "base")
    with seeded(1), quietly():
        adapted = peft.get_peft_model(model, peft.LoraConfig(r=2, target_modules="all-linear", init_lora_weights=False))
        adapted.save_pretrained(folder if whole else tmp_path / "lora")
    with pytest.raises(ConfigError, match=r"(?s)adapter_config.json.*merge_and_unload"):
        open_release(f"hf:{folder if whole else tmp_path / 'lora'}")
    merged = tmp_path / "merged"
    with quietly():
        adapted.merge_and_unload().save_pretrained(merged)
    shutil.copy(folder / "preprocessor_config.json", merged)
    images = torch.randint(0, 256, (2, 3, 36, 36), dtype=torch.uint8)
    pixels = (images[..., 2:34, 2:34].float() / 255 - torch.tensor(MEAN).view(1, 3, 1, 1)) / torch.tensor(STD).view(
        1, 3, 1, 1
    )
    with torch.no_grad():
        expected = model(pixels).pooler_output
        torch.testing.assert_close(open_release(f"hf:{merged}").encoder(images), expected, rtol=1e-5, atol=1e-5)


def test_quantised_weights_are_refused(tmp_path: Path) -> None:
    folder, _ = saved("clip", tmp_path / "model")
    settings = json.loads((folder / "config.json").read_text())
    settings["vision_config"]["quantization_config"] = {"quant_method": "bitsandbytes", "load_in_8bit": True}
    said = tmp_path / "said"
    shutil.copytree(folder, said)
    (said / "config.json").write_text(json.dumps(settings))
    with pytest.raises(ConfigError, match=r"(?s)quantised: config.json.*dequantize"):
        open_release(f"hf:{said}")
    weights = load_file(folder / "model.safetensors")
    name = next(name for name in weights if name.endswith("q_proj.weight"))
    weights[name] = (127 * weights[name]).round().to(torch.int8)
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(ConfigError, match=r"quantised: 'model.safetensors' has arrays of I8"):
        open_release(f"hf:{folder}")
