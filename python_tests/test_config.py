"""Settings: the paper's defaults, files and overrides, typos answered."""

import pytest

from wpnode_ext.training.config import (
    TrainConfig,
    dotted_names,
    from_dict,
    load,
    resolve,
    to_dict,
)


@pytest.mark.parametrize(
    ("method", "window", "epochs", "patience", "min_delta"),
    [
        ("strong", 25, 300, 10, 1e-6),
        ("weak", 2, 20_000, 200, 1e-7),
        ("wp", 2, 20_000, 200, 1e-7),
    ],
)
def test_each_method_has_the_settings_the_paper_lists(
    method, window, epochs, patience, min_delta
) -> None:
    config = resolve(TrainConfig(method=method))
    optim = config.optim
    assert config.strong.window == window
    assert config.strong.stride == (1 if method == "strong" else 2)
    assert (optim.epochs, optim.patience, optim.min_delta) == (
        epochs,
        patience,
        min_delta,
    )
    assert (optim.lr, optim.batch_size, optim.name) == (2e-3, 2048, "adam")
    assert (optim.plateau_factor, optim.min_lr) == (0.5, 1e-6)
    assert (config.weak.p, config.weak.ell, config.weak.q, config.lam) == (
        8,
        50,
        2,
        0.5,
    )
    strong = config.strong
    assert (strong.solver, strong.rtol, strong.atol) == ("dopri5", 1e-6, 1e-6)


def test_what_the_user_sets_is_not_replaced() -> None:
    config = load(
        TrainConfig, None, ["method=strong", "strong.window=6", "optim.epochs=2"]
    )
    config = resolve(config)
    assert (config.strong.window, config.optim.epochs, config.optim.patience) == (
        6,
        2,
        10,
    )


def test_files_are_merged_over_defaults_and_overrides_over_files(
    tmp_path,
) -> None:
    path = tmp_path / "run.yaml"
    path.write_text("method: weak\nweak: {ell: 20, p: 4}\nfield: {hidden: [8, 8]}\n")
    config = load(TrainConfig, path, ["weak.p=6", "optim.clip=1"])
    assert (config.method, config.weak.ell, config.weak.p) == ("weak", 20, 6)
    assert config.field.hidden == [8, 8] and config.optim.clip == 1.0
    assert config.weak.q == 0 and resolve(config).weak.q == 2


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("weak.el=20", "`weak.el` is not a setting. Did you mean `weak.ell`?"),
        ("ell=20", "Did you mean `weak.ell`?"),
        ("metod=weak", "Did you mean `method`?"),
        ("optim.lerning_rate=1", "`optim.lerning_rate` is not a setting."),
        ("method=wek", "`method`: Invalid value 'wek'"),
        ("optim.lr=fast", "`optim.lr`: Value 'fast'"),
        ("weak.ell", "overrides must read key=value; got 'weak.ell'"),
    ],
)
def test_mistakes_are_answered_with_the_nearest_right_key(override, message) -> None:
    with pytest.raises(ValueError) as caught:
        load(TrainConfig, None, [override])
    assert message in str(caught.value)


def test_mistakes_in_a_file_name_the_file(tmp_path) -> None:
    path = tmp_path / "run.yaml"
    path.write_text("weak:\n  elll: 20\n")
    with pytest.raises(ValueError, match=r"run\.yaml: `weak\.elll`.*`weak\.ell`"):
        load(TrainConfig, path)
    path.write_text("- 1\n- 2\n")
    with pytest.raises(ValueError, match="expected `key: value`"):
        load(TrainConfig, path)


def test_settings_survive_the_way_through_builtin_types() -> None:
    config = load(TrainConfig, None, ["weak.ell=12", "field.hidden=[3]", "seed=7"])
    assert from_dict(TrainConfig, to_dict(config)) == config
    with pytest.raises(KeyError, match="is not a setting"):
        from_dict(TrainConfig, {"sed": 1})


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (["optim.batch_size=0"], "`optim.batch_size` must be >= 1"),
        (["validation.fraction=1.0"], r"`validation.fraction` must lie in \[0, 1\)"),
    ],
)
def test_values_out_of_range_are_refused(overrides, message) -> None:
    with pytest.raises(ValueError, match=message):
        resolve(load(TrainConfig, None, overrides))
    with pytest.raises(ValueError, match="`method` must be one of"):
        resolve(TrainConfig(method="magic"))  # type: ignore[arg-type]


def test_dotted_names_reach_every_leaf() -> None:
    names = dotted_names(TrainConfig)
    assert {"method", "weak", "weak.ell", "optim.plateau_patience"} <= set(names)
