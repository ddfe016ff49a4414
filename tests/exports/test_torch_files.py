"""Files for other programs say what the parties' modules say, to 1e-5, for any number of rows; others are refused."""

import io
import warnings
from pathlib import Path

import numpy as np
import pytest
import torch
from command_line import colonnade as command
from torch import Tensor, nn

import colonnade
from colonnade.errors import RunError, SettingsError
from colonnade.exports.functions import PartyFunction, functions_of
from colonnade.exports.torch_files import exported_program, onnx_file, torchscript_file
from colonnade.launch.outcome import Outcome
from colonnade.models.bottom import BottomSettings, build_bottom
from colonnade.models.clipped import with_clip
from colonnade.models.network import network_for
from colonnade.privacy.noise import LayerNoise, PerturbationSettings


@pytest.fixture(scope="module")
def iris() -> colonnade.FederatedData:
    return colonnade.dataset("iris", parties=2)


@pytest.fixture(scope="module")
def outcome(iris: colonnade.FederatedData) -> Outcome:
    brief = colonnade.Training(epochs=0.5, batch_size=16)
    return colonnade.train(iris, "vafl", training=brief, privacy=PerturbationSettings(clip=0.5))


def test_onnx_files_of_all_parties_together_are_the_joint_model(
    iris: colonnade.FederatedData, outcome: Outcome, tmp_path: Path
) -> None:
    onnxruntime = pytest.importorskip("onnxruntime")
    outcome.save(tmp_path / "model")
    answer = command("export", tmp_path / "model", "--to", "onnx", "--out", tmp_path / "onnx", "--json")
    assert answer.code == 0, answer.err
    assert {Path(name).relative_to(tmp_path / "onnx") for name in answer.object["files"]} == {
        *(Path(name) / file for name in ("party1", "party2") for file in ("bottom.onnx", "about.json")),
        *(Path("label") / file for file in ("top.onnx", "about.json")),
    }
    rows = {name: held.test for name, held in iris.columns.items()}
    embeddings = {}
    for name, own in rows.items():
        session = onnxruntime.InferenceSession(tmp_path / "onnx" / name / "bottom.onnx")
        assert session.get_modelmeta().custom_metadata_map["colonnade.party"] == name
        assert session.get_modelmeta().custom_metadata_map["colonnade.columns"] == "\n".join(iris.columns[name].names)
        embeddings[name] = session.run(["embedding"], {"rows": own.numpy()})[0]
    session = onnxruntime.InferenceSession(tmp_path / "onnx" / "label" / "top.onnx")
    assert [one.name for one in session.get_inputs()] == list(outcome.order)
    outputs = session.run(["outputs"], embeddings)[0]
    assert np.allclose(outputs, outcome.outputs(rows).numpy(), atol=1e-5)
    assert (tmp_path / "onnx" / "label" / "top.onnx").stat().st_mode & 0o077 == 0


@pytest.mark.parametrize(("form", "file"), [("torchscript", "bottom.pt"), ("torch-export", "bottom.pt2")])
def test_pytorch_loads_what_was_written(
    form: str, file: str, iris: colonnade.FederatedData, outcome: Outcome, tmp_path: Path
) -> None:
    colonnade.export(outcome.model, form, tmp_path / "party1", party="party1")
    rows = iris.columns["party1"].test
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # TorchScript is deprecated
        content = io.BytesIO((tmp_path / "party1" / file).read_bytes())
        loaded = torch.jit.load(content) if form == "torchscript" else torch.export.load(content).module()
    (function,) = functions_of(outcome.model.parties["party1"])
    assert torch.allclose(loaded(rows), function.module(rows), atol=1e-5)


class Branching(nn.Module):
    """A user's own module that no exporter can follow."""

    def forward(self, rows: Tensor) -> Tensor:
        return rows * 2 if float(rows.sum()) > 0 else rows - 1


class Own(nn.Module):
    """A user's own module that they can."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(3, 4), nn.GELU(), nn.BatchNorm1d(4))

    def forward(self, rows: Tensor) -> Tensor:
        outputs: Tensor = self.layers(rows).abs()
        return outputs


def function_of(module: nn.Module, *shape: int) -> PartyFunction:
    return PartyFunction("bottom", module.eval(), {"rows": shape}, "embedding")


@pytest.mark.parametrize("make", [torchscript_file, exported_program, onnx_file])
def test_a_module_of_ones_own_works_or_is_refused(make: object, outcome: Outcome) -> None:
    if make is onnx_file:
        pytest.importorskip("onnxruntime")
    described = outcome.model.parties["party1"].description
    assert make(function_of(Own(), 3), described)  # type: ignore[operator]
    with pytest.raises((SettingsError, RunError), match="bottom model of party1") as refused:
        make(function_of(Branching(), 3), described)  # type: ignore[operator]
    assert "ranches that depend on values" in str(refused.value)


@pytest.mark.parametrize(("kind", "shape"), [("cnn", (1, 8, 8)), ("lstm", (5, 3)), ("multi-view", (2, 8, 8))])
def test_every_named_bottom_model_is_checked_as_it_is_written(
    kind: str, shape: tuple[int, ...], outcome: Outcome
) -> None:
    described = outcome.model.parties["party1"].description
    module = build_bottom(BottomSettings(kind=kind, hidden=(4,), channels=(2,)), shape)
    assert torchscript_file(function_of(module, *shape), described)
    assert exported_program(function_of(module, *shape), described)


@pytest.mark.parametrize(
    "module",
    [
        nn.Linear(3, 2),
        nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Sequential(nn.Linear(4, 2), nn.ReLU())),
        nn.Sequential(nn.Linear(3, 4), nn.GELU()),
    ],
)
def test_the_clip_stands_where_the_training_had_it(module: nn.Module) -> None:
    generator = torch.Generator().manual_seed(1)
    rows = torch.randn(20, 3, generator=generator) * 5
    with torch.no_grad():
        for weight in module.parameters():
            weight.copy_(torch.randn(weight.shape, generator=generator))
    trained = network_for(module).embed(rows, LayerNoise(PerturbationSettings(clip=0.5), torch.Generator()))
    assert torch.allclose(with_clip(module, 0.5)(rows), trained, atol=1e-6)
    assert not torch.allclose(module(rows), trained, atol=1e-2)
    assert with_clip(module, 0.0) is module


def test_wrong_calls_are_named(outcome: Outcome, tmp_path: Path) -> None:
    outcome.save(tmp_path / "model")
    refused = command("export", tmp_path / "nowhere", "--to", "onnx", "--out", tmp_path / "x")
    assert refused.code == 2 and "holds no model" in refused.err
    refused = command("export", tmp_path / "model", "--to", "coefficients", "--out", tmp_path / "x.csv")
    assert refused.code == 2 and "is not linear" in refused.err
    one = command(
        "export", tmp_path / "model" / "party1", "--to", "torchscript", "--party", "party2", "--out", tmp_path
    )
    assert one.code == 2 and "is the model of party1, and not of party2" in one.err
    (tmp_path / "file").write_text("")
    refused = command("export", tmp_path / "model", "--to", "torchscript", "--out", tmp_path / "file" / "x")
    assert refused.code == 1 and "could not be made" in refused.err


def test_a_linear_model_gives_and_takes_float32(iris: colonnade.FederatedData) -> None:
    model = colonnade.train(iris, "fcg", training=colonnade.Training(epochs=1)).model
    products = []
    for name in model.order:
        (function,) = functions_of(model.parties[name])
        assert torchscript_file(function, model.parties[name].description)
        products.append(function.module(iris.columns[name].test).detach())
    assert {one.dtype for one in products} == {torch.float32}
    (top,) = functions_of(model.parties["label"])
    rows = {name: held.test for name, held in iris.columns.items()}
    assert torch.allclose(top.module(*products).double(), model.outputs(rows).double(), atol=1e-5)
